"""A rank's recorded steps as a program: what the host launches in order, what runs on which stream, who waits for whom.

The host launches device events one after the other and sometimes waits for one. An event starts once it is launched,
the event before it on its stream has ended, and what its stream was told to wait for has ended. Each of these bounds
has a delay: the usual one, but for the bound that was met last, whose delay is the recorded one. A replay without
changes therefore gives back every recorded time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.rank.cached import cached_until_release
from htareport.rank.launch_links import UNLINKED
from htareport.rank.rank import Rank
from htareport.rank.replay.host_waits import HostWaits, host_waits
from htareport.rank.replay.joins import Joins, joins_of
from htareport.rank.replay.window import ReplayWindow, window_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NEVER = -np.inf  # The delay of a bound that does not hold.
_QUICK_SHARE, _USUAL_SHARE = 2, 10  # Percentiles of delays of launches and of streams that nothing else held up.
_AHEAD_NS = 100_000  # An event launched so long before its start did not wait for its launch.
_MAX_LAUNCH_NS, _MAX_NEXT_NS = 20_000, 5_000  # No usual delay is longer.
_OVERLAP_NS = 20_000  # Events of a stream overlap by less, where the next starts before the one before has ended.
_LAUNCH_NS, _NEXT_NS = 4_000, 1_000  # Delays where the trace shows no usual ones.


@dataclass(frozen=True)
class Program:
    """The device events of a window in order of their launches, and the waits of the host.

    By event: `row` (of `Rank.device_events`), `stream` (numbered from 0), `called` (when the host launches it),
    `start`, `end`, `launch_delay` (from the launch) and `stream_delay` (from the end of the event before on its
    stream), `is_collective`. The waits stand in order of their ends. Times are ns.
    """

    window: ReplayWindow
    row: Ints
    stream: Ints
    called: Ints
    start: Ints
    end: Ints
    launch_delay: Floats
    stream_delay: Floats
    previous_end: Ints
    is_collective: NDArray[np.bool_]
    waits: HostWaits
    joins: Joins

    @property
    def host_ends(self) -> Ints:
        """When the host has done its part of each step (ns); without steps, when it launches or waits last."""
        if self.window.steps:
            return np.array(self.window.step_ends, np.int64)
        last = max(int(self.called.max(initial=self.window.start)), int(self.waits.end.max(initial=self.window.start)))
        return np.array([last], np.int64)

    @property
    def size(self) -> int:
        """Number of device events."""
        return len(self.row)


@cached_until_release
def program_of(rank: Rank) -> Program | str:
    """Return the program of a rank; else why there is none, as words."""
    window = window_of(rank)
    return window if isinstance(window, str) else _program(rank, window)


def _program(rank: Rank, window: ReplayWindow) -> Program:
    row, called = _launched_rows(rank, window)
    events = rank.events_by_lane[window.lane]
    place = np.searchsorted(events.index.to_numpy(), row)
    start, end, lane, launch = (events[name].to_numpy(np.int64)[place] for name in ("ts", "end", "lane", "launch"))
    is_collective = (events["kind"] == "comm").to_numpy()[place]
    stream = _streams(lane, start, end)
    previous_end = _previous_ends(rank, window, (stream, lane, start, end))
    waits = host_waits(rank, window, (launch, stream, start, end))
    called = _called_after_waits(called, launch, waits)
    is_graph = np.zeros(len(row), np.bool_)
    is_graph[launch != UNLINKED] = rank.launches["graph"].to_numpy()[launch[launch != UNLINKED]]
    bounds = _usual_bounds(called, previous_end, start, launch, is_graph)
    joins = joins_of(rank, window, (launch, called, stream, start, end), is_collective, np.max(bounds, axis=0))
    delays = _delays(called, previous_end, start, bounds, joins)
    return Program(
        window, row, stream, called, start, end, *delays, previous_end, is_collective, waits, joins,
    )  # fmt: skip


def _launched_rows(rank: Rank, window: ReplayWindow) -> tuple[Ints, Ints]:
    """Rows of the device events that are launched within the window, in that order, and when the host launches them.

    Events without a launch count as launched when they start.
    """
    events = rank.events_by_lane[window.lane]
    launch, start = events["launch"].to_numpy(), events["ts"].to_numpy(np.int64)
    called = start.copy()
    is_linked = launch != UNLINKED
    called[is_linked] = rank.launches["ts"].to_numpy(np.int64)[launch[is_linked]]
    chosen = np.flatnonzero((called >= window.start) & (called < window.end))
    chosen = chosen[np.lexsort((start[chosen], called[chosen]))]
    return events.index.to_numpy()[chosen].astype(np.int64), called[chosen]


def _streams(lane: Ints, start: Ints, end: Ints) -> Ints:
    """Number the streams. Events that overtake earlier ones of their stream count to a stream of their own."""
    stream = np.searchsorted(unique_sorted(lane), lane)
    numbers = unique_sorted(stream).tolist()
    for number in numbers:
        own = np.flatnonzero(stream == number)
        reach = np.maximum.accumulate(end[own])
        overtakes = np.append(False, start[own][1:] < reach[:-1] - _OVERLAP_NS)
        stream[own[overtakes]] = len(numbers) + number
    return np.searchsorted(unique_sorted(stream), stream)


def _previous_ends(rank: Rank, window: ReplayWindow, program: tuple[Ints, Ints, Ints, Ints]) -> Ints:
    """When the event before each on its stream ends, in order of launch; before the first: what ran before the window.

    The start of the window where there was nothing. `program` has stream, lane, start and end of its device events.
    """
    stream, lane, start, end = program
    events = rank.events_by_lane[window.lane]
    starts, ends, lanes = (events[name].to_numpy(np.int64) for name in ("ts", "end", "lane"))
    previous = np.full(len(start), window.start, np.int64)
    for number in unique_sorted(stream).tolist():
        own = np.flatnonzero(stream == number)
        before = (lanes == lane[own[0]]) & (starts < start[own].min()) & (ends <= start[own[0]])
        previous[own[0]] = max(window.start, int(ends[before].max(initial=window.start)))
        previous[own[1:]] = end[own[:-1]]
    return previous


def _called_after_waits(called: Ints, launch: Ints, waits: HostWaits) -> Ints:
    """When the host launches each event; a launch that waits for room in its queue launches when it returns."""
    queued = waits.launch[waits.is_queue]
    if not len(queued):
        return called
    at = np.searchsorted(np.sort(queued), launch)
    is_queued = np.isin(launch, queued) & (at < len(queued))
    order = np.argsort(queued)
    returned = waits.end[waits.is_queue][order]
    after = called.copy()
    after[is_queued] = returned[at[is_queued]]
    return after


def _usual_bounds(called: Ints, previous_end: Ints, start: Ints, launch: Ints, is_graph: NDArray[np.bool_]) -> Ints:
    """When each event could start by its launch, and by its stream, with the usual delays; never after its start.

    Where there is no launch, the first is long before.
    """
    lag, gap = start - called, start - previous_end
    is_linked = launch != UNLINKED
    by_launch = lag[is_linked & ~is_graph]
    by_stream = gap[(gap >= 0) & (lag > _AHEAD_NS)]
    launch_ns = min(int(np.percentile(by_launch, _QUICK_SHARE)), _MAX_LAUNCH_NS) if len(by_launch) else _LAUNCH_NS
    next_ns = min(int(np.percentile(by_stream, _USUAL_SHARE)), _MAX_NEXT_NS) if len(by_stream) else _NEXT_NS
    launched = called + np.minimum(lag, max(launch_ns, 0))
    free = previous_end + np.minimum(gap, next_ns)
    return np.stack((np.where(is_linked, launched, np.iinfo(np.int64).min // 4), free))


def _delays(called: Ints, previous_end: Ints, start: Ints, bounds: Ints, joins: Joins) -> tuple[Floats, Floats]:
    """The delays of the launch and of the stream: the recorded one for the bound that was met last."""
    launched, free = bounds
    joined = np.full(len(start), np.iinfo(np.int64).min // 2)
    np.maximum.at(joined, joins.event, joins.bound)
    by_join = joined >= np.maximum(launched, free)
    by_launch = ~by_join & (launched > free)
    by_stream = ~by_join & ~by_launch
    launch_delay = np.where(by_launch, start - called, launched - called).astype(np.float64)
    launch_delay[launched < -(2**60)] = NEVER
    stream_delay = np.where(by_stream, start - previous_end, free - previous_end).astype(np.float64)
    return launch_delay, stream_delay
