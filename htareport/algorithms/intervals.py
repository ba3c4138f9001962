"""Arithmetic on sets of half-open intervals, as (n, 2) int64 arrays of starts and ends.

A *union* is sorted and disjoint, with gaps between its intervals; every function but `union` and `total` wants one.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Intervals: TypeAlias = NDArray[np.int64]
EMPTY: Intervals = np.empty((0, 2), np.int64)


def union(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Intervals:
    """Merge overlapping and touching intervals. Those of no length are left out."""
    lasting = ends > starts
    if not lasting.all():
        starts, ends = starts[lasting], ends[lasting]
    if not len(starts):
        return EMPTY
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    first = np.concatenate(([True], starts[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((starts[first], reach[last]))


def touching(intervals: Intervals, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the windows [start, end) share time with a union."""
    if not len(intervals):
        return np.zeros(len(starts), np.bool_)
    after = np.searchsorted(intervals[:, 1], starts, side="right")  # The first piece that ends behind the start.
    inside = after < len(intervals)
    after[~inside] = 0
    touching: NDArray[np.bool_] = inside & (intervals[after, 0] < ends)
    return touching


def total(intervals: Intervals) -> int:
    """Length of a union."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """What two unions share."""
    if not len(one) or not len(other):
        return EMPTY
    first = np.searchsorted(other[:, 1], one[:, 0], side="right")  # First piece of `other` that ends after the start.
    stop = np.searchsorted(other[:, 0], one[:, 1], side="left")
    counts = np.maximum(stop - first, 0)
    mine = np.repeat(np.arange(len(one)), counts)
    offsets = np.arange(len(mine)) - np.repeat(np.cumsum(counts) - counts, counts)
    theirs = first[mine] + offsets
    starts = np.maximum(one[mine, 0], other[theirs, 0])
    ends = np.minimum(one[mine, 1], other[theirs, 1])
    return np.column_stack((starts, ends))


def difference(one: Intervals, other: Intervals) -> Intervals:
    """What a union has outside another."""
    if not len(one) or not len(other):
        return one
    low, high = min(one[0, 0], other[0, 0]) - 1, max(one[-1, 1], other[-1, 1]) + 1
    edges = np.concatenate(([low], other.ravel(), [high])).reshape(-1, 2)
    return intersection(one, edges)


def cumulative(intervals: Intervals, stamps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Length of a union before each stamp."""
    if not len(intervals):
        return np.zeros(len(stamps), np.int64)
    lengths = intervals[:, 1] - intervals[:, 0]
    before = np.concatenate(([0], np.cumsum(lengths)))
    index = np.searchsorted(intervals[:, 0], stamps, side="right")
    inside = np.maximum(index - 1, 0)
    over = np.where(index > 0, np.clip(intervals[inside, 1] - stamps, 0, lengths[inside]), 0)
    return before[index] - over


def covered(intervals: Intervals, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Length of a union within each of the windows [start, end)."""
    return cumulative(intervals, ends) - cumulative(intervals, starts)
