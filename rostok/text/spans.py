"""Which spans of a text are in the training shards too: each is grown token by token as long as the shards have it.

    lengths = span_lengths(ids, arrays, 8, start_id)    # (N,) length of the longest span from each place; 0: below 8
    covered(ids, arrays, 13, start_id)                  # (N,) tokens that are in a span of 13 which training has too
    traces([ids, ...], arrays, start_id)                # of each text: its longest span, how many spans of 8 are there

`arrays` are the ids of the shards, memory-mapped or not; they are read in blocks. Spans are compared by hashes of 64
bits. A span never crosses ◆. NumPy only. Shapes: N ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

BLOCK = 1 << 22  # training tokens that are hashed at a time
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse modulo 2^64
INVERSE = np.uint64(pow(int(BASE), -1, 1 << 64))


def mixed(ids: np.ndarray) -> np.ndarray:
    """The ids as numbers of 64 bits that look random."""
    found = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
    return found ^ (found >> np.uint64(29))


def span_hashes(ids: np.ndarray, length: int) -> np.ndarray:
    """(N - length + 1,) a hash of each span of `length` ids: the sum of mixed(ids)[i + k] * INVERSE^k."""
    if len(ids) < length:
        return np.zeros(0, np.uint64)
    ones = np.ones(len(ids), np.uint64)
    falling, rising = np.cumprod(ones * INVERSE), np.cumprod(ones * BASE)  # INVERSE^(i+1), BASE^(i+1)
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed(ids) * falling)))
    return (sums[length:] - sums[:-length]) * rising[: len(ids) - length + 1]


def among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(N,) bool: the value is one of the known ones."""
    known = np.unique(known)
    if not len(known):
        return np.zeros(len(values), bool)
    return known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values


def span_lengths(ids: np.ndarray, arrays: Sequence[np.ndarray], least: int, start_id: int) -> np.ndarray:
    """(N,) the length of the longest span from each place on that is in the arrays; 0 where it is below `least`."""
    lengths = np.zeros(len(ids), np.int64)
    hashes, ids = span_hashes(ids, least), np.append(ids, start_id)
    marks = np.concatenate(([0], np.cumsum(ids == start_id)))
    starts = np.flatnonzero(marks[least:][: len(hashes)] == marks[: len(hashes)])  # no ◆ in the span
    for array in arrays:
        for begin in range(0, max(1, len(array) - least + 1), BLOCK):
            theirs = span_hashes(np.asarray(array[begin : begin + BLOCK + least - 1]), least)
            places = begin + np.arange(len(theirs))
            grow(lengths, ids, starts, hashes[starts], array, places, theirs, least, start_id)
    return lengths


def grow(
    lengths: np.ndarray,
    ids: np.ndarray,
    mine: np.ndarray,
    my_hashes: np.ndarray,
    array: np.ndarray,
    theirs: np.ndarray,
    their_hashes: np.ndarray,
    size: int,
    start_id: int,
) -> None:
    """Write into `lengths` how long spans of ids, from the places `mine`, equal spans of array from `theirs`."""
    while True:
        there = among(their_hashes, my_hashes)
        theirs, their_hashes = theirs[there], their_hashes[there]
        here = among(my_hashes, their_hashes)
        mine, my_hashes = mine[here], my_hashes[here]
        if not len(mine):
            return
        lengths[mine] = np.maximum(lengths[mine], size)
        more, more_there = ids[mine + size] != start_id, theirs + size < len(array)
        mine, theirs = mine[more], theirs[more_there]
        factor = np.uint64(pow(int(INVERSE), size, 1 << 64))
        my_hashes = my_hashes[more] + mixed(ids[mine + size]) * factor
        their_hashes = their_hashes[more_there] + mixed(array[theirs + size]) * factor
        size += 1


def covered(ids: np.ndarray, arrays: Sequence[np.ndarray], length: int, start_id: int) -> np.ndarray:
    """(N,) bool: the token is part of a span of `length` that is in the arrays too."""
    lengths = span_lengths(ids, arrays, length, start_id)
    starts = np.flatnonzero(lengths)
    ends = starts + lengths[starts]
    change = np.bincount(starts, minlength=len(ids) + 1) - np.bincount(ends, minlength=len(ids) + 1)
    return np.cumsum(change)[: len(ids)] > 0


@dataclass(frozen=True)
class Trace:
    """Of one text: its longest span that is in the shards, length and place; its spans of 8: all, and those there."""

    longest: int
    begin: int
    spans: int
    found: int


def traces(
    texts: Sequence[np.ndarray], arrays: Sequence[np.ndarray], start_id: int, length: int = 8
) -> list[Trace]:
    """Compare texts, each without ◆, with the training shards."""
    sizes = np.array([len(text) + 1 for text in texts])
    ids = np.concatenate([np.append(np.asarray(text, np.int64), start_id) for text in texts])
    lengths = np.split(span_lengths(ids, arrays, length, start_id), np.cumsum(sizes)[:-1])
    result = [
        Trace(
            int(each.max()), int(each.argmax()), max(0, len(text) - length + 1), int(np.count_nonzero(each))
        )
        for text, each in zip(texts, lengths, strict=True)
    ]
    short = [k for k, one in enumerate(result) if not one.longest]
    if length > 1 and short:  # not one span of 8: look for shorter ones
        found = traces([texts[k] for k in short], arrays, start_id, 1)
        for k, one in zip(short, found, strict=True):
            result[k] = replace(result[k], longest=one.longest, begin=one.begin)
    return result
