"""What lies under each call of a tree, as columns: one pass from the leaves up, level by level, without recursion.

A tree is an array of parents (-1 for roots) in any order; a node's own kernels are those launched by it directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.chunks import chunks
from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.nesting import NO_PARENT, parents

Nodes = NDArray[np.int64]
NEVER = -1  # Start and end of the kernels of a node without any.
_LATE = np.iinfo(np.int64).max


class Work(NamedTuple):
    """Kernels at or below each node: how many, sum of their durations, first start, last start and last end.

    `first_kernel_start` and `last_kernel_end` are -1 without kernels; `height` counts the levels below a node, a kernel
    being one: it is 1 for a leaf.
    """

    num_kernels: Nodes
    kernel_dur_sum: Nodes
    first_kernel_start: Nodes
    last_kernel_end: Nodes
    height: Nodes

    @property
    def kernel_span(self) -> Nodes:
        """Last end − first start; 0 without kernels."""
        return self.last_kernel_end - self.first_kernel_start


def depths(parent: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """How many nodes are above each; linear but for the logarithm of the depth."""
    above = np.full(len(parent) + 1, NO_PARENT, np.int32)  # The last is what -1 takes: above a root is nothing.
    above[:-1] = parent
    depth = (above != NO_PARENT).astype(np.int32)
    while (above != NO_PARENT).any():  # Twice as far in each round.
        depth += depth[above]
        above = above[above]
    depths: NDArray[np.int32] = depth[:-1]
    return depths


def work_under(parent: NDArray[np.integer[Any]], launched_by: Nodes, starts: Nodes, ends: Nodes) -> Work:
    """What the kernels under each node add up to; `launched_by` is the node of each kernel (-1: of none)."""
    linked = launched_by != NO_PARENT
    if not linked.all():
        launched_by, starts, ends = launched_by[linked], starts[linked], ends[linked]
    size = len(parent)
    count, total = np.bincount(launched_by, minlength=size).astype(np.int64), np.zeros(size, np.int64)
    first, last = np.full(size, _LATE), np.full(size, NEVER, np.int64)
    np.add.at(total, launched_by, ends - starts)
    np.minimum.at(first, launched_by, starts)
    np.maximum.at(last, launched_by, ends)
    height = np.ones(size, np.int64)
    for nodes in _upwards(parent):
        above = parent[nodes]
        np.maximum.at(height, above, height[nodes] + 1)
        busy = count[nodes] > 0
        if busy.any():
            nodes, above = nodes[busy], above[busy]  # noqa: PLW2901  what follows is about these
            np.add.at(count, above, count[nodes])
            np.add.at(total, above, total[nodes])
            np.minimum.at(first, above, first[nodes])
            np.maximum.at(last, above, last[nodes])
    return Work(count, total, np.where(count > 0, first, NEVER), last, height)


def sums_under(
    parent: NDArray[np.integer[Any]], launched_by: Nodes, durations: Nodes
) -> tuple[NDArray[np.int32], Nodes]:
    """Number and summed durations of the kernels under each node alone, in a fraction of the room of `work_under`."""
    linked = launched_by != NO_PARENT
    launched_by, durations = launched_by[linked], durations[linked]
    nodes = _ancestors(parent, launched_by)  # Only these have kernels, and the rest need no sums.
    count, total = np.zeros(len(parent), np.int32), np.zeros(len(parent), np.int64)
    np.add.at(count, launched_by, 1)
    np.add.at(total, launched_by, durations)
    for level in _upwards(_among(parent, nodes)):
        node = nodes[level]
        np.add.at(count, parent[node], count[node])
        np.add.at(total, parent[node], total[node])
    return count, total


def _ancestors(parent: NDArray[np.integer[Any]], nodes: Nodes) -> NDArray[np.int32]:
    """Some nodes and all that are above them, in ascending order."""
    ancestors = np.zeros(len(parent), np.bool_)
    new: NDArray[np.integer[Any]] = unique_sorted(nodes)
    while len(new):
        ancestors[new] = True
        above = parent[new]
        new = unique_sorted(above[(above != NO_PARENT) & ~ancestors[above]])
    return np.flatnonzero(ancestors).astype(np.int32)


def _among(parent: NDArray[np.integer[Any]], nodes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Parents of some nodes, in ascending order and with all that are above them, as places in these."""
    above = parent[nodes]
    place = np.searchsorted(nodes, above).astype(np.int32)
    place[above == NO_PARENT] = NO_PARENT
    return place


