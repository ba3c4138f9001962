"""Gaps of the devices behind calls that waited until they were empty, by what the calls were made for."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.distinct import unique_sorted
from htareport.rank.cached import cached_until_release
from htareport.rank.host_rows import coded, late, operators_around, rows_named
from htareport.rank.interval_sets import Lane, Sets, common
from htareport.rank.rank import Rank
from htareport.rank.sampled import behind_sampling
from htareport.rows import classify

_WAITS = re.compile(r"^(?:cuda|hip|cu)\w*Synchronize")
_COPIES = re.compile(r"^(?:cuda|hip|cu)Memcpy")
_LAUNCHES = re.compile(r"^(?:cuda|hip|cu)\w*Launch\w*Kernel")
_DEVICE = re.compile(r"^(?:(?:cudaDevice|hipDevice|cuCtx)Synchronize|(?:cuda|hip|cu)\w*Launch\w*Kernel)")
_SCALAR = re.compile(r"^aten::(?:item|_local_scalar_dense|is_nonzero|equal)$")
_SHAPE = re.compile(
    r"^aten::(?:nonzero\w*|masked_select|index|index_put_?|_index_put_impl_|_?unique\w*|repeat_interleave|argwhere|"
    r"bincount|tensor_split|_ctc_loss)$"
)
_LONG_NS = 20_000  # Of a kernel whose launch tells whether launches wait.
_FEWEST, _NEARLY_ALL = 10, 0.8


class Drain(Enum):
    """What a waiting call was made for."""

    SCALAR = "a number is read"
    SHAPE = "a size is read"
    COPY_BACK = "values are copied to the host"
    DEVICE = "the whole device is waited for"
    OTHER = "anything else"
    SAMPLED = "a token that was sampled is read"


_KINDS = tuple(Drain)


@dataclass(frozen=True)
class Drains:
    """Gaps (ns): place of the lane, begin and end, row of the host table of the call before, and its kind's place."""

    lane: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    row: NDArray[np.int64]
    kind: NDArray[np.int64]
    blocking: bool  # Whether launches wait for their kernels.

    def sets(self, rank: Rank, *kinds: Drain) -> Sets:
        """The gaps of some kinds in which the host is late, within the windows."""
        sets, chosen = Sets(), self._of(kinds)
        for place, lane in enumerate(rank.lanes):
            mine = chosen & (self.lane == place)
            sets[lane] = intervals.union(self.start[mine], self.end[mine])
        return common(rank.clipped(sets), late(rank))

    def calls(self, rank: Rank, *kinds: Drain, most: int = 3) -> list[tuple[str, int]]:
        """What waited, most often first, with how often: by the operator that made the call, else by the call."""
        rows = self.row[self._of(kinds)]
        around = operators_around(rank)[rows]
        codes = rank.host["name"][np.where(around >= 0, around, rows)]
        names = Counter(rank.loaded.strings[code] for code in codes.tolist())
        return sorted(names.items(), key=lambda item: (-item[1], item[0]))[:most]

    def worst(self, *kinds: Drain) -> int:
        """Row of the call behind which the longest gap is, -1 without any."""
        lengths = np.where(self._of(kinds), self.end - self.start, 0)
        return int(self.row[lengths.argmax()]) if lengths.any() else -1

    def _of(self, kinds: tuple[Drain, ...]) -> NDArray[np.bool_]:
        return np.isin(self.kind, [_KINDS.index(kind) for kind in kinds])


@cached_until_release
def drains_of(rank: Rank, least_sampled: float | None = None) -> Drains:
    """The gaps of a rank's devices behind calls that waited, worked out once.

    Of such a gap no more could be saved than what the host has spent in waiting calls since the last one: the time by
    which it would be ahead without them. Calls right behind the sampling of tokens are a kind of their own where their
    gaps take at least `least_sampled` of the windows.
    """
    every = _drains(rank)
    if least_sampled is None or not len(every.row):
        return every
    sampled = behind_sampling(rank, every.row)
    tokens = replace(every, kind=np.where(sampled, _KINDS.index(Drain.SAMPLED), every.kind))
    return tokens if rank.share(tokens.sets(rank, Drain.SAMPLED)) >= least_sampled else every


def _drains(rank: Rank) -> Drains:
    host = rank.host
    blocking = _launches_wait(rank)
    rows, directions = _waiting_rows(rank, blocking=blocking)
    start, end, thread, capture = (host.at(name, rows) for name in ("ts", "end", "thread", "capture"))
    taken = list[tuple[int, int, int, int]]()
    for place, lane in enumerate(rank.lanes):
        gaps = rank.gaps[lane]
        threads = _threads_behind(rank, lane, gaps)
        for number in unique_sorted(threads[threads >= 0]).tolist():
            mine = np.flatnonzero((capture == lane[1]) & (thread == number))
            mine = mine[np.argsort(end[mine], kind="stable")]
            if len(mine):
                found = _of_thread(gaps[threads == number], start[mine], end[mine])
                taken.extend((place, begin, stop, int(rows[mine[at]])) for begin, stop, at in found)
    places, starts, ends, calls = np.array(taken, np.int64).reshape(-1, 4).T
    return Drains(places, starts, ends, calls, _kinds(rank, calls, directions), blocking)


