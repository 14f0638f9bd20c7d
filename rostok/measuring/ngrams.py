"""Models that only count: uniform, unigram (add-one), and modified Kneser-Ney of orders 2, 3, 5 and 9.

    table = fit_ngrams(*joined(training_texts), vocab_size, start_id)    # counts of the first 20 M training tokens
    losses = table["trigram"].losses(targets)                     # the same list that the networks are scored on

They say how far a language model gets by counting alone: a network that does not beat them is broken or young, and a
perplexity near 1 beside theirs is a mistake in the measuring. Order 9 sees 8 tokens, as the window MLP does.

Modified Kneser-Ney (Chen and Goodman 1999), interpolated, three discounts a level. Counts are kept as a trie in sorted
arrays: the n-gram (w1 ... wn) is the number id(w1 ... wn-1) * V + wn, and its id is its index among those that came.

    1. read       training positions; for each the id of the history of 0, 1, ... tokens before it
    2. count      the top level by occurrences, each lower level by how many different words come before the n-gram
    3. predict    from uniform upwards: p = max(c - D(c), 0) / total + reserved * p of the level below

Before a text's start comes ◆, as often as it is needed. Left out: pruning.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rostok.measuring.targets import Losses, TargetList

FIT_TOKENS = 20_000_000
ORDERS = (2, 3, 5, 9)
NAMES = {2: "bigram", 3: "trigram"}


@dataclass(frozen=True)
class Level:
    """The distributions after all histories of one length, given the level below.

    keys (M,) history * V + word, sorted; share (M,) discounted count / total of its history; reserved (H,) what the
    discounts of a history leave for the level below; top_word, top_p (H,) its likeliest word.
    """

    keys: np.ndarray
    share: np.ndarray
    reserved: np.ndarray
    top_word: np.ndarray
    top_p: np.ndarray


class Histories:
    """The histories of one text list as trie ids, one length after another; words the same length as inputs.

    `ids[m]` (N,) is the id of the m tokens before each target, -1 where they never came in training.
    """

    def __init__(self, inputs: np.ndarray, offsets: np.ndarray, vocab_size: int, start_id: int) -> None:
        self.inputs, self.starts, self.V, self.start_id = inputs, offsets[:-1], vocab_size, start_id
        self.ids = np.zeros(len(inputs), np.int64)
        self.padded = 0  # the id of the history that is ◆ alone

    def keys(self) -> np.ndarray:
        """(N,) the next longer history as a number, -1 where its older part is unknown."""
        older = np.concatenate(([self.padded], self.ids[:-1]))
        older[self.starts] = self.padded
        return np.where(older < 0, -1, older * self.V + self.inputs)

    def grow(self, table: np.ndarray) -> None:
        """Make the histories one token longer; `table` holds the sorted keys of those that are known."""
        at, known = find(table, self.keys())
        self.ids = np.where(known, at, -1)
        at, known = find(table, np.array([self.padded * self.V + self.start_id]))
        self.padded = int(at[0]) if known[0] and self.padded >= 0 else -1


class NGram:
    """A counting model of `order`: looks order - 1 tokens back."""

    def __init__(
        self, order: int, vocab_size: int, levels: Sequence[Level], tables: Sequence[np.ndarray]
    ) -> None:
        self.order, self.V, self.levels, self.tables = order, vocab_size, levels, tables

    def losses(self, targets: TargetList) -> Losses:
        """Nats and hits of every target, each text alone."""
        p, best = self.predict(targets.inputs, targets.offsets, targets.targets, targets.start_id)
        return Losses(-np.log(p), best == targets.targets)

    def predict(
        self, inputs: np.ndarray, offsets: np.ndarray, words: np.ndarray, start_id: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Probability of words (N,) after the inputs up to each, and the likeliest word there (N,)."""
        histories = Histories(inputs, offsets, self.V, start_id)
        p = np.full(len(words), 1 / self.V)
        best, best_p = np.zeros(len(words), np.int64), p
        for m, level in enumerate(self.levels):
            if m:
                histories.grow(self.tables[m - 1])
            at, known = histories.ids, histories.ids >= 0
            entry, seen = find(level.keys, at * self.V + words)
            mixed = np.where(seen & known, level.share[entry], 0) + level.reserved[at] * p
            p = np.where(known, mixed, p)
            best = np.where(known, level.top_word[at], best)
            best_p = np.where(known, level.top_p[at], best_p)
        return p, best


def joined(texts: Iterable[np.ndarray], limit: int = FIT_TOKENS) -> tuple[np.ndarray, np.ndarray]:
    """The first `limit` tokens of texts, each [◆, tokens...], as one array; and where each text begins, and the end."""
    parts, total = [np.zeros(0, np.int64)], 0
    for text in texts:
        parts.append(np.asarray(text, np.int64)[: limit - total])
        total += len(parts[-1])
        if total >= limit:
            break
    return np.concatenate(parts), np.cumsum([len(part) for part in parts])


