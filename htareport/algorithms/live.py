"""Levels of memory over time, and what is live at a point of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted

Ints = NDArray[np.int64]


def running_total(sizes: Ints) -> Ints:
    """Sum of all changes up to each, from as much as must have been there before for it never to be negative."""
    total = np.cumsum(sizes)
    return total - min(int(total.min(initial=0)), 0)


def live_rows(addresses: Ints, sizes: Ints) -> Ints:
    """Rows of the allocations that nothing has freed by the end of the series.

    Rows are in order of time, and frees have negative sizes: the last row of an address is live if it allocates.
    """
    backwards = addresses[::-1]
    _, first = np.unique(backwards, return_index=True)
    rows = np.sort(len(addresses) - 1 - first)
    return rows[sizes[rows] > 0]


def thinned(values: Ints, most: int) -> Ints:
    """Rows of the largest value within each of at most so many stretches of equal numbers of rows, in order."""
    if len(values) <= most:
        return np.arange(len(values))
    starts = np.linspace(0, len(values), most + 1).astype(np.int64)[:-1]
    stretch = np.repeat(np.arange(most), np.diff(np.append(starts, len(values))))
    order = np.lexsort((-values, stretch))
    return np.sort(order[starts])


def growth(values: Ints, most: int = 500) -> float:
    """How much more each value is than the one before: the median slope between all pairs (Theil and Sen).

    Of more than `most` values evenly chosen ones are compared. nan for fewer than two.
    """
    places = unique_sorted(np.linspace(0, len(values) - 1, min(len(values), most)).astype(np.int64))
    if len(places) < 2:  # noqa: PLR2004  no pair
        return float("nan")
    first, second = np.triu_indices(len(places), 1)
    rises = values[places[second]] - values[places[first]]
    return float(np.median(rises / (places[second] - places[first])))
