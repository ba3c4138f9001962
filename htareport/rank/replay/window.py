"""Which steps of a rank are replayed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.interval_sets import Lane
from htareport.rank.rank import Rank
from htareport.rows.metadata import world_size_of

SEVERAL_DEVICES = "a rank drives several devices"
NO_DEVICE = "no device work is recorded"
_MAX_EVENTS = 400_000  # Of a window.
_MAX_COLLECTIVES, _MAX_COLLECTIVES_IN_JOB, _MIN_COLLECTIVES = 2_048, 300_000, 64


@dataclass(frozen=True)
class ReplayWindow:
    """The part of a rank that is replayed: one device in one capture, from `start` to `end` (ns).

    `steps` are the numbers of its steps, one after the other, `step_ends` their ends; without steps, none and one end.
    """

    lane: Lane
    start: int
    end: int
    steps: tuple[int, ...]
    step_ends: tuple[int, ...]


def window_of(rank: Rank) -> ReplayWindow | str:
    """Return the window of a rank: the first steps in a row of the capture that has most, as many as there is room for.

    Without steps everything of the first capture. As words, why there is none.
    """
    if not rank.lanes:
        return NO_DEVICE
    if len({device for device, _ in rank.lanes}) != 1:
        return SEVERAL_DEVICES
    if Capability.STEPS not in rank.capabilities:
        lane = rank.lanes[0]
        events = rank.events_by_lane[lane]
        calls = rank.launches
        called = calls["ts"].to_numpy()[(calls["capture"] == lane[1]).to_numpy() & rank.answered]
        start = min(int(events["ts"].min()), int(called.min(initial=np.iinfo(np.int64).max)))
        end = int(events["end"].max())
        return ReplayWindow(lane, start, end, (), (end,))
    steps = rank.steps
    steps = steps[(steps["capture"] == steps["capture"].mode().iloc[0]).to_numpy()].sort_values("start")
    lane = (rank.lanes[0][0], int(steps["capture"].iloc[0]))
    if lane not in rank.lanes:
        return NO_DEVICE
    start, end = steps["start"].to_numpy(np.int64), steps["end"].to_numpy(np.int64)
    breaks = np.flatnonzero(start[1:] > end[:-1])
    count = int(breaks[0]) + 1 if len(breaks) else len(steps)
    count = _num_steps(rank, lane, end[:count])
    numbers = tuple(steps["number"].tolist()[:count])
    return ReplayWindow(lane, int(start[0]), int(end[count - 1]), numbers, tuple(end[:count].tolist()))


def _num_steps(rank: Rank, lane: Lane, ends: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """How many steps hold no more events and collectives than there is room for; at least one."""
    events = rank.events_by_lane[lane]
    start, is_comm = events["ts"].to_numpy(), (events["kind"] == "comm").to_numpy()
    world = world_size_of(rank.captures[0].meta) or 1
    room = min(at_most(_MAX_COLLECTIVES), max(_MIN_COLLECTIVES, _MAX_COLLECTIVES_IN_JOB // max(world, 1)))
    fits = (np.searchsorted(start, ends) <= _MAX_EVENTS) & (np.searchsorted(start[is_comm], ends) <= room)
    return max(1, int(fits.sum()))
