"""What changes on a rank if advice works: work that is gone or shorter, waits and host time that are gone."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.intervals import EMPTY, Intervals
from htareport.rank.communication import awaited
from htareport.rank.interval_sets import Lane
from htareport.rank.rank import Rank
from htareport.rank.replay.program import NEVER, Program

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RankEdit:
    """A change of a rank.

    By device event (row of `Rank.device_events`): `shorter_ns` is how much less it takes, `is_removed` whether it and
    its launch are gone, `transfer_ns` how much less its bytes take once all ranks have come. `host_gone` is time of the
    host that is gone (waits apart), `waits_gone` are rows of `Rank.launches` that no longer wait, `idle_gone` is time
    between a launch and the start of its work that is gone. None: nothing.
    """

    shorter_ns: Floats | None = None
    is_removed: NDArray[np.bool_] | None = None
    transfer_ns: Floats | None = None
    host_gone: Intervals | None = None
    waits_gone: Ints | None = None
    idle_gone: Intervals | None = None


def together(edits: Sequence[RankEdit]) -> RankEdit:
    """Return all changes as one: work is shorter by the most that any of them says, the rest is gone if one says so."""
    return RankEdit(
        shorter_ns=_elementwise(np.maximum, [edit.shorter_ns for edit in edits]),
        is_removed=_elementwise(np.logical_or, [edit.is_removed for edit in edits]),
        transfer_ns=_elementwise(np.maximum, [edit.transfer_ns for edit in edits]),
        host_gone=_union([edit.host_gone for edit in edits]),
        waits_gone=_elementwise(np.union1d, [edit.waits_gone for edit in edits]),
        idle_gone=_union([edit.idle_gone for edit in edits]),
    )


def _elementwise(join: Any, parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    known = [part for part in parts if part is not None]
    return functools.reduce(join, known) if known else None


def _union(parts: Sequence[Intervals | None]) -> Intervals | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    rows = np.concatenate(known)
    return intervals.union(rows[:, 0], rows[:, 1])


def is_within(program: Program, claim: Mapping[Lane, Intervals]) -> bool:
    """Whether any of the time that a rule claims is replayed."""
    window = np.array([[program.window.start, program.window.end]], np.int64)
    return bool(len(intervals.intersection(claim.get(program.window.lane, EMPTY), window)))


def edit_of_claim(rank: Rank, program: Program, claim: Mapping[Lane, Intervals]) -> RankEdit:
    """Return the edit that takes away the time that a rule claims.

    Where device work runs, that gets shorter; where compute waits for a collective, its transfer does. Of idle time,
    what is before the launch of the next event is the host's, the rest is delay.
    """
    own = claim.get(program.window.lane, EMPTY)
    events = rank.device_events
    shorter, transfer = np.zeros(len(events)), np.zeros(len(events))
    waits = awaited(rank).get(program.window.lane, EMPTY)
    rows, is_collective = program.row, program.is_collective
    outside = intervals.difference(own, waits)
    work = rows[~is_collective]
    shorter[work] = _alone(outside, program.start[~is_collective], program.end[~is_collective])
    calls = rows[is_collective]
    transfer[calls] = intervals.covered(own, program.start[is_collective], program.end[is_collective])
    busy = intervals.union(program.start, program.end)
    idle = intervals.difference(own, busy)
    order = np.argsort(program.start, kind="stable")
    begins, called = program.start[order], program.called[order]
    following = np.minimum(np.searchsorted(begins, idle[:, 1]), max(len(begins) - 1, 0))
    launched = np.clip(called[following], idle[:, 0], idle[:, 1]) if len(begins) else idle[:, 1]
    return RankEdit(
        shorter_ns=shorter,
        transfer_ns=transfer,
        host_gone=intervals.union(idle[:, 0], launched),
        idle_gone=intervals.union(launched, idle[:, 1]),
    )


def _alone(claim: Intervals, start: Ints, end: Ints) -> Floats:
    """What each event covers of a claim; where several run at once, the one that ends last has it."""
    covered = intervals.covered(claim, start, end).astype(np.float64)
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order]) if len(order) else end
    overlap = np.zeros(len(order))
    overlap[order[1:]] = np.maximum(np.minimum(reach[:-1], end[order[1:]]) - start[order[1:]], 0)
    if not (overlap > 0).any():
        return covered
    beside = intervals.covered(claim, start, np.minimum(end, start + overlap.astype(np.int64)))
    alone: Floats = np.maximum(covered - beside, 0.0)
    return alone


@dataclass(frozen=True)
class EditedProgram:
    """The numbers of a program after a change, by event and wait: durations, delays, time of the host (all ns).

    `host_gone` is how much of the host's time is gone until each event is launched, `wait_gone` until each wait begins,
    `waited_gone` until it ends. `waits` tells which waits still wait.
    """

    duration: Floats
    launch_delay: Floats
    stream_delay: Floats
    join_delay: Floats
    host_gone: Floats
    wait_gone: Floats
    waited_gone: Floats
    own_ns: Floats
    waits: NDArray[np.bool_]
    transfer_ns: Floats
    window_gone: Floats


def unedited(program: Program) -> EditedProgram:
    """Return the numbers of a program as it was recorded."""
    zeros, waits = np.zeros(program.size), program.waits
    none = np.zeros(len(waits.end))
    return EditedProgram(
        duration=(program.end - program.start).astype(np.float64),
        launch_delay=program.launch_delay,
        stream_delay=program.stream_delay,
        join_delay=program.joins.delay.astype(np.float64),
        host_gone=zeros,
        wait_gone=none,
        waited_gone=none,
        own_ns=waits.own_ns.astype(np.float64),
        waits=np.ones(len(none), np.bool_),
        transfer_ns=zeros,
        window_gone=np.zeros(len(program.window.step_ends)),
    )


def edited(program: Program, edit: RankEdit) -> EditedProgram:
    """Return the numbers of a program after a change."""
    base, row = unedited(program), program.row
    if edit.shorter_ns is not None:
        base = replace(base, duration=np.maximum(base.duration - edit.shorter_ns[row], 0.0))
    if edit.transfer_ns is not None:
        base = replace(base, transfer_ns=np.where(program.is_collective, edit.transfer_ns[row], 0.0))
    if edit.host_gone is not None:
        base = _without_host(program, base, edit.host_gone)
    if edit.waits_gone is not None:
        gone = np.isin(program.waits.launch, edit.waits_gone)
        base = replace(base, waits=~gone, own_ns=np.where(gone, 0.0, base.own_ns))
    if edit.idle_gone is not None:
        base = _without_delays(program, base, edit.idle_gone)
    if edit.is_removed is not None:
        removed = edit.is_removed[row]
        base = replace(
            base,
            duration=np.where(removed, 0.0, base.duration),
            launch_delay=np.where(removed, NEVER, base.launch_delay),
            stream_delay=np.where(removed, 0.0, base.stream_delay),
        )
    return base


def _without_host(program: Program, base: EditedProgram, host_gone: Intervals) -> EditedProgram:
    waits = program.waits
    gone = intervals.difference(host_gone, intervals.union(waits.start, waits.end))
    until = [
        intervals.covered(gone, np.full(len(stamps), program.window.start), np.maximum(stamps, program.window.start))
        for stamps in (program.called, waits.start, waits.end, program.host_ends)
    ]
    called, started, ended, window = (each.astype(np.float64) for each in until)
    return replace(base, host_gone=called, wait_gone=started, waited_gone=ended, window_gone=window)


def _without_delays(program: Program, base: EditedProgram, idle_gone: Intervals) -> EditedProgram:
    """Shorten the delay of the bound that was met last by the idle time that is gone right before each event."""
    begin = np.maximum(program.previous_end, program.called)
    begin = np.minimum(np.where(base.launch_delay == NEVER, program.previous_end, begin), program.start)
    gone = intervals.covered(idle_gone, begin, program.start).astype(np.float64)
    is_launch = program.called + base.launch_delay == program.start
    is_stream = program.previous_end + base.stream_delay == program.start
    joins = program.joins
    is_join = program.end[joins.source] + base.join_delay == program.start[joins.event]
    return replace(
        base,
        launch_delay=base.launch_delay - np.where(is_launch, gone, 0.0),
        stream_delay=base.stream_delay - np.where(is_stream, gone, 0.0),
        join_delay=base.join_delay - np.where(is_join, gone[joins.event], 0.0),
    )


def scaled(program: Program, device: float = 1.0, host: float = 1.0) -> EditedProgram:
    """Return the numbers if all compute kernels take this share of their time, and all work of the host that share."""
    base = unedited(program)
    if device != 1.0:
        factor = np.where(program.is_collective, 1.0, device)
        base = replace(base, duration=base.duration * factor)
    if host != 1.0:
        whole = np.array([[program.window.start, program.window.end]], np.int64)
        full = _without_host(program, base, whole)
        share = 1.0 - host
        base = replace(
            base,
            host_gone=full.host_gone * share,
            wait_gone=full.wait_gone * share,
            waited_gone=full.waited_gone * share,
            window_gone=full.window_gone * share,
        )
    return base
