"""Where the time goes by what the user annotated, on the host and on the devices."""

from __future__ import annotations

from collections.abc import Iterator
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
from htareport.report import Better, Chart, Column, Mark, TableSpec, Unit, key
from htareport.report.rank_charts import by_rank, cut_note
from htareport.report.units import text
from htareport.rows import classify

_NS = Unit.NANOSECONDS
_STEPS = "ProfilerStep#…"  # What all steps are called together.
_MOST_NAMES = 150  # Of a rank, on the host and on the device.
_MOST_LEVELS = 64  # Annotations around a kernel that are looked at.
_SHOWN = 12
_IN_RANKS = 6
_PARTS = {"own": "outside nested annotations", "nested": "in nested annotations"}
_NAME = "Name as recorded; all profiler steps are one row."
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
            "host", "On the host, all ranks together", (key("name", "Annotation", Unit.NAME, _NAME), *_TIMES, *_WORK)
        ),
        TableSpec(
            "device", "On the device, all ranks together", (key("name", "Annotation", Unit.NAME, _NAME), *_TIMES)
        ),
        TableSpec(
            "by_rank",
            "By rank",
            (
                key("rank", "Rank"),
                key("place", "Where", Unit.TEXT, "On the host or on the device."),
                key("name", "Annotation", Unit.NAME, _NAME),
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
            frames[name] = frame.drop(columns="is_step").head(at_most(_MOST_NAMES, len(frame)))
        return frames | {"size": pd.DataFrame([size])}

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        places = {"host": frames["host"], "device": frames["device"]}
        every = pd.concat([f.assign(place=place) for place, f in places.items() if len(f)], ignore_index=True)
        out: Frames = {"by_rank": every, "size": frames["size"]}
        for place, frame in places.items():
            pooled = kernel_stats.merged(frame, ["name"])
            extra = [c for c in ("own", "kernels", "device", "device_sum", "under") if c in frame.columns]
            more = frame.groupby("name")[extra].sum().reset_index()
            table = pooled.merge(more, on="name")
            out[place] = table.sort_values(["sum", "name"], ascending=[False, True], ignore_index=True)
        return out

    def charts(self, frames: Frames) -> Iterator[Chart]:
        for place, where in (("host", "on the host"), ("device", "on the device")):
            top = frames[place].head(_SHOWN)
            if len(top):
                long = top.assign(nested=(top["sum"] - top["own"])).melt(
                    "name", list(_PARTS), var_name="part", value_name="value"
                )
                yield Chart(
                    place,
                    f"Annotations {where}",
                    Mark.STACKED_BAR,
                    long.replace({"part": _PARTS}),
                    "name",
                    "value",
                    "part",
                    x_label="annotation",
                    x_unit=Unit.NAME,
                    caption="Sum of the durations over all ranks and steps; a nested one is part of those around it.",
                )
        yield from self._duration_chart(frames)
        yield from self._work_chart(frames)
        yield from self._rank_chart(frames)

    def _work_chart(self, frames: Frames) -> Iterator[Chart]:
        host = frames["host"]
        busy = host[host["device"] > 0].sort_values("device", ascending=False, kind="stable").head(_SHOWN)
        if len(busy):
            yield Chart(
                "work",
                "Device work by annotation",
                Mark.BAR,
                busy,
                "device",
                "name",
                x_label="device busy",
                x_unit=_NS,
                y_unit=Unit.NAME,
                caption="Time in which the kernels run that were launched in an annotation and in none within it.",
            )

    def _duration_chart(self, frames: Frames) -> Iterator[Chart]:
        place = "device" if len(frames["device"]) else "host"
        several = frames[place][frames[place]["count"] > 1].head(_SHOWN)
        if len(several):
            yield Chart(
                "durations",
                f"Durations of annotations on the {place}",
                Mark.RANGE,
                several,
                "mean",
                "name",
                low="min",
                high="max",
                x_label="duration",
                x_unit=_NS,
                y_unit=Unit.NAME,
                caption="Mean, and whiskers from the shortest to the longest, over all ranks and steps.",
            )

    def _rank_chart(self, frames: Frames) -> Iterator[Chart]:
        place = "device" if len(frames["device"]) else "host"
        rows = frames["by_rank"][frames["by_rank"]["place"] == place]
        if rows["rank"].nunique() > 1:
            top = rows.groupby("name")["own"].sum().sort_values(ascending=False, kind="stable").index[:_IN_RANKS]
            wide = rows.pivot_table(index="rank", columns="name", values="own", aggfunc="sum", fill_value=0)
            chosen = wide[list(top)].assign(**{_REST: wide.drop(columns=list(top)).sum(axis=1)})
            parts = {name: str(name) for name in chosen.columns if chosen[name].any()}
            caption = f"On the {place}, outside nested annotations."
            yield by_rank("ranks", "Annotations by rank", chosen.reset_index(), parts, caption=caption)

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
        for place in ("host", "device"):
            yield from cut_note(f"on the {place}", size[place], _MOST_NAMES, "of most time")


_REST = "others"


def _labels(rank: Rank, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Codes of names, those of all steps the same."""
    used, inverse = np.unique(codes, return_inverse=True)
    steps = np.array([classify.step_number(name) is not None for name in kernel_launches.texts(rank, used)], np.bool_)
    return np.where(steps, used[steps].min(initial=np.iinfo(np.int64).max), used)[inverse]


def _statistics(rank: Rank, rows: pd.DataFrame) -> pd.DataFrame:
    """Statistics of the durations by name, largest sum first: name, count, sum, self, mean, min, max, m2, is_step."""
    name = _labels(rank, rows["name"].to_numpy())
    groups = rows.groupby(name)
    table = groups["dur"].agg(["count", "sum", "mean", "min", "max"])
    table["own"] = groups["own"].sum()
    deviation = rows["dur"] - groups["dur"].transform("mean")
    table["m2"] = (deviation**2).groupby(name).sum()
    table["std"] = np.where(table["count"] > 1, np.sqrt(table["m2"] / np.maximum(table["count"] - 1, 1)), 0.0)
    table = table.rename_axis("name").reset_index()
    table["is_step"] = [classify.step_number(name) is not None for name in kernel_launches.texts(rank, table["name"])]
    return table.sort_values(["sum", "name"], ascending=[False, True], ignore_index=True)


def _work(rank: Rank, rows: pd.DataFrame, owner: NDArray[np.int64], levels: int = _MOST_LEVELS) -> pd.DataFrame:
    """Device work by name of the annotations that own it: name, kernels, device, device_sum, under (ns)."""
    events = rank.device_events
    label, parent = _labels(rank, rows["name"].to_numpy()), rows["parent"].to_numpy()
    event = np.flatnonzero(owner >= 0).astype(np.int32)
    at, parts = owner[event], list[tuple[NDArray[np.int64], NDArray[np.int32]]]()
    while len(event) and len(parts) < levels:
        parts.append((label[at], event))
        at = parent[at]
        event, at = event[at >= 0], at[at >= 0]
    names = unique_sorted(label)
    out = pd.DataFrame({"name": names})
    first = parts[0] if parts else (label[:0], event[:0])
    position = np.searchsorted(names, first[0])
    out["kernels"] = np.bincount(position, minlength=len(names)).astype(np.int64)
    out["device_sum"] = kernel_launches.summed(position, events["dur"].to_numpy()[first[1]], len(names))
    for column, used in (("device", parts[:1]), ("under", parts)):
        found = np.concatenate([label[:0], *(labels for labels, _ in used)])
        which = np.concatenate([event[:0], *(each for _, each in used)])
        out[column] = _busy(events, np.searchsorted(names, found), which, len(names))
    return out


def _busy(events: pd.DataFrame, owner: NDArray[np.int64], which: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    """Time in which at least one of an owner's device events runs, summed over devices."""
    device = pd.factorize(events["device"])[0].astype(np.int32)
    order = np.lexsort((which, device[which], owner))  # Device events are in order of start.
    owner, which = owner[order], which[order]
    new = np.zeros(len(owner), np.int64)
    limits = np.flatnonzero((np.diff(owner) != 0) | (np.diff(device[which]) != 0)) + 1
    for first, last in pairwise([0, *limits.tolist(), len(owner)]):
        rows = which[first:last]
        starts, ends = events["ts"].to_numpy()[rows], events["end"].to_numpy()[rows]
        reach = np.maximum.accumulate(ends)
        new[first:last] = ends - starts
        new[first + 1 : last] = np.maximum(reach[1:] - np.maximum(reach[:-1], starts[1:]), 0)
    return kernel_launches.summed(owner, new, size)
