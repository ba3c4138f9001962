"""The analysis that shows the device work of one step on a timeline, a lane for each stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from htareport.algorithms import intervals
from htareport.algorithms.marks import merged
from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.critical_path import stretch
from htareport.rank.rank import Rank
from htareport.report import Chart, Column, Mark, TableSpec, Unit, key
from htareport.report.number_lists import parse_numbers

_NS = Unit.NANOSECONDS
_MAX_MARKS_SHOWN = 3_000
_MAX_MARKS = 2_000  # Of a rank;
_MAX_MARKS_HIDDEN = 500  # of one that is probably not shown.
_MAX_LANES = 24
_MAX_NAME = 120
_KINDS = {"compute": "compute", "comm": "communication", "memory": "memory"}


@dataclass(frozen=True)
class Timeline(Analysis):
    """What runs on each stream of a GPU in the course of a step.

    ## How it is computed
    Device events (kernels, copies and fills), a lane for each stream, of a rank at most the 24 busiest. By default
    those of the lowest rank in its complete step of median length (see *Critical path*); without steps, everything in
    that rank's file with most device events. The options `ranks`, `steps` and `streams` choose others, as numbers and
    ranges such as `0,3-5`. A step shows what was launched in it, even what runs after its end. Events shorter than a
    pixel are drawn as one mark with others of their class in the same pixel, named after the longest.

    ## What to do
    - White space in all lanes at once: the GPU is idle. See *Idle time by cause*.
    - Communication while no compute runs in any lane: it is exposed. See *Communication hidden under compute*.
    - To see every single kernel, open the trace file itself at ui.perfetto.dev.
    """

    title = "Timeline"
    group = Group.TIME
    order = 30
    requires = frozenset({Capability.GPU})
    tables = (
        TableSpec(
            "lanes",
            "Streams shown",
            (
                key("rank", "Rank"),
                key("device", "Device"),
                key("stream", "Stream"),
                Column("events", "Device events", Unit.COUNT, "Kernels, copies and fills shown."),
                Column("busy", "Busy", _NS, "Time in which one of them runs."),
                Column("first", "From", _NS, "Start of the first, since the run's first event."),
                Column("last", "To", _NS, "End of the last, since the run's first event."),
            ),
            is_detail=True,
        ),
    )

    ranks: str = "lowest"
    steps: str = "median"
    streams: str = "all"

    def __post_init__(self) -> None:
        for name in ("ranks", "steps", "streams"):
            self._numbers(name)

    def _numbers(self, option: str) -> frozenset[int] | None:
        """Return the numbers that an option chooses, None for its default. UsageError if it is no list of numbers."""
        numbers = str(getattr(self, option)).strip()
        is_default = not numbers or numbers == self.options()[option]
        return None if is_default else parse_numbers(numbers, f"{self.name}.{option}")

    def map(self, rank: Rank) -> Frames:
        ranks, streams = self._numbers("ranks"), self._numbers("streams")
        events, step = self._window(rank)
        if ranks is not None and rank.rank not in ranks:
            events = events.iloc[:0]
        if streams is not None:
            events = events[events["stream"].isin(streams)]
        max_marks = at_most(_MAX_MARKS if ranks is not None or rank.rank == 0 else _MAX_MARKS_HIDDEN)
        rows = [_lane_row(events[events["lane"] == lane]) for lane in _busiest(events)]
        lanes = pd.DataFrame(rows, columns=["lane", "device", "stream", "events", "busy", "first", "last"])
        marks = marks_of(events[events["lane"].isin(lanes["lane"])], max_marks)
        return {"lanes": lanes.assign(step=step), "marks": marks}

    def _window(self, rank: Rank) -> tuple[pd.DataFrame, str]:
        """Return the device events to show, and what they are."""
        events, steps = rank.device_events, self._numbers("steps")
        if steps is not None:
            return events[events["step"].isin(steps)], f"steps {self.steps}"
        number = stretch.median_step(rank)
        in_step = events[events["step"] == number] if number is not None else events.iloc[:0]
        return (in_step, f"step {number}") if len(in_step) else _fullest_capture(rank)

    def combine(self, frames: Frames, job: Job) -> Frames:
        lanes, marks = frames["lanes"], frames["marks"]
        if self._numbers("ranks") is None and len(lanes):
            lanes, marks = (frame[frame["rank"] == lanes["rank"].min()] for frame in (lanes, marks))
        lanes = lanes.assign(first=lanes["first"] - job.zero_ns, last=lanes["last"] - job.zero_ns)
        several = lanes["rank"].nunique() > 1, lanes.groupby("rank")["device"].nunique().max() > 1
        lanes = lanes.assign(label=_lane_labels(lanes, *several))
        marks = marks.merge(lanes[["rank", "lane", "label"]], on=["rank", "lane"])
        longest = marks.assign(length=marks["end"] - marks["start"]).nlargest(_MAX_MARKS_SHOWN, "length")
        order = {label: position for position, label in enumerate(lanes["label"])}
        marks = longest.assign(order=longest["label"].map(order)).sort_values(["order", "start", "kind"])
        return {
            "lanes": lanes,
            "marks": marks.assign(start=marks["start"] - job.zero_ns, end=marks["end"] - job.zero_ns),
        }

    def charts(self, frames: Frames) -> Iterator[Chart]:
        lanes, marks = frames["lanes"], frames["marks"]
        if not len(lanes):
            return
        ranks = sorted(set(lanes["rank"]))
        where = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:8]))}"
        is_one = marks["count"] == 1
        text = marks["name"].where(is_one, marks["count"].astype(str) + " device events, longest: " + marks["name"])
        yield Chart(
            "timeline",
            f"Device work, {where}, {lanes['step'].iloc[0]}",
            Mark.TIMELINE,
            marks[["start", "end", "label"]].assign(kind=marks["kind"].map(_KINDS), text=text),
            "start",
            "label",
            "kind",
            x2="end",
            text="text",
            x_label="time",
            x_unit=_NS,
            caption="A lane for each stream; work of one class that falls into the same pixel is one mark.",
        )

    def notes(self, frames: Frames) -> Iterator[str]:
        if not len(frames["lanes"]):
            yield "Nothing is recorded of the ranks, steps and streams that were chosen."


def _fullest_capture(rank: Rank) -> tuple[pd.DataFrame, str]:
    """Return the device events of the file that has most of them."""
    events = rank.device_events
    if len(rank.captures) == 1:
        return events, "everything recorded"
    number = int(events["capture"].mode().iloc[0]) if len(events) else 0
    return events[events["capture"] == number], f"capture {number + 1} of {len(rank.captures)}"


def _busiest(events: pd.DataFrame) -> list[Any]:
    """Return the lanes to show, in order of device and stream."""
    busy = events.groupby("lane")["dur"].sum().nlargest(_MAX_LANES)
    lanes = events[events["lane"].isin(busy.index)].drop_duplicates("lane")
    rows = lanes[["device", "stream", "lane"]].itertuples(index=False, name=None)
    return [lane for *_, lane in sorted(rows, key=lambda row: [(isinstance(cell, str), cell) for cell in row])]


def _lane_row(events: pd.DataFrame) -> tuple[Any, ...]:
    start, end = events["ts"].to_numpy(), events["end"].to_numpy()
    first = events.iloc[0]
    busy = intervals.total(intervals.union(start, end))
    return first["lane"], first["device"], first["stream"], len(events), busy, int(start.min()), int(end.max())


def marks_of(events: pd.DataFrame, max_marks: int) -> pd.DataFrame:
    """Return the marks of some lanes: lane, kind, start, end, count, name (of the longest event)."""
    kind = events["kind"].cat.codes.to_numpy().astype(np.int64)
    start, end = events["ts"].to_numpy(np.int64), events["end"].to_numpy(np.int64)
    lane = events["lane"].to_numpy().astype(np.int64)
    order, mark = merged(lane * 8 + kind, start, end, max_marks)
    rows = events.iloc[order]
    first = np.flatnonzero(np.diff(mark, prepend=-1))
    longest = np.lexsort((-rows["dur"].to_numpy(), mark))[first]
    names = rows["name"].iloc[longest].astype(str).tolist()
    short = {name: name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…" for name in set(names)}
    return pd.DataFrame(
        {
            "lane": rows["lane"].to_numpy()[first],
            "kind": rows["kind"].astype(object).to_numpy()[first],
            "start": start[order][first],
            "end": np.maximum.reduceat(end[order], first) if len(first) else np.zeros(0, np.int64),
            "count": np.diff(np.append(first, len(rows))),
            "name": [short[name] for name in names],
        }
    )


def _lane_labels(lanes: pd.DataFrame, ranks: bool, devices: bool) -> pd.Series:  # noqa: FBT001  two facts of one frame
    label = "stream " + lanes["stream"].astype(str)
    if devices:
        label = "device " + lanes["device"].astype(str) + " " + label
    return "rank " + lanes["rank"].astype(str) + " " + label if ranks else label
