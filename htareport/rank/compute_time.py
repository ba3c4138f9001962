"""What a step gains from device work that is shorter: shared by the rules about compute.

Shorter work shortens the step only where nothing else runs on the device meanwhile, and only as far as the host is
ahead: what is launched late starts no earlier, however early the device is done. Where the host waits for the device,
its launches move along with it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.intervals import Intervals
from htareport.rank import kernel_launches
from htareport.rank.cached import cached_until_release
from htareport.rank.interval_sets import Lane, Sets, total
from htareport.rank.operator_work import NONE, Modelled, limits_of, model_of, modelled
from htareport.rank.rank import Rank

WORTH = 0.005  # Of the step: what saves less is not spoken of.
_WAITS = re.compile(r"^(?:cuda|hip|cu)(?:\w*Synchronize|Memcpy)")
_BLOCKING_NS = 10_000  # A call that waits for the device takes longer than this.
_START_NS = 5_000  # From the end of a launch to the start of its work, at least.
_FAR = np.iinfo(np.int64).max // 4


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
    """What is gained, as intervals, if each device event takes so many ns less.

    Nothing of what others cover is; but those of the kind `beside` are taken to move along.
    """
    shortened = Sets()
    whole = np.diff(np.rint(np.cumsum(np.maximum(saving, 0))), prepend=0).astype(np.int64)  # Keeps their sum.
    for lane, pieces in sole(rank, beside).items():
        lengths = pieces.end - pieces.start
        events = rank.events_by_lane[lane].index.to_numpy()
        alone = np.zeros(len(saving), np.int64)
        np.add.at(alone, pieces.event, lengths)
        wanted = np.minimum(whole, alone)
        gained = np.zeros(len(saving), np.int64)
        gained[events] = _gained(rank, lane, wanted[events])
        shortened[lane] = _first(pieces, lengths, gained)
    return rank.clipped(shortened)


def asked(rank: Rank, saving: NDArray[np.float64]) -> float:
    """What that would be per step and device if nothing else counted, ns."""
    return float(np.maximum(saving, 0).sum()) / rank.num_steps / max(len(rank.devices), 1)


def _gained(rank: Rank, lane: Lane, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of what each event of a lane could be shorter, what moves the work behind it: as far as that is launched by then.

    Before each event no more is gained than it could start earlier by, counted from the last wait of the host for the
    device on; what is lost there is lost.
    """
    ahead, section = _ahead(rank, lane)
    gained = np.zeros(len(wanted), np.int64)
    for first, stop in _runs(section):
        room, asked = ahead[first:stop], wanted[first:stop]
        whole = np.cumsum(asked)
        lost = np.minimum.accumulate(np.minimum(room - (whole - asked), 0))
        least = np.minimum.accumulate(np.append(room[1:], _FAR)[::-1])[::-1]  # Of what comes behind each.
        gained[first:stop] = np.diff(np.minimum(whole + lost, least), prepend=0)
    return gained


def _runs(section: NDArray[np.int64]) -> list[tuple[int, int]]:
    limits = np.flatnonzero(np.diff(section)) + 1
    return list(zip([0, *limits.tolist()], [*limits.tolist(), len(section)], strict=True)) if len(section) else []


def _ahead(rank: Rank, lane: Lane) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By how much each event of a lane could start earlier, as launched, and how many waits of the host came before.

    An event counts to the waits before the latest launch so far, so that their number never falls.
    """
    events, calls = rank.events_by_lane[lane], rank.launches
    launch = events["launch"].to_numpy()
    known = launch != NONE
    start, rows = events["ts"].to_numpy(), np.maximum(launch, 0)
    ahead = np.full(len(events), _FAR, np.int64)
    launches = np.full(len(events), -_FAR, np.int64)
    if known.any():
        ready, launches[known] = calls["end"].to_numpy()[rows] + _START_NS, calls["ts"].to_numpy()[rows][known]
        free = np.append(-_FAR, np.maximum.accumulate(events["end"].to_numpy())[:-1])  # When the device was before it.
        ahead[known] = np.where(launches < free, np.maximum(start - ready, 0), 0)[known]
    return ahead, np.searchsorted(_waits(rank, lane[1]), np.maximum.accumulate(launches))


def _waits(rank: Rank, capture: int) -> NDArray[np.int64]:
    """When the host is done waiting for the device, in order."""
    calls = rank.launches
    mine = _blocking(rank) & (calls["capture"].to_numpy() == capture)
    return np.sort(calls["end"].to_numpy()[mine])


@cached_until_release
def _blocking(rank: Rank) -> NDArray[np.bool_]:
    """Which rows of `launches` wait for the device, and long enough to show it."""
    calls, strings = rank.launches, rank.loaded.strings
    codes = calls["name"].cat.codes.to_numpy()
    is_wait = np.zeros(len(strings), np.bool_)
    is_wait[[code for code in unique_sorted(codes).tolist() if _WAITS.search(strings[code])]] = True
    return np.asarray(is_wait[codes] & (calls["dur"].to_numpy() >= _BLOCKING_NS), np.bool_)


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
