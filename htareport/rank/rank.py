"""Rank: all that is known of one rank; its sets of busy and idle time are clipped to the steps."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np
import pandas as pd

from htareport.algorithms import intervals
from htareport.algorithms.intervals import EMPTY, Intervals
from htareport.rank.idle import Attribution, Cause, attribute
from htareport.rank.interval_sets import Lane, Sets, total, union_of
from htareport.rank.tables import RankTables
from htareport.report.findings import Span


class Rank(RankTables):
    """The facts of one rank, each computed once.

    Sets of busy and idle time are clipped to the steps; without steps to the span of the device events.
    """

    def release(self) -> None:
        """Let go of facts that take much room, and are computed again if they are asked for."""
        for cache in (self.releasable, self._busy, self._idle_by):
            cache.clear()
        for name in ("idle", "gaps"):
            vars(self).pop(name, None)

    @cached_property
    def _busy(self) -> dict[tuple[str, ...], Sets]:
        """By kinds: nobody may change them."""
        return {}

    @cached_property
    def _idle_by(self) -> dict[tuple[Cause, ...], Sets]:
        """By causes: nobody may change them."""
        return {}

    @cached_property
    def lanes(self) -> list[Lane]:
        """Each device in each capture in which it ran something."""
        return [lane for lane, events in self.events_by_lane.items() if len(events)]

    @cached_property
    def events_by_lane(self) -> dict[Lane, pd.DataFrame]:
        """Device events by lane, in order of start."""
        if len(self.captures) == 1:
            return {(device, 0): events for device, events in self.devices.items()}
        return {
            (device, capture): events[events["capture"] == capture]
            for device, events in self.devices.items()
            for capture in range(len(self.captures))
        }

    @cached_property
    def windows(self) -> Sets:
        """The steps of each lane; without any, from the first to the last event."""
        windows = Sets()
        for device, capture in self.lanes:
            steps = self.steps
            if len(steps):
                mine = steps[steps["capture"] == capture]
                windows[device, capture] = intervals.union(mine["start"].to_numpy(), mine["end"].to_numpy())
            else:
                events = self.events_by_lane[device, capture]
                windows[device, capture] = np.array([[events["ts"].min(), events["end"].max()]], np.int64)
        return windows

    @property
    def num_steps(self) -> int:
        """Steps within the window; 1 for everything recorded where there are none."""
        return max(len(self.steps), 1)

    @cached_property
    def whole(self) -> int:
        """Length of the windows of all lanes, ns."""
        return sum(map(intervals.total, self.windows.values()))

    def share(self, sets: Sets) -> float:
        """Length of sets as a share of the windows."""
        return total(sets) / self.whole if self.whole else 0.0

    def clipped(self, sets: Sets) -> Sets:
        """Sets within the windows."""
        found = {lane: intervals.intersection(mine, self.windows.get(lane, EMPTY)) for lane, mine in sets.items()}
        return {lane: mine for lane, mine in found.items() if len(mine)}

    def busy(self, *kinds: str) -> Sets:
        """When the device runs something of these kinds (of any by default), within the windows."""
        if kinds not in self._busy:
            self._busy[kinds] = self.clipped({lane: self.union_of_kinds(lane, *kinds) for lane in self.lanes})
        return self._busy[kinds]

    def union_of_kinds(self, lane: Lane, *kinds: str) -> Intervals:
        """When a lane runs something of these kinds (of any by default), not clipped."""
        events = self.events_by_lane[lane]
        start, end = events["ts"].to_numpy(), events["end"].to_numpy()
        if kinds:
            places = [place for place, kind in enumerate(events["kind"].cat.categories) if kind in kinds]
            chosen = np.isin(events["kind"].cat.codes.to_numpy(), places)
            start, end = start[chosen], end[chosen]
        return intervals.union(start, end)

    @cached_property
    def idle(self) -> Sets:
        """When the device runs nothing, within the windows."""
        busy = self.busy()
        return {lane: intervals.difference(self.windows[lane], busy.get(lane, EMPTY)) for lane in self.lanes}

    @cached_property
    def gaps(self) -> Sets:
        """When the device runs nothing between its events, whole: not clipped to the windows."""
        gaps = Sets()
        for device, capture in self.lanes:
            busy = self.busy_by_capture(self.devices[device])[capture]
            gaps[device, capture] = np.column_stack((busy[:-1, 1], busy[1:, 0]))
        return gaps

    @cached_property
    def attribution(self) -> Attribution:
        """What fills idle time."""
        return attribute(self)

    def idle_by(self, *causes: Cause) -> Sets:
        """Idle time of these causes, within the windows."""
        if causes not in self._idle_by:
            parts: dict[Lane, list[Intervals]] = {}
            for (device, capture, cause), taken in self.attribution.sets.items():
                if cause in causes:
                    parts.setdefault((device, capture), []).append(taken)
            self._idle_by[causes] = self.clipped({lane: union_of(mine) for lane, mine in parts.items()})
        return self._idle_by[causes]

    def idle_names(self, *causes: Cause, most: int = 3) -> list[tuple[str, int]]:
        """The names of host rows that fill most idle time of these causes, with that time in ns."""
        sums = Counter[str]()
        for cause in causes:
            sums.update(self._idle_by_name.get(cause, {}))
        longest = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:most]
        return [(name, time) for name, time in longest if time > 0]

    @cached_property
    def _idle_by_name(self) -> dict[str, dict[str, int]]:
        """Idle time that names of host rows fill, by cause."""
        table, found = self.attribution.names, dict[str, dict[str, int]]()
        for cause, name, time in zip(*(table[column].tolist() for column in ("cause", "name", "time")), strict=True):
            found.setdefault(cause, {})[name] = int(time)
        return found

    def spans(self, sets: Sets, most: int = 5, name: str = "") -> tuple[Span, ...]:
        """The longest intervals of sets, as places to look at; times as in the trace."""
        rows = np.concatenate(list(sets.values()) or [EMPTY])
        order = np.argsort(rows[:, 0] - rows[:, 1], kind="stable")[:most]
        return tuple(
            Span(self.rank, int(start), int(end), name, self._step_at(int(start)))
            for start, end in rows[order].tolist()
        )

    def _step_at(self, stamp: int) -> int | None:
        steps = self.steps
        inside = np.flatnonzero((steps["start"].to_numpy() <= stamp) & (stamp < steps["end"].to_numpy()))
        return int(steps["number"].to_numpy()[inside[0]]) if len(inside) else None
