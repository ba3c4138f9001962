"""Edges of device events: within them, and to each from what it may have waited for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.critical_path import Edges
from htareport.algorithms.distinct import unique_sorted
from htareport.rank.critical_path.activity import NONE
from htareport.rank.critical_path.points import NEVER, Kind, Numbers, Points, Rules

_UNKNOWN_GAP_NS = 30_000  # A longer pause before an event without a launch is no delay of the device's own.
_LONGEST_GAP_NS = 1_500_000  # HTA's: it takes a longer pause of a stream for a wait.


class DeviceEdges:
    """Edges of the device; `parts` are those found."""

    def __init__(self, points: Points, rules: Rules) -> None:
        self.points, self.rules = points, rules
        self.activity, self.times, self.launched = points.activity, points.times, points.launched
        self.hosts, self.devices = points.hosts, points.devices
        self.parts: list[Edges] = []
        if self.devices:
            self._device_edges()

    def _device_edges(self) -> None:
        """Within device events, and to each from what it waits for: its launch, the one before, or another stream's."""
        row = np.arange(self.devices)
        start, end = 2 * (self.hosts + row), 2 * (self.hosts + row) + 1
        begun = self.times[start]
        self.parts.append(Edges.of(start, end, self.times[end] - begun, Kind.DEVICE, self.hosts + row))
        launch = self.activity.device["launch"].to_numpy()
        call = np.full(self.devices, NONE, np.int64)
        call[launch >= 0] = self.activity.call_of_launch[launch[launch >= 0]]
        before, before_end = self.points.before
        source, source_end = self._sources()
        by_launch, by_before, by_source = self._bound(before, before_end, source, source_end)
        keep = self.rules.constraints
        for there, bound, point, kind, owner in (
            (call != NONE, by_launch, 2 * call, Kind.LAUNCH, self.hosts + row),
            (before != NONE, by_before, 2 * (self.hosts + before) + 1, Kind.GAP, self.hosts + before),
            (source != NONE, by_source, 2 * (self.hosts + source) + 1, Kind.SYNC, self.hosts + source),
        ):
            counts = bound & (self.rules.python_time or kind != Kind.SYNC)
            chosen = there & (bound | keep | (kind == Kind.SYNC))
            weight = np.where(counts[chosen], begun[chosen] - self.times[point[chosen]], 0)
            self.parts.append(Edges.of(point[chosen], start[chosen], weight, kind, owner[chosen]))
        if self.points.has_ends:
            self._earlier_edges(start, before, source)

    def _earlier_edges(self, start: Numbers, before: Numbers, source: Numbers) -> None:
        """To what waited for device work that was launched before the window: the device is behind from the start."""
        before_end, source_end = self.points.before[1], self._sources()[1]
        begin = int(self.times[-2])
        by_before = (before == NONE) & (before_end >= source_end)
        by_source = (source == NONE) & (source_end >= before_end)
        latest = np.maximum(before_end, source_end)
        late = (by_before | by_source) & (latest > self.launched) & (latest > begin) & (self.launched != NEVER)
        rows = np.flatnonzero(late)
        time = self.times[start[rows]] - begin
        window = np.full(len(rows), len(self.times) - 2)
        self.parts.append(Edges.of(window, start[rows], time, Kind.EARLIER, self.hosts + rows))

    def _sources(self) -> tuple[Numbers, Numbers]:
        """The event of another stream that each device event was told to wait for: row (-1 none), and when it ended."""
        source, ended = np.full(self.devices, NONE, np.int64), np.full(self.devices, NEVER, np.int64)
        for row, event in self.points.syncs.source.items():
            source[row] = self.activity.place[event]
            ended[row] = self.activity.trace.device_events["end"].iloc[event]
        return source, ended

    def _bound(
        self, before: Numbers, before_end: Numbers, source: Numbers, source_end: Numbers
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether each device event waited for its launch, for the one before on its stream, or for another stream."""
        launched, begun = self.launched, self.times[2 * (self.hosts + np.arange(self.devices))]
        if self.rules.python_time:
            by_launch = (launched != NEVER) & (before_end <= launched) & (source_end <= launched)
            known = (launched != NEVER) | (begun - np.where(before != NONE, before_end, begun) < _UNKNOWN_GAP_NS)
            by_before = ~by_launch & (before != NONE) & (source_end < before_end) & known
            return by_launch, by_before, ~by_launch & (source != NONE) & (source_end >= before_end)
        known_end = np.where(source != NONE, source_end, NEVER)
        known_before = np.where(before != NONE, before_end, NEVER)
        by_launch = (launched != NEVER) & self._alone() & (known_before < launched) & (known_end < launched)
        gap = begun - np.where(before != NONE, before_end, begun)
        by_before = ~by_launch & (before != NONE) & (known_end < known_before) & (gap < _LONGEST_GAP_NS)
        return by_launch, by_before, source != NONE

    def _alone(self) -> NDArray[np.bool_]:
        """Whether nothing else waited on the stream when each event was launched, and none was added until it began."""
        every = self.activity.trace.device_events
        launch = every["launch"].to_numpy()
        starts = self.activity.trace.launches["ts"].to_numpy()
        lanes = every["lane"].to_numpy()
        my_lane = self.activity.device["lane"].to_numpy()
        alone = np.zeros(self.devices, np.bool_)
        for lane in unique_sorted(my_lane).tolist():
            rows = np.flatnonzero((lanes == lane) & (launch >= 0))
            launched = np.sort(starts[launch[rows]])
            begun = np.sort(np.maximum(every["ts"].to_numpy()[rows], starts[launch[rows]]))
            ours = np.flatnonzero((my_lane == lane) & (self.launched != NEVER))
            at, start = self.launched[ours], self.times[2 * (self.hosts + ours)]
            queued = np.searchsorted(launched, at, "right") - np.searchsorted(begun, at, "left")
            left = np.searchsorted(launched, start, "right") - np.searchsorted(begun, start, "right")
            alone[ours] = (queued == 1) & (left == 0)
        return alone
