"""Two samples of step times: is the difference real, and how large is it.

Everything is deterministic: resampling is seeded, and swapping the samples mirrors the result.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_RESAMPLES = 4_000
_AT_ONCE = 1 << 22  # Numbers that are resampled together.
_EXACT = 24  # Up to this many values of each sample every order is counted.
_FEWEST = 2  # One value has no spread.
LEVEL = 0.95  # Of the intervals,
SIGNIFICANT = 0.01  # and of the test.


@dataclass(frozen=True)
class Interval:
    """A confidence interval of LEVEL."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def smallest_p(base: int, new: int) -> float:
    """Smallest two-sided p that samples of these sizes can give."""
    return min(1.0, 2 / math.comb(base + new, base)) if base and new else 1.0


def mann_whitney(base: Floats, new: Floats) -> float:
    """Two-sided p of the Mann–Whitney test that one sample tends to be larger.

    Exact for small samples, ties included: all ways to deal the values are counted. Else by the normal approximation
    with the correction for ties.
    """
    if not len(base) or not len(new):
        return 1.0
    both = np.concatenate((base, new))
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    doubled = (2 * last - counts + 1)[inverse]  # Twice the mean rank of equal values: whole numbers.
    if max(len(base), len(new)) <= _EXACT:
        return _exact_p(doubled, len(base))
    return _normal_p(doubled, counts, len(base), len(new))


def _exact_p(doubled: NDArray[np.int64], size: int) -> float:
    """Share of all ways to choose `size` of the values whose sum of ranks lies as far from the middle as ours."""
    total = int(doubled.sum())
    ways = np.zeros((size + 1, total + 1))
    ways[0, 0] = 1
    for value in doubled.tolist():
        ways[1:, value:] += ways[:-1, : total + 1 - value].copy()
    sums = np.arange(total + 1) * len(doubled)
    middle = size * total
    ours = abs(int(doubled[:size].sum()) * len(doubled) - middle)
    chosen = ways[size][np.abs(sums - middle) >= ours]
    return float(min(1.0, chosen.sum() / ways[size].sum()))


def _normal_p(doubled: NDArray[np.int64], counts: NDArray[np.int64], base: int, new: int) -> float:
    number = base + new
    statistic = doubled[:base].sum() / 2 - base * (number + 1) / 2
    ties = float((counts.astype(np.float64) ** 3 - counts).sum()) / (number * (number - 1))
    variance = base * new / 12 * (number + 1 - ties)
    if variance <= 0:
        return 1.0
    distance = max(0.0, abs(statistic) - 0.5) / math.sqrt(variance)
    return math.erfc(distance / math.sqrt(2))


def ratio_interval(base: Floats, new: Floats, *, median: bool = True) -> Interval | None:
    """Interval of the ratio of medians (or means) new / base, by resampling.

    None where a sample has fewer than two values, or some that are not above zero. Swapped samples give the reciprocal.
    """
    if min(len(base), len(new)) < _FEWEST or min(base.min(), new.min()) <= 0:
        return None
    found = _of(np.log(_resampled(new, median=median)) - np.log(_resampled(base, median=median)))
    return Interval(math.exp(found.low), math.exp(found.high))


def difference_interval(base: Floats, new: Floats, *, median: bool = False) -> Interval | None:
    """Interval of the difference of means (or medians) new - base, by resampling; None for fewer than two values."""
    if min(len(base), len(new)) < _FEWEST:
        return None
    return _of(_resampled(new, median=median) - _resampled(base, median=median))


def _resampled(sample: Floats, *, median: bool) -> Floats:
    """Median or mean of resampled values, many times. The seed is made from the values: equal samples agree."""
    source = np.random.default_rng(zlib.crc32(np.ascontiguousarray(sample, np.float64).tobytes()))
    rows = max(1, _AT_ONCE // len(sample))
    parts = []
    for first in range(0, _RESAMPLES, rows):
        places = source.integers(0, len(sample), (min(rows, _RESAMPLES - first), len(sample)))
        chosen = sample[places]
        parts.append(np.median(chosen, axis=1) if median else chosen.mean(axis=1))
    return np.concatenate(parts)


def _of(values: Floats) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))
