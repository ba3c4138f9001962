"""How far the host runs ahead of the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals, series
from htareport.algorithms.distinct import unique_sorted
from htareport.analyses import Analysis, Frames, Group, Job, Range
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.queue import queue_changes, queue_series
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Mark, TableSpec, Unit, key

_NS = Unit.NANOSECONDS
_SHARES = {"p50": 0.5, "p95": 0.95}
_MOST_POINTS = 400
_MOST_LANES = 6


class Lane(NamedTuple):
    """The queue of one stream: its length after each change (ns), and the calls that filled it."""

    device: Any
    stream: Any
    stamps: NDArray[np.int64]
    pooled: NDArray[np.int64]  # Stamps without the time between captures.
    length: NDArray[np.int64]
    call_starts: NDArray[np.int64]
    call_ends: NDArray[np.int64]


@dataclass(frozen=True)
class QueueLength(Analysis):
    """How much launched work waits for each stream: how far the host runs ahead of the device.

    ## How it is computed
    The queue of a stream holds what was launched but has not begun. It grows by one at the start of the launch call (by
    n for a graph of n device events) and shrinks by one when the device event (kernel, copy or fill) starts; an event
    that starts before its launch leaves at the launch. Only events whose launch is in the trace count. Mean and
    percentiles are weighted by time, from the first change of each file to its last. A queue of `max_queue_length` or
    more is *full* (1,024 is about what CUDA allows); the host is *blocked* while a launch call is in progress on a full
    queue.

    ## What to do
    - Empty most of the time while the GPU idles: it waits for the host. See *Idle time by cause*.
    - Never empty: the host is ahead, so making it faster gains nothing here.
    - Full and blocked: harmless, unless the thread that launches has other work to do meanwhile, such as loading input:
      give that to `DataLoader` workers.
    """

    title = "Queue length"
    group = Group.HOST
    order = 20
    requires = frozenset({Capability.LAUNCHES})
    tables = (
        TableSpec(
            "streams",
            "By stream",
            (
                key("rank", "Rank"),
                key("device", "Device"),
                key("stream", "Stream"),
                Column("mean", "Mean", Unit.COUNT, "Mean length, weighted by time."),
                Column("p50", "p50", Unit.COUNT, "Half of the time the queue is no longer than this."),
                Column("p95", "p95", Unit.COUNT, "For 95 % of the time the queue is no longer than this."),
                Column("max", "Max", Unit.COUNT, "Largest length."),
                Column("full", "Full", _NS, "Time in which the queue is at least max_queue_length."),
                Column(
                    "blocked",
                    "Blocked",
                    _NS,
                    "Time of launch calls in progress while it is full, summed over calls.",
                    better=Better.LOWER,
                ),
                Column("empty_share", "Empty", Unit.RATIO, "Share of the time in which nothing is queued."),
            ),
        ),
    )

    max_queue_length: Annotated[int, Range(least=1)] = 1024

    def map(self, rank: Rank) -> Frames:
        rows, lanes = [], []
        for lane in _lanes(rank):
            statistics = series.time_weighted(lane.pooled, lane.length, tuple(_SHARES.values()))
            full, lasting = self.full(lane), np.diff(lane.pooled)
            empty = lasting[lane.length[:-1] == 0].sum()
            rows.append(
                {
                    "device": lane.device,
                    "stream": lane.stream,
                    "mean": statistics.mean,
                    **dict(zip(_SHARES, statistics.quantiles, strict=True)),
                    "max": statistics.max,
                    "full": intervals.total(full),
                    "blocked": int(intervals.covered(full, lane.call_starts, lane.call_ends).sum()),
                    "empty_share": empty / lasting.sum() if lasting.sum() else np.nan,
                }
            )
            lanes.append(lane)
        longest = sorted(lanes, key=lambda lane: -int(lane.length.max()))[:_MOST_LANES]
        points = pd.concat([_thinned(lane) for lane in longest], ignore_index=True)
        return {"streams": pd.DataFrame(rows), "points": points}

    def full(self, lane: Lane) -> intervals.Intervals:
        """Times in which a stream's queue is full."""
        at = np.flatnonzero(lane.length[:-1] >= self.max_queue_length)
        return intervals.union(lane.stamps[at], lane.stamps[at + 1])

    def combine(self, frames: Frames, job: Job) -> Frames:
        streams, points = frames["streams"], frames["points"]
        first = points[points["rank"] == points["rank"].min()]
        return {
            "streams": streams.sort_values(["rank", "max"], ascending=[True, False]),
            "points": first.assign(ts=first["ts"] - job.zero_ns),
        }

    def charts(self, frames: Frames) -> Iterator[Chart]:
        points = frames["points"]
        rank = int(points["rank"].iloc[0])
        lanes = points.groupby("lane")["queue_length"].max().sort_values(ascending=False).index[:_MOST_LANES]
        yield Chart(
            "series",
            f"Queue length over time, rank {rank}",
            Mark.LINE,
            points[points["lane"].isin(lanes)],
            "ts",
            "queue_length",
            "lane",
            x_label="time",
            y_label="launched, not started",
            x_unit=_NS,
            y_unit=Unit.COUNT,
            caption="Largest length within each point of the line; the streams with the longest queues.",
        )

    def detail(self, rank: Rank) -> pd.DataFrame:
        return queue_series(rank)


def _lanes(rank: Rank) -> Iterator[Lane]:
    """The queue of each stream of a device, captures one after the other, with the calls that filled it."""
    stamps, length, event = queue_changes(rank)
    number, captures = (rank.device_events[name].to_numpy()[event] for name in ("lane", "capture"))
    events = rank.device_events.loc[rank.device_events["launch"] >= 0, ["lane", "launch"]]
    by_lane = np.argsort(events["lane"].to_numpy(), kind="stable")
    lanes, launch = events["lane"].to_numpy()[by_lane], events["launch"].to_numpy()[by_lane]
    starts, ends = rank.launches["ts"].to_numpy(), rank.launches["end"].to_numpy()
    devices, streams = (rank.device_events[name] for name in ("device", "stream"))
    limits = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]  # Each lane's stand together.
    for begin, end in sorted(pairwise(limits), key=lambda each: int(number[each[0]])):
        lane = number[begin]
        first, stop = np.searchsorted(lanes, [lane, lane + 1])
        calls = unique_sorted(launch[first:stop])
        device, stream = devices.iloc[event[begin]], streams.iloc[event[begin]]
        mine = slice(begin, end)
        pooled = without_pauses(stamps[mine], captures[mine])
        yield Lane(device, stream, stamps[mine], pooled, length[mine], starts[calls], ends[calls])


def without_pauses(stamps: NDArray[Any], captures: NDArray[Any]) -> NDArray[Any]:
    """Stamps in order with each capture moved to the end of the one before it."""
    between = np.where(np.diff(captures) != 0, np.diff(stamps), 0)
    moved: NDArray[Any] = stamps - np.append(0, np.cumsum(between))
    return moved


def _thinned(lane: Lane) -> pd.DataFrame:
    """The largest length within each of at most so many stretches of equal numbers of points."""
    count = len(lane.stamps)
    firsts = np.unique(np.arange(count) * min(count, at_most(_MOST_POINTS, count)) // count, return_index=True)[1]
    largest = np.array([first + lane.length[first:stop].argmax() for first, stop in pairwise([*firsts, count])])
    return pd.DataFrame(
        {
            "ts": lane.stamps[largest],
            "queue_length": lane.length[largest],
            "lane": f"stream {lane.device}/{lane.stream}",
        }
    )
