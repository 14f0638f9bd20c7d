"""Counting models, against the formulas with dictionaries."""

import math
from collections import Counter

import numpy as np
import pytest
from measured import V, random_texts

from rostok.measuring import ngrams
from rostok.measuring.targets import target_list


def slow_kneser_ney(texts: list[list[int]], order: int, vocab: int):
    """Modified Kneser-Ney straight from the formulas, with dictionaries."""
    grams: Counter[tuple[int, ...]] = Counter()
    for text in texts:
        padded = [0] * (order - 2) + text + [0]
        for i in range(order - 1, len(padded)):
            grams[tuple(padded[i - order + 1 : i + 1])] += 1
    levels = [grams]
    for _ in range(order - 1):
        levels.append(Counter(gram[1:] for gram in levels[-1]))  # distinct longer grams that end so

    def discount(counts: Counter, c: int) -> float:
        n = {k: sum(v == k for v in counts.values()) for k in (1, 2, 3, 4)}
        y = n[1] / (n[1] + 2 * n[2]) if n[1] else 0.5
        k = min(c, 3)
        return min(0.95 * k, max(0.05, k - (k + 1) * y * n[k + 1] / n[k] if n[k] else k * y))

    def p(word: int, history: tuple[int, ...], level: int) -> float:
        if level == len(levels):
            return 1 / vocab
        counts = levels[level]
        own = {gram[-1]: c for gram, c in counts.items() if gram[:-1] == history}
        below = p(word, history[1:], level + 1)
        if not own:
            return below
        total = sum(own.values())
        reserved = sum(discount(counts, c) for c in own.values())
        first = own[word] - discount(counts, own[word]) if word in own else 0
        return (first + reserved * below) / total

    return lambda word, history: p(word, history, 0)


@pytest.mark.parametrize(("name", "order"), [("bigram", 2), ("trigram", 3), ("5-gram", 5)])
def test_kneser_ney_equals_the_formulas_and_sums_to_one(name: str, order: int) -> None:
    vocab = 6
    texts = random_texts([19, 14, 0, 22], seed=3, vocab=4)  # ids 4 and 5 never come
    fitted = ngrams.fit_ngrams(*ngrams.joined(texts), vocab, 0)[name]
    slow = slow_kneser_ney([text.tolist() for text in texts], order, vocab)
    rng = np.random.default_rng(0)
    for history in [
        text[k : k + order - 1].tolist() for text in texts for k in range(0, len(text) - order, 3)
    ] + [rng.integers(0, vocab, order - 1).tolist() for _ in range(30)]:
        # one text a history; what counts is the last target, after the history alone
        inputs = np.array(history * vocab)
        starts = np.arange(vocab + 1) * len(history)
        words = np.repeat(np.arange(vocab), len(history))
        fast, best = fitted.predict(inputs, starts, words, 0)
        fast, best = fast[len(history) - 1 :: len(history)], best[len(history) - 1 :: len(history)]
        expected = [slow(word, tuple(history)) for word in range(vocab)]
        np.testing.assert_allclose(fast, expected, rtol=1e-12)
        assert fast.sum() == pytest.approx(1)
        assert fast[best[0]] == pytest.approx(max(expected))


def test_histories_before_a_start_are_the_mark() -> None:
    """The first target of a text comes after ◆ alone, however long a history the model can see."""
    texts = [[0, 1, 2], [0, 1, 3], [0, 2, 2]]
    fitted = ngrams.fit_ngrams(*ngrams.joined([np.array(text) for text in texts]), 4, 0)["5-gram"]
    slow = slow_kneser_ney(texts, 5, 4)
    held_out = target_list([np.array([0, 1, 3, 1]), np.array([0])], 0)
    sequence = [0, 0, 0, 0, 1, 3, 1, 0]
    expected = [-math.log(slow(sequence[k + 4], tuple(sequence[k : k + 4]))) for k in range(4)]
    expected.append(-math.log(slow(0, (0, 0, 0, 0))))
    np.testing.assert_allclose(fitted.losses(held_out).nats, expected)


def test_unigram_and_uniform() -> None:
    train, held_out = random_texts([30, 30], vocab=5), target_list(random_texts([6], seed=1, vocab=7), 0)
    unigram = ngrams.fit_ngrams(*ngrams.joined(train), 7, 0)["unigram"]
    counts = Counter(np.concatenate([np.append(text[1:], 0) for text in train]).tolist())
    expected = [-math.log((counts[w] + 1) / (62 + 7)) for w in held_out.targets.tolist()]
    np.testing.assert_allclose(unigram.losses(held_out).nats, expected)
    np.testing.assert_allclose(ngrams.uniform(7).losses(held_out).nats, math.log(7))


def test_counting_stops_at_the_limit_and_copes_with_nothing() -> None:
    texts = random_texts([10, 10, 10])
    cut = [texts[0], texts[1][: 12 - len(texts[0])]]
    few, two = (
        ngrams.fit_ngrams(*ngrams.joined(texts, 12), V, 0),
        ngrams.fit_ngrams(*ngrams.joined(cut), V, 0),
    )
    held_out = target_list(random_texts([8], seed=5), 0)
    assert (few["9-gram"].losses(held_out).nats == two["9-gram"].losses(held_out).nats).all()
    assert ngrams.fit_ngrams(*ngrams.joined([]), V, 0) == {}
