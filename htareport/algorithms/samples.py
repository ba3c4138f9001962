"""Two samples of step times: is the difference real, and how large is it.

Everything is deterministic: resampling is seeded, and swapping the samples mirrors the result.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_RESAMPLES = 4_000
_MANY = 250  # Means of more values than that are as good as normally distributed.
_COUNTED = 20_000_000  # Additions that counting every order of the values may take.
_FEWEST = 2  # One value has no spread.
LEVEL = 0.95  # Of the intervals,
SIGNIFICANT = 0.01  # and of the test.
_NORMAL = NormalDist().inv_cdf((1 + LEVEL) / 2)


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

    Exact for small samples, or a small and a larger one, ties included: all ways to deal the values are counted. Else
    by the normal approximation with the correction for ties.
    """
    if not len(base) or not len(new):
        return 1.0
    both = np.concatenate((base, new))
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    doubled = (2 * last - counts + 1)[inverse]  # Twice the mean rank of equal values: whole numbers.
    fewer = min(len(base), len(new))
    if len(both) * fewer * int(doubled.sum()) <= _COUNTED:
        return _exact_p(doubled if len(base) == fewer else doubled[::-1], fewer)
    return _normal_p(doubled, counts, len(base), len(new))


def _exact_p(doubled: NDArray[np.int64], size: int) -> float:
    """Share of all ways to choose `size` of the values whose ranks add up as far from the middle as the first ones'."""
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

    None where a sample has fewer than two values, or so many that are not above zero that a resampled median or mean
    is not either. Swapped samples give the reciprocal.
    """
    if min(len(base), len(new)) < _FEWEST:
        return None
    draws = [_resampled(sample, median=median) for sample in (base, new)]
    if min(draw.min() for draw in draws) <= 0:
        return None
    logs = [np.log(each) if median else _widened(np.log(each), math.log(sample.mean()), len(sample))
            for each, sample in zip(draws, (base, new), strict=True)]  # fmt: skip
    ratio_interval = _of(logs[1] - logs[0])
    return Interval(math.exp(ratio_interval.low), math.exp(ratio_interval.high))


def difference_interval(base: Floats, new: Floats, *, median: bool = False) -> Interval | None:
    """Interval of the difference of means (or medians) new - base, by resampling; None for fewer than two values."""
    if min(len(base), len(new)) < _FEWEST:
        return None
    draws = [_resampled(sample, median=median) for sample in (base, new)]
    if not median:
        draws = [_widened(each, float(sample.mean()), len(sample))
                 for each, sample in zip(draws, (base, new), strict=True)]  # fmt: skip
    return _of(draws[1] - draws[0])


def _resampled(sample: Floats, *, median: bool) -> Floats:
    """Median or mean of resampled values, many times. The seed is made from the values: equal samples agree."""
    return _of_bytes(np.sort(sample.astype(np.float64)).tobytes(), median=median)


@lru_cache(maxsize=64)
def _of_bytes(sample: bytes, *, median: bool) -> Floats:
    """The same of sorted values as bytes: several limits are often held against one number."""
    values, source = np.frombuffer(sample), np.random.default_rng(zlib.crc32(sample))
    of_bytes = _medians(values, source) if median else _means(values, source)
    of_bytes.flags.writeable = False  # Others get the same array.
    return of_bytes


def _medians(values: Floats, source: np.random.Generator) -> Floats:
    """Medians of as many values, drawn from these (sorted) ones.

    Drawing n values is drawing n uniform numbers u and taking values[n u]. So only the middle one or two of the sorted
    u are needed, and order statistics of uniform numbers are beta distributed.
    """
    number = len(values)
    below = (number + 1) // 2
    first = source.beta(below, number - below + 1, _RESAMPLES)
    second = first if number % 2 else first + (1 - first) * source.beta(1, number - below, _RESAMPLES)
    places = [np.minimum((number * each).astype(np.int64), number - 1) for each in (first, second)]
    medians: Floats = (values[places[0]] + values[places[1]]) / 2
    return medians


def _means(values: Floats, source: np.random.Generator) -> Floats:
    number = len(values)
    if number > _MANY:
        return source.normal(values.mean(), values.std(ddof=1) / math.sqrt(number), _RESAMPLES)
    means: Floats = values[source.integers(0, number, (_RESAMPLES, number))].mean(axis=1)
    return means


def _widened(draws: Floats, middle: float, number: int) -> Floats:
    """Means of resampled values spread as far as Student's t says: resampling few values spreads them too little.

    Its quantile is taken from the normal one by the first terms of its expansion (Abramowitz and Stegun 26.7.5).
    """
    free = number - 1
    wider = 1 + (_NORMAL**2 + 1) / (4 * free) + (5 * _NORMAL**4 + 16 * _NORMAL**2 + 3) / (96 * free**2)
    return middle + (draws - middle) * wider * math.sqrt(number / free)


def _of(values: Floats) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))
