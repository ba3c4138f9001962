"""Log histograms: distributions of durations that can be added up over ranks, with quantiles to within 1 %.

A bin spans a factor of 10^(1/120) = 1.0194; its value is its geometric middle. Durations of zero have a bin of their
own, -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PER_DECADE = 120
COARSE = 15  # Bins of a picture are so many bins wide: eight a decade.
ZERO = -1


def bins_of(durations: NDArray[np.int64]) -> NDArray[np.int32]:
    """Bin of each duration in ns."""
    with np.errstate(divide="ignore"):
        logs = np.log10(durations.astype(np.float64))
    return np.where(durations > 0, np.floor(np.maximum(logs, 0) * PER_DECADE), ZERO).astype(np.int32)


def edges(bins: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Left and right edges of bins in ns; the bin of zero ends at 1."""
    left = np.where(bins == ZERO, 0.0, 10.0 ** (bins / PER_DECADE))
    return left, np.where(bins == ZERO, 1.0, 10.0 ** ((bins + 1) / PER_DECADE))


def quantiles(
    bins: NDArray[Any],
    counts: NDArray[np.int64],
    wanted: NDArray[np.float64],
    extremes: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> NDArray[np.float64]:
    """Quantiles (0 to 1) in ns of what fell into the bins, in any order; nan without any.

    Like numpy's, they lie between two neighbours in proportion. `extremes` are the shortest and the longest duration of
    each bin, which make bins of one duration exact.
    """
    if not counts.sum():
        return np.full(len(wanted), np.nan)
    order = np.argsort(bins, kind="stable")
    last = np.cumsum(counts[order])
    values = np.where(bins == ZERO, 0.0, 10.0 ** ((bins + 0.5) / PER_DECADE))
    values = (values if extremes is None else np.clip(values, *extremes))[order]
    position: NDArray[np.float64] = wanted * (last[-1] - 1)
    low, high = (values[np.searchsorted(last, np.floor(position) + more, side="right") % len(last)] for more in (0, 1))
    share: NDArray[np.float64] = position - np.floor(position)
    result: NDArray[np.float64] = np.where(share == 0, low, low + (high - low) * share)
    return result


def coarse_edges(coarse_bins: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Left and right edges in ns of the bins of a picture, which are COARSE bins wide.

    That of zero goes on to the first of the others, so that it takes no room on a logarithmic scale but its own.
    """
    is_zero = coarse_bins < 0
    left = 10.0 ** (coarse_bins * COARSE / PER_DECADE)
    right = left * 10 ** (COARSE / PER_DECADE)
    first = left[~is_zero].min() if not is_zero.all() else 1.0
    return np.where(is_zero, 0.0, left), np.where(is_zero, first, right)
