"""Longest ways through a graph without circles, for many sets of delays at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class LongestPaths:
    """A graph whose nodes are put in levels, so that every edge leads to a higher one.

    `in_circle` marks nodes that lie on a circle or behind one: they have no level, and no way to them is followed.
    """

    def __init__(self, num_nodes: int, source: Ints, target: Ints) -> None:
        self.num_nodes = num_nodes
        level = _levels(num_nodes, source, target)
        self.in_circle = level < 0
        followed = np.flatnonzero(level[target] >= 0)
        order = followed[np.lexsort((target[followed], level[target[followed]]))]
        self._order, self._source = order, source[order]
        targets, levels = target[order], level[target[order]]
        first = np.flatnonzero(np.diff(targets, prepend=-1) != 0)
        self._targets, self._first = targets[first], first
        limits = np.searchsorted(levels[first], np.arange(1, int(levels.max(initial=0)) + 2))
        self._limits = np.unique(np.append(0, limits))

    def times(self, delay: Floats, begin: Floats, averaged: NDArray[np.bool_] | None = None) -> Floats:
        """Return the time of each node for each set of delays: the longest way to it.

        `delay` has a row for each edge and a column for each set, `begin` the time of nodes that no edge leads to. The
        time of nodes that are `averaged` is the mean of the ways to it.
        """
        times = np.repeat(begin[:, None], delay.shape[1], axis=1)
        ordered = delay[self._order]
        stops = np.append(self._first, len(self._order))
        for low, high in zip(self._limits[:-1].tolist(), self._limits[1:].tolist(), strict=True):
            edges = slice(int(stops[low]), int(stops[high]))
            ways = times[self._source[edges]] + ordered[edges]
            longest = np.maximum.reduceat(ways, stops[low:high] - stops[low], axis=0)
            targets = self._targets[low:high]
            if averaged is not None and (chosen := averaged[targets]).any():
                count = np.diff(np.append(stops[low:high], stops[high]))[chosen, None]
                longest[chosen] = np.add.reduceat(ways, stops[low:high] - stops[low], axis=0)[chosen] / count
            times[targets] = np.maximum(times[targets], longest)
        return times


def _levels(num_nodes: int, source: Ints, target: Ints) -> Ints:
    """The number of edges on the longest way to each node; -1 on a circle and behind one."""
    waiting = np.bincount(target, minlength=num_nodes)
    order = np.argsort(source, kind="stable")
    targets = target[order]
    first = np.searchsorted(source[order], np.arange(num_nodes + 1))
    level = np.where(waiting == 0, 0, -1).astype(np.int64)
    front, number = np.flatnonzero(waiting == 0), 0
    while len(front):
        counts = first[front + 1] - first[front]
        edges = np.repeat(first[front] - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
        reached, times = np.unique(targets[edges], return_counts=True)
        waiting[reached] -= times
        front = reached[waiting[reached] == 0]
        number += 1
        level[front] = number
    return level
