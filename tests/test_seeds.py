"""Differences over seeds and texts: against studies whose truth is known, and against a textbook's t."""

import numpy as np
import pytest

from rostok.measuring.seeds import Difference, difference, sentence, student_t


def study(rng, n: int, texts: int, seed_sd: float, text_sd: float, mixed_sd: float, truth: float):
    """Two recipes, n seeds each, on the same texts: sums (n, U) of both, and weights (U,)."""
    weights = rng.integers(50, 300, texts).astype(float)
    hard = rng.normal(2.5, 0.5, texts)  # hard for both
    own = rng.normal(0, text_sd, texts)  # harder for the first only
    sides = []
    for shift in (truth + own, np.zeros(texts)):
        seeds = rng.normal(0, seed_sd, (n, 1))
        sides.append((hard + shift + seeds + rng.normal(0, mixed_sd, (n, texts))) * weights)
    return sides[0], sides[1], weights


# Seeds matter most; texts matter most; both; only what seed and text make together.
@pytest.mark.parametrize(
    ("n", "seed_sd", "text_sd", "mixed_sd"),
    [(3, 0.016, 0.05, 0.05), (3, 0.002, 0.3, 0.05), (5, 0.01, 0.15, 0.1), (3, 0.01, 0.1, 0.2)],
)
def test_two_thousand_studies_with_known_truth(n, seed_sd, text_sd, mixed_sd) -> None:
    rng = np.random.default_rng(0)
    covered = 0
    false = 0
    for _ in range(2000):
        truth = 0.02
        found = difference(*study(rng, n, 60, seed_sd, text_sd, mixed_sd, truth))
        covered += found.low <= truth <= found.high
        equal = difference(*study(rng, n, 60, seed_sd, text_sd, mixed_sd, 0.0))
        false += equal.verdict != "cannot tell"
    assert 0.93 <= covered / 2000 <= 0.97
    assert false / 2000 <= 0.06


def test_welch_when_texts_are_all_alike() -> None:
    """Every text has the same difference: what is left is Welch's t on the means of the seeds."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(2.0, 0.02, 4), rng.normal(2.1, 0.05, 3)
    weights = np.full(200, 100.0)
    found = difference(np.outer(a, weights), np.outer(b, weights), weights)
    va, vb = a.var(ddof=1) / 4, b.var(ddof=1) / 3
    df = (va + vb) ** 2 / (va**2 / 3 + vb**2 / 2)
    assert found.value == pytest.approx(a.mean() - b.mean())
    assert found.smallest == pytest.approx(student_t(df) * (va + vb) ** 0.5, rel=1e-6)
    assert found.spread == pytest.approx((a.std(ddof=1), b.std(ddof=1)))


def test_three_words() -> None:
    def told(low, high):
        return sentence(
            "a", "b", Difference((low + high) / 2, low, high, (3, 1), (0.01, 0)), "nats per token"
        )

    assert told(-0.3, -0.1).startswith("a is better than b by 0.2000 [0.1000, 0.3000]")
    assert told(0.1, 0.3).startswith("b is better than a by 0.2000 [0.1000, 0.3000]")
    assert told(-0.1, 0.3).startswith("cannot tell a from b: +0.1000 [-0.1000, +0.3000]")
    assert "3 seeds and no seeds could have shown 0.2000" in told(-0.1, 0.3)