def self_times(starts: Nodes, ends: Nodes, parent: NDArray[np.integer[Any]]) -> Nodes:
    """Time of each node outside its children, which follow each other; at least 0."""
    own = ends - starts
    for chunk in chunks(len(own)):
        child = np.flatnonzero(parent[chunk] != NO_PARENT) + chunk.start
        above = parent[child]
        np.subtract.at(own, above, np.maximum(np.minimum(ends[child], ends[above]) - starts[child], 0))
    np.maximum(own, 0, out=own)
    return own


def nearest_above(parent: NDArray[np.int32], wanted: NDArray[np.bool_]) -> NDArray[np.int32]:
    """The nearest of some nodes above each, -1 for none."""
    reached = np.full(len(parent) + 1, NO_PARENT, np.int32)  # The last is what -1 takes: no node leads to none.
    reached[:-1] = parent
    reached[:-1][wanted] = np.flatnonzero(wanted)
    while True:
        further = _leading(reached, reached)  # Twice as far in each round.
        if np.array_equal(further, reached):
            return _leading(reached, parent)
        reached = further


def _leading(reached: NDArray[np.int32], nodes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Where nodes lead to."""
    leading = np.empty_like(nodes)
    for chunk in chunks(len(nodes)):
        leading[chunk] = reached[nodes[chunk]]
    return leading


def grafted(parent: NDArray[np.integer[Any]], branches: Nodes, onto: Nodes) -> NDArray[np.integer[Any]]:
    """The tree with some nodes, and all below them, moved under others: backward calls under their forward call."""
    moved = parent.copy()
    moved[branches] = onto
    return moved


def _upwards(parent: NDArray[np.integer[Any]]) -> Iterator[NDArray[np.int32]]:
    """The nodes of each level, deepest first, roots left out."""
    depth = depths(parent)
    limits = np.cumsum(np.bincount(depth)) if len(depth) else np.zeros(1, np.int64)
    order = np.argsort(depth, kind="stable").astype(np.int32)
    del depth, parent  # Whoever goes through the levels needs the room.
    for level in range(len(limits) - 1, 0, -1):
        yield order[limits[level - 1] : limits[level]]


def around_points(starts: Nodes, ends: Nodes, groups: NDArray[Any], points: Nodes, point_groups: NDArray[Any]) -> Nodes:
    """Index of the innermost interval [start, end) of the same group around each point, -1 for none."""
    around_points = np.full(len(points), NO_PARENT, np.int64)
    order = np.lexsort((-ends, starts, groups))
    by_group = groups[order]
    limits = np.flatnonzero(np.diff(by_group)) + 1
    for first, last in pairwise([0, *limits.tolist(), len(order)]):
        if first == last:
            continue
        intervals, mine = order[first:last], np.flatnonzero(point_groups == by_group[first])
        begin, end, point = starts[intervals], ends[intervals], points[mine]
        above = np.append(parents(begin, end), NO_PARENT)  # The last is what -1 takes: around nothing is nothing.
        ended = np.append(end, _LATE)
        place = np.searchsorted(begin, point, side="right") - 1  # The last to have begun, or one around it.
        while (over := ended[place] <= point).any():
            place[over] = above[place[over]]
        around_points[mine] = np.append(intervals, NO_PARENT)[place]
    return around_points
