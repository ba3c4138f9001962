"""Edges along the threads of the host, and between those that do one another's work."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.critical_path import Edges
from htareport.algorithms.distinct import unique_sorted
from htareport.rank.critical_path.activity import NONE
from htareport.rank.critical_path.points import NEVER, Kind, Numbers, Points, Rules


class HostEdges:
    """Edges of the host. `parts` are those found; `waits` the calls whose time is a wait for the device."""

    def __init__(self, points: Points, rules: Rules) -> None:
        self.points, self.rules = points, rules
        self.activity, self.times = points.activity, points.times
        self.hosts = points.hosts
        self.parts: list[Edges] = []
        self._call_edges()
        self._host_edges()

    def _call_edges(self) -> None:
        """From what a call waited for to its end; the call's own time is then no work."""
        host, times = self.activity.host, self.times
        self.waits = np.zeros(self.hosts, np.bool_)
        if not self.rules.python_time:
            self.waits[self.points.syncs.blocking] = True
        if not self.points.syncs.calls:
            return
        event, row = np.array(self.points.syncs.calls, np.int64).T
        source = self.activity.place[event]
        inside = source != NONE
        ended = np.where(
            inside,
            self.times[2 * (self.hosts + source) + 1],
            self.activity.trace.device_events["end"].to_numpy()[event],
        )
        begun, until = host["ts"].to_numpy()[row], times[2 * row + 1]
        waited = (ended <= until) & (ended > begun) & (inside | self.points.has_ends)
        self.waits[row[waited]] = True
        last = np.full(self.hosts, NEVER, np.int64)
        np.maximum.at(last, row[waited], ended[waited])
        returns = waited & (ended == last[row]) & self.rules.python_time  # From what ended last; the others have slack.
        weight = np.where(returns, until - ended, 0)
        ends = 2 * (self.hosts + source) + 1
        self.parts.append(Edges.of(ends[inside], 2 * row[inside] + 1, weight[inside], Kind.SYNC, row[inside]))
        if self.points.has_ends:
            earlier = returns & ~inside
            begin = np.full(int(earlier.sum()), len(times) - 2)
            time = until[earlier] - times[-2]
            self.parts.append(Edges.of(begin, 2 * row[earlier] + 1, time, Kind.EARLIER, row[earlier]))

    def _host_edges(self) -> None:
        """From each point of a thread to the next."""
        if not self.hosts:
            if self.points.has_ends:
                self._between_ends(self.times[-2:])
            return
        parent, depth = (self.activity.host[name].to_numpy() for name in ("parent", "depth"))
        same = np.flatnonzero(np.diff(self.activity.groups[self.points.passed // 2]) == 0)
        src, dst = self.points.passed[same], self.points.passed[same + 1]
        row, is_end, to_end = src // 2, src % 2 == 1, dst % 2 == 1
        inside = ~(is_end & (depth[row] == 0))
        owner = np.where(~is_end, row, np.where(to_end, dst // 2, parent[row]))
        weight = self.times[dst] - self.times[src]
        weight[to_end & self.waits[dst // 2]] = 0
        is_main = self.activity.groups[row] == self.activity.main_group
        weight[~inside & ~(is_main & self.rules.python_time)] = 0
        kind = np.where(inside, Kind.HOST, Kind.BETWEEN).astype(np.int8)
        main = np.flatnonzero(is_main)
        for group in self.activity.backward_groups:
            weight[self._backward_edges(group, main, (src, dst, kind, owner))] = 0
        if self.rules.python_time:
            weight[self._collective_edges(main, src, dst)] = 0
        self.parts.append(Edges(src, dst, weight, kind, owner))
        if self.points.has_ends:
            self._main_ends()

    def _backward_edges(
        self, group: int, main: Numbers, edges: tuple[Numbers, Numbers, NDArray[np.int8], Numbers]
    ) -> Numbers:
        """Put what a thread of the backward pass does while the main thread waits for it in place of that wait.

        Returns the main thread's edges that are such waits.
        """
        src, dst, kind, owner = edges
        outermost = np.flatnonzero((self.activity.groups == group) & (self.activity.host["depth"].to_numpy() == 0))
        begun, ended = self.times[2 * outermost], self.times[2 * outermost + 1]
        at = np.searchsorted(self.times[src[main]], begun, side="right") - 1
        if not len(main) or not len(outermost):
            return main[:0]
        waiting = main[np.maximum(at, 0)]
        inside = (at >= 0) & (ended <= self.times[dst[waiting]])
        rows, waiting = outermost[inside], waiting[inside]
        if not len(rows):
            return main[:0]
        first = np.append(True, np.diff(waiting) != 0)
        last = np.append(first[1:], True)
        counts = (kind[waiting] == Kind.HOST) | self.rules.python_time
        for chosen, begin, finish in (
            (first, src[waiting], 2 * rows),
            (last, 2 * rows + 1, dst[waiting]),
        ):
            time = np.where(counts, self.times[finish] - self.times[begin], 0)[chosen]
            each = waiting[chosen]
            self.parts.append(Edges(begin[chosen], finish[chosen], time, kind[each], owner[each]))
        follows = np.flatnonzero(~first)  # Between two of its operators in the same wait.
        time = np.where(counts, self.times[2 * rows] - np.append(0, self.times[2 * rows + 1][:-1]), 0)[follows]
        self.parts.append(
            Edges(2 * rows[follows - 1] + 1, 2 * rows[follows], time, kind[waiting[follows]], owner[waiting[follows]])
        )
        return unique_sorted(waiting)

    def _collective_edges(self, main: Numbers, src: Numbers, dst: Numbers) -> Numbers:
        """Collectives run by other threads of the host, begun by the main thread, which waits in a gap for their end.

        A collective that was begun while another ran on its thread follows that one. Returns the main thread's edges
        that are such waits.
        """
        rows = np.flatnonzero(self.activity.is_collective & (self.activity.groups != self.activity.main_group))
        if not len(rows) or not len(main):
            return main[:0]
        begun, ended = self.times[2 * rows], self.times[2 * rows + 1]
        passed, until = self.times[src[main]], self.times[dst[main[-1:]]]
        at = np.searchsorted(passed, begun, side="right") - 1
        known = (at >= 0) & (begun < until)
        caller = src[main[np.maximum(at, 0)]]
        follows = np.append(False, self.activity.groups[rows][1:] == self.activity.groups[rows][:-1])
        previous = np.append(0, 2 * rows[:-1] + 1)
        queued = follows & (self.times[previous] >= self.times[caller])
        first = np.where(queued, previous, caller)
        chosen = known | queued
        self.parts.append(
            Edges.of(first[chosen], 2 * rows[chosen], (begun - self.times[first])[chosen], Kind.BETWEEN, NONE)
        )
        gap = np.searchsorted(passed, ended, side="right") - 1
        waited = (gap >= 0) & (ended < until)
        waiting = main[np.maximum(gap, 0)]
        waited &= (src[waiting] % 2 == 1) & (self.activity.host["depth"].to_numpy()[src[waiting] // 2] == 0)
        rows, waiting, ended = rows[waited], waiting[waited], ended[waited]
        time = self.times[dst[waiting]] - ended
        self.parts.append(Edges.of(2 * rows + 1, dst[waiting], time, Kind.BETWEEN, NONE))
        return unique_sorted(waiting)

    def _main_ends(self) -> None:
        """From the window's start to the main thread's first point, and from its last to the window's end."""
        mine = self.points.passed[self.activity.groups[self.points.passed // 2] == self.activity.main_group]
        ends = len(self.times) - 2
        if not len(mine):
            self._between_ends(self.times[-2:])
            return
        src, dst = np.array([ends, mine[-1]]), np.array([mine[0], ends + 1])
        keep = self.times[src] <= self.times[dst]
        weight = self.times[dst] - self.times[src]
        self.parts.append(Edges.of(src[keep], dst[keep], weight[keep], Kind.BETWEEN))

    def _between_ends(self, times: Numbers) -> None:
        ends = np.array([len(self.times) - 2])
        self.parts.append(Edges.of(ends, ends + 1, np.diff(times), Kind.BETWEEN))
