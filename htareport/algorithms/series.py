"""Step functions of time: levels that change at stamps, and their statistics weighted by time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Stamps = NDArray[np.int64]


def levels(stamps: Stamps, changes: NDArray[np.int64]) -> tuple[Stamps, NDArray[np.int64]]:
    """Level after each distinct stamp of summed changes, starting from 0; stamps in any order.

    Integer changes keep the level exact: it returns to 0 when everything has ended.
    """
    order = np.argsort(stamps, kind="stable")
    stamps, changes = stamps[order], changes[order]
    if not len(stamps):
        return stamps, changes
    last = np.flatnonzero(np.append(stamps[1:] != stamps[:-1], True))
    return stamps[last], np.cumsum(changes)[last]


class Weighted(NamedTuple):
    """Statistics of a level over time."""

    mean: float
    std: float
    min: float
    max: float
    quantiles: tuple[float, ...]


def time_weighted(
    stamps: Stamps, level: NDArray[Any], shares: Sequence[float] = (), *, busy_only: bool = False
) -> Weighted:
    """Mean, deviation, extremes and quantiles (0 to 1) of a level, weighted by the time for which each value lasts.

    The last value lasts no time. With `busy_only` only the time counts in which the level is above zero. nan without
    any time; the maximum is that of all values.
    """
    lasting, values = np.diff(stamps).astype(np.float64), level[:-1].astype(np.float64)
    used = (lasting > 0) & ((values > 0) | (not busy_only))
    lasting, values = lasting[used], values[used]
    largest = float(level.max()) if len(level) else np.nan
    if not len(values):
        return Weighted(np.nan, np.nan, np.nan, largest, (np.nan,) * len(shares))
    mean = float((lasting * values).sum() / lasting.sum())
    std = float(np.sqrt((lasting * (values - mean) ** 2).sum() / lasting.sum()))
    order = np.argsort(values, kind="stable")
    below = np.cumsum(lasting[order]) / lasting.sum()
    at = [min(int(np.searchsorted(below, share)), len(order) - 1) for share in shares]
    return Weighted(mean, std, float(values.min()), largest, tuple(float(values[order[each]]) for each in at))
