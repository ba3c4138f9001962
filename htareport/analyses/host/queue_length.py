"""The analysis of queue length: how many launched kernels and copies wait for each stream."""

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
from htareport.rank.queue import queue_changes
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Mark, TableSpec, Unit, key

_NS = Unit.NANOSECONDS
_QUANTILES = {"p50": 0.5, "p95": 0.95}
_MAX_POINTS = 400
_MAX_LANES = 6


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

    max_queue_length: Annotated[int, Range(minimum=1)] = 1024

    def map(self, rank: Rank) -> Frames:
        streams, lanes = [], []
        for lane in _lanes(rank):
            statistics = series.time_weighted(lane.pooled, lane.length, tuple(_QUANTILES.values()))
            full, durations = self.full(lane), np.diff(lane.pooled)
            empty_ns = durations[lane.length[:-1] == 0].sum()
            streams.append(
                {
                    "device": lane.device,
                    "stream": lane.stream,
                    "mean": statistics.mean,
                    **dict(zip(_QUANTILES, statistics.quantiles, strict=True)),
                    "max": statistics.max,
                    "full": intervals.total(full),
                    "blocked": int(intervals.covered(full, lane.call_starts, lane.call_ends).sum()),
                    "empty_share": empty_ns / durations.sum() if durations.sum() else np.nan,
                }
            )
            lanes.append(lane)
        longest = sorted(lanes, key=lambda lane: -int(lane.length.max()))[:_MAX_LANES]
        points = pd.concat([_thinned(lane) for lane in longest], ignore_index=True)
        return {"streams": pd.DataFrame(streams), "points": points}

    def full(self, lane: Lane) -> intervals.Intervals:
        """Return when a stream's queue is full."""
        rows = np.flatnonzero(lane.length[:-1] >= self.max_queue_length)
        return intervals.union(lane.stamps[rows], lane.stamps[rows + 1])

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
        lanes = points.groupby("lane")["queue_length"].max().sort_values(ascending=False).index[:_MAX_LANES]
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


def _lanes(rank: Rank) -> Iterator[Lane]:
    """Yield the queue of each stream of a device, captures one after the other, with the calls that filled it."""
    stamps, length, event_rows = queue_changes(rank)
    lane_numbers, captures = (rank.device_events[name].to_numpy()[event_rows] for name in ("lane", "capture"))
    events = rank.device_events.loc[rank.device_events["launch"] >= 0, ["lane", "launch"]]
    by_lane = np.argsort(events["lane"].to_numpy(), kind="stable")
    lanes, launch = events["lane"].to_numpy()[by_lane], events["launch"].to_numpy()[by_lane]
    starts, ends = rank.launches["ts"].to_numpy(), rank.launches["end"].to_numpy()
    devices, streams = (rank.device_events[name] for name in ("device", "stream"))
    # The changes of a lane are neighbours.
    limits = [0, *(np.flatnonzero(np.diff(lane_numbers)) + 1).tolist(), len(lane_numbers)]
    for first, last in sorted(pairwise(limits), key=lambda bounds: int(lane_numbers[bounds[0]])):
        lane = lane_numbers[first]
        first_launch, last_launch = np.searchsorted(lanes, [lane, lane + 1])
        calls = unique_sorted(launch[first_launch:last_launch])
        device, stream = devices.iloc[event_rows[first]], streams.iloc[event_rows[first]]
        rows = slice(first, last)
        pooled = without_pauses(stamps[rows], captures[rows])
        yield Lane(device, stream, stamps[rows], pooled, length[rows], starts[calls], ends[calls])


def without_pauses(stamps: NDArray[Any], captures: NDArray[Any]) -> NDArray[Any]:
    """Return stamps, which are in order, with each capture moved to the end of the one before it."""
    pauses = np.where(np.diff(captures) != 0, np.diff(stamps), 0)
    pooled: NDArray[Any] = stamps - np.append(0, np.cumsum(pauses))
    return pooled


def _thinned(lane: Lane) -> pd.DataFrame:
    """Return the largest length within each of so many stretches of equal numbers of changes as a chart may have."""
    num_changes = len(lane.stamps)
    num_points = min(num_changes, at_most(_MAX_POINTS, num_changes))
    first_rows = np.unique(np.arange(num_changes) * num_points // num_changes, return_index=True)[1]
    largest = np.array([start + lane.length[start:end].argmax() for start, end in pairwise([*first_rows, num_changes])])
    return pd.DataFrame(
        {
            "ts": lane.stamps[largest],
            "queue_length": lane.length[largest],
            "lane": f"stream {lane.device}/{lane.stream}",
        }
    )
