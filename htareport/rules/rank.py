"""One rank as rules see it: its sets of busy and idle time within the steps, and what the host did meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.intervals import EMPTY, Intervals
from htareport.findings import Span
from htareport.trace import RankTrace
from htareport.trace.idle import Attribution, Cause, attribute

Lane: TypeAlias = tuple[Any, int]  # Device and capture.
Sets: TypeAlias = dict[Lane, Intervals]


class Claims(Protocol):
    """A rule that can say of which device work it tells the cause."""

    code: ClassVar[str]

    def own_events(self, rank: Rank) -> NDArray[np.bool_] | None:
        """Which device events it claims, None for none or where it cannot look."""


class Rank:
    """A rank's trace with the sets that rules share. Everything is clipped to the steps; without steps to the spans."""

    def __init__(self, trace: RankTrace, rules: Iterable[Claims] = ()) -> None:
        self.trace = trace
        self._rules = {rule.code: rule for rule in rules}  # That look at it.
        self.made = dict[Any, Any]()  # What rules work out once for each other, for `kept`.
        self.found = set[str]()  # Codes of the rules before that have found something on it.
        self._busy = dict[tuple[str, ...], Sets]()  # By kinds: nobody may change them.
        self._idle_by = dict[tuple[Cause, ...], Sets]()

    def forget(self) -> None:
        """Let go of what was worked out so far; it is worked out again if it is asked for."""
        for kept in (self.made, self._busy, self._idle_by):
            kept.clear()
        for name in ("idle", "gaps"):
            vars(self).pop(name, None)

    def looking(self, code: str) -> Any:
        """The rule of a code, if it looks at the rank as well; else None."""
        return self._rules.get(code)

    def explained(self, *codes: str) -> NDArray[np.bool_]:
        """Which device events rules of these codes claim, if they look at the rank: others leave these to them."""
        found = np.zeros(len(self.trace.device_events), np.bool_)
        for rule in (self._rules[code] for code in codes if code in self._rules):
            try:
                mine = rule.own_events(self)
            except Exception:  # noqa: BLE001, S112  it fails when it looks itself, and says so there
                continue
            if mine is not None:
                found |= mine
        return found

    @cached_property
    def lanes(self) -> list[Lane]:
        """Each device in each capture in which it ran something."""
        return [lane for lane, events in self.events.items() if len(events)]

    @cached_property
    def events(self) -> dict[Lane, pd.DataFrame]:
        """Device events by lane, in order of start."""
        if len(self.trace.captures) == 1:
            return {(device, 0): events for device, events in self.trace.devices.items()}
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
        if kinds not in self._busy:
            self._busy[kinds] = self.clipped({lane: self.union_of_kinds(lane, *kinds) for lane in self.lanes})
        return self._busy[kinds]

    def union_of_kinds(self, lane: Lane, *kinds: str) -> Intervals:
        """When a lane runs something of these kinds (of any by default), not clipped."""
        events = self.events[lane]
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
        if causes not in self._idle_by:
            parts: dict[Lane, list[Intervals]] = {}
            for (device, capture, cause), taken in self.attribution.sets.items():
                if cause in causes:
                    parts.setdefault((device, capture), []).append(taken)
            self._idle_by[causes] = self.clipped({lane: union_of(mine) for lane, mine in parts.items()})
        return self._idle_by[causes]

    def names(self, *causes: Cause, most: int = 3) -> list[tuple[str, int]]:
        """The names of host rows that fill most idle time of these causes, with that time in ns."""
        sums = Counter[str]()
        for cause in causes:
            sums.update(self._named.get(cause, {}))
        longest = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:most]
        return [(name, time) for name, time in longest if time > 0]

    @cached_property
    def _named(self) -> dict[str, dict[str, int]]:
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
            Span(self.trace.rank, int(start), int(end), name, self._step_at(int(start)))
            for start, end in rows[order].tolist()
        )

    def _step_at(self, stamp: int) -> int | None:
        steps = self.trace.steps
        inside = np.flatnonzero((steps["start"].to_numpy() <= stamp) & (stamp < steps["end"].to_numpy()))
        return int(steps["number"].to_numpy()[inside[0]]) if len(inside) else None


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
