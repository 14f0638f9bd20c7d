"""Counting models, against the formulas with dictionaries."""

import math
from collections import Counter

import numpy as np
import pytest
from measured import V, random_texts

from rostok.measuring import ngrams
from rostok.measuring.targets import (
    target_list,
)


def slow_kneser_ney(texts: list[list[int]], order: int, vocab: int):
    """Interpolated Kneser-Ney straight from the formulas, with dictionaries."""
    grams: Counter[tuple[int, ...]] = Counter()
    for text in texts:
        padded = [0] * (order - 2) + text + [0]
        for i in range(order - 1, len(padded)):
            grams[tuple(padded[i - order + 1 : i + 1])] += 1
    levels = [grams]
    for _ in range(order - 1):
        levels.append(Counter(gram[1:] for gram in levels[-1]))  # distinct longer grams that end so

    def p(word: int, history: tuple[int, ...], level: int) -> float:
        if level == len(levels):
            return 1 / vocab
        counts = levels[level]
        ones, twos = (sum(c == n for c in counts.values()) for n in (1, 2))
        discount = min(0.95, max(0.05, ones / (ones + 2 * twos))) if ones else 0.5
        own = {gram[-1]: c for gram, c in counts.items() if gram[:-1] == history}
        below = p(word, history[1:], level + 1)
        if not own:
            return below
        total = sum(own.values())
        return (max(own.get(word, 0) - discount, 0) + discount * len(own) * below) / total

    return lambda word, history: p(word, history, 0)


@pytest.mark.parametrize(("name", "order"), [("bigram", 2), ("trigram", 3)])
def test_kneser_ney_equals_the_formulas_and_sums_to_one(name: str, order: int) -> None:
    vocab = 7
    texts = random_texts([9, 4, 0, 12], seed=3, vocab=5)  # ids 5 and 6 never come
    fitted = ngrams.fit_ngrams(texts, vocab, 0)[name]
    slow = slow_kneser_ney([text.tolist() for text in texts], order, vocab)
    for history in np.ndindex(*[vocab] * (order - 1)):
        number = sum(h * vocab**k for k, h in enumerate(reversed(history)))
        fast = fitted.counter.probability(np.full(vocab, number), np.arange(vocab))
        expected = [slow(word, history) for word in range(vocab)]
        np.testing.assert_allclose(fast, expected, rtol=1e-12)
        assert fast.sum() == pytest.approx(1)
        word, p = fitted.counter.best(np.array([number]))
        assert fast[word[0]] == pytest.approx(max(expected))
        assert p[0] == pytest.approx(max(expected))


def test_unigram_and_uniform() -> None:
    train, held_out = random_texts([30, 30], vocab=5), target_list(random_texts([6], seed=1, vocab=7), 0)
    unigram = ngrams.fit_ngrams(train, 7, 0)["unigram"]
    counts = Counter(np.concatenate([np.append(text[1:], 0) for text in train]).tolist())
    expected = [-math.log((counts[w] + 1) / (62 + 7)) for w in held_out.targets.tolist()]
    np.testing.assert_allclose(unigram.losses(held_out).nats, expected)
    uniform = ngrams.NGram(1, 7, ngrams.Uniform(7)).losses(held_out)
    np.testing.assert_allclose(uniform.nats, math.log(7))


def test_counting_stops_at_the_limit_and_copes_with_nothing() -> None:
    texts = random_texts([10, 10, 10])
    cut = [texts[0], texts[1][: 12 - len(texts[0])]]
    few, two = ngrams.fit_ngrams(texts, V, 0, limit=12), ngrams.fit_ngrams(cut, V, 0)
    held_out = target_list(random_texts([8], seed=5), 0)
    assert (few["trigram"].losses(held_out).nats == two["trigram"].losses(held_out).nats).all()
    assert ngrams.fit_ngrams([], V, 0) == {}
