"""Device work that could take less time, and where the device runs nothing else meanwhile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.intervals import Intervals
from htareport.rank import kernel_launches
from htareport.rank.cached import cached_until_release
from htareport.rank.interval_sets import Lane, Sets, total
from htareport.rank.operator_work import NONE, Modelled, limits_of, model_of, modelled
from htareport.rank.rank import Rank

WORTH = 0.005  # Of the step: what saves less is not spoken of.


class Sole(NamedTuple):
    """Pieces of time in which a device runs one event alone: start, end, and place of the event (of device_events)."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    event: NDArray[np.int32]


def work(rank: Rank) -> Modelled:
    """Operators with known arithmetic, and what they take."""
    return modelled(rank)


def unknown_limits(rank: Rank) -> tuple[str, ...]:
    """Words for a rank of whose devices no limits are known; nothing where they are of any."""
    if any(limits_of(rank, rank.devices).values()):
        return ()
    models = sorted({model_of(rank, device) or "devices without a name" for device in rank.devices})
    return (f"the limits of {', '.join(models)} are not known",)


def operators(rank: Rank) -> NDArray[np.int64]:
    """Row of the host table of the innermost operator around the launch of each device event, -1 for none."""
    return kernel_launches.operator_rows(rank)


@cached_until_release
def compute_time(rank: Rank) -> int:
    """Time in which compute kernels run within the windows, ns."""
    return total(rank.busy("compute"))


def in_steps(rank: Rank) -> NDArray[np.bool_]:
    """Which device events belong to steps; without steps all."""
    events = rank.device_events
    if not len(rank.steps):
        return np.ones(len(events), np.bool_)
    return events["step"].to_numpy() >= 0


def calls_in_steps(rank: Rank) -> NDArray[np.bool_]:
    """Which calls of operators with known arithmetic do."""
    calls = work(rank).calls
    if not len(rank.steps):
        return np.ones(len(calls), np.bool_)
    return calls["step"].to_numpy() >= 0


def spread(rank: Rank, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each device event takes less, ns, if calls of operators with known arithmetic take these shares less."""
    owner, durations = work(rank).owner, rank.device_events["dur"].to_numpy()
    if not len(shares):
        return np.zeros(len(durations))
    spread: NDArray[np.float64] = np.where(owner != NONE, durations * shares[owner], 0.0)
    return spread


@cached_until_release
def sole(rank: Rank, beside: str = "") -> dict[Lane, Sole]:
    """When each device runs one event alone, in order; events of the kind `beside` are taken not to be there."""
    if beside and not (rank.device_events["kind"] == beside).any():
        return sole(rank)
    return {lane: _sole(rank, lane, beside) for lane in rank.lanes}


def _sole(rank: Rank, lane: Lane, beside: str) -> Sole:
    events = rank.events_by_lane[lane]
    there = np.flatnonzero((events["kind"] != beside).to_numpy())
    place = events.index.to_numpy()[there].astype(np.int32)
    stamps = np.concatenate((events["ts"].to_numpy()[there], events["end"].to_numpy()[there]))
    order = np.argsort(stamps, kind="stable").astype(np.int32)
    stamps = stamps[order]
    change = np.concatenate((place + 1, -(place + 1)))[order]
    depth = np.cumsum(np.sign(change), dtype=np.int32)[:-1]
    which = np.cumsum(change, dtype=np.int32)[:-1]  # Of one alone, its place and 1: what overflows comes back.
    alone = np.flatnonzero((depth == 1) & (np.diff(stamps) > 0))
    return Sole(stamps[:-1][alone], stamps[1:][alone], which[alone] - 1)


def shortened(rank: Rank, saving: NDArray[np.float64], beside: str = "") -> Sets:
    """The time in which the device runs nothing else that goes if each device event takes so many ns less.

    Events of the kind `beside` are taken to move along.
    """
    shortened = Sets()
    whole = np.diff(np.rint(np.cumsum(np.maximum(saving, 0))), prepend=0).astype(np.int64)  # Keeps their sum.
    for lane, pieces in sole(rank, beside).items():
        lengths = pieces.end - pieces.start
        alone = np.zeros(len(saving), np.int64)
        np.add.at(alone, pieces.event, lengths)
        shortened[lane] = _first(pieces, lengths, np.minimum(whole, alone))
    return rank.clipped(shortened)


def asked(rank: Rank, saving: NDArray[np.float64]) -> float:
    """What that would be per step and device if nothing else counted, ns."""
    return float(np.maximum(saving, 0).sum()) / rank.num_steps / max(len(rank.devices), 1)


def _first(pieces: Sole, lengths: NDArray[np.int64], gained: NDArray[np.int64]) -> Intervals:
    """The first so many ns of each event's pieces."""
    order = np.argsort(pieces.event, kind="stable")
    event, length = pieces.event[order], lengths[order]
    before = np.cumsum(length) - length
    first = np.flatnonzero(np.diff(event, prepend=-1))
    sizes = np.diff(np.append(first, len(event)))
    taken = np.clip(gained[event] - (before - np.repeat(before[first], sizes)), 0, length)
    used = order[taken > 0]
    rows = np.column_stack((pieces.start[used], pieces.start[used] + taken[taken > 0]))
    return rows[np.argsort(rows[:, 0], kind="stable")].astype(np.int64)
