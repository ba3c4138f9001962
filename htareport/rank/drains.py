"""GPU idle gaps after calls that wait for the device (synchronisation, blocking copies), by what the calls are for."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.distinct import unique_sorted
from htareport.rank.cached import cached_until_release
from htareport.rank.host_rows import coded, late, operators_around, rows_named, threads_after_gaps
from htareport.rank.interval_sets import Sets, common
from htareport.rank.rank import Rank
from htareport.rank.sampled import reads_sampled_token
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
_SOON_NS = 50_000  # The device runs empty so soon after a call that returns: what was launched meanwhile is little.
_LONG_NS = 20_000  # A kernel as long as that shows whether its launch waits for it.
_MIN_LONG_KERNELS, _MIN_BLOCKING_SHARE = 10, 0.8


class Drain(IntEnum):
    """What a waiting call is made for."""

    SCALAR = auto()  # To read a number.
    SHAPE = auto()  # To learn the size of a result.
    COPY_BACK = auto()  # To copy values to the host.
    DEVICE = auto()  # To wait for the whole device.
    OTHER = auto()
    SAMPLED = auto()  # To read a token that was sampled.


@dataclass(frozen=True)
class Drains:
    """Gaps in ns, of each its lane (index into `Rank.lanes`), the waiting call before it (host row) and its Drain."""

    lane: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    row: NDArray[np.int64]
    kind: NDArray[np.int64]
    is_blocking: bool  # Whether launches wait for their kernels.

    def sets(self, rank: Rank, *kinds: Drain) -> Sets:
        """What of the gaps of some kinds the host is late, within the windows."""
        sets, is_kind = Sets(), np.isin(self.kind, kinds)
        for index, lane in enumerate(rank.lanes):
            mask = is_kind & (self.lane == index)
            sets[lane] = intervals.union(self.start[mask], self.end[mask])
        return common(rank.clipped(sets), late(rank))

    def calls(self, rank: Rank, *kinds: Drain) -> list[tuple[str, int]]:
        """The three names that wait most often, with how often: of the operators that make the calls, else of these."""
        rows = self.row[np.isin(self.kind, kinds)]
        operators = operators_around(rank)[rows]
        codes = rank.host["name"][np.where(operators >= 0, operators, rows)]
        names = Counter(rank.loaded.strings[code] for code in codes.tolist())
        return sorted(names.items(), key=lambda item: (-item[1], item[0]))[:3]

    def waiting_launches(self, rank: Rank, *kinds: Drain) -> NDArray[np.int64]:
        """The rows of `Rank.launches` that wait for these purposes."""
        rows = np.unique(self.row[np.isin(self.kind, kinds)])
        launches: NDArray[np.int64] = rank.host.at("launch", rows).astype(np.int64)
        return launches[launches >= 0]

    def longest_row(self, *kinds: Drain) -> int:
        """Host row of the call before the longest gap of some kinds, of which there is one."""
        return int(self.row[np.where(np.isin(self.kind, kinds), self.end - self.start, 0).argmax()])


@cached_until_release
def drains_of(rank: Rank, min_sampled_share: float | None = None) -> Drains:
    """The gaps of a rank's devices after calls that wait for them.

    Of such a gap no more could be saved than what the host has spent in waiting calls since the last one: the time by
    which it would be ahead without them. Calls right after the sampling of tokens are a kind of their own where their
    gaps take at least `min_sampled_share` of the windows.
    """
    drains = _drains(rank)
    if min_sampled_share is None or not len(drains.row):
        return drains
    is_sampled = reads_sampled_token(rank, drains.row)
    with_sampled = replace(drains, kind=np.where(is_sampled, Drain.SAMPLED, drains.kind))
    return with_sampled if rank.share(with_sampled.sets(rank, Drain.SAMPLED)) >= min_sampled_share else drains


def _drains(rank: Rank) -> Drains:
    # For each lane and each thread that launches on it: the thread's waiting calls in order of their ends, and the
    # gaps that end with a launch of this thread.
    host = rank.host
    is_blocking = _is_blocking(rank)
    rows, directions = _waiting_rows(rank, blocking=is_blocking)
    start, end, thread, capture = (host.at(name, rows) for name in ("ts", "end", "thread", "capture"))
    drains = list[tuple[int, int, int, int]]()
    for index, lane in enumerate(rank.lanes):
        gaps, threads = rank.gaps[lane], threads_after_gaps(rank, lane)
        for number in unique_sorted(threads[threads >= 0]).tolist():
            calls = np.flatnonzero((capture == lane[1]) & (thread == number))
            calls = calls[np.argsort(end[calls], kind="stable")]
            if len(calls):
                savable = _savable(gaps[threads == number], start[calls], end[calls])
                drains.extend((index, begin, stop, int(rows[calls[call]])) for begin, stop, call in savable)
    lanes, starts, ends, call_rows = np.array(drains, np.int64).reshape(-1, 4).T
    return Drains(lanes, starts, ends, call_rows, _kinds(rank, call_rows, directions), is_blocking)


def _savable(gaps: intervals.Intervals, start: NDArray[np.int64], end: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Begin and end of what could be saved of gaps in which a call returns, or right before, and which call.

    Calls stand in order of their ends.
    """
    waited = np.cumsum(end - start)
    first_after = np.searchsorted(end, gaps[:, 0] - _SOON_NS)  # The first call that returns after that.
    call = np.minimum(first_after, len(end) - 1)
    has_call = np.flatnonzero((first_after < len(end)) & (end[call] < gaps[:, 1]))
    savable, used = list[tuple[int, int, int]](), 0
    for (begin, stop), row in zip(gaps[has_call].tolist(), call[has_call].tolist(), strict=True):
        length = min(stop - begin, int(waited[row]) - used)
        if length > 0:
            used += length
            savable.append((begin, begin + length, row))
    return savable


