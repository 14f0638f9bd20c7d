"""Batches of rows from token shards: pure functions of (seed, epoch, index); the state is two integers.

    1. cut      every text into segments of ◆ and at most `context` tokens                        (once)
    2. shuffle  the segments by a permutation drawn from (seed, epoch)                             (once an epoch)
    3. pack     segment after segment into rows of context + 1; a row begins with a segment        (once an epoch)
    4. read     row i of the epoch out of the memory map; rank r of w takes rows r, r + w, ...     (each batch)

    loader = RowLoader(open_data("data/stories").split("train"), context=512, batch=8, seed=1)
    ids, targets = next(loader)            # int64 (8, 512) each; targets are ids shifted by one
    loader.load_state({"epoch": 0, "index": 800})

A row always starts with ◆ and holds real tokens only, so all of its targets count. What is left of a segment at the
end of a row is left out for that epoch; the next epoch packs in another order and leaves out something else.
`left_out_share` says how much it is. A batch may take rows from two epochs. No row is left out
or seen twice in an epoch.

Left out: padding, attention masks between the texts of a row, prefetching threads (reading a batch takes less than a
millisecond).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rostok.errors import UserError
from rostok.text.shards import Split


@dataclass(frozen=True)
class Segments:
    """`starts`: the position in the stream of each segment's first token after its ◆; `lengths`: 2 ... context + 1,
    with the ◆."""

    starts: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class Plan:
    """One epoch: segments order[rows[i]:rows[i + 1]] make row i. `tokens` counts all tokens, also those left out."""

    order: np.ndarray
    rows: list[int]
    tokens: int

    def __len__(self) -> int:
        return len(self.rows) - 1

    def members(self, index: int) -> np.ndarray:
        """The numbers of the segments that make row `index`."""
        return self.order[self.rows[index] : self.rows[index + 1]]


def cut_segments(split: Split, context: int) -> Segments:
    """Cut texts of more than `context` tokens into segments, one after the other; the last one may be short."""
    bodies = np.diff(split.starts) - 1  # tokens of each text without its ◆
    counts = np.maximum(-(-bodies // context), 1)  # segments of each text
    text = np.repeat(np.arange(len(bodies)), counts)
    within = np.arange(len(text)) - np.repeat(np.cumsum(counts) - counts, counts)  # 0, 1, ... inside its text
    starts = split.starts[:-1][text] + 1 + within * context
    lengths = 1 + np.minimum(bodies[text] - within * context, context)
    return Segments(starts, lengths)


def pack(order: np.ndarray, lengths: np.ndarray, width: int) -> Plan:
    """Fill rows of `width` greedily in this order; a row ends with the segment that reaches its end.

    >>> pack(np.arange(4), np.array([3, 4, 2, 5]), width=5).rows  # 3 + 4 (two left out), 2 + 5 (two left out)
    [0, 2, 4]
    """
    ends = np.cumsum(lengths[order])
    begins = ends - lengths[order]
    following = (np.searchsorted(ends, begins + width) + 1).tolist()  # the first segment of the next row
    rows, segment = [0], 0
    while segment < len(following) and following[segment] <= len(following):
        segment = following[segment]
        rows.append(segment)
    return Plan(order, rows, int(ends[-1]) if len(ends) else 0)


class RowLoader:
    """An iterator of batches (ids, targets), int64 (batch, context) each.

    batch: rows of this rank; all ranks together take batch * world rows per step, in one global order that does not
    depend on how they are divided. Raises UserError when the split has fewer than context + 1 tokens.
    """

    def __init__(
        self, split: Split, context: int, batch: int, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        if not 0 <= rank < world or batch < 1 or context < 1:
            raise ValueError(f"rank {rank} of {world}, batch {batch}, context {context}")
        _require_row(split, context)
        self.split, self.context, self.batch, self.seed = split, context, batch, seed
        self.rank, self.world = rank, world
        self.segments = cut_segments(split, context)
        self.epoch = self.index = 0  # the global row with which the next batch begins
        self._plans: dict[int, Plan] = {}

    def __iter__(self) -> "RowLoader":
        return self

    def __next__(self) -> tuple[np.ndarray, np.ndarray]:
        rows_at = [self._forward(self.rank + i * self.world) for i in range(self.batch)]
        rows = self._rows([self._plan(epoch).members(index) for epoch, index in rows_at])
        self.epoch, self.index = self._forward(self.batch * self.world)
        return rows[:, :-1], rows[:, 1:]

    def state(self) -> dict[str, int]:
        """What resumes the stream exactly: the global row of the next batch, the same on every rank."""
        return {"epoch": self.epoch, "index": self.index}

    def load_state(self, state: dict[str, int]) -> None:
        """Go on from a `state()`, also one of another number of ranks or another batch size."""
        self.epoch, self.index = int(state["epoch"]), int(state["index"])

    def row(self, epoch: int, index: int) -> np.ndarray:
        """Row `index` of an epoch, int64 (context + 1,): a pure function of the seed and these two numbers."""
        if not 0 <= index < self.rows_per_epoch(epoch):
            raise IndexError(f"row {index} of {self.rows_per_epoch(epoch)}")
        return self._rows([self._plan(epoch).members(index)])[0]

    def rows_per_epoch(self, epoch: int = 0) -> int:
        """How many full rows this epoch has (the packing differs a little from epoch to epoch)."""
        return len(self._plan(epoch))

    @property
    def left_out_share(self) -> float:
        """Share of the tokens that the current epoch leaves out: overhangs and the last, incomplete row."""
        plan = self._plan(self.epoch)
        return 1 - len(plan) * (self.context + 1) / plan.tokens

    def _forward(self, rows: int) -> tuple[int, int]:
        """Epoch and index of the row that comes `rows` rows after the next one."""
        epoch, index = self.epoch, self.index + rows
        while index >= self.rows_per_epoch(epoch):
            index -= self.rows_per_epoch(epoch)
            epoch += 1
        return epoch, index

    def _plan(self, epoch: int) -> Plan:
        """The epoch's plan. Two are kept, since a batch may take rows from two epochs."""
        if epoch not in self._plans:
            generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
            order = generator.permutation(len(self.segments.starts))
            self._plans[epoch] = pack(order, self.segments.lengths, self.context + 1)
            self._plans = {e: plan for e, plan in self._plans.items() if abs(e - epoch) <= 1}
        return self._plans[epoch]

    def _rows(self, members: list[np.ndarray]) -> np.ndarray:
        return fill_rows(self.split, self.segments, members, self.context + 1)


