"""By how much ranks would end earlier, were some of their own time gone: they go on waiting for each other.

A rank runs on its own until it waits for a collective. That starts, for all, when the last rank arrives, and lasts as
long as before; so time that goes on a rank which is not the last makes that rank wait longer, and nobody earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NONE = -1


class Stream(NamedTuple):
    """What the stream of each entry did before: the entry `before` on it (-1 none), and see `Calls` for the others."""

    before: Ints
    slack: Ints
    queued: Ints


@dataclass(frozen=True)
class Calls:
    """One entry per collective and rank that takes part in it, sorted by collective; these in order of their ends.

    Times are ns on one clock. `stall` is for how long the rank, at the end of the collective, has done nothing but
    wait for that end: 0 where it computes meanwhile. `on_stream` is the entry before it on the same stream (-1 none),
    `slack` for how long that stream was idle in between, `queued` for how long the rank had been ready when it came to
    the collective at last, because that one was not over. `before` and `until` are the entries on which the rank last
    waited, before its arrival and before the end.
    """

    collective: Ints
    rank: Ints
    arrival: Ints
    end: Ints
    stall: Ints
    on_stream: Ints
    slack: Ints
    queued: Ints
    before: Ints
    until: Ints

    @classmethod
    def of(cls, collective: Ints, rank: Ints, times: tuple[Ints, Ints], stall: Ints, stream: Stream) -> Self:
        """Make it of sorted entries; `times` are arrival and end."""
        arrival, end = times
        before, until = (np.full(len(rank), NONE, np.int64) for _ in range(2))
        for each in unique_sorted(rank).tolist():
            mine = np.flatnonzero(rank == each)
            waited = mine[stall[mine] > 0]
            ends, earlier = np.maximum.accumulate(end[waited]), np.searchsorted(waited, mine)
            for out, stamp in ((before, arrival), (until, end)):
                place = np.minimum(np.searchsorted(ends, stamp[mine], side="right"), earlier) - 1
                out[mine[place >= 0]] = waited[place[place >= 0]]
        # A collective before it on the stream that ends later, by what was matched, says nothing.
        on_stream = np.where(stream.before < np.arange(len(rank)), stream.before, NONE)
        queued = np.where(on_stream == NONE, 0, stream.queued)
        return cls(collective, rank, arrival, end, stall, on_stream, stream.slack, queued, before, until)


class Late(NamedTuple):
    """Which entries arrive no later than others: than the mean of all of these `to_mean`, else than the latest other.

    Whatever makes them later goes.
    """

    entries: NDArray[np.bool_]
    to_mean: bool = False


@dataclass(frozen=True)
class Removed:
    """Time that goes, in ns: rows are entries of `Calls`, columns what it is that goes.

    `at_arrival` and `at_end` are how much of a rank's own time until then goes (below zero: comes in addition),
    `stalled` how much of what moves bytes while the rank waits for it. `in_all` has a row for each rank: its own time
    that goes until the end. Where some `adds` to a rank's time, ranks may end later, else none does.
    """

    at_arrival: Floats
    at_end: Floats
    stalled: Floats
    in_all: Floats
    adds: bool = False


def shifts(calls: Calls, removed: Removed, late: Late | None = None) -> Floats:
    """By how much each rank (rows, from 0) would reach its end earlier, for each column of what goes.

    Besides, what makes entries `late` goes.
    """
    size, columns = removed.at_arrival.shape
    base = np.zeros((size + 1, columns))  # What a wait adds to a rank's own; the last row is what -1 takes.
    moved = np.zeros((size + 1, columns))  # By how much each entry's collective ends earlier.
    moved[-1] = np.inf
    more = np.zeros_like(removed.in_all)  # What has gone of ranks so that they are not late.
    some = np.zeros(size, np.bool_) if late is None else late.entries
    bounds = np.append(np.flatnonzero(np.diff(calls.collective, prepend=NONE)), size)
    stall, slack, queued, arrival = (each[:, None] for each in (calls.stall, calls.slack, calls.queued, calls.arrival))
    for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        here, ranks = slice(first, stop), calls.rank[first:stop]
        earlier = base[calls.before[here]] + removed.at_arrival[here] + more[ranks]
        earlier = np.minimum(earlier + queued[here], moved[calls.on_stream[here]] + slack[here])
        comes = arrival[here] - arrival[here].max() - earlier
        mine = some[here]
        if late is not None and mine.any() and (late.to_mean or not mine.all()):
            until = comes[mine].mean(axis=0) if late.to_mean else comes[~mine].max(axis=0)
            later = np.maximum(comes[mine] - until, 0)
            more[ranks[mine]] += later
            comes[mine] -= later
        shorter = removed.stalled[here].min(axis=0)
        moved[here] = shorter - comes.max(axis=0)
        own = removed.at_end[here] + more[ranks]
        after = np.minimum(base[calls.until[here]] + own + stall[here], moved[here])
        base[here] = after + removed.stalled[here] - shorter - own
    latest = np.full(len(removed.in_all), size, np.int64)
    waited = np.flatnonzero(calls.stall > 0)
    latest[calls.rank[waited]] = waited  # The last of a rank wins; one that never waits keeps the row of zeros.
    shifts: Floats = np.maximum(base[latest] + removed.in_all + more, -np.inf if removed.adds else 0.0)
    return shifts


def saved(end: Ints, shift: Floats) -> Floats:
    """By how much the last of the ranks ends earlier, for each column; `end` is when each ends now."""
    relative = (end - end.max())[:, None].astype(np.float64)
    saved: Floats = np.maximum(-(relative - shift).max(axis=0), 0.0)
    return saved
