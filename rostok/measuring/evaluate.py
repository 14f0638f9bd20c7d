"""How well a model predicts held-out text: one list of targets, the nats of each, and intervals.

    targets = target_list(texts, start_id)              # every token of every text and its closing ◆, each once
    windows = text_windows(targets, context=512, stride=256)
    losses = score(model, targets, windows)             # nats and top guess of every target
    losses.nats.mean(), perplexity(losses.nats.mean())

The protocol is told in docs/perplexity.md. Two things hold here that one may not expect:
- Nothing has a batch size. A window is run alone, in its own shape (1, T), so that the nats of a text are a function
  of the model and the text: matrix kernels may round otherwise in another shape. One text of 200 tokens keeps a CPU
  as busy as a batch of them.
- A window never holds its last target, so a model cannot read what it is asked. Whether it looks ahead inside the
  window is asked by `leak`.

Left out: perplexity per word, and any average of averages. Shapes: N targets, T time, V vocabulary, U units, K rows.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rostok.errors import UserError

MIN_UNITS = 30  # fewer texts than this, and the bootstrap draws stretches of text instead
BLOCK = 256  # targets in such a stretch


def perplexity(nats: float) -> float:
    """exp of the mean nats a token; infinite where a float ends.

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

    inputs (N,), targets (N,) int64; offsets (texts + 1,) where each text begins; target_bytes (N,) UTF-8 bytes of each
    target, 0 for ◆; sha256 of the targets' ids; texts_sha256 of the bytes they stand for; start_id of ◆; pieces the
    bytes of each id, or nothing.
    """

    inputs: np.ndarray
    targets: np.ndarray
    offsets: np.ndarray
    target_bytes: np.ndarray
    sha256: str
    texts_sha256: str
    start_id: int
    pieces: Sequence[bytes] = ()

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
        """(N,) the number of the text that each target stands in."""
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
        return target_list([self.text(i) for i in chosen], self.start_id, self.pieces)

    def places(self, chosen: Sequence[int]) -> np.ndarray:
        """Where the targets of those texts stand in this list."""
        return np.concatenate([np.arange(self.offsets[i], self.offsets[i + 1]) for i in chosen])


def target_list(texts: Iterable[np.ndarray], start_id: int, pieces: Sequence[bytes] = ()) -> TargetList:
    """Collect texts, each [◆, tokens...], into one list; `pieces` are the bytes of each id, for counts in bytes.

    sha256 is that of the targets as little-endian uint32; the closing ◆ of each text marks where it ends.
    Raises UserError when there is no text, or one that is not opened by ◆.
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
    if pieces:
        sizes = np.array([len(piece) for piece in pieces])[targets]
        texts_sha256 = hash_of_texts(b"".join(pieces[i] for i in part[1:].tolist()) for part in parts)
    sizes = np.where(targets == start_id, 0, sizes)
    digest = hashlib.sha256(targets.astype("<u4").tobytes()).hexdigest()
    return TargetList(inputs, targets, offsets, sizes, digest, texts_sha256, start_id, pieces)


def hash_of_texts(texts: Iterable[bytes]) -> str:
    """SHA-256 over the texts' bytes, each behind its length: the same under every tokenizer."""
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


# 3. What it costs


@dataclass(frozen=True)
class Losses:
    """nats (N,) float64 of every target of a list, and hits (N,) bool: the model's first guess was right."""

    nats: np.ndarray
    hits: np.ndarray

    def take(self, places: np.ndarray) -> "Losses":
        """The losses of some targets."""
        return Losses(self.nats[places], self.hits[places])


@dataclass(frozen=True)
class Row:
    """One line of a table: a model's name, the tokens it may look back at, its losses, and what is known of it."""

    name: str
    context: int
    targets: TargetList
    losses: Losses
    about: dict[str, Any] = field(default_factory=dict)  # parameters by group, tokens, seconds, step

    def at(self, places: np.ndarray, part: TargetList) -> "Row":
        """The row for a part of its list; `places` says where the part's targets stand."""
        return Row(self.name, self.context, part, self.losses.take(places), self.about)


