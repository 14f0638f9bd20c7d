"""The processes of one training, as torchrun starts them; a plain run is rank 0 of 1.

with process_group(ranks(), device): ...
"""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rostok.errors import UserError


@dataclass(frozen=True)
class Ranks:
    """This process among those of one training: `rank` of `world`; `local` counts on its own machine."""

    rank: int = 0
    world: int = 1
    local: int = 0

    @property
    def first(self) -> bool:
        """The one that prints and writes."""
        return self.rank == 0

    def share(self, batch: int, accumulate: int) -> tuple[int, int]:
        """(batch, accumulate) of this process, so that all together make the rows of one process. Raises UserError."""
        if accumulate % self.world == 0:
            return batch, accumulate // self.world
        if (batch * accumulate) % self.world == 0 and batch * accumulate // self.world <= batch:
            return batch * accumulate // self.world, 1
        if batch % self.world == 0:
            return batch // self.world, accumulate
        raise UserError(
            f"batch={batch} times accumulate={accumulate} rows do not divide among {self.world} processes; "
            f"try batch={self.world * max(1, round(batch / self.world))}"
        )


def ranks() -> Ranks:
    """What torchrun says in the environment; without it, one process."""
    number = {key: int(os.environ.get(key, default)) for key, default in ENVIRONMENT.items()}
    return Ranks(number["RANK"], number["WORLD_SIZE"], number["LOCAL_RANK"])


ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


@contextlib.contextmanager
def process_group(ranks: Ranks, device: torch.device) -> Iterator[None]:
    """Join torchrun's processes (NCCL on GPUs, gloo elsewhere), and leave them at the end. Nothing for a plain run.

    Each start of the processes meets under names of its own. Torchrun keeps one store for all starts, and a restarted
    process would find the address of a dead one ("connectFullMesh ... Connection refused").
    """
    if ranks.world == 1:
        yield
        return
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store, rank, world = next(rendezvous("env://"))
        start = PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=start, rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes, on each of them."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(values)
    return values


def from_first_rank(number: float, device: torch.device) -> float:
    """Rank 0's number, on every process."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return number
    value = torch.tensor([number], dtype=torch.float64, device=device)
    dist.broadcast(value, 0)
    return value.item()


def on_rank_zero(ranks: Ranks, device: torch.device, work: Callable[[], object]) -> None:
    """Let the first process do what must be done once. If it refuses, all raise UserError, and none waits."""
    refusal = None
    try:
        if ranks.first:
            work()
    except UserError as error:
        refusal = error
    if from_first_rank(float(refusal is not None), device):
        raise refusal or UserError("the first process has said what is wrong")
