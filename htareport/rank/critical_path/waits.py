"""Which device event a host call or another device event waits for.

From the rows of `cuda_sync` where the trace has them, else from the calls themselves: a synchronisation returns when
the work launched before it has ended.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from htareport.algorithms.distinct import unique_sorted
from htareport.rank.critical_path.activity import NONE, Activity
from htareport.rank.launch_links import launches_of

_DEVICE = re.compile(r"(?:Device|Ctx)Synchronize|SynchronizeDevice")
_STREAM = re.compile(r"StreamSynchronize|SynchronizeStream")
_EVENT = re.compile(r"Event(?:Synchronize|Query)|SynchronizeEvent|StreamQuery")
_COPY = re.compile(r"^(?:cuda|hip|cu)Memcpy")
_WAIT = re.compile(r"StreamWaitEvent")
_CALLS = {"device": _DEVICE, "stream": _STREAM, "event": _EVENT, "copy": _COPY, "wait": _WAIT}
_PINNED = re.compile(r"Pinned")
_BETWEEN_HOST = re.compile(r"Pageable|DtoH|HtoD|DeviceToHost|HostToDevice")


@dataclass
class Syncs:
    """Waits found: `calls` has (device event waited for, host row of the call), `source` those of device events.

    What waits is a row of the window, what it waits for a row of the rank's table: it may be from before the window.
    `blocking` are the host rows of calls that wait by nature, whether or not there is something to wait for.
    """

    calls: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    source: dict[int, int] = field(default_factory=dict[int, int])
    blocking: list[int] = field(default_factory=list[int])


class _Lane:
    """Device events of one lane and capture (rows of the rank's table) in order of their launch."""

    def __init__(self, rows: np.ndarray[Any, Any], launched: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> None:
        order = rows[np.argsort(launched[rows], kind="stable")]
        # As arrays of Python's: quick to look into one by one, and a fifth of the size of lists.
        self.rows: array[int] = array("q", order.tobytes())
        self.launched: array[int] = array("q", launched[order].tobytes())
        self.ends: array[int] = array("q", ends[order].tobytes())

    def last_before(self, stamp: int) -> int:
        """The event launched last before a stamp, -1 for none."""
        at = bisect_left(self.launched, stamp) - 1
        return self.rows[at] if at >= 0 else NONE


class SyncFinder:
    """Finds the waits of a window."""

    def __init__(self, activity: Activity) -> None:
        self.activity, trace = activity, activity.trace
        events = trace.device_events
        self.start, self.end = events["ts"].to_numpy(), events["end"].to_numpy()
        self.launch = events["launch"].to_numpy()
        self.calls, self.call_starts = trace.launches, trace.launches["ts"].to_numpy()
        self.threads = trace.launches["thread"].to_numpy()
        linked = np.flatnonzero(self.launch >= 0)
        launched = np.zeros(len(events), np.int64)
        launched[linked] = self.call_starts[self.launch[linked]]
        self.launched = launched
        lanes, captures = events["lane"].to_numpy()[linked], events["capture"].to_numpy()[linked]
        numbers = lanes.astype(np.int64) * len(trace.captures) + captures
        order = np.argsort(numbers, kind="stable")
        parts = np.split(linked[order], np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []
        columns = [events[name].to_numpy() for name in ("capture", "device", "stream")]
        self.lanes: dict[tuple[int, Any, Any], _Lane] = {
            (int(columns[0][rows[0]]), columns[1][rows[0]], columns[2][rows[0]]): _Lane(rows, launched, self.end)
            for rows in parts
        }

    def find(self) -> Syncs:
        """All waits of the window."""
        found = Syncs()
        kinds = self._kinds_of_calls()
        known = self._from_rows(found)
        self._from_calls(found, kinds, known)
        if not known:
            self._from_stream_waits(found, kinds["wait"])
        return found

    def _kinds_of_calls(self) -> dict[str, list[int]]:
        """Host rows of the calls that wait, by kind."""
        host = self.activity.host
        is_call = np.flatnonzero((host["level"] == "call").to_numpy())
        codes, inverse = np.unique(host["name"].cat.codes.to_numpy()[is_call], return_inverse=True)
        names = host["name"].cat.categories[codes]
        return {
            kind: is_call[np.fromiter((bool(regex.search(n)) for n in names), np.bool_, len(names))[inverse]].tolist()
            for kind, regex in _CALLS.items()
        }

    # --- rows of cuda_sync ------------------------------------------------------------------

    def _from_rows(self, found: Syncs) -> set[int]:
        """Take what the rows of cuda_sync say; return the host rows of the calls that they are about."""
        columns = self.activity.trace.loaded.tables.get("cuda_sync")
        if columns is None:
            return set()
        launches, captures = self.calls["correlation"].to_numpy(), self.calls["capture"].to_numpy()
        calls = launches_of(columns["correlation"], columns["capture"], launches, captures)
        records = launches_of(columns["wait_correlation"], columns["capture"], launches, captures)
        strings, threads = self.activity.trace.loaded.strings, self.activity.trace.loaded.threads
        known: set[int] = set()
        for number, (call, record) in enumerate(zip(calls.tolist(), records.tolist(), strict=True)):
            if call < 0:
                continue
            row = int(self.activity.call_of_launch[call])
            name, capture = strings[columns["name"][number]], int(columns["capture"][number])
            device = threads[columns["thread"][number]][0]
            on, waited = int(columns["sync_stream"][number]), int(columns["wait_stream"][number])
            known.add(row)
            if name in {"Context Sync", "Stream Sync"} and row >= 0:
                stamp = int(self.call_starts[call])
                for key, lane in self.lanes.items():
                    if key[:2] == (capture, device) and (name == "Context Sync" or key[2] == on):
                        self._add_call(found, lane.last_before(stamp), row)
                continue
            source_lane = self.lanes.get((capture, device, waited))
            if record < 0 or source_lane is None:
                continue
            source = source_lane.last_before(int(self.call_starts[record]))
            if name == "Event Sync" and row >= 0:
                self._add_call(found, source, row)
            elif name == "Stream Wait Event":
                self._add_wait(found, source, self._next_launched(call, self.lanes.get((capture, device, on))))
        return known

    def _next_launched(self, call: int, lane: _Lane | None) -> int:
        """Device event launched next on a lane by the thread of a call, -1 for none."""
        if lane is None:
            return NONE
        for at in range(bisect_right(lane.launched, int(self.call_starts[call])), len(lane.rows)):
            if self.threads[self.launch[lane.rows[at]]] == self.threads[call]:
                return lane.rows[at]
        return NONE

    # --- from the calls themselves ----------------------------------------------------------

    def _from_calls(self, found: Syncs, kinds: dict[str, list[int]], known: set[int]) -> None:
        host = self.activity.host
        begin, end, thread = (host[name].to_numpy() for name in ("ts", "end", "thread"))
        captures = host["capture"].to_numpy()
        found.blocking = sorted({*kinds["device"], *kinds["stream"], *kinds["event"]})
        for kind in ("device", "stream", "event"):
            for row in kinds[kind]:
                if row in known:
                    continue
                stamp, until = int(begin[row]), int(end[row])
                lasts = self._lasts(int(captures[row]), int(thread[row]), stamp)
                if kind == "device":
                    sources = [event for event, _ in lasts]
                else:
                    sources = self._waited(lasts, stamp, until, own=kind == "stream")
                for source in sources:
                    self._add_call(found, source, row)
        copies = dict(self._waiting_copies(kinds["copy"]))
        found.blocking += sorted(copies)
        every = self.activity.device["all"].to_numpy()
        found.calls += [(int(every[source]), row) for row, source in copies.items()]

    def _lasts(self, capture: int, thread: int, stamp: int) -> list[tuple[int, bool]]:
        """What was launched last on each lane before a stamp, and whether by this thread on its last lane."""
        lasts = [
            (row, key)
            for key, lane in self.lanes.items()
            if key[0] == capture and (row := lane.last_before(stamp)) != NONE
        ]
        own = [(self.launched[row], row, key) for row, key in lasts if self.threads[self.launch[row]] == thread]
        latest = max(own, key=lambda each: (each[0], each[1]), default=None)
        device = latest[2][1] if latest else None
        return [
            (row, latest is not None and row == latest[1]) for row, key in lasts if latest is None or key[1] == device
        ]

    def _waited(self, lasts: list[tuple[int, bool]], stamp: int, until: int, *, own: bool) -> list[int]:
        """What a call of unknown stream waits for: its thread's last stream if that fits, else what ends last in it."""
        fitting = [(row, mine) for row, mine in lasts if stamp < self.end[row] <= until]
        if own and (chosen := [row for row, mine in fitting if mine]):
            return chosen
        return [max((int(self.end[row]), row) for row, _ in fitting)[1]] if fitting else []

    def _waiting_copies(self, rows: list[int]) -> Iterator[tuple[int, int]]:
        """Calls that return after the copy between host and device that they start, and that copy."""
        host, device = self.activity.host, self.activity.device
        copy_of = dict(zip(device["launch"].tolist(), range(len(device)), strict=True))
        names, ends = device["name"], device["end"].to_numpy()
        launch, end = host["launch"].to_numpy(), host["end"].to_numpy()
        for row in rows:
            copy = copy_of.get(int(launch[row]), NONE)
            if copy == NONE or ends[copy] > end[row]:
                continue
            name = str(names.iloc[copy])
            if _BETWEEN_HOST.search(name) and not _PINNED.search(name):
                yield row, copy

    def _from_stream_waits(self, found: Syncs, rows: list[int]) -> None:
        """Make the device event launched next after a stream was told to wait follow what ended last elsewhere."""
        host = self.activity.host
        begin, launch = host["ts"].to_numpy(), host["launch"].to_numpy()
        device = self.activity.device
        linked = np.flatnonzero(device["launch"].to_numpy() >= 0)
        order = linked[np.argsort(self.call_starts[device["launch"].to_numpy()[linked]], kind="stable")]
        stamps = self.call_starts[device["launch"].to_numpy()[order]]
        callers = self.threads[device["launch"].to_numpy()[order]]
        keys = [device[name].to_numpy() for name in ("capture", "device", "stream")]
        by_thread = {
            thread: (stamps[callers == thread].tolist(), order[callers == thread].tolist())
            for thread in unique_sorted(callers).tolist()
        }
        for row in rows:
            times, events = by_thread.get(int(self.threads[launch[row]]), ([], []))
            at = bisect_right(times, int(begin[row]))
            if at == len(times):
                continue
            after = events[at]
            own = (int(keys[0][after]), keys[1][after], keys[2][after])
            others = [
                last
                for key, lane in self.lanes.items()
                if key != own and key[:2] == own[:2] and (last := lane.last_before(int(begin[row]))) != NONE
            ]
            begun = int(device["ts"].iloc[after])
            fitting = [(int(self.end[last]), last) for last in others if self.end[last] <= begun]
            if fitting:
                found.source[after] = max(fitting)[1]

    def _add_call(self, found: Syncs, source: int, row: int) -> None:
        """Note that a call waits for a device event, if there is one."""
        if source != NONE:
            found.calls.append((source, row))

    def _add_wait(self, found: Syncs, source: int, waiting: int) -> None:
        if NONE not in {source, waiting} and (place := int(self.activity.place[waiting])) != NONE:
            found.source[place] = source
