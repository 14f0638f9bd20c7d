"""A difference between two recipes, each trained with several seeds: an interval over seeds and texts together.

    found = difference(first, second, weights)      # sums of nats by seed and text: (seeds, U), (seeds, U), (U,)
    found.verdict                                    # "better", "worse" or "cannot tell": first against second

Two things make a difference uncertain: which seeds were drawn, and which texts. The variance is the sum of three parts:

    1. and 2.  seeds of each recipe: variance of the means of its seeds / their number
    3.         texts: variance over texts of the difference, without what seeds add to each text (counted in 1 and 2)

The interval is Student's t with the degrees of freedom of Welch and Satterthwaite. A bootstrap of three seeds is not
used: it covers about 75 % instead of 95. A side without seeds (a model that only counts) has one row and no seed part.
NumPy only. Left out: pairing by seed, more than two recipes at once.
"""

from dataclasses import dataclass

import numpy as np

ANGLES = np.linspace(0, np.pi / 2, 4001)
BETTER, WORSE, CANNOT_TELL = "better", "worse", "cannot tell"


@dataclass(frozen=True)
class Difference:
    """First minus second (lower is better): value and 95 % interval in nats; seeds of both; sd of both over seeds."""

    value: float
    low: float
    high: float
    seeds: tuple[int, int]
    spread: tuple[float, float]

    @property
    def smallest(self) -> float:
        """The smallest difference that so many seeds and texts could have shown: half the interval's width."""
        return (self.high - self.low) / 2

    @property
    def verdict(self) -> str:
        return BETTER if self.high < 0 else WORSE if self.low > 0 else CANNOT_TELL


def difference(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> Difference:
    """Compare sums (seeds, U) of two recipes over the same U texts with weights (U,), their numbers of targets.

    A side of one row has no seed part: right for a model that needs no seed, too narrow for one trained once.
    """
    sides = [parts(sums, weights) for sums in (first, second)]
    (mean_a, within_a, mixed_a, seed_a), (mean_b, within_b, mixed_b, seed_b) = sides
    n_texts = len(weights)
    texts = (within_a - within_b).var(ddof=1) / n_texts
    texts = max(0.0, texts - mixed_a / len(first) / n_texts - mixed_b / len(second) / n_texts)
    pieces = [(seed_a, len(first) - 1), (seed_b, len(second) - 1), (texts, n_texts - 1)]
    variance = sum(part for part, _ in pieces)
    degrees = sum(part**2 / df for part, df in pieces if df)
    half = student_t(variance**2 / degrees) * variance**0.5 if degrees else 0.0
    value = mean_a - mean_b
    spread = (seed_a * len(first)) ** 0.5, (seed_b * len(second)) ** 0.5
    return Difference(value, value - half, value + half, (len(first), len(second)), spread)


def parts(sums: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray, float, float]:
    """Of one recipe: its mean, each text's deviation from it (U,), the variance that seed and text make together, and
    the variance of the mean over seeds (0 for one row).
    """
    means = sums.sum(1) / weights.sum()  # (seeds,)
    deviations = (sums - means[:, None] * weights) * (len(weights) / weights.sum())  # (seeds, U), mean 0
    shared = deviations.mean(0)  # (U,)
    if len(sums) < 2:
        return float(means.mean()), shared, 0.0, 0.0
    mixed = ((deviations - shared) ** 2).sum() / ((len(sums) - 1) * (len(weights) - 1))
    return float(means.mean()), shared, float(mixed), float(means.var(ddof=1) / len(sums))


def spread_of_mean(sums: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """95 % interval of a recipe's mean over seeds and texts: (seeds, U) against a row of zeros."""
    found = difference(sums, np.zeros((1, sums.shape[1])), weights)
    return found.low, found.high


def student_t(degrees: float) -> float:
    """The t that |T| stays below with probability 0.95, for any degrees of freedom from 1.

    >>> [round(student_t(df), 3) for df in (2, 4, 10.5, 1e9)]
    [4.303, 2.776, 2.214, 1.96]
    """
    if degrees > 30:  # series around the normal's quantile z (Abramowitz and Stegun 26.7.5)
        z = 1.959963985
        return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    degrees = max(degrees, 1.0)
    # T = sqrt(degrees) tan(angle), where the density of the angle is proportional to cos(angle)^(degrees - 1)
    density = np.cos(ANGLES) ** (degrees - 1)
    area = np.concatenate(([0.0], np.cumsum(density[1:] + density[:-1])))
    return float(degrees**0.5 * np.tan(np.interp(0.95 * area[-1], area, ANGLES)))


def sentence(first: str, second: str, found: Difference, unit: str) -> str:
    """The plain words for a difference over seeds and texts."""
    a, b = first, second
    value, low, high = found.value, found.low, found.high
    counts = " and ".join("no seeds" if n == 1 else f"{n} seeds" for n in found.seeds)
    small = f"{counts} could have shown {found.smallest:.4f}"
    if found.verdict == CANNOT_TELL:
        return f"cannot tell {a} from {b}: {value:+.4f} [{low:+.4f}, {high:+.4f}] {unit}; {small}"
    if found.verdict == WORSE:
        a, b, value, low, high = second, first, -value, -high, -low
    return f"{a} is better than {b} by {-value:.4f} [{-high:.4f}, {-low:.4f}] {unit}, over seeds and texts; {small}"
