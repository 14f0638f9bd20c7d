"""The held-out targets: one list of all tokens to predict, the windows that a model reads, the nats of each target.

    targets = target_list(texts, start_id)              # every token of every text and its closing ◆, each once
    windows = text_windows(targets, context=512, stride=256)
    entry = Entry("rostok", 512, targets, score(model, targets, windows))      # score: rostok/measuring/score.py

The protocol is in docs/perplexity.md. A window never holds its last target, so a model cannot read what it is asked.
NumPy only. Left out: perplexity per word, and any average of averages. Shapes: N targets, T time.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rostok.errors import UserError


def perplexity(nats: float) -> float:
    """exp of the mean nats per token; infinite where a float ends.

    >>> round(perplexity(math.log(4096)))
    4096
    """
    return math.exp(nats) if nats < 709 else math.inf


def bits_per_byte(nats_sum: float, n_bytes: int) -> float | None:
    """Sum of nats over a text / (ln 2 * its UTF-8 bytes); None for a text without bytes.

    >>> bits_per_byte(8 * math.log(2), 4)
    2.0
    """
    return nats_sum / (math.log(2) * n_bytes) if n_bytes else None


# 1. What is predicted


@dataclass(frozen=True)
class TargetList:
    """The held-out texts as inputs [◆, tokens] and targets [tokens, ◆], one text after another.

    inputs (N,), targets (N,) int64; offsets (texts + 1,) where each text begins; target_bytes (N,) UTF-8 bytes of
    each target, 0 for ◆; sha256 of the targets' ids; texts_sha256 of the bytes they encode; start_id of ◆;
    token_bytes: the bytes of each id, or nothing.
    """

    inputs: np.ndarray
    targets: np.ndarray
    offsets: np.ndarray
    target_bytes: np.ndarray
    sha256: str
    texts_sha256: str
    start_id: int
    token_bytes: Sequence[bytes] = ()

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def n_texts(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_bytes(self) -> int:
        return int(self.target_bytes.sum())

    @property
    def text_of(self) -> np.ndarray:
        """(N,) the number of the text of each target."""
        return np.repeat(np.arange(self.n_texts), np.diff(self.offsets))

    @property
    def position(self) -> np.ndarray:
        """(N,) place of each target in its text: 1 for the token right after ◆."""
        return np.arange(len(self)) - np.repeat(self.offsets[:-1], np.diff(self.offsets)) + 1

    @property
    def ends(self) -> np.ndarray:
        """(N,) bool: the targets that close a text."""
        ends = np.zeros(len(self), bool)
        ends[self.offsets[1:] - 1] = True
        return ends

    def text(self, i: int) -> np.ndarray:
        """Inputs [◆, tokens...] of one text."""
        return self.inputs[self.offsets[i] : self.offsets[i + 1]]

    def subset(self, chosen: Sequence[int]) -> "TargetList":
        """The list of some of the texts, in that order."""
        return target_list([self.text(i) for i in chosen], self.start_id, self.token_bytes)

    def indices(self, chosen: Sequence[int]) -> np.ndarray:
        """Indices in this list of the targets of those texts."""
        return np.concatenate([np.arange(self.offsets[i], self.offsets[i + 1]) for i in chosen])


def target_list(texts: Iterable[np.ndarray], start_id: int, token_bytes: Sequence[bytes] = ()) -> TargetList:
    """Collect texts, each [◆, tokens...], into one list; `token_bytes` are the bytes of each id, for counts in bytes.

    sha256 is that of the targets as little-endian uint32; the closing ◆ of each text marks where it ends.
    Raises UserError when there is no text, or one that does not begin with ◆.
    """
    parts = [np.asarray(text, dtype=np.int64) for text in texts]
    if not parts:
        raise UserError(
            "there are no held-out texts: prepare from more text, or name other shards with --data"
        )
    for i, part in enumerate(parts):
        if not len(part) or part[0] != start_id:
            raise UserError(f"held-out text {i} is not opened by ◆ (id {start_id}); prepare the data again")
    inputs = np.concatenate(parts)
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    targets = np.append(inputs[1:], start_id)  # the ◆ that opens the next text closes this one
    sizes, texts_sha256 = np.zeros(len(targets), np.int64), ""
    if token_bytes:
        sizes = np.array([len(spelling) for spelling in token_bytes])[targets]
        texts_sha256 = hash_of_texts(b"".join(token_bytes[i] for i in part[1:].tolist()) for part in parts)
    sizes = np.where(targets == start_id, 0, sizes)
    digest = hashlib.sha256(targets.astype("<u4").tobytes()).hexdigest()
    return TargetList(inputs, targets, offsets, sizes, digest, texts_sha256, start_id, token_bytes)


def hash_of_texts(texts: Iterable[bytes]) -> str:
    """SHA-256 over the texts' bytes, each after its length: the same under every tokenizer."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