def _of_thread(
    gaps: intervals.Intervals, start: NDArray[np.int64], end: NDArray[np.int64]
) -> list[tuple[int, int, int]]:
    """Begin and end of what of each gap is behind a waiting call, and which: these calls are in order of their ends."""
    blocked = np.cumsum(end - start)
    place = np.searchsorted(end, gaps[:, 0])  # The first call that returns behind the gap's begin.
    call = np.minimum(place, len(end) - 1)
    drained = np.flatnonzero((place < len(end)) & (end[call] < gaps[:, 1]))
    of_thread, used = list[tuple[int, int, int]](), 0
    for (begin, stop), at in zip(gaps[drained].tolist(), call[drained].tolist(), strict=True):
        room = min(stop - begin, int(blocked[at]) - used)
        if room > 0:
            used += room
            of_thread.append((begin, begin + room, at))
    return of_thread


def _threads_behind(rank: Rank, lane: Lane, gaps: intervals.Intervals) -> NDArray[np.int64]:
    """The thread that launched what ends each gap, -1 where that is unknown."""
    events = rank.events_by_lane[lane]
    launch = events["launch"].to_numpy()[np.searchsorted(events["ts"].to_numpy(), gaps[:, 1])]
    thread = rank.launches["thread"].to_numpy()
    return np.where(launch >= 0, thread[launch] if len(thread) else -1, -1).astype(np.int64)


def _waiting_rows(rank: Rank, *, blocking: bool) -> tuple[NDArray[np.int64], pd.Series[Any]]:
    """Rows of the host table that wait for the device, in order; and the directions of copies by such rows.

    A copy waits if it has ended when its call returns; where launches wait for their kernels, they are waiting calls.
    """
    host, events = rank.host, rank.device_events
    launch, ends = events["launch"].to_numpy(), events["end"].to_numpy()
    last = np.full(len(rank.launches) + 1, -1, np.int64)  # One more, for those without a launch.
    np.maximum.at(last, launch, ends)
    copies = rows_named(rank, _COPIES, "call")
    mine = host.at("launch", copies)
    waits = (last[mine] >= 0) & (last[mine] <= host.at("end", copies))
    kinds = rank.copies.drop_duplicates("launch").set_index("launch")["copy_kind"]
    directions = pd.Series(kinds.reindex(mine).to_numpy(), copies).dropna()
    parts = [rows_named(rank, _WAITS, "call"), copies[waits], *([rows_named(rank, _LAUNCHES, "call")] * blocking)]
    return np.sort(np.concatenate(parts)), directions


def _launches_wait(rank: Rank) -> bool:
    """Whether nearly all launches of kernels that are not short return only behind the end of the kernel."""
    events, calls = rank.device_events, rank.launches
    long = events[(events["launch"] >= 0) & (events["dur"] >= _LONG_NS) & (events["kind"] == classify.Kind.COMPUTE)]
    launch = long["launch"].to_numpy()
    single = ~calls["graph"].to_numpy()[launch]
    waits = calls["end"].to_numpy()[launch][single] >= long["end"].to_numpy()[single]
    return len(waits) >= _FEWEST and bool(waits.mean() >= _NEARLY_ALL)


def _kinds(rank: Rank, rows: NDArray[np.int64], directions: pd.Series[Any]) -> NDArray[np.int64]:
    """What calls were made for, by the operators around them and the copies before them: places of Drain."""
    codes, around = rank.host["name"], operators_around(rank)
    is_scalar, is_shape, is_device = (coded(rank, pattern) for pattern in (_SCALAR, _SHAPE, _DEVICE))
    kinds = np.full(len(rows), _KINDS.index(Drain.OTHER))
    kinds[_direction(rows, directions, around) == "Memcpy DtoH"] = _KINDS.index(Drain.COPY_BACK)
    kinds[is_device[codes[rows]]] = _KINDS.index(Drain.DEVICE)
    shape, scalar, operator = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_), around[rows]
    while (operator >= 0).any():
        inside = operator >= 0
        shape |= inside & is_shape[codes[operator]]
        scalar |= inside & is_scalar[codes[operator]]
        operator = np.where(inside, around[operator], -1)
    kinds[scalar] = _KINDS.index(Drain.SCALAR)
    kinds[shape] = _KINDS.index(Drain.SHAPE)
    return kinds


def _direction(rows: NDArray[np.int64], directions: pd.Series[Any], around: NDArray[np.int32]) -> NDArray[Any]:
    """Direction of the copy that a call is, or that was made before it in the same operator; else empty."""
    copies, kinds = directions.index.to_numpy(), directions.to_numpy()
    place = np.searchsorted(copies, rows, side="right") - 1
    if not len(copies):
        return np.full(len(rows), "", object)
    before = copies[np.maximum(place, 0)]
    same = (place >= 0) & ((before == rows) | ((around[rows] >= 0) & (around[before] == around[rows])))
    return np.where(same, kinds[np.maximum(place, 0)], "")