def _waiting_rows(rank: Rank, *, blocking: bool) -> tuple[NDArray[np.int64], pd.Series[Any]]:
    """Rows of the host table that wait for the device, in order; and the directions of copies by such rows.

    A copy waits if it has ended when its call returns; where launches wait for their kernels, they are waiting calls.
    """
    host, events = rank.host, rank.device_events
    last_end = np.full(len(rank.launches) + 1, -1, np.int64)  # One more, for events without a launch.
    np.maximum.at(last_end, events["launch"].to_numpy(), events["end"].to_numpy())
    copies = rows_named(rank, _COPIES, "call")
    launch = host.at("launch", copies)
    waits = (last_end[launch] >= 0) & (last_end[launch] <= host.at("end", copies))
    kinds = rank.copies.drop_duplicates("launch").set_index("launch")["copy_kind"]
    directions = pd.Series(kinds.reindex(launch).to_numpy(), copies).dropna()
    launches = [rows_named(rank, _LAUNCHES, "call")] if blocking else []
    return np.sort(np.concatenate([rows_named(rank, _WAITS, "call"), copies[waits], *launches])), directions


def _is_blocking(rank: Rank) -> bool:
    """Whether nearly all launches of long kernels return only after the end of the kernel."""
    events, calls = rank.device_events, rank.launches
    long = events[(events["launch"] >= 0) & (events["dur"] >= _LONG_NS) & (events["kind"] == classify.Kind.COMPUTE)]
    launch = long["launch"].to_numpy()
    is_single = ~calls["graph"].to_numpy()[launch]
    waits = calls["end"].to_numpy()[launch][is_single] >= long["end"].to_numpy()[is_single]
    return len(waits) >= _MIN_LONG_KERNELS and bool(waits.mean() >= _MIN_BLOCKING_SHARE)


def _kinds(rank: Rank, rows: NDArray[np.int64], directions: pd.Series[Any]) -> NDArray[np.int64]:
    """What calls are made for, by all operators around them and the copies before them."""
    codes, around = rank.host["name"], operators_around(rank)
    kinds = np.full(len(rows), Drain.OTHER)
    kinds[_direction(rows, directions, around) == "Memcpy DtoH"] = Drain.COPY_BACK
    kinds[coded(rank, _DEVICE)[codes[rows]]] = Drain.DEVICE
    for drain, pattern in ((Drain.SCALAR, _SCALAR), (Drain.SHAPE, _SHAPE)):
        is_match, operator = coded(rank, pattern), around[rows]
        while (operator >= 0).any():
            kinds[(operator >= 0) & is_match[codes[operator]]] = drain
            operator = np.where(operator >= 0, around[operator], -1)
    return kinds


def _direction(rows: NDArray[np.int64], directions: pd.Series[Any], around: NDArray[np.int32]) -> NDArray[Any]:
    """Direction of the copy that a call is, or that was made before it in the same operator; else empty."""
    copies, kinds = directions.index.to_numpy(), directions.to_numpy()
    if not len(copies):
        return np.full(len(rows), "", object)
    index = np.searchsorted(copies, rows, side="right") - 1
    before = copies[np.maximum(index, 0)]
    is_own = (index >= 0) & ((before == rows) | ((around[rows] >= 0) & (around[before] == around[rows])))
    return np.where(is_own, kinds[np.maximum(index, 0)], "")
