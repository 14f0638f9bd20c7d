"""Learning-rate schedules as pure functions: step -> multiplier of the peak rate, in (0, 1]."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from rostok.errors import UserError


@dataclass(frozen=True)
class ScheduleConfig:
    """Warm-up, then `kind`. `wsd` (warm-up, stable, decay) stays at 1 and falls linearly in the last `decay_share`."""

    kind: Literal["constant", "linear", "cosine", "wsd"] = "wsd"
    warmup_steps: Annotated[int, Field(ge=0)] = 20
    decay_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    final: Annotated[float, Field(ge=0, le=1)] = 0.0


def multiplier(config: ScheduleConfig, step: int, steps: int) -> float:
    """The share of the peak rate at `step` (0-based) of `steps`. The first step's share is above 0.

    >>> [round(multiplier(ScheduleConfig("linear", warmup_steps=2), s, 6), 3) for s in range(6)]
    [0.333, 0.667, 1.0, 0.75, 0.5, 0.25]
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


def check_schedule(config: ScheduleConfig, steps: int) -> None:
    """Raise UserError when the warm-up is longer than the run."""
    if config.warmup_steps > steps:
        raise UserError(
            f"schedule.warmup_steps is {config.warmup_steps}, but the run has {steps} steps; "
            f"lower it (schedule.warmup_steps={steps // 10}) or train longer"
        )
