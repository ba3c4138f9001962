"""The points in time of a window's graph: start and end of every event, in an order that no edge contradicts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from htareport.rank.critical_path.activity import NONE, Activity
from htareport.rank.critical_path.waits import Syncs

Numbers = NDArray[np.int64]
NEVER = np.iinfo(np.int64).min
_ROUNDING_NS = 1000  # Overlap on a stream up to which it comes from times cut to whole µs.
_ENDS, _HOST, _STARTS = range(3)  # At equal stamps device events end, the host goes on, device events start.


class Kind(IntEnum):
    """What an edge stands for."""

    HOST = 0  # Within an operator or call.
    BETWEEN = 1  # Between outermost operators and calls of a thread: Python, or waiting.
    DEVICE = 2  # From start to end of a device event.
    LAUNCH = 3  # From the start of a launching call to that of its device event.
    GAP = 4  # From the end of a device event to the start of the next on its stream.
    SYNC = 5  # From the end of a device event to the end of a call, or the start of an event, that waited for it.
    EARLIER = 6  # From the window's start to what waited for device work that was launched before it.


@dataclass(frozen=True)
class Rules:
    """How edges get their weights.

    `python_time`: time between outermost operators counts, on the main thread; so does the time in which a call returns
    from its wait, and a call that found nothing to wait for. False: all of that is free, as in HTA, whose rule for
    launches holds too: an edge only if nothing else waits on the stream, from one kernel to the next only below
    1.5 ms. `constraints`: edges of weight 0 keep device events behind their launch and behind the one before on their
    stream even where neither is what they wait for; they matter when weights are changed.
    """

    python_time: bool = True
    constraints: bool = True


class Points:
    """Start (2 e) and end (2 e + 1) of every event e, and at the end those of the window itself if `has_ends`.

    `times` (ns), `levels` and `ties` give their order. `passed` are the host's points in the order in which each thread
    passes them. `launched` is when each device event was launched, `before` what ran before it on its stream: row
    within the window (-1 none) and when that ended. `shifted` counts device events that start before their launch.
    """

    def __init__(self, activity: Activity, syncs: Syncs, *, has_ends: bool) -> None:
        self.activity, self.syncs, self.has_ends = activity, syncs, has_ends
        self.hosts, self.devices = len(activity.host), len(activity.device)
        self.times = np.zeros(2 * activity.size + 2 * has_ends, np.int64)
        self.levels = np.full(len(self.times), _HOST, np.int8)
        self.ties = np.zeros(len(self.times), np.int64)
        if has_ends:
            self.times[-2:] = activity.span.start, activity.span.end
            self.levels[-2:], self.ties[-2] = (_ENDS, _STARTS), -1
        self.passed = self._place_host()
        self.launched = self._launched()
        self.before, self.shifted = self._place_devices()

    def _place_host(self) -> Numbers:
        """Points of the host as each thread passes them; a call ends no earlier than what it calls."""
        host, count = self.activity.host, self.hosts
        depth, row = host["depth"].to_numpy(), np.arange(count)
        order = np.empty(2 * count, np.int64)
        start_at, end_at = 2 * row - depth, 2 * self.activity.last_within + 1 - depth
        order[start_at], order[end_at] = 2 * row, 2 * row + 1
        times = np.empty(2 * count, np.int64)
        times[start_at], times[end_at] = host["ts"].to_numpy(), host["end"].to_numpy()
        groups = self.activity.groups[order // 2]
        limits = np.flatnonzero(np.diff(groups)) + 1
        for first, last in zip(np.append(0, limits).tolist(), np.append(limits, 2 * count).tolist(), strict=True):
            times[first:last] = np.maximum.accumulate(times[first:last])
        self.times[order], self.ties[order] = times, np.arange(2 * count)
        return order

    def _launched(self) -> Numbers:
        launch = self.activity.device["launch"].to_numpy()
        launched = np.full(self.devices, NEVER, np.int64)
        launched[launch >= 0] = self.activity.trace.launches["ts"].to_numpy()[launch[launch >= 0]]
        return launched

    def _place_devices(self) -> tuple[tuple[Numbers, Numbers], int]:
        """Points of device events: none starts before its launch, or ends after the call that waited for it."""
        device, first = self.activity.device, 2 * self.hosts
        start = np.maximum(device["ts"].to_numpy(), self.launched)
        end = np.maximum(device["end"].to_numpy(), start)
        for event, row in self.syncs.calls:
            source, until = self.activity.place[event], self.times[2 * row + 1]
            if source != NONE and start[source] < until < end[source] and end[source] - until <= _ROUNDING_NS:
                end[source] = until
        before = self._events_before(start, end)
        starts = slice(first, first + 2 * self.devices, 2)
        ends = slice(first + 1, first + 2 * self.devices, 2)
        self.times[starts], self.times[ends] = start, end
        self.levels[starts], self.levels[ends] = _STARTS, np.where(end > start, _ENDS, _STARTS)
        self.ties[first : first + 2 * self.devices] = np.arange(2 * self.devices)
        return before, int((start > device["ts"].to_numpy()).sum())

    def _events_before(self, start: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
        """What ran before each device event on its stream: row within the window (-1 none), and when it ended.

        That may be an event from before the window. Where events of a stream overlap it is the one that ended last
        before the start; overlaps that come from rounding are cut off `end`.
        """
        trace, device = self.activity.trace, self.activity.device
        every, mine = trace.device_events, device["all"].to_numpy()
        starts, ends = every["ts"].to_numpy().copy(), every["end"].to_numpy().copy()
        starts[mine], ends[mine] = start, end
        lanes = every["lane"].to_numpy().astype(np.int64) * len(trace.captures) + every["capture"].to_numpy()
        order = np.lexsort((np.arange(len(every)), lanes))
        previous = np.full(len(every), NONE, np.int64)
        same = np.flatnonzero(np.diff(lanes[order]) == 0)
        previous[order[same + 1]] = order[same]
        before = previous[mine]
        overlap = np.where(before == NONE, 0, ends[before] - start)
        for number in np.flatnonzero(overlap > 0).tolist():
            earlier, row = int(before[number]), int(self.activity.place[before[number]])
            if overlap[number] <= _ROUNDING_NS and starts[earlier] <= start[number]:
                ends[earlier] = start[number]
                if row != NONE:
                    end[row] = start[number]
                continue
            while earlier != NONE and ends[earlier] > start[number]:
                earlier = int(previous[earlier])
            before[number] = earlier
        known = before != NONE
        return np.where(known, self.activity.place[before], NONE), np.where(known, ends[before], NEVER)