# 2. What a model may see of it


@dataclass(frozen=True)
class Window:
    """Inputs ids (T,); the model's answers at positions skip .. T-1 are for targets first .. first + T - skip - 1."""

    ids: np.ndarray
    skip: int
    first: int


def text_windows(targets: TargetList, context: int, stride: int) -> Iterator[Window]:
    """Each text alone; one longer than the context by windows that score `stride` new targets, all opened by ◆."""
    if not 1 <= stride < max(2, context):
        raise UserError(
            f"--stride must be from 1 to {max(1, context - 1)} for a context of {context}. Got {stride}"
        )
    if context < 2:
        raise UserError(
            f"a model needs a context of at least 2 (◆ and a token) to be compared. Got {context}"
        )
    for i in range(targets.n_texts):
        ids, base = targets.text(i), int(targets.offsets[i])
        done = min(len(ids), context)
        yield Window(ids[:done], 0, base)
        while done < len(ids):
            end = min(len(ids), done + stride)
            window = np.concatenate(([targets.start_id], ids[end - context + 1 : end]))
            yield Window(window, context - (end - done), base + done)
            done = end


def memory_windows(targets: TargetList, memory: int, chunk: int = 512) -> Iterator[Window]:
    """For a model that sees `memory` tokens and no more: long texts in chunks that overlap by what it needs."""
    for i in range(targets.n_texts):
        ids, base = targets.text(i), int(targets.offsets[i])
        for begin in range(0, len(ids), chunk):
            seen = max(0, begin - memory + 1)
            yield Window(ids[seen : begin + chunk], begin - seen, base + begin)


def stream_windows(targets: TargetList, context: int) -> Iterator[Window]:
    """The disjoint protocol: all texts as one stream, in blocks of `context`; the last, shorter one counts too."""
    for begin in range(0, len(targets), context):
        yield Window(targets.inputs[begin : begin + context], 0, begin)


# 3. What each target costs


@dataclass(frozen=True)
class Losses:
    """nats (N,) float64 of every target of a list, and hits (N,) bool: the model's first guess was right."""

    nats: np.ndarray
    hits: np.ndarray

    def take(self, indices: np.ndarray) -> "Losses":
        """The losses of some targets."""
        return Losses(self.nats[indices], self.hits[indices])


@dataclass(frozen=True)
class Entry:
    """One line of a table: a model's name, the tokens it may look back at, its losses, and what is known of it.

    A recipe that was trained with several seeds is one line: `losses` are the means, `members` those of each seed.
    """

    name: str
    context: int
    targets: TargetList
    losses: Losses
    about: dict[str, Any] = field(default_factory=dict)  # parameters by group, tokens, seconds, step
    members: tuple[Losses, ...] = ()
    counts: bool = False  # a model that only counts, and so needs no seed

    def at(self, indices: np.ndarray, part: TargetList) -> "Entry":
        """The entry for a part of its list; `indices` are those of the part's targets."""
        members = tuple(each.take(indices) for each in self.members)
        return replace(self, targets=part, losses=self.losses.take(indices), members=members)

    @property
    def seeds(self) -> int:
        return len(self.members) or 1


def one_recipe(name: str, entries: Sequence[Entry]) -> Entry:
    """The entry of a recipe from those of its seeds. Raises UserError when they have other targets."""
    first = entries[0]
    if len(entries) == 1:
        return replace(first, name=name)
    if len({entry.targets.sha256 for entry in entries}) > 1:
        raise UserError(
            f"the runs of {name} have different targets; give one row only runs with one tokenizer"
        )
    nats, hits = (
        np.mean([getattr(entry.losses, key) for entry in entries], axis=0) for key in ("nats", "hits")
    )
    return replace(
        first, name=name, losses=Losses(nats, hits), members=tuple(entry.losses for entry in entries)
    )
