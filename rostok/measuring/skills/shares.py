"""How sure a share is, and a difference of two shares on the same pairs: 95 % intervals that hold for few pairs too.

    share_interval(right)               # (seeds, n) of 0, 0.5, 1: over pairs; over seeds too where there are several
    paired_interval(right, other)       # the same for the difference of two models on the same pairs

A share has Wilson's interval, a difference that of Bonett and Price: 3 of 3 right is [43.9 %, 100 %], while a bootstrap
says [100 %, 100 %]. Over several seeds it is Student's t of seeds.py, and never narrower than over the pairs alone.
"""

import numpy as np

from rostok.measuring.seeds import difference, spread_of_mean

Z = 1.959963985  # of the normal distribution, 95 %


def share_interval(right: np.ndarray) -> tuple[float, float] | None:
    """The interval of a share right; None for one pair."""
    n = right.shape[1]
    if n < 2:
        return None
    found = wilson(float(right.mean()), n)
    if len(right) > 1:
        low, high = wider(found, spread_of_mean(right, np.ones(n)))
        return max(0.0, low), min(1.0, high)
    return found


def wilson(share: float, n: int) -> tuple[float, float]:
    """The shares p for which `share` of n is within Z standard deviations of p.

    >>> [round(bound, 4) for bound in wilson(0.5, 100)]
    [0.4038, 0.5962]
    """
    middle, half = share + Z**2 / (2 * n), Z * (share * (1 - share) / n + Z**2 / (4 * n**2)) ** 0.5
    low, high = (middle - half) / (1 + Z**2 / n), (middle + half) / (1 + Z**2 / n)
    return max(0.0, low), min(1.0, high)


def paired_interval(right: np.ndarray, other: np.ndarray) -> tuple[float, float] | None:
    """The interval of share right minus share other; None for one pair."""
    n = right.shape[1]
    if n < 2:
        return None
    each = right.mean(0) - other.mean(0)
    better, worse = ((side.clip(0).sum() + 1) / (n + 2) for side in (each, -each))
    middle = better - worse
    half = Z * ((better + worse - middle**2) / (n + 2)) ** 0.5
    found = max(-1.0, float(middle - half)), min(1.0, float(middle + half))
    if len(right) > 1 and len(other) > 1:
        both = difference(right, other, np.ones(n))
        return wider(found, (both.low, both.high))
    return found


def wider(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    return min(first[0], second[0]), max(first[1], second[1])
