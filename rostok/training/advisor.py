"""The run advisor: one sentence on what probably went wrong, and what to try. It looks, it never touches the training.

    advisor = Advisor(AdvisorState(), vocab_size, warmup_steps)
    for line in advisor.after_step(step, loss, norm): print(line)

What it knows: NaN or Inf (`check_finite`, the only one that stops a run), a spike of the loss (z-score over the last
steps), a loss that stays at ln V, a gradient of exactly zero, a held-out loss that rises while the training loss falls.
`objections` looks at a run before it begins; `refuse_what_cannot_fit` before the model is built.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rostok.errors import UserError

WINDOW = 100  # losses that a new one is compared with
QUIET = 100  # steps for which the same advice is not repeated


@dataclass
class AdvisorState:
    """What the advisor remembers; it travels in state.json, so that a resumed run is advised like any other."""

    losses: list[float] = field(default_factory=list)  # of the last WINDOW steps
    evaluations: list[tuple[float, float]] = field(
        default_factory=list
    )  # (training, held-out) loss, the last 3
    told: dict[str, int] = field(default_factory=dict)  # advice -> the step at which it was given


def check_finite(step: int, figures: Mapping[str, float], kept: Callable[[], str]) -> None:
    """Raise UserError when one of these figures (name -> value) is no number: the run must not go on with it.

    kept: a sentence on what is left; asked for only then.
    """
    for name, value in figures.items():
        if not math.isfinite(value):
            raise UserError(
                f"step {step}: the {name} is {value}; stopped, so that no checkpoint is spoilt. {kept()} Most often "
                "the learning rate is too high: start anew with half of it (--fresh optim.lr=...) or with a longer "
                "schedule.warmup_steps"
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
                f"step {step}: the held-out loss rises ({v1:.3f} to {v3:.3f}) while the training loss falls: the model "
                "learns the texts by heart. Use RUN/best, more text, a smaller model, or early_stop=3",
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
    spread = max(statistics.stdev(losses), 0.02)  # a very quiet stretch is no reason for alarm
    return (loss - statistics.fmean(losses)) / spread


@dataclass(frozen=True)
class Outlook:
    """What is known of a run before its first step."""

    parameters: int
    tokens: int
    epochs: float
    held_out_rows: int
    seconds: float
    memory: int  # bytes, as measured over the timed steps
    memory_there: int
    disk: int  # bytes of the checkpoints
    disk_there: int
    lr: float
    steps: int
    warmup_steps: int
    save_every: int


def objections(run: Outlook) -> list[str]:
    """What is wrong with a run that has not begun, or will be; a sentence each."""
    found = []
    if run.epochs > 8:
        found.append(
            f"every text is seen {run.epochs:.0f} times: expect overfitting; more text or fewer tokens="
        )
    if run.tokens < run.parameters:
        found.append(
            f"{run.tokens / run.parameters:.1f} tokens a parameter: a large model for so short a run; 20 are usual"
        )
    if run.held_out_rows < 16:
        found.append(f"only {run.held_out_rows} held-out rows: the held-out loss will be noisy")
    if run.lr > 1e-2:
        found.append(f"optim.lr={run.lr:g} is high: 1e-3 to 5e-3 is usual for models of this size")
    if run.seconds > 24 * 3600:
        found.append(f"it will take {run.seconds / 3600:.0f} hours: set schedule.max_minutes, or use a GPU")
    if run.memory > 0.9 * run.memory_there:
        found.append(
            f"it needs {gigabytes(run.memory)} of {gigabytes(run.memory_there)}: halve batch, double accumulate"
        )
    if run.disk > run.disk_there:
        found.append(
            f"checkpoints need {gigabytes(run.disk)}, the disk has {gigabytes(run.disk_there)}: make room"
        )
    if run.warmup_steps > run.steps:
        found.append(
            f"schedule.warmup_steps={run.warmup_steps} is longer than the {run.steps} steps that fit into the time: "
            f"schedule.warmup_steps={run.steps // 10}"
        )
    if run.save_every > run.steps:
        found.append(
            f"save_every={run.save_every} is longer than the run ({run.steps} steps): a kill loses all of it"
        )
    return found


class Sizes(Protocol):
    """What the arithmetic of a model's config says (model.py)."""

    @property
    def parameters(self) -> int: ...
    @property
    def kept_bytes(self) -> int: ...
    @property
    def context(self) -> int: ...


def refuse_what_cannot_fit(model: Sizes, batch: int, there: int) -> None:
    """Raise UserError when a training step needs more than the `there` bytes of memory. Nothing is built for it.

    A lower bound: weight, gradient and two moments of each parameter in fp32, and what the backward pass must keep.
    """
    weights, row = 16 * model.parameters, model.kept_bytes * model.context
    if weights + batch * row <= there:
        return
    rows = (there - weights) // row
    if weights > there:
        hint = f"at most {there // 16:,} parameters fit: lower model.d_model, model.n_layer or the vocabulary"
    elif rows:
        hint = f"type batch={rows} or less, and more accumulate"
    else:
        hint = f"type model.context={max(1, (there - weights) // model.kept_bytes)} or less"
    raise UserError(
        f"training needs at least {gigabytes(weights + batch * row)} of memory, and {gigabytes(there)} are there "
        f"({model.parameters:,} parameters, batches of {batch:,} x {model.context:,} tokens); {hint}"
    )


def gigabytes(size: float) -> str:
    """
    >>> gigabytes(1_288_490_188)
    '1.2 GiB'
    """
    return f"{size / 2**30:,.1f} GiB"