def fill_rows(split: Split, segments: Segments, members: list[np.ndarray], width: int) -> np.ndarray:
    """One row for each list of segments, int64 (rows, width): ◆ segment ◆ segment ..., cut at the row's end.

    All rows are joined in one call: a segment costs a slice of the memory map.
    """
    counts, numbers = np.array([len(row) for row in members]), np.concatenate(members)
    starts, lengths, last = segments.starts[numbers] - 1, segments.lengths[numbers], np.cumsum(counts) - 1
    lengths[last] -= np.add.reduceat(lengths, last + 1 - counts) - width
    ends = np.cumsum(lengths)
    parts = [
        split.read(start, end)
        for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    ]
    flat = np.concatenate(parts, dtype=np.int64)
    flat[ends - lengths] = split.arrays[0][
        0
    ]  # ◆: a segment from the middle of a text has none in front of it
    return flat.reshape(-1, width)


def evaluation_rows(split: Split, context: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` rows of the split packed without shuffling (fewer if it has fewer).

    Gives (ids, targets), int64 (rows, context) each: always the same for the same shards. Raises UserError when the
    split has fewer than context + 1 tokens.
    """
    _require_row(split, context)
    segments = cut_segments(split, context)
    plan = pack(np.arange(len(segments.starts)), segments.lengths, context + 1)
    rows = fill_rows(split, segments, [plan.members(i) for i in range(min(count, len(plan)))], context + 1)
    return rows[:, :-1], rows[:, 1:]


def _require_row(split: Split, context: int) -> None:
    if split.tokens < context + 1:
        raise UserError(
            f"{split.where} has {split.tokens} tokens, but a row of context {context} needs {context + 1}: "
            f"prepare more text{' or a greater --valid-share' if split.name == 'valid' else ''}, "
            f"or type model.context={max(1, split.tokens - 1)}"
        )


class Feed:
    """Batches on the device, one ahead: a GPU gets the next one while it works on this one.

    `state` is the loader's position at the next batch that is handed out.
    """

    def __init__(self, loader: RowLoader, device: torch.device) -> None:
        self.loader, self.device = loader, device
        self.state, self.ahead = loader.state(), None

    def __next__(self) -> tuple[Tensor, Tensor]:
        batch = self.ahead or self.fetch()
        self.state, self.ahead = self.loader.state(), self.fetch()
        return batch

    def load_state(self, state: dict[str, int]) -> None:
        self.loader.load_state(state)
        self.state, self.ahead = self.loader.state(), None

    def fetch(self) -> tuple[Tensor, Tensor]:
        ids, targets = (torch.from_numpy(part) for part in next(self.loader))
        if self.device.type == "cuda":
            ids, targets = ids.pin_memory(), targets.pin_memory()
        return ids.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)
