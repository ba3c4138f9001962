"""Ranks whose device takes longer than those of other ranks for kernels of equal work."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from htareport.rank.equal_work import EqualWork

MIN_SHARE = 0.5  # Of a rank's compute: fewer kernels than that are enough if they take so much of it.
MIN_KERNELS, MIN_RATIO, MAX_SPREAD = 8, 1.05, 0.03  # From when a device counts as slow: see SlowDevice.


@dataclass(frozen=True)
class SlowDevice:
    """A rank whose kernels take `ratio` times as long as those of the other ranks, all by the same factor.

    `ratio` is the median over `num_kernels` kernels of equal work, `spread` how far apart the quartiles are.
    """

    rank: int
    ratio: float
    spread: float
    num_kernels: int


def slow_devices(
    work_by_rank: Mapping[int, EqualWork],
    min_kernels: int = MIN_KERNELS,
    min_ratio: float = MIN_RATIO,
    max_spread: float = MAX_SPREAD,
) -> dict[int, SlowDevice]:
    """Return the slow devices by rank, from what their kernels take."""
    times_by_kernel = defaultdict[str, list[float]](list)
    for work in work_by_rank.values():
        for kernel, time in work.median_ns.items():
            times_by_kernel[kernel].append(time)
    for kernel_times in times_by_kernel.values():
        kernel_times.sort()
    slow = dict[int, SlowDevice]()
    for rank, work in work_by_rank.items():
        shared = [(time, times_by_kernel[kernel]) for kernel, time in work.median_ns.items()]
        ratios = [time / _median_without(others, time) for time, others in shared if len(others) > 1]
        if not ratios or (len(ratios) < min_kernels and work.share < MIN_SHARE):
            continue
        low, middle, high = np.percentile(ratios, [25, 50, 75]).tolist()
        if middle >= min_ratio and high - low <= max_spread:
            slow[rank] = SlowDevice(rank, middle, high - low, len(ratios))
    return slow


def _median_without(times: Sequence[float], time: float) -> float:
    """The median of sorted times without one of them."""
    index, remaining = bisect_left(times, time), len(times) - 1
    low, high = (times[middle + (middle >= index)] for middle in ((remaining - 1) // 2, remaining // 2))
    return (low + high) / 2
