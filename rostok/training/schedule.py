"""Learning-rate schedules as pure functions: step -> share of the peak rate, in (0, 1]; how many steps to plan.

With `max_minutes` the number of steps is not known beforehand: `planned_steps` derives it from the time that the
steps took so far, and `StepPlan` writes each new plan down before it is used. A run that is killed and resumed reads
the same plans at the same steps, so its learning rates are the same bits.
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rostok.errors import UserError
from rostok.files import write_file


@dataclass(frozen=True)
class ScheduleConfig:
    """Warm-up, then `kind`. `wsd` (warm-up, stable, decay) stays at 1 and falls linearly in the last `decay_share`."""

    kind: Annotated[
        Literal["constant", "linear", "cosine", "wsd"], "course of the rate after the warm-up"
    ] = "wsd"
    warmup_steps: Annotated[int, Field(ge=0), "steps in which the rate rises from 0 to its peak"] = 20
    decay_share: Annotated[
        float, Field(gt=0, le=1), "wsd: the last share of the steps, where the rate falls"
    ] = 0.5
    final: Annotated[float, Field(ge=0, le=1), "the rate at the end, as a share of the peak"] = 0.0
    max_minutes: Annotated[float, Field(ge=0, le=1e6), "end by then, the schedule too; 0: no limit"] = 0.0


def multiplier(config: ScheduleConfig, step: int, steps: int) -> float:
    """The share of the peak rate at `step` (0-based) of `steps`. The first step's share is above 0.

    >>> [round(multiplier(ScheduleConfig("linear", warmup_steps=2), s, 6), 3) for s in range(6)]
    [0.333, 0.667, 1.0, 0.75, 0.5, 0.25]
    >>> [multiplier(ScheduleConfig("wsd", warmup_steps=0, decay_share=0.5), s, 8) for s in range(8)]
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if step < config.warmup_steps:
        return (step + 1) / (config.warmup_steps + 1)
    return share_left(config, (step - config.warmup_steps) / max(1, steps - config.warmup_steps))


def share_left(config: ScheduleConfig, progress: float) -> float:
    """The multiplier after warm-up; `progress` runs from 0 to 1 (below 1 at the last step)."""
    progress = min(max(progress, 0.0), 1.0)
    if config.kind == "constant":
        left = 1.0
    elif config.kind == "linear":
        left = 1.0 - progress
    elif config.kind == "cosine":
        left = 0.5 * (1.0 + math.cos(math.pi * progress))
    else:
        left = min(1.0, (1.0 - progress) / config.decay_share)
    return config.final + (1.0 - config.final) * left


def change_of_plan(config: ScheduleConfig, step: int, before: int, now: int) -> str:
    """What becomes of the rate when a run of `before` steps goes on from `step` with a plan of `now` steps.

    >>> change_of_plan(ScheduleConfig("linear", warmup_steps=0), 90, 100, 200)
    'the rate is at 10% of its peak and goes on at 55%'
    """
    old, new = multiplier(config, min(step, before), before), multiplier(config, min(step, now), now)
    return (
        f"the rate is at {old:.0%} of its peak and goes on at {new:.0%}"
        if f"{old:.0%}" != f"{new:.0%}"
        else ""
    )


def check_schedule(config: ScheduleConfig, steps: int) -> None:
    """Raise UserError when the warm-up is longer than the run."""
    if config.warmup_steps > steps:
        raise UserError(
            f"schedule.warmup_steps is {config.warmup_steps}, but the run has {steps} steps; "
            f"lower it (schedule.warmup_steps={steps // 10}) or train longer"
        )


def planned_steps(step: int, seconds: float, start_up: float, budget: float) -> int:
    """How many steps fit into `budget` seconds, when `step` of them took `seconds`, `start_up` of these only once.

    Never fewer than `step`.

    >>> planned_steps(step=11, seconds=25.0, start_up=5.0, budget=105.0)  # 2 s a step, 80 s are left
    51
    """
    per_step = max(seconds - start_up, 1e-9) / max(step - 1, 1)  # the first step is in start_up
    return step + max(0, math.floor((budget - seconds) / per_step))


class StepPlan:
    """The number of steps of a run: fixed, or revised on the way. The revisions are kept in `path`, a JSON object."""

    def __init__(self, path: Path, config: ScheduleConfig, most: int) -> None:
        self.path, self.most, self.budget = path, most, 60 * config.max_minutes
        self.revisions: dict[int, int] = {}  # after so many steps: so many in all

    def load(self) -> None:
        """Read the plans that earlier starts of this run have made. Raises UserError for a damaged file."""
        if not self.budget or not self.path.is_file():
            return
        try:
            self.revisions = {int(at): int(n) for at, n in json.loads(self.path.read_text("utf-8")).items()}
            if any(n < 1 for n in self.revisions.values()):
                raise ValueError
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            raise UserError(
                f"{self.path} is damaged; delete it and the steps are planned again from here"
            ) from None

    def steps(self, step: int) -> int:
        """The plan that holds after `step` steps: what fits into the time, and never more than the run's own steps."""
        known = [at for at in self.revisions if at <= step]
        return min(self.most, self.revisions[max(known)]) if known else self.most

    def due(self, step: int, every: int) -> bool:
        """True every `every` steps and at powers of two (the first steps can be slow), unless a plan for this step is
        already stored."""
        beat = step % every == 0 or step.bit_count() == 1
        return beat and self.budget > 0 and step > max(self.revisions, default=1)  # one step tells nothing

    def revise(self, step: int, steps: int, write: bool = True) -> None:
        """Let `steps` hold from `step` on, written to the disk first. A full disk costs a warning, not the run."""
        self.revisions[step] = steps
        try:
            if write:
                write_file(self.path, json.dumps(self.revisions) + "\n", durable=True)
        except OSError as error:
            print(f"warning: cannot write {self.path}: {error.strerror}; going on without", file=sys.stderr)
