"""One rank as rules see it: its sets of busy and idle time within the steps, and what the host did meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from htareport.algorithms import intervals
from htareport.algorithms.intervals import EMPTY, Intervals
from htareport.findings import Span
from htareport.trace import RankTrace
from htareport.trace.idle import Attribution, Cause, attribute

Lane: TypeAlias = tuple[Any, int]  # Device and capture.
Sets: TypeAlias = dict[Lane, Intervals]


class Rank:
    """A rank's trace with the sets that rules share. Everything is clipped to the steps; without steps to the spans."""

    def __init__(self, trace: RankTrace) -> None:
        self.trace = trace
        self.shared = dict[str, Any]()  # What rules work out once for each other, by name.

    @cached_property
    def lanes(self) -> list[Lane]:
        """Each device in each capture in which it ran something."""
        return [lane for lane, events in self.events.items() if len(events)]

    @cached_property
    def events(self) -> dict[Lane, pd.DataFrame]:
        """Device events by lane, in order of start."""
        return {
            (device, capture): events[events["capture"] == capture]
            for device, events in self.trace.devices.items()
            for capture in range(len(self.trace.captures))
        }

    @cached_property
    def windows(self) -> Sets:
        """The steps of each lane; without any, from the first to the last event."""
        found = Sets()
        for device, capture in self.lanes:
            steps = self.trace.steps
            if len(steps):
                mine = steps[steps["capture"] == capture]
                found[device, capture] = intervals.union(mine["start"].to_numpy(), mine["end"].to_numpy())
            else:
                events = self.events[device, capture]
                found[device, capture] = np.array([[events["ts"].min(), events["end"].max()]], np.int64)
        return found

    @property
    def num_steps(self) -> int:
        """Steps within the window; 1 for everything recorded where there are none."""
        return max(len(self.trace.steps), 1)

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
        found = Sets()
        for lane in self.lanes:
            events = self.events[lane]
            mine = events[events["kind"].isin(kinds)] if kinds else events
            found[lane] = intervals.union(mine["ts"].to_numpy(), mine["end"].to_numpy())
        return self.clipped(found)

    @cached_property
    def idle(self) -> Sets:
        """When the device runs nothing, within the windows."""
        busy = self.busy()
        return {lane: intervals.difference(self.windows[lane], busy.get(lane, EMPTY)) for lane in self.lanes}

    @cached_property
    def gaps(self) -> Sets:
        """When the device runs nothing between its events, whole: not clipped to the windows."""
        found = Sets()
        for device, capture in self.lanes:
            busy = self.trace.busy(self.trace.devices[device])[capture]
            found[device, capture] = np.column_stack((busy[:-1, 1], busy[1:, 0]))
        return found

    @cached_property
    def attribution(self) -> Attribution:
        """What fills idle time."""
        return attribute(self.trace)

    def idle_by(self, *causes: Cause) -> Sets:
        """Idle time of these causes, within the windows."""
        parts: dict[Lane, list[Intervals]] = {}
        for (device, capture, cause), taken in self.attribution.sets.items():
            if cause in causes:
                parts.setdefault((device, capture), []).append(taken)
        joined = {lane: union_of(mine) for lane, mine in parts.items()}
        return self.clipped(joined)

    def names(self, *causes: Cause, most: int = 3) -> list[tuple[str, int]]:
        """The names of host rows that fill most idle time of these causes, with that time in ns."""
        table = self.attribution.names
        mine = table[table["cause"].isin([str(cause) for cause in causes])]
        sums = mine.groupby("name")["time"].sum().sort_values(ascending=False, kind="stable").head(most)
        return [(str(name), int(time)) for name, time in sums.items() if time > 0]

    def spans(self, sets: Sets, most: int = 5, name: str = "") -> tuple[Span, ...]:
        """The longest intervals of sets, as places to look at; times as in the trace."""
        rows = np.concatenate(list(sets.values()) or [EMPTY])
        order = np.argsort(rows[:, 0] - rows[:, 1], kind="stable")[:most]
        return tuple(
            Span(self.trace.rank, int(start), int(end), name, self._step_at(int(start)))
            for start, end in rows[order].tolist()
        )

    def _step_at(self, stamp: int) -> int | None:
        steps = self.trace.steps
        inside = steps[(steps["start"] <= stamp) & (stamp < steps["end"])]
        return int(inside["number"].iloc[0]) if len(inside) else None


def total(sets: Sets) -> int:
    """Length of sets, ns."""
    return sum(map(intervals.total, sets.values()))


def union_of(parts: Iterable[Intervals]) -> Intervals:
    """The union of several sets."""
    rows = np.concatenate(list(parts) or [EMPTY])
    return intervals.union(rows[:, 0], rows[:, 1])


def minus(one: Sets, other: Sets) -> Sets:
    """What sets have outside others."""
    found = {lane: intervals.difference(mine, other.get(lane, EMPTY)) for lane, mine in one.items()}
    return {lane: mine for lane, mine in found.items() if len(mine)}


def common(one: Sets, other: Sets) -> Sets:
    """What two sets share."""
    found = {lane: intervals.intersection(mine, other.get(lane, EMPTY)) for lane, mine in one.items()}
    return {lane: mine for lane, mine in found.items() if len(mine)}


def joined(*several: Sets) -> Sets:
    """The union of sets."""
    lanes = dict.fromkeys(lane for sets in several for lane in sets)
    return {lane: union_of([sets[lane] for sets in several if lane in sets]) for lane in lanes}
