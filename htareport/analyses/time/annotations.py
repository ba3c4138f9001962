"""The analysis of annotations: time of `record_function` ranges and profiler steps on the host and the devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank import kernel_launches, kernel_stats
from htareport.rank.annotations import annotation_of, device_annotations, host_annotations
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Mark, TableSpec, Unit, chart_of, key, stacked_rows
from htareport.report.rank_charts import by_rank, cut_note
from htareport.report.units import text
from htareport.rows import classify

_NS = Unit.NANOSECONDS
_STEPS = "ProfilerStep#…"  # The name of all profiler steps together.
_MAX_NAMES = 150  # Of a rank, on the host and on the device.
_MAX_LEVELS = 64  # Annotations around a kernel that are counted.
_MAX_BARS = 12
_MAX_SERIES = 6
_OTHER_NAMES = "others"
_TIME_LABELS = {"own": "outside nested annotations", "nested": "in nested annotations"}
_NAME_HELP = "Name as recorded; all profiler steps are one row."
_TIMES = (
    Column("count", "Count", Unit.COUNT, "Ranges of this name."),
    Column("sum", "Total", _NS, "Sum of their durations; one within another of the same name counts again."),
    Column(
        "own", "Outside nested", _NS, "Total without what lies in annotations within, on the same thread or stream."
    ),
    Column("mean", "Mean", _NS, "Mean duration."),
    Column("min", "Min", _NS, "Shortest."),
    Column("max", "Max", _NS, "Longest."),
)
_WORK = (
    Column("kernels", "Device events", Unit.COUNT, "Kernels, copies and fills launched in it, but in none within it."),
    Column(
        "device",
        "Device busy",
        _NS,
        "Time in which at least one of these runs, summed over devices.",
        better=Better.LOWER,
    ),
    Column(
        "device_sum", "Device time", _NS, "Sum of their durations; those that overlap count each.", better=Better.LOWER
    ),
    Column(
        "under",
        "Busy with nested",
        _NS,
        "Time in which at least one of these or of nested annotations' runs, summed over devices.",
    ),
)


class Annotations(Analysis):
    """Where the time goes by annotation: `record_function` ranges, profiler steps, and those that libraries set.

    ## How it is computed
    An annotation is a named range on a thread of the host; on the device its twin lasts, on a stream, from the first to
    the last kernel launched within it, idle time included. *Total* is the sum of the durations of a name over all
    ranks; *outside nested* leaves out the annotations within. A device event (kernel, copy or fill) belongs to the
    innermost annotation around the call that launched it; what autograd's own thread launches belongs to the annotation
    open at that time on the thread of the forward pass. What is then left may still run within an annotation of its
    stream; a note says how much. If steps are chosen (`--steps`), only what starts in them counts.

    ## What to do
    - Much host time (*Total*) and little *Device busy*: the host works or waits there. See *Idle time by cause*.
    - Much device time in no annotation (the note): wrap the parts of the step, as in `with
      torch.profiler.record_function("forward"):`, and record again.
    """

    title = "Annotations"
    group = Group.TIME
    order = 60
    requires = frozenset({Capability.ANNOTATIONS})
    tables = (
        TableSpec(
            "host",
            "On the host, all ranks together",
            (key("name", "Annotation", Unit.NAME, _NAME_HELP), *_TIMES, *_WORK),
        ),
        TableSpec(
            "device", "On the device, all ranks together", (key("name", "Annotation", Unit.NAME, _NAME_HELP), *_TIMES)
        ),
        TableSpec(
            "by_rank",
            "By rank",
            (
                key("rank", "Rank"),
                key("place", "Where", Unit.TEXT, "On the host or on the device."),
                key("name", "Annotation", Unit.NAME, _NAME_HELP),
                *_TIMES,
                Column("std", "Std", _NS, "Sample standard deviation of the durations; 0 for one."),
            ),
            is_detail=True,
        ),
    )

    def map(self, rank: Rank) -> Frames:
        on_host, on_device = host_annotations(rank), device_annotations(rank)
        owner = annotation_of(rank, on_host, on_device)
        host, device = _statistics(rank, on_host), _statistics(rank, on_device)
        host = host.merge(_work(rank, on_host, owner.host), on="name", how="left")
        from_device = _work(rank, on_device, owner.device, levels=1)
        size = {
            "host": len(host),
            "device": len(device),
            "busy": int(rank.device_events["dur"].sum()),
            "annotated": int(rank.device_events["dur"][(owner.host >= 0) | (owner.device >= 0)].sum()),
            "by_device": int(from_device["device_sum"].sum()),
        }
        frames = {"host": host, "device": device}
        for name, frame in frames.items():
            frame["name"] = pd.Series(kernel_launches.texts(rank, frame["name"]), dtype=object, index=frame.index)
            frame["name"] = frame["name"].where(~frame["is_step"].astype(bool), _STEPS)
            frames[name] = frame.drop(columns="is_step").head(at_most(_MAX_NAMES, len(frame)))
        return frames | {"size": pd.DataFrame([size])}

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        by_side = {"host": frames["host"], "device": frames["device"]}
        by_rank = [frame.assign(place=side) for side, frame in by_side.items() if len(frame)]
        tables: Frames = {"by_rank": pd.concat(by_rank, ignore_index=True), "size": frames["size"]}
        for side, frame in by_side.items():
            sums = [name for name in ("own", "kernels", "device", "device_sum", "under") if name in frame.columns]
            table = kernel_stats.merged(frame, ["name"]).merge(
                frame.groupby("name")[sums].sum().reset_index(), on="name"
            )
            tables[side] = table.sort_values(["sum", "name"], ascending=[False, True], ignore_index=True)
        return tables

    def charts(self, frames: Frames) -> Iterator[Chart]:
        for side in ("host", "device"):
            top = frames[side].head(_MAX_BARS)
            if len(top):
                yield chart_of(
                    self.tables[0],
                    side,
                    f"Annotations on the {side}",
                    Mark.STACKED_BAR,
                    stacked_rows(top.assign(nested=top["sum"] - top["own"]), "name", _TIME_LABELS),
                    "name",
                    "value",
                    "part",
                    caption="Sum of the durations over all ranks and steps; a nested one is part of those around it.",
                )
        yield from self._duration_chart(frames)
        yield from self._work_chart(frames)
        yield from self._rank_chart(frames)

    def _work_chart(self, frames: Frames) -> Iterator[Chart]:
        host = frames["host"]
        busy = host[host["device"] > 0].sort_values("device", ascending=False, kind="stable").head(_MAX_BARS)
        if len(busy):
            yield chart_of(
                self.tables[0],
                "work",
                "Device work by annotation",
                Mark.BAR,
                busy,
                "device",
                "name",
                caption="Time in which the kernels run that were launched in an annotation and in none within it.",
            )

    def _duration_chart(self, frames: Frames) -> Iterator[Chart]:
        side = _main_side(frames)
        repeated = frames[side][frames[side]["count"] > 1].head(_MAX_BARS)
        if len(repeated):
            yield chart_of(
                self.tables[0],
                "durations",
                f"Durations of annotations on the {side}",
                Mark.RANGE,
                repeated,
                "mean",
                "name",
                low="min",
                high="max",
                x_label="duration",
                caption="Mean, and whiskers from the shortest to the longest, over all ranks and steps.",
            )

    def _rank_chart(self, frames: Frames) -> Iterator[Chart]:
        side = _main_side(frames)
        rows = frames["by_rank"][frames["by_rank"]["place"] == side]
        if rows["rank"].nunique() > 1:
            top = rows.groupby("name")["own"].sum().sort_values(ascending=False, kind="stable").index[:_MAX_SERIES]
            wide = rows.pivot_table(index="rank", columns="name", values="own", aggfunc="sum", fill_value=0)
            wide = wide[list(top)].assign(**{_OTHER_NAMES: wide.drop(columns=list(top)).sum(axis=1)})
            series = {name: str(name) for name in wide.columns if wide[name].any()}
            caption = f"On the {side}, outside nested annotations."
            yield by_rank("ranks", "Annotations by rank", wide.reset_index(), series, caption=caption)

    def notes(self, frames: Frames) -> Iterator[str]:
        size = frames["size"]
        if busy := float(size["busy"].sum()):
            if outside := busy - float(size["annotated"].sum()):
                share = text(outside / busy, Unit.RATIO)
                yield f"{share} of the device time (sum of durations) belongs to no annotation."
            if by_device := float(size["by_device"].sum()):
                share = text(by_device / busy, Unit.RATIO)
                yield (
                    f"{share} of the device time is only within annotations of the device, not launched within one of "
                    "the host."
                )
        for side in ("host", "device"):
            yield from cut_note(f"on the {side}", size[side], _MAX_NAMES, "of most time")


def _main_side(frames: Frames) -> str:
    return "device" if len(frames["device"]) else "host"


def _labels(rank: Rank, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return codes of names, those of all steps the same."""
    used, inverse = np.unique(codes, return_inverse=True)
    is_step = _are_steps(rank, used)
    return np.where(is_step, used[is_step].min(initial=np.iinfo(np.int64).max), used)[inverse]


