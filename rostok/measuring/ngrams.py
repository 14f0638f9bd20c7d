"""Models that only count: uniform, unigram (add-one), and interpolated Kneser-Ney bigram and trigram.

    table = fit_ngrams(training_texts, vocab_size, start_id)      # counts of the first 20 M training tokens
    losses = table["bigram"].losses(targets)                      # the same list that the networks are scored on

They say how far a language model gets by counting alone: a network that does not beat them is broken or young, and a
perplexity near 1 beside theirs is a mistake in the measuring. Kneser and Ney 1995, in the interpolated form of Chen
and Goodman 1999 with one discount n1 / (n1 + 2 n2) a level. Before a text's start comes ◆. Left out: pruning, orders
above 3.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rostok.measuring.targets import Losses, TargetList

FIT_TOKENS = 20_000_000


class Counter(Protocol):
    """Anything that gives the probability of a word after a history, both (N,), and its best guess (N,)."""

    def probability(self, history: np.ndarray, word: np.ndarray) -> np.ndarray: ...

    def best(self, history: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class Uniform:
    """Each of V words alike."""

    vocab_size: int

    def probability(self, history: np.ndarray, word: np.ndarray) -> np.ndarray:
        return np.full(len(word), 1 / self.vocab_size)

    def best(self, history: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(history), np.int64), np.full(len(history), 1 / self.vocab_size)


class Unigram:
    """How often a word comes at all, every count raised by one (Laplace)."""

    def __init__(self, words: np.ndarray, vocab_size: int) -> None:
        counts = np.bincount(words, minlength=vocab_size) + 1
        self.p = counts / counts.sum()  # (V,)

    def probability(self, history: np.ndarray, word: np.ndarray) -> np.ndarray:
        return self.p[word]

    def best(self, history: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        top = int(self.p.argmax())
        return np.full(len(history), top), np.full(len(history), self.p[top])


class KneserNey:
    """One level: max(c - D, 0) / c(history) + D * types / c(history) * lower(word | shorter history).

    keys (M,) sorted history * V + word with their counts (M,). A history is a number in base V; `lower_base` cuts its
    oldest word off (history % lower_base).
    """

    def __init__(
        self, keys: np.ndarray, counts: np.ndarray, vocab_size: int, lower: Counter, lower_base: int
    ) -> None:
        self.keys, self.vocab_size, self.lower, self.lower_base = keys, vocab_size, lower, lower_base
        ones, twos = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
        self.discount = min(0.95, max(0.05, ones / (ones + 2 * twos))) if ones else 0.5
        self.kept = np.maximum(counts - self.discount, 0)  # (M,)
        self.histories, starts, self.types = np.unique(
            keys // vocab_size, return_index=True, return_counts=True
        )
        self.totals = np.add.reduceat(counts, starts).astype(np.float64)
        self.top_word, self.top_p = self._best_of_each(starts)

    def _best_of_each(self, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Best word after each known history: one that was seen after it, or the best of the lower level."""
        history, word = self.keys // self.vocab_size, self.keys % self.vocab_size
        p = self.probability(history, word)
        highest = np.maximum.reduceat(p, starts)
        is_best = p == np.repeat(highest, self.types)
        first = np.minimum.reduceat(np.where(is_best, np.arange(len(p)), len(p)), starts)
        backed_word, backed_p = self.lower.best(self.histories % self.lower_base)
        backed_p = backed_p * self.discount * self.types / self.totals
        return np.where(backed_p > highest, backed_word, word[first]), np.maximum(backed_p, highest)

    def probability(self, history: np.ndarray, word: np.ndarray) -> np.ndarray:
        """p(word | history), both (N,), float64; over all words it sums to 1."""
        below = self.lower.probability(history % self.lower_base, word)
        at, known = find(self.histories, history)
        entry, seen = find(self.keys, history * self.vocab_size + word)
        total, types = self.totals[at], self.types[at]
        p = (np.where(seen, self.kept[entry], 0) + self.discount * types * below) / total
        return np.where(known, p, below)

    def best(self, history: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest word after each history (N,) and its probability (N,)."""
        word, p = self.lower.best(history % self.lower_base)
        at, known = find(self.histories, history)
        return np.where(known, self.top_word[at], word), np.where(known, self.top_p[at], p)


def find(table: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of each wanted (N,) in a sorted table, and whether it is there; where it is not, the index is valid too."""
    at = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
    return at, table[at] == wanted


@dataclass(frozen=True)
class NGram:
    """A counting model that looks `order` - 1 tokens back."""

    order: int
    vocab_size: int
    counter: Counter

    def losses(self, targets: TargetList) -> Losses:
        """Nats and hits of every target, each text alone."""
        history = histories(targets.inputs, targets.offsets, self.order, self.vocab_size, targets.start_id)
        p = self.counter.probability(history, targets.targets)
        return Losses(-np.log(p), self.counter.best(history)[0] == targets.targets)


def histories(inputs: np.ndarray, offsets: np.ndarray, order: int, base: int, start_id: int) -> np.ndarray:
    """The last order - 1 inputs at each place as one number in base V; ◆ before a text's start. (N,) int64."""
    history, shifted = np.zeros(len(inputs), np.int64), inputs
    for back in range(order - 1):
        history = history + shifted * base**back
        shifted = np.concatenate(([start_id], shifted[:-1]))
        shifted[offsets[:-1]] = start_id
    return history


def fit_ngrams(
    texts: Iterable[np.ndarray], vocab_size: int, start_id: int, limit: int = FIT_TOKENS
) -> dict[str, NGram]:
    """Count the first `limit` tokens of texts, each [◆, tokens...]: unigram, bigram, trigram; {} without text."""
    parts, total = [], 0
    for text in texts:
        parts.append(np.asarray(text, np.int64)[: limit - total])
        total += len(parts[-1])
        if total >= limit:
            break
    if not parts:
        return {}
    inputs = np.concatenate(parts)
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    words = np.append(inputs[1:], start_id)
    pairs, triples = (
        np.unique(
            histories(inputs, offsets, n, vocab_size, start_id) * vocab_size + words, return_counts=True
        )
        for n in (2, 3)
    )
    bigram = KneserNey(pairs[0], pairs[1], vocab_size, continuation(pairs[0], vocab_size), 1)
    return {
        "unigram": NGram(1, vocab_size, Unigram(words, vocab_size)),
        "bigram": NGram(2, vocab_size, bigram),
        "trigram": NGram(3, vocab_size, trigram(triples[0], triples[1], vocab_size)),
    }


def continuation(pairs: np.ndarray, vocab_size: int) -> KneserNey:
    """Kneser-Ney's unigram: not how often a word comes, but after how many different words."""
    words, contexts = np.unique(pairs % vocab_size, return_counts=True)
    return KneserNey(words, contexts, vocab_size, Uniform(vocab_size), 1)


def trigram(triples: np.ndarray, counts: np.ndarray, vocab_size: int) -> KneserNey:
    """Counts of triples over continuation counts of pairs over those of words."""
    pairs, contexts = np.unique(triples % vocab_size**2, return_counts=True)
    middle = KneserNey(pairs, contexts, vocab_size, continuation(pairs, vocab_size), 1)
    return KneserNey(triples, counts, vocab_size, middle, vocab_size)