def find(table: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of each wanted (N,) in a sorted table, and whether it is there; where it is not, the index is valid too."""
    at = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
    return at, table[at] == wanted


def uniform(vocab_size: int) -> NGram:
    """Each of V words alike."""
    return NGram(1, vocab_size, [], [])


def unigram(words: np.ndarray, vocab_size: int) -> NGram:
    """How often a word comes at all, every count raised by one (Laplace)."""
    counts = np.bincount(words, minlength=vocab_size) + 1
    p = counts / counts.sum()
    top = np.array([p.argmax()])
    return NGram(1, vocab_size, [Level(np.arange(vocab_size), p, np.zeros(1), top, p[top])], [])


def fit_ngrams(
    inputs: np.ndarray,
    offsets: np.ndarray,
    vocab_size: int,
    start_id: int,
    orders: Sequence[int] = ORDERS,
) -> dict[str, NGram]:
    """Models of joined texts (see `joined`): {"unigram": ..., "bigram": ..., ...}; {} without text."""
    if not len(inputs):
        return {}
    words = np.append(inputs[1:], start_id)
    return {"unigram": unigram(words, vocab_size)} | kneser_ney(
        inputs, offsets, words, vocab_size, start_id, orders
    )


@dataclass(frozen=True)
class Grams:
    """The different n-grams of one order: keys (M,) sorted, counts (M,), shorter (M,) index of each without its
    first word among those of the order below; below (H,) the same for its histories.
    """

    keys: np.ndarray
    counts: np.ndarray
    shorter: np.ndarray
    below: np.ndarray


def kneser_ney(
    inputs: np.ndarray, offsets: np.ndarray, words: np.ndarray, V: int, start_id: int, orders: Sequence[int]
) -> dict[str, NGram]:
    """Modified Kneser-Ney of several orders from one pass over the training positions."""
    histories = Histories(inputs, offsets, V, start_id)
    grams: list[Grams] = []
    tables: list[np.ndarray] = []
    entry, before = np.zeros(len(words), np.int64), np.zeros(len(words), np.int64)
    for m in range(max(orders)):
        if m:
            before = histories.ids
            tables.append(np.unique(histories.keys()))
            histories.grow(tables[-1])
        keys, first, own, counts = np.unique(
            histories.ids * V + words, return_index=True, return_inverse=True, return_counts=True
        )
        below = np.zeros(len(tables[-1]) if m else 1, np.int64)
        below[histories.ids] = before
        grams.append(Grams(keys, counts, entry[first], below))
        entry = own
    lower: list[tuple[Level, np.ndarray]] = []  # levels of continuation counts, shared by all orders
    models = {}
    for order in range(1, max(orders) + 1):
        g = grams[order - 1]
        if order in orders:
            top = make_level(g, g.counts, V, lower[-1] if lower else None)[0]
            name = NAMES.get(order, f"{order}-gram")
            models[name] = NGram(order, V, [*(level for level, _ in lower), top], tables)
        if order < max(orders):
            continuations = np.bincount(grams[order].shorter, minlength=len(g.keys))
            lower.append(make_level(g, continuations, V, lower[-1] if lower else None))
    return models


def make_level(
    grams: Grams, counts: np.ndarray, V: int, lower: tuple[Level, np.ndarray] | None
) -> tuple[Level, np.ndarray]:
    """One level from its counts and the level below (None: uniform); and p (M,) of each n-gram that came."""
    history, word = grams.keys // V, grams.keys % V
    starts = np.flatnonzero(np.concatenate(([True], history[1:] != history[:-1])))
    discounts = discounts_of(counts)
    off = discounts[np.minimum(counts, 3)]  # (M,)
    totals = np.add.reduceat(counts, starts).astype(np.float64)  # (H,)
    reserved = np.add.reduceat(off, starts) / totals
    share = (counts - off) / totals[history]
    if lower is None:
        backed_word, backed_p, below_p = np.zeros(1, np.int64), np.full(1, 1 / V), np.full(len(word), 1 / V)
    else:
        level, p_lower = lower
        backed_word, backed_p = level.top_word[grams.below], level.top_p[grams.below]
        below_p = p_lower[grams.shorter]
    p = share + reserved[history] * below_p
    highest = np.maximum.reduceat(p, starts)
    own_best = np.minimum.reduceat(np.where(p == highest[history], np.arange(len(p)), len(p)), starts)
    backed_p = backed_p * reserved
    top_word = np.where(backed_p > highest, backed_word, word[own_best])
    return Level(grams.keys, share, reserved, top_word, np.maximum(backed_p, highest)), p


def discounts_of(counts: np.ndarray) -> np.ndarray:
    """D(0 .. 3) from how many n-grams came once, twice, three and four times; D(c) for more is D(3).

    >>> discounts_of(np.array([1, 1, 1, 1, 2, 2, 3, 4])).round(3).tolist()
    [0.0, 0.5, 1.25, 1.0]
    """
    n = np.bincount(np.minimum(counts, 5), minlength=6).astype(np.float64)
    y = n[1] / (n[1] + 2 * n[2]) if n[1] else 0.5
    found = [k - (k + 1) * y * n[k + 1] / n[k] if n[k] else k * y for k in (1, 2, 3)]
    return np.array([0.0, *(min(0.95 * k, max(0.05, d)) for k, d in zip((1, 2, 3), found, strict=True))])
