"""Which device events wait for an event of another stream."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.rank.host_rows import rows_named
from htareport.rank.launch_links import UNLINKED
from htareport.rank.rank import Rank
from htareport.rank.replay.window import ReplayWindow

Ints = NDArray[np.int64]
ProgramArrays = tuple[Ints, Ints, Ints, Ints, Ints]  # launch, called, stream, start, end

_WAIT = re.compile(r"StreamWaitEvent")
_UNEXPLAINED_NS = 3_000  # An event that starts so much later than its launch and its stream allow waits for another.
_SOON_NS = 15_000  # It starts as soon after the end of what it waited for.
_USUAL_NS, _ROUNDING_NS = 1_500, 500


@dataclass(frozen=True)
class Joins:
    """Pairs of events (places in the program): `event` does not start before `source` has ended, and `delay` (ns).

    `bound` is when the event could start by that.
    """

    event: Ints
    source: Ints
    delay: Ints
    bound: Ints


def joins_of(
    rank: Rank, window: ReplayWindow, program: ProgramArrays, is_collective: NDArray[np.bool_], bounds: Ints
) -> Joins:
    """Find them; `bounds` is when each event could start by its launch and its stream.

    A collective waits for what was launched before it on another stream; what is launched next after a
    `StreamWaitEvent` waits for what ended last elsewhere. An event whose start nothing else explains waits for what
    ended last before. A collective that nothing waits for ends before the last work of its step.
    """
    _, _, _, start, end = program
    pairs = [*_of_collectives(program, is_collective), *_of_wait_calls(rank, window, program)]
    known = np.full(len(start), -1, np.int64)
    for waiting, before in pairs:
        known[waiting] = max(known[waiting], before)
    pairs += _unexplained(program, bounds, known)
    pairs += _last_of_steps(window, program, is_collective, pairs)
    table = np.array(sorted(set(pairs)), np.int64).reshape(-1, 2)
    event, source = table.T
    usual = end[source] + np.minimum(_USUAL_NS, start[event] - end[source])
    latest = np.full(len(start), np.iinfo(np.int64).min)
    np.maximum.at(latest, event, usual)
    is_binding = (usual == latest[event]) & (usual >= bounds[event])
    delay = np.where(is_binding, start[event] - end[source], usual - end[source])
    return Joins(event, source, delay, usual)


def _of_collectives(program: ProgramArrays, is_collective: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Each collective with the work launched last before it, if that had ended when it started."""
    _, _, stream, start, end = program
    places = np.arange(len(start))
    before = np.maximum.accumulate(np.where(is_collective, -1, places)) if len(start) else places
    events = np.flatnonzero(is_collective & (before >= 0))
    source = before[events]
    fits = (end[source] <= start[events] + _ROUNDING_NS) & (stream[source] != stream[events])
    return list(zip(events[fits].tolist(), source[fits].tolist(), strict=True))


def _of_wait_calls(rank: Rank, window: ReplayWindow, program: ProgramArrays) -> list[tuple[int, int]]:
    """What is launched next after a stream was told to wait, with what was launched before on the other stream."""
    launch, called, stream, start, end = program
    rows = rows_named(rank, _WAIT, "call")
    host, calls = rank.host, rank.launches
    stamps, threads = host.at("ts", rows), host.at("thread", rows)
    within = (stamps >= window.start) & (stamps < window.end) & (host.at("capture", rows) == window.lane[1])
    by_stream = [np.flatnonzero(stream == number) for number in unique_sorted(stream).tolist()]
    if not within.any():
        return []
    thread = np.where(launch == UNLINKED, -1, calls["thread"].to_numpy()[np.maximum(launch, 0)])
    pairs = list[tuple[int, int]]()
    places = {int(number): np.flatnonzero(thread == number) for number in unique_sorted(threads[within]).tolist()}
    for stamp, number in zip(stamps[within].tolist(), threads[within].tolist(), strict=True):
        own = places[number]
        at = int(np.searchsorted(called[own], stamp, side="right"))
        if at == len(own):
            continue
        event = int(own[at])
        last = [
            int(others[place])
            for others in by_stream
            if (place := int(np.searchsorted(called[others], stamp)) - 1) >= 0 and stream[others[0]] != stream[event]
        ]
        fitting = [source for source in last if end[source] <= start[event] + _ROUNDING_NS]
        if fitting:
            pairs.append((event, max(fitting, key=lambda source: int(end[source]))))
    return pairs


def _unexplained(program: ProgramArrays, bounds: Ints, known: Ints) -> list[tuple[int, int]]:
    """Events that start later than anything explains, with what ended last before on another stream."""
    _, _, stream, start, end = program
    late = np.flatnonzero((start - bounds > _UNEXPLAINED_NS) & ((known < 0) | (start - end[known] > _SOON_NS)))
    order = np.argsort(end, kind="stable")
    at = np.searchsorted(end[order], start[late] + _ROUNDING_NS, side="right") - 1
    pairs = list[tuple[int, int]]()
    for event, last in zip(late.tolist(), at.tolist(), strict=True):
        for place in range(last, max(last - 8, -1), -1):
            source = int(order[place])
            if end[source] <= bounds[event]:
                break  # By its launch or its stream it could start later than by this.
            if stream[source] != stream[event] and source < event:
                pairs.append((event, source))
                break
    return pairs


def _last_of_steps(
    window: ReplayWindow, program: ProgramArrays, is_collective: NDArray[np.bool_], pairs: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The first work after the last collective of a step, with the collectives that nothing waited for."""
    _, called, stream, start, end = program
    awaited = {source for _, source in pairs}
    found, before = list[tuple[int, int]](), window.start
    for stop in window.step_ends:
        own = np.arange(*np.searchsorted(called, (before, stop)))
        before = stop
        loose = [int(place) for place in own[is_collective[own]] if int(place) not in awaited]
        if not loose:
            continue
        done = int(end[loose].max())
        later = own[(own > max(loose)) & ~is_collective[own] & (start[own] >= done)]
        if len(later):
            event = int(later[0])
            last = {int(stream[place]): place for place in loose}  # The last of each stream ends last.
            found += [(event, place) for place in last.values() if stream[place] != stream[event]]
    return found
