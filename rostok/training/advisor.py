"""The run advisor: one sentence on what probably went wrong, and what to try. It looks, it never touches the training.

    advisor = Advisor(AdvisorState(), vocab_size, warmup_steps)
    for line in advisor.after_step(step, loss, norm): print(line)

What it knows: NaN or Inf (`check_finite`, the only one that stops a run), a spike of the loss (z-score over the last
steps), a loss that stays at ln V, a gradient of exactly zero, a validation loss that rises while the training loss
falls. What can be known before a run begins: preflight.py.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rostok.errors import UserError
from rostok.training.folder import last_checkpoint_hint

WINDOW = 100  # losses that a new one is compared with
QUIET = 100  # steps for which the same advice is not repeated


@dataclass
class AdvisorState:
    """What the advisor remembers; it travels in state.json, so that a resumed run is advised like any other."""

    losses: list[float] = field(default_factory=list)  # of the last WINDOW steps
    evaluations: list[tuple[float, float]] = field(
        default_factory=list
    )  # (training, validation) loss, the last 3
    told: dict[str, int] = field(default_factory=dict)  # advice -> the step at which it was given


def check_finite(step: int, figures: Mapping[str, float], run: Path) -> None:
    """Raise UserError when one of these figures (name -> value) is not a finite number: the run must not go on."""
    for name, value in figures.items():
        if not math.isfinite(value):
            raise UserError(
                f"step {step}: the {name} is {value}; stopped, so that no checkpoint is spoilt. "
                f"{last_checkpoint_hint(run)} Most often the learning rate is too high: start again with half of it "
                "(--fresh optim.lr=...) or with a longer schedule.warmup_steps"
            )


class Advisor:
    """Looks at every step and every evaluation; gives sentences, mostly none."""

    def __init__(self, state: AdvisorState, vocab_size: int, warmup_steps: int) -> None:
        self.state, self.guess, self.warmup = state, math.log(vocab_size), warmup_steps

    def after_step(self, step: int, loss: float, norm: float) -> list[str]:
        losses = self.state.losses
        advice = []
        if norm == 0.0:
            advice.append(
                (
                    "zero",
                    f"step {step}: the gradient is exactly zero, so nothing is learnt: is a part frozen?",
                )
            )
        if (z := spike(losses, loss)) > 6:
            advice.append((
                "spike",
                f"step {step}: the loss jumped to {loss:.2f}, {z:.0f} standard deviations above the last "
                f"{len(losses)}; if it does not come back, try a lower optim.lr or optim.clip",
            ))  # fmt: skip
        losses.append(loss)
        del losses[:-WINDOW]
        if step >= self.warmup + WINDOW and statistics.fmean(losses) > self.guess - 0.1:
            advice.append((
                "plateau",
                f"step {step}: the loss is still that of guessing, ln V = {self.guess:.2f}: the rate is far too low or "
                "far too high, or the text is noise",
            ))  # fmt: skip
        return self.news(step, advice)

    def after_evaluation(self, step: int, valid_loss: float) -> list[str]:
        state = self.state
        mean = statistics.fmean(state.losses) if state.losses else math.nan
        state.evaluations = [*state.evaluations, (mean, valid_loss)][-3:]
        if len(state.evaluations) < 3:
            return []
        (t1, v1), (_, v2), (t3, v3) = state.evaluations
        if v1 < v2 < v3 and t3 < t1:
            return self.news(step, [(
                "overfitting",
                f"step {step}: the validation loss rises ({v1:.3f} to {v3:.3f}) while the training loss falls: the "
                "model learns the texts by heart. Use RUN/best, more text, a smaller model, or early_stop=3",
            )])  # fmt: skip
        return []

    def news(self, step: int, advice: list[tuple[str, str]]) -> list[str]:
        """What was not said in the last QUIET steps."""
        told = self.state.told
        fresh = [(kind, text) for kind, text in advice if step - told.get(kind, -QUIET) >= QUIET]
        told.update({kind: step for kind, _ in fresh})
        return [text for _, text in fresh]


def spike(losses: list[float], loss: float) -> float:
    """How many standard deviations `loss` lies above the losses before it; 0 while there are fewer than 20 of them."""
    if len(losses) < 20:
        return 0.0
    spread = max(statistics.stdev(losses), 0.02)  # no alarm in a very quiet stretch
    return (loss - statistics.fmean(losses)) / spread
