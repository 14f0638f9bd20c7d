"""What the console, --check and --verify-resume ask of a training; train.Training is one."""

from pathlib import Path
from typing import Any, Protocol

from rostok.text.shards import Data
from rostok.text.tokenizer import Tokenizer
from rostok.training.folder import Checkpoint
from rostok.training.heldout import HeldOut
from rostok.training.loader import Feed
from rostok.training.optim import Optimizer
from rostok.training.ranks import Ranks
from rostok.training.runtime import Runtime
from rostok.training.schedule import StepPlan


class Trained(Protocol):
    """A run in training: its parts, and what can be asked of it."""

    config: Any  # train.TrainConfig
    state: Any  # train.State
    run: Path
    data: Data
    model: Any  # model.GPT or model.WindowMLP
    tokenizer: Tokenizer
    optimizer: Optimizer
    plan: StepPlan
    feed: Feed
    held_out: HeldOut
    runtime: Runtime
    ranks: Ranks
    say: Any  # console.Speaker
    clock: float  # time.perf_counter() at the run's first step, had it never been interrupted
    flops: float  # of one token
    accumulate: int

    @property
    def finished(self) -> bool: ...
    def due(self, *every: int) -> bool: ...
    def load(self, checkpoint: Checkpoint) -> None: ...
    def compile(self) -> None: ...
    def step(self) -> tuple[float, float]: ...
    def record(self) -> dict[str, Any]: ...
    def provenance(self) -> dict[str, Any]: ...
