"""Changes of a rank's host: rows that are gone, waits that are gone, launches that one graph replays."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.intervals import EMPTY, Intervals
from htareport.rank.host_rows import rows_named
from htareport.rank.idle import Cause, rows_of_causes
from htareport.rank.interval_sets import Sets
from htareport.rank.launch_links import UNLINKED
from htareport.rank.rank import Rank
from htareport.rank.replay.edits import RankEdit, edit_of_claim
from htareport.rank.replay.program import Program, program_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_CALL_NS = 10_000  # What a call takes that starts a copy and does not wait for it.
_BYTES_PER_NS = 400.0, 50.0  # What a large collective moves at most, among the devices of a host and beyond.
_COMMUNICATES = re.compile(r"^c10d::|^nccl:|^rccl:|record_param_comms")
MAX_LAUNCH_NS = 500_000  # From one launch to the next: a host that takes longer does something else.
_KEPT_SHARE = 0.05  # Of the host's time for launches that one graph replays.
_OTHER_THAN_LAUNCHES = (
    Cause.LOADING, Cause.COMPILING, Cause.COLLECTING, Cause.ALLOCATING, Cause.SYNCHRONISING,
)  # fmt: skip


def edit_without_rows(rank: Rank, start: Ints, end: Ints, claim: Sets) -> RankEdit | None:
    """Return the change by which the host no longer runs some rows, and so no longer waits in calls within them.

    Whatever else is claimed goes as well. None where the rank has no program.
    """
    program = program_of(rank)
    if isinstance(program, str):
        return None
    gone = intervals.union(start, end)
    waits = program.waits
    within = intervals.touching(gone, waits.start, waits.start + 1)
    rest = edit_of_claim(rank, program, {program.window.lane: claim.get(program.window.lane, EMPTY)})
    return replace(rest, host_gone=_both(rest.host_gone, gone), waits_gone=waits.launch[within])


def edit_without_causes(rank: Rank, claim: Sets, *causes: Cause) -> RankEdit | None:
    """Return the change by which the host no longer runs the rows of some causes of idle time."""
    host, rows = rank.host, rows_of_causes(rank, *causes)
    return edit_without_rows(rank, host.at("ts", rows), host.at("end", rows), claim)


def edit_without_waits(rank: Rank, launches: Ints, claim: Sets) -> RankEdit | None:
    """Return the change by which calls (rows of `Rank.launches`) no longer wait, and idle time after them is gone."""
    program = program_of(rank)
    if isinstance(program, str):
        return None
    rest = edit_of_claim(rank, program, {program.window.lane: claim.get(program.window.lane, EMPTY)})
    return replace(rest, waits_gone=launches)


def edit_of_launches(rank: Rank, region: Intervals) -> RankEdit | None:
    """Return the change by which one graph replays what is launched within a region.

    Of the host's time there a small share is kept. What is no launching (data loading, waits, the garbage collector,
    pauses far longer than a launch) stays as it is.
    """
    program = program_of(rank)
    if isinstance(program, str):
        return None
    host, rows = rank.host, rows_of_causes(rank, *_OTHER_THAN_LAUNCHES)
    launching = intervals.difference(region, intervals.union(host.at("ts", rows), host.at("end", rows)))
    stamps = _stamps(program, region)
    apart = np.diff(stamps)
    starts = stamps[:-1][apart <= MAX_LAUNCH_NS]
    ends = starts + ((1 - _KEPT_SHARE) * apart[apart <= MAX_LAUNCH_NS]).astype(np.int64)
    gone = intervals.intersection(launching, intervals.union(starts, ends))
    return RankEdit(host_gone=gone)


def edit_of_copies(rank: Rank, copies: pd.DataFrame, share: float) -> RankEdit | None:
    """Return the change by which copies take this share of their time less, and the host does not wait for them."""
    program = program_of(rank)
    if isinstance(program, str):
        return None
    shorter = np.zeros(len(rank.device_events))
    rows = copies.index.to_numpy()
    shorter[rows] = share * copies["dur"].to_numpy()
    launch = copies["launch"].to_numpy()
    launch = launch[launch != UNLINKED]
    calls, waits = rank.launches, program.waits
    start, end = (calls[name].to_numpy(np.int64)[launch] for name in ("ts", "end"))
    chosen = np.isin(program.row[waits.source_event], rows)
    waited = waits.launch[np.unique(waits.source_wait[chosen])]
    kept = np.minimum(start + _CALL_NS, end)
    return RankEdit(shorter_ns=shorter, host_gone=intervals.union(kept, end), waits_gone=np.union1d(waited, launch))


def edit_of_fused(rank: Rank, saving: Floats, rows: Ints) -> RankEdit | None:
    """Return the change by which a few kernels take the place of many that are launched within host rows.

    `saving` is how much less each device event takes (ns). Of the host's time a small
    share is kept.
    """
    program = program_of(rank)
    if isinstance(program, str):
        return None
    host = rank.host
    launches = edit_of_launches(rank, intervals.union(host.at("ts", rows), host.at("end", rows)))
    return RankEdit(shorter_ns=saving, host_gone=None if launches is None else launches.host_gone)


def edit_of_fusion(rank: Rank, saving: Floats, is_fused: NDArray[np.bool_]) -> RankEdit | None:
    """Return the change by which one kernel takes the place of kernels that are launched one after the other.

    By device event: `saving` is how much less it takes (ns), `is_fused` whether it goes into the one. Of a row of such
    events the first launch stays, and the host no longer dispatches the others.
    """
    program = program_of(rank)
    if isinstance(program, str):
        return None
    fused = is_fused[program.row]
    follows = np.flatnonzero(fused[1:] & fused[:-1]) + 1
    start, end = program.called[follows - 1], program.called[follows]
    is_dispatch = (end > start) & (end - start <= MAX_LAUNCH_NS)
    return RankEdit(shorter_ns=saving, host_gone=intervals.union(start[is_dispatch], end[is_dispatch]))


def edit_without_collectives(rank: Rank, calls: pd.DataFrame) -> RankEdit | None:
    """Return the change by which some collectives go with others: their launches are gone, their bytes are not.

    `calls` are rows of `kernels`, with `bytes`.
    """
    if isinstance(program_of(rank), str):
        return None
    rows = calls.index.to_numpy()
    is_removed, transfer = np.zeros(len(rank.device_events), np.bool_), np.zeros(len(rank.device_events))
    is_removed[rows] = True
    num_devices = max(len(capture.devices) for capture in rank.captures)
    is_near = calls["group_size"].to_numpy() <= max(num_devices, 1)
    moving = np.nan_to_num(calls["bytes"].to_numpy(np.float64)) / np.where(is_near, *_BYTES_PER_NS)
    transfer[rows] = np.maximum(calls["dur"].to_numpy() - moving, 0.0)
    host, around = rank.host, rows_named(rank, _COMMUNICATES)
    launch = calls["launch"].to_numpy()
    launched = rank.launches["ts"].to_numpy(np.int64)[launch[launch != UNLINKED]]
    operators = intervals.union(host.at("ts", around), host.at("end", around))
    gone = operators[_holding(operators, launched)]
    return RankEdit(is_removed=is_removed, transfer_ns=transfer, host_gone=gone)


def _holding(rows: Intervals, stamps: Ints) -> Ints:
    """Which of some intervals hold any of the stamps."""
    if not len(rows):
        return np.zeros(0, np.int64)
    place = np.searchsorted(rows[:, 0], stamps, side="right") - 1
    inside = (place >= 0) & (stamps < rows[np.maximum(place, 0), 1])
    return np.unique(place[inside])


def _stamps(program: Program, region: Intervals) -> Ints:
    """When the host launches something within a region, and the limits of that, in order."""
    stamps = np.concatenate((program.called, program.waits.start, program.waits.end, region.ravel()))
    stamps = np.unique(stamps)
    inside = intervals.touching(region, stamps, stamps + 1) | np.isin(stamps, region[:, 1])
    chosen: Ints = stamps[inside]
    return chosen


def _both(one: Intervals | None, other: Intervals) -> Intervals:
    if one is None or not len(one):
        return other
    rows = np.concatenate((one, other))
    return intervals.union(rows[:, 0], rows[:, 1])
