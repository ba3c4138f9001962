"""Which interval lies directly within which, on one thread: the call tree of nested calls, without recursion."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NO_PARENT = -1


def parents(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the innermost interval around each, -1 for the outermost. Intervals must be sorted by (start, -end).

    An interval that outlasts the one it starts in (a partial overlap) still counts as its child.
    """
    stack: list[int] = []
    found = np.full(len(starts), NO_PARENT, np.int64)
    begin, end = starts.tolist(), ends.tolist()
    top_end = 0
    for index, start in enumerate(begin):
        while stack and top_end <= start:
            stack.pop()
            top_end = end[stack[-1]] if stack else 0
        if stack:
            found[index] = stack[-1]
        stack.append(index)
        top_end = end[index]
    return found


def self_times(
    starts: NDArray[np.int64], ends: NDArray[np.int64], threads: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Time of each interval outside those directly within it, at least 0, and whether it is outermost on its thread."""
    order = np.lexsort((-ends, starts, threads))
    begin, end, thread = starts[order], ends[order], threads[order]
    own = end - begin
    outermost = np.ones(len(order), np.bool_)
    limits = np.flatnonzero(np.diff(thread)) + 1
    for first, last in zip(np.concatenate(([0], limits)), np.concatenate((limits, [len(order)])), strict=True):
        parent = parents(begin[first:last], end[first:last])
        child = np.flatnonzero(parent != NO_PARENT)
        around = parent[child] + first
        child += first
        within = np.minimum(end[child], end[around]) - begin[child]
        np.subtract.at(own, around, within)
        outermost[child] = False
    result, outer = np.empty_like(own), np.empty_like(outermost)
    result[order], outer[order] = np.maximum(own, 0), outermost
    return result, outer
