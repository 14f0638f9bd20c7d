"""How sure a number is: 95 % intervals by a bootstrap over texts, and the words for a difference.

    mean_interval(values, units)        # the interval of a mean, drawing whole units (texts) of values
    bootstrap(sums, weights)            # the same draws for several rows at once: a paired bootstrap

NumPy only. Shapes: N targets, U units, K rows.
"""

import numpy as np

from rostok.measuring.targets import TargetList

MIN_UNITS = 30  # fewer texts than this, and the bootstrap draws stretches of text instead
BLOCK = 256  # targets in such a stretch


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
    """The plain words for first minus second (lower is better), whose interval knows texts and no seeds."""
    if bounds is None:
        return f"{first} and {second}: too little text for an interval (difference {difference:+.4f} {unit})"
    low, high = bounds
    if low <= 0 <= high:
        return f"cannot tell {first} from {second} on these texts: {difference:+.4f} [{low:+.4f}, {high:+.4f}] {unit}"
    if difference > 0:
        first, second, difference, low, high = second, first, -difference, -high, -low
    return f"{first} is better than {second} on these texts by {-difference:.4f} [{-high:.4f}, {-low:.4f}] {unit}"


def group_sums(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Sum of values (N,) in each unit (U,), float64."""
    return np.bincount(units, weights=values)
