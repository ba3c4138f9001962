"""What rules about communication share: its kernels, when it is exposed, and when compute waits for it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.intervals import EMPTY, Intervals
from htareport.rank.cached import cached_until_release
from htareport.rank.collective_names import labels_of, shown_names
from htareport.rank.host_rows import rows_named
from htareport.rank.interval_sets import Lane, Sets, minus
from htareport.rank.rank import Rank

Mask = NDArray[np.bool_]

SINGLE = ("float", "float32")  # What fp32 is called in the arguments of collectives.
_OF_LAYERS = re.compile(r"(?:^|[^a-z])(?:tp|tensor|sp|seq\w*|cp|context)(?:[^a-z]|$)", re.IGNORECASE)
_BLOCKING = re.compile(r"^(?:cuda|hip|cu)(?:\w*Synchronize|Memcpy)")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")


@cached_until_release
def kernels(rank: Rank) -> pd.DataFrame:
    """Communication kernels by start: the columns of device events and those of labels_of, and `what` to call each."""
    labels = labels_of(rank)
    labelled = rank.device_events.loc[labels.index].join(labels)
    return labelled.assign(what=shown_names(labelled))


def compute(rank: Rank) -> Sets:
    """When kernels that compute run, within the windows."""
    return rank.busy("compute")


@cached_until_release
def exposed(rank: Rank) -> Sets:
    """When there is communication and no compute, within the windows."""
    return minus(rank.busy("comm"), compute(rank))


@cached_until_release
def awaited(rank: Rank) -> Sets:
    """Exposed communication without which the next compute could have run.

    Not so where the host has not launched it, unless that is because the host waits for the device itself.
    """
    return minus(exposed(rank), {lane: _not_launched(rank, lane) for lane in rank.lanes})


def _not_launched(rank: Rank, lane: Lane) -> Intervals:
    """Between compute: until the launch of what follows ends, but for calls in which the host waits for the device."""
    events = rank.events_by_lane[lane]
    events = events[(events["kind"] == "compute").to_numpy()]
    starts, launch = events["ts"].to_numpy(), events["launch"].to_numpy()
    busy = intervals.union(starts, events["end"].to_numpy())
    begin, end = busy[:-1, 1], busy[1:, 0]
    following = launch[np.searchsorted(starts, end)] if len(end) else np.zeros(0, np.int64)
    launched = begin.copy()
    known = following >= 0
    launched[known] = np.clip(rank.launches["end"].to_numpy()[following[known]], begin[known], end[known])
    return intervals.difference(intervals.union(begin, launched), _blocked(rank, lane[1]))


def _blocked(rank: Rank, capture: int) -> Intervals:
    """When a thread of the host waits for the device."""
    host, rows = rank.host, rows_named(rank, _BLOCKING, "call")
    rows = rows[host.at("capture", rows) == capture]
    return intervals.union(host.at("ts", rows), host.at("end", rows))


def sets_of(rank: Rank, rows: pd.DataFrame) -> Sets:
    """When these device events run, within the windows."""
    sets = Sets()
    for device, capture in rank.lanes:
        mine = rows[(rows["device"] == device).to_numpy() & (rows["capture"] == capture).to_numpy()]
        sets[device, capture] = intervals.union(mine["ts"].to_numpy(), mine["end"].to_numpy())
    return rank.clipped(sets)


def covered_by(rank: Rank, sets: Sets, rows: pd.DataFrame) -> NDArray[np.int64]:
    """How much of a set each of these device events covers, ns."""
    covered = np.zeros(len(rows), np.int64)
    device, capture = rows["device"].to_numpy(), rows["capture"].to_numpy()
    for lane in rank.lanes:
        mine = (device == lane[0]) & (capture == lane[1])
        start, end = rows["ts"].to_numpy()[mine], rows["end"].to_numpy()[mine]
        covered[mine] = intervals.covered(sets.get(lane, EMPTY), start, end)
    return covered


def launched_in(rank: Rank, pattern: re.Pattern[str], rows: pd.DataFrame) -> Mask:
    """Which device events are launched while an operator or annotation of such a name runs on the launching thread."""
    found = _launches_in(rank, pattern)
    launch = rows["launch"].to_numpy()
    return np.asarray((launch >= 0) & found[launch], np.bool_) if len(found) else np.zeros(len(rows), np.bool_)


@cached_until_release
def _launches_in(rank: Rank, pattern: re.Pattern[str]) -> Mask:
    """The same by row of `launches`."""
    host, launches, rows = rank.host, rank.launches, rows_named(rank, pattern)
    start, end, thread, capture = (host.at(name, rows) for name in ("ts", "end", "thread", "capture"))
    stamp, on, within = (launches[name].to_numpy() for name in ("ts", "thread", "capture"))
    found = np.zeros(len(launches), np.bool_)
    for number, each in set(zip(thread.tolist(), capture.tolist(), strict=True)):
        mine, asked = (thread == number) & (capture == each), (on == number) & (within == each)
        runs = intervals.union(start[mine], end[mine])
        place = np.searchsorted(runs[:, 0], stamp[asked], side="right") - 1
        found[asked] = (place >= 0) & (stamp[asked] < runs[np.maximum(place, 0), 1])
    return found


def in_backward(rank: Rank, rows: pd.DataFrame) -> Mask:
    """Which device events the backward pass launches, as far as the trace names its operators."""
    return launched_in(rank, _BACKWARD, rows)


def is_of_layers(rows: pd.DataFrame) -> Mask:
    """Which communication kernels belong to tensor, sequence or context parallelism: what follows needs the result."""
    return rows["process_group"].str.contains(_OF_LAYERS).to_numpy(dtype=bool)


def moving(rows: pd.DataFrame) -> pd.Series[int]:
    """How long each communication kernel moves bytes at least, at its end: as long as the shortest of its kind, ns.

    What is before may be waiting for other ranks.
    """
    keys = [rows["what"], rows["bytes"].fillna(-1), rows["name"].cat.codes]
    least: pd.Series[int] = rows["dur"].groupby(keys).transform("min")
    return least


def steps_of(rank: Rank, lane: Lane) -> Intervals:
    """The steps of a lane one by one: touching ones apart. Without steps its whole window."""
    steps = rank.steps
    mine = steps[(steps["capture"] == lane[1]).to_numpy()]
    windows: Intervals = mine[["start", "end"]].to_numpy(np.int64)
    return windows if len(steps) else rank.windows[lane]


def limited(rank: Rank, sets: Sets, other: Sets) -> Sets:
    """Of sets, in each step no more than the length of others in it: the earliest part."""
    limited = Sets()
    for lane, mine in sets.items():
        windows = steps_of(rank, lane)
        room = intervals.covered(other.get(lane, EMPTY), windows[:, 0], windows[:, 1])
        parts = [
            first(intervals.intersection(mine, window[None]), most)
            for window, most in zip(windows, room.tolist(), strict=True)
        ]
        limited[lane] = np.concatenate(parts or [EMPTY])
    return limited


def first(some: Intervals, most: int) -> Intervals:
    """The earliest part of a union that is no longer than `most`."""
    before = np.cumsum(some[:, 1] - some[:, 0]) - (some[:, 1] - some[:, 0])
    kept = before < most
    end = np.minimum(some[:, 1], some[:, 0] + most - before)
    first: Intervals = np.column_stack((some[:, 0], end))[kept]
    return first
