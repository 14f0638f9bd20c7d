"""What held-out text, or a model's own text, has in common with the training text: characters, and runs of tokens.

    covered(ids, arrays, 13, start_id)                  # (N,) tokens that are in a run of 13 which training has too
    trace(ids, arrays, start_id)                        # the longest such run, and the share of runs of 8
    new_characters(targets, training_ids)               # (N,) targets with characters that training never had

`arrays` are the ids of the training shards, memory-mapped or not; they are read in blocks. Runs are compared by a hash
of 64 bits; the longest one is compared token by token too. A run never crosses ◆. NumPy only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostok.measuring.targets import TargetList

RUN = 13  # tokens in a run that counts as overlap (Brown et al. 2020)
BLOCK = 1 << 22  # training tokens that are hashed at a time
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse modulo 2^64
INVERSE = np.uint64(pow(int(BASE), -1, 1 << 64))


def run_hashes(ids: np.ndarray, length: int) -> np.ndarray:
    """(N - length + 1,) a hash of each run of `length` ids: equal runs have equal hashes."""
    if len(ids) < length:
        return np.zeros(0, np.uint64)
    mixed = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    ones = np.ones(len(ids), np.uint64)
    falling, rising = np.cumprod(ones * INVERSE), np.cumprod(ones * BASE)  # INVERSE^(i+1), BASE^(i+1)
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed * falling)))
    return (sums[length:] - sums[:-length]) * rising[: len(ids) - length + 1]


def blocks(arrays: Sequence[np.ndarray], length: int) -> Iterator[np.ndarray]:
    """The training ids in blocks that overlap by length - 1, so that no run is missed."""
    for array in arrays:
        for begin in range(0, max(1, len(array) - length + 1), BLOCK):
            yield np.asarray(array[begin : begin + BLOCK + length - 1])


def found_runs(ids: np.ndarray, arrays: Sequence[np.ndarray], length: int, start_id: int) -> np.ndarray:
    """(N - length + 1,) bool: the run of `length` ids from each place on holds no ◆ and is in the arrays."""
    hashes = run_hashes(ids, length)
    marks = np.concatenate(([0], np.cumsum(ids == start_id)))
    plain = marks[length:] == marks[: len(hashes)] if len(hashes) else np.zeros(0, bool)
    wanted, which = np.unique(hashes, return_inverse=True)
    seen = np.zeros(len(wanted), bool)
    if len(wanted):
        for block in blocks(arrays, length):
            theirs = run_hashes(block, length)
            at = np.minimum(np.searchsorted(wanted, theirs), len(wanted) - 1)
            seen[at[wanted[at] == theirs]] = True
    return seen[which] & plain


def covered(ids: np.ndarray, arrays: Sequence[np.ndarray], length: int, start_id: int) -> np.ndarray:
    """(N,) bool: the token is part of a run of `length` that is in the arrays too."""
    starts = np.flatnonzero(found_runs(ids, arrays, length, start_id))
    change = np.bincount(starts, minlength=len(ids) + 1) - np.bincount(
        starts + length, minlength=len(ids) + 1
    )
    return np.cumsum(change)[: len(ids)] > 0


@dataclass(frozen=True)
class Trace:
    """The longest run of a text that is in the training shards: its length and place; share of its runs of 8 there."""

    longest: int
    begin: int
    share: float


def trace(ids: np.ndarray, arrays: Sequence[np.ndarray], start_id: int, length: int = 8) -> Trace:
    """Compare a text with the training shards. If a run is there, so is every shorter one: the longest is bisected."""
    runs = found_runs(ids, arrays, length, start_id)
    marks = np.concatenate(([0], np.cumsum(ids == start_id)))
    possible = int(np.count_nonzero(marks[length:] == marks[: len(runs)])) if len(runs) else 0
    low, high, begin = 0, len(ids), 0
    while low < high:
        middle = (low + high + 1) // 2
        at = np.flatnonzero(found_runs(ids, arrays, middle, start_id))
        if len(at) and occurs(ids[at[0] : at[0] + middle], arrays):
            low, begin = middle, int(at[0])
        else:
            high = middle - 1
    return Trace(low, begin, float(runs.sum() / possible) if possible else 0.0)


def occurs(run: np.ndarray, arrays: Sequence[np.ndarray]) -> bool:
    """Whether a run is in the arrays, token by token."""
    for block in blocks(arrays, len(run)):
        at = np.flatnonzero(block[: len(block) - len(run) + 1] == run[0])
        for k, token in enumerate(run[1:], 1):
            at = at[block[at + k] == token]
        if len(at):
            return True
    return False


def new_characters(targets: TargetList, training: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """(N,) bool: targets with a character, or a part of one, that the training ids never spell; those characters."""
    known = set(spelled(targets, training))
    marks, new = np.zeros(len(targets), bool), set()
    for i in range(targets.n_texts):
        text = spelled(targets, targets.text(i))
        strange = set(text) - known
        if strange:
            new |= strange
            begin, end = int(targets.offsets[i]), int(targets.offsets[i + 1])
            marks[begin:end] = holds(text, strange, targets.target_bytes[begin:end])
    return marks, sorted(new)


def in_common(targets: TargetList, training: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """What to print of both: counts of targets with new characters and of those in shared runs; the texts (n,) without
    new characters.
    """
    marks, characters = new_characters(targets, training)
    shared = covered(targets.inputs, [training], RUN, targets.start_id)
    new_texts = np.unique(targets.text_of[marks])
    counts = {
        "new_targets": int(marks.sum()),
        "new_texts": len(new_texts),
        "characters": characters,
        "run": RUN,
        "shared_texts": len(np.unique(targets.text_of[shared])),
        "shared_share": float(shared.mean()),
    }
    return counts, np.setdiff1d(np.arange(targets.n_texts), new_texts)


def spelled(targets: TargetList, ids: np.ndarray) -> str:
    parts = (b"" if i == targets.start_id else targets.token_bytes[i] for i in ids.tolist())
    return b"".join(parts).decode("utf-8", errors="replace")


def holds(text: str, strange: set[str], sizes: np.ndarray) -> np.ndarray:
    """(T,) bool: which tokens, of `sizes` bytes each, overlap a strange character of their text."""
    widths = np.array([len(character.encode()) for character in text])
    odd = np.repeat([character in strange for character in text], widths)  # by byte
    before = np.concatenate(([0], np.cumsum(odd)))
    ends = np.minimum(np.cumsum(sizes), len(odd))
    return before[ends] > before[np.minimum(ends - sizes, len(odd))]