def nats_of(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """-log softmax of logits (T, V) at targets (T,): nats (T,) float64; and whether the target's logit is the largest.

    The exponentials are float32, their sum and everything after it float64: equal logits give ln V to the last digit.
    """
    if logits.device.type == "mps":  # it has no float64
        logits, targets = logits.cpu(), targets.cpu()
    shifted = logits.float()
    shifted = shifted - shifted.max(dim=-1, keepdim=True).values  # (T, V)
    chosen = shifted.gather(-1, targets[:, None])[:, 0].double()
    nats = shifted.exp().sum(dim=-1, dtype=torch.float64).log() - chosen
    return nats, shifted.argmax(dim=-1) == targets


def device_of(model: Callable[..., Tensor]) -> torch.device:
    """Where a model's weights are; the CPU for one without any."""
    parameters = getattr(model, "parameters", list)()
    return next((p.device for p in parameters), torch.device("cpu"))


@torch.inference_mode()
def score(model: Callable[[Tensor], Tensor], targets: TargetList, windows: Iterable[Window]) -> Losses:
    """Run a model over windows: model(ids (1, T) int64) -> logits (1, T, V).

    Every target must be covered exactly once; anything else is a bug of the windows and raises AssertionError.
    """
    device, wanted = device_of(model), torch.from_numpy(targets.targets)
    nats = np.full(len(targets), np.nan)
    hits = np.zeros(len(targets), bool)
    covered = 0
    for window in windows:
        last = window.first + len(window.ids) - window.skip
        logits = model(torch.from_numpy(window.ids)[None].to(device))[0, window.skip :]  # (T - skip, V)
        one_nats, one_hits = nats_of(logits, wanted[window.first : last].to(device))
        nats[window.first : last], hits[window.first : last] = one_nats.cpu(), one_hits.cpu()
        covered += last - window.first
    assert covered == len(targets), "each target is scored exactly once"
    if not np.isfinite(nats).all():
        raise UserError(
            f"{np.count_nonzero(~np.isfinite(nats))} of its losses are not numbers; choose an earlier checkpoint"
        )
    return Losses(nats, hits)


@torch.inference_mode()
def leak(model: Callable[[Tensor], Tensor], ids: np.ndarray, seed: int = 0) -> float:
    """Largest change of a logit when only tokens after it change: 0 for a model that does not see the future.

    `ids` (T,) is one window; tokens drawn with the seed take the place of those after each of a few cuts.
    """
    device, rng, worst = device_of(model), np.random.default_rng(seed), 0.0
    before = torch.from_numpy(ids)[None].to(device)
    logits = model(before)[0].float()
    for cut in sorted({1, 2, len(ids) // 4, len(ids) // 2, len(ids) - 1} & set(range(1, len(ids)))):
        other = ids.copy()
        other[cut:] = rng.integers(0, logits.shape[-1], len(ids) - cut)
        moved = model(torch.from_numpy(other)[None].to(device))[0].float()
        worst = max(worst, float((moved[:cut] - logits[:cut]).abs().max()))
    return worst


# 4. How sure the number is


def resampling_units(targets: TargetList) -> np.ndarray:
    """(N,) the unit that the bootstrap draws: the text, or with fewer than 30 texts a stretch of 256 targets in it."""
    if targets.n_texts >= MIN_UNITS:
        return targets.text_of
    blocks = (targets.position - 1) // BLOCK
    return np.unique(targets.text_of * (len(targets) + 1) + blocks, return_inverse=True)[1]


def bootstrap(sums: np.ndarray, weights: np.ndarray, draws: int = 1000, seed: int = 0) -> np.ndarray:
    """Draw units with replacement, the same draw for all rows: sums (K, U), weights (U,) -> ratios (draws, K).

    The paired bootstrap (Koehn 2004): whatever makes a text hard for all rows leaves their differences.
    """
    rng, units = np.random.default_rng(seed), len(weights)
    ratios = np.empty((draws, len(sums)))
    for i in range(draws):
        times = np.bincount(rng.integers(0, units, units), minlength=units).astype(np.float64)  # (U,)
        total = times @ weights
        ratios[i] = sums @ times / (total if total else np.nan)
    return ratios


def interval(draws: np.ndarray) -> tuple[float, float]:
    """The middle 95 % of bootstrap draws."""
    low, high = np.nanpercentile(draws, (2.5, 97.5))
    return float(low), float(high)


def mean_interval(values: np.ndarray, units: np.ndarray, seed: int = 0) -> tuple[float, float] | None:
    """95 % interval of the mean of values (N,), drawing whole units (N,) of them; None for fewer than two units."""
    _, units = np.unique(units, return_inverse=True)
    weights = np.bincount(units).astype(np.float64)
    if len(weights) < 2:
        return None
    return interval(bootstrap(group_sums(values, units)[None], weights, seed=seed)[:, 0])


def verdict(first: str, second: str, difference: float, bounds: tuple[float, float] | None, unit: str) -> str:
    """The plain words for first minus second (lower is better), with its interval."""
    if bounds is None:
        return f"{first} and {second}: too little text for an interval (difference {difference:+.4f} {unit})"
    low, high = bounds
    if low <= 0 <= high:
        return (
            f"{first} and {second} cannot be told apart: {difference:+.4f} [{low:+.4f}, {high:+.4f}] {unit}"
        )
    if difference > 0:
        first, second, difference, low, high = second, first, -difference, -high, -low
    return f"{first} is better than {second} by {-difference:.4f} [{-high:.4f}, {-low:.4f}] {unit}"


def group_sums(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Sum of values (N,) in each unit (U,), float64."""
    return np.bincount(units, weights=values)