def _are_steps(rank: Rank, codes: Iterable[int]) -> NDArray[np.bool_]:
    names = kernel_launches.texts(rank, codes)
    return np.array([classify.step_number(name) is not None for name in names], np.bool_)


def _statistics(rank: Rank, rows: pd.DataFrame) -> pd.DataFrame:
    """Return statistics of durations by name, largest sum first: name, count, sum, own, mean, min, max, m2, is_step."""
    name = _labels(rank, rows["name"].to_numpy())
    groups = rows.groupby(name)
    table = groups["dur"].agg(["count", "sum", "mean", "min", "max"])
    table["own"] = groups["own"].sum()
    deviation = rows["dur"] - groups["dur"].transform("mean")
    table["m2"] = (deviation**2).groupby(name).sum()
    table["std"] = np.where(table["count"] > 1, np.sqrt(table["m2"] / np.maximum(table["count"] - 1, 1)), 0.0)
    table = table.rename_axis("name").reset_index()
    table["is_step"] = _are_steps(rank, table["name"])
    return table.sort_values(["sum", "name"], ascending=[False, True], ignore_index=True)


def _work(rank: Rank, rows: pd.DataFrame, owner: NDArray[np.int64], levels: int = _MAX_LEVELS) -> pd.DataFrame:
    """Return device work by name of the annotations that own it: name, kernels, device, device_sum, under (ns)."""
    # From the innermost annotation of each device event outwards, the events of every annotation around them.
    events = rank.device_events
    label, parent = _labels(rank, rows["name"].to_numpy()), rows["parent"].to_numpy()
    event = np.flatnonzero(owner >= 0).astype(np.int32)
    annotation, level_events = owner[event], list[tuple[NDArray[np.int64], NDArray[np.int32]]]()
    while len(event) and len(level_events) < levels:
        level_events.append((label[annotation], event))
        annotation = parent[annotation]
        event, annotation = event[annotation >= 0], annotation[annotation >= 0]
    names = unique_sorted(label)
    table = pd.DataFrame({"name": names})
    labels, innermost_events = level_events[0] if level_events else (label[:0], event[:0])
    position = np.searchsorted(names, labels)
    table["kernels"] = np.bincount(position, minlength=len(names)).astype(np.int64)
    table["device_sum"] = kernel_launches.summed(position, events["dur"].to_numpy()[innermost_events], len(names))
    for column, used_levels in (("device", level_events[:1]), ("under", level_events)):
        labels = np.concatenate([label[:0], *(labels for labels, _ in used_levels)])
        event_rows = np.concatenate([event[:0], *(rows for _, rows in used_levels)])
        table[column] = _busy(events, np.searchsorted(names, labels), event_rows, len(names))
    return table


def _busy(events: pd.DataFrame, owner: NDArray[np.int64], rows: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    """Return the time in which at least one of an owner's device events runs, summed over devices."""
    device = pd.factorize(events["device"])[0].astype(np.int32)
    order = np.lexsort((rows, device[rows], owner))  # Device events are in order of start.
    owner, rows = owner[order], rows[order]
    new = np.zeros(len(owner), np.int64)  # Time of each event in which none of the owner's earlier ones runs.
    limits = np.flatnonzero((np.diff(owner) != 0) | (np.diff(device[rows]) != 0)) + 1
    all_starts, all_ends = events["ts"].to_numpy()[rows], events["end"].to_numpy()[rows]
    for first, last in pairwise([0, *limits.tolist(), len(owner)]):
        starts, ends = all_starts[first:last], all_ends[first:last]
        reach = np.maximum.accumulate(ends)
        new[first:last] = ends - starts
        new[first + 1 : last] = np.maximum(reach[1:] - np.maximum(reach[:-1], starts[1:]), 0)
    return kernel_launches.summed(owner, new, size)
