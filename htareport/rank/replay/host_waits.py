"""When the host of a rank waits for its device, and for which device events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.rank.launch_links import UNLINKED
from htareport.rank.rank import Rank
from htareport.rank.replay.window import ReplayWindow

Ints = NDArray[np.int64]

_DEVICE = re.compile(
    r"(?:Device|Ctx)Synchronize|SynchronizeDevice|^(?:cuda|hip|cu)(?:Mem)?Free(?!Async)|Module(?:Unl|L)oad"
)
_STREAM = re.compile(r"(?:Stream|Event)Synchronize|Synchronize(?:Stream|Event)")
_COPY = re.compile(r"^(?:cuda|hip|cu)Mem(?:cpy|set)")
_LONG_LAUNCH_NS = 30_000  # A launch as long as this waits for room in its queue,
_MIN_QUEUE = 400  # if so many launches are ahead,
_SAME_NS = 15_000  # and it returns as soon after an earlier event has started.
NO_LAUNCH = -1  # In place of a row of `Rank.launches`, of a wait that is no recorded call.
_RETURN_NS = 2_000  # From the end of what it waits for to the return of a call, and what a call takes by itself.
_ROUNDING_NS = 1_000


@dataclass(frozen=True)
class HostWaits:
    """Calls in which the host waits, in order of their ends (ns): start, end, and row of `Rank.launches` (-1: none).

    `own_ns` is what the call takes where nothing is left to wait for. `is_queue` marks launches that wait for room in
    their queue. `source_wait`, `source_event` and `source_delay` are pairs of a wait and an event (a place in the
    program) that it waits for, with the time from its end to the return; the one that was met last has the recorded
    delay.
    """

    start: Ints
    end: Ints
    launch: Ints
    own_ns: Ints
    is_queue: NDArray[np.bool_]
    source_wait: Ints
    source_event: Ints
    source_delay: Ints


@dataclass(frozen=True)
class _Events:
    """The device events of the program: in order of launch, and by stream."""

    launch: Ints
    called: Ints
    stream: Ints
    start: Ints
    end: Ints
    by_stream: list[Ints]

    def last_on_streams(self, stamp: int) -> Iterator[int]:
        """The event of each stream that was launched last before a stamp."""
        for own in self.by_stream:
            place = int(np.searchsorted(self.called[own], stamp)) - 1
            if place >= 0:
                yield int(own[place])


def host_waits(rank: Rank, window: ReplayWindow, program: tuple[Ints, Ints, Ints, Ints]) -> HostWaits:
    """Return the waits of the threads that launch within the window.

    `program` has launch, stream, start and end of its device events.
    """
    launch, stream, start, end = program
    calls = rank.launches
    called = start.copy()
    called[launch != UNLINKED] = calls["ts"].to_numpy(np.int64)[launch[launch != UNLINKED]]
    by_stream = [np.flatnonzero(stream == number) for number in unique_sorted(stream).tolist()]
    events = _Events(launch, called, stream, start, end, by_stream)
    rows = _waiting_rows(rank, window, events)
    waits = [wait for kind, row in rows if (wait := _wait(rank, kind, row, events)) is not None]
    waits += _queue_waits(rank, events, {wait[2] for wait in waits})
    if not waits:
        waits = _unrecorded_waits(window, events)
    waits.sort(key=lambda wait: (wait[1], wait[0]))
    pairs = [(number, *source) for number, wait in enumerate(waits) for source in wait[5]]
    start_ns, end_ns, rows_waiting, own_ns = (np.array([wait[place] for wait in waits], np.int64) for place in range(4))
    is_queue = np.array([wait[4] for wait in waits], np.bool_)
    wait_of, event, delay = np.array(pairs, np.int64).reshape(-1, 3).T
    return HostWaits(start_ns, end_ns, rows_waiting, own_ns, is_queue, wait_of, event, delay)


_Wait = tuple[int, int, int, int, bool, list[tuple[int, int]]]


def _waiting_rows(rank: Rank, window: ReplayWindow, events: _Events) -> list[tuple[str, int]]:
    """Rows of `launches` that may wait, with the kind of wait, of threads that launch device work."""
    calls = rank.launches
    stamp, thread = calls["ts"].to_numpy(), calls["thread"].to_numpy()
    first, stop = np.searchsorted(stamp, (window.start, window.end))
    codes = calls["name"].cat.codes.to_numpy()[first:stop]
    launching = unique_sorted(thread[events.launch[events.launch != UNLINKED]])
    kinds = np.zeros(len(rank.loaded.strings), np.int8)
    for code in unique_sorted(codes).tolist():
        name = rank.loaded.strings[code]
        kinds[code] = 1 if _DEVICE.search(name) else 2 if _STREAM.search(name) else 3 if _COPY.search(name) else 0
    kind = kinds[codes]
    chosen = np.flatnonzero((kind > 0) & np.isin(thread[first:stop], launching))
    chosen = chosen[(calls["capture"].to_numpy()[first:stop] == window.lane[1])[chosen]]
    names = ("", "device", "stream", "copy")
    return [(names[kind[place]], int(first + place)) for place in chosen.tolist()]


def _wait(rank: Rank, kind: str, row: int, events: _Events) -> _Wait | None:
    """A wait: start, end, row, own time, whether for room in a queue, and events with their delays; None if none."""
    start, end = (int(rank.launches[name].to_numpy()[row]) for name in ("ts", "end"))
    if kind == "copy":
        own = [event for event in _launched_by(events, row) if events.end[event] <= end]
        if not own or end - start < _RETURN_NS:
            return None
        event = own[-1]
        return start, end, row, min(_RETURN_NS, end - start), False, [(event, end - int(events.end[event]))]
    last = [event for event in events.last_on_streams(start) if events.end[event] <= end + _ROUNDING_NS]
    if not last:
        return None
    if kind == "stream":
        last = [max(last, key=lambda event: (events.end[event], event))]
    latest = max(last, key=lambda event: (events.end[event], event))
    is_binding = events.end[latest] + _RETURN_NS > start + min(end - start, _RETURN_NS) and events.end[latest] > start
    own_ns = min(_RETURN_NS, end - start) if is_binding else end - start
    delays = [
        (event, end - int(events.end[event]) if is_binding and event == latest
         else min(_RETURN_NS, end - int(events.end[event])))
        for event in last
    ]  # fmt: skip
    return start, end, row, own_ns, False, delays


def _unrecorded_waits(window: ReplayWindow, events: _Events) -> list[_Wait]:
    """Waits at the ends of steps, where the trace has none at all: the host does nothing more until the device is done.

    So it is where the last work of a step ends after its launch and within the step.
    """
    waits = list[_Wait]()
    for stop in window.step_ends if window.steps else ():
        last = list(events.last_on_streams(stop))
        if not last:
            continue
        called = max(int(events.called[event]) for event in last)
        latest = max(last, key=lambda event: (events.end[event], event))
        done = int(events.end[latest])
        if called < done <= stop and (not waits or called >= waits[-1][1]):
            delays = [
                (event, stop - done if event == latest else min(_RETURN_NS, stop - int(events.end[event])))
                for event in last
            ]
            waits.append((called, stop, NO_LAUNCH, min(_RETURN_NS, stop - called), False, delays))
    return waits


def _launched_by(events: _Events, row: int) -> list[int]:
    """The events that a call launches."""
    return [int(place) for place in np.flatnonzero(events.launch == row)] if row >= 0 else []


def _queue_waits(rank: Rank, events: _Events, known: set[int]) -> list[_Wait]:
    """Launches that wait until an earlier event starts, and so leaves the queue."""
    calls = rank.launches
    durations, starts, ends = (calls[name].to_numpy(np.int64) for name in ("dur", "ts", "end"))
    if not len(calls):
        return []
    is_single = (events.launch != UNLINKED) & (np.diff(events.launch, append=-2) != 0)
    places = np.flatnonzero(is_single & (durations[np.maximum(events.launch, 0)] >= _LONG_LAUNCH_NS))
    order = np.argsort(events.start, kind="stable")
    stamps, waits = events.start[order], list[_Wait]()
    for place in places.tolist():
        row = int(events.launch[place])
        if row in known or place < _MIN_QUEUE:
            continue
        at = int(np.searchsorted(stamps, ends[row], side="right")) - 1
        event = int(order[at]) if at >= 0 else place
        if event > place - _MIN_QUEUE or ends[row] - stamps[at] > _SAME_NS:
            continue
        own = events.by_stream[int(events.stream[event])]
        before = int(np.searchsorted(own, event)) - 1
        if before < 0:
            continue
        source = int(own[before])
        delay = int(ends[row] - events.end[source])
        waits.append((int(starts[row]), int(ends[row]), row, _RETURN_NS, True, [(source, delay)]))
    return waits
