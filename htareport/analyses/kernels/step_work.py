"""The analysis of the device work of a step, by which two runs are compared: kernels, collectives and copies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from htareport.algorithms.frames import concat
from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank import kernel_launches
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.collective_names import labels_of
from htareport.rank.kernel_stats import KIND_HELP, KIND_LABELS, NAME_HELP
from htareport.rank.operator_paths import paths_of
from htareport.rank.rank import Rank
from htareport.report import Better, Column, TableSpec, Unit, key

_NS = Unit.NANOSECONDS
_MAX_ROWS = 2_000
_KERNEL = ["path", "shapes", "kernel", "kind"]
_COLLECTIVE = ["collective", "process_group"]
SMALL_KERNELS = "(kernels of small sums)"
_COUNT = Column("count", "Calls", Unit.COUNT, "Device events, per step and rank.", better=Better.LOWER)
_TIME = Column("time", "Time", _NS, "Sum of their durations, per step and rank.", better=Better.LOWER)
_BYTES = Column(
    "bytes", "Bytes", Unit.BYTES, "Sum of their sizes where the trace has them, per step and rank.", better=Better.LOWER
)
_MEAN = Column("mean", "Mean", _NS, "Mean duration of a call: time / calls.")


class StepWork(Analysis):
    """What one step runs on the devices of one rank: how many kernels, collectives and copies, and how long they take.

    ## How it is computed
    A device event (kernel, copy or fill) belongs to the step in which its launch starts (the runtime call that started
    it), and where the trace has no launch, to that in which it starts itself; what belongs to no step is left out.
    Calls, durations and bytes are summed over steps and ranks, and divided by the number of steps on all ranks
    together: so runs of different length, or on more ranks, compare. Without steps, everything recorded is divided by
    the number of ranks. Ranks without device work do not count, nor, where others have steps, those without. *Time*
    sums durations: kernels that run at the same time count each, so it may be longer than the step.

    `htareport diff` compares two runs by these numbers. For that the JSON and the CSV hold them also by operator path,
    input shapes and kernel, by collective and process group, and by kind of copy. Where a rank has over 2,000 kernels
    by path and shapes, those of smallest time are one row for each class; a kernel may be among them on one rank and
    not on another.

    ## What to do
    - Compare with what the model should need: twice as many kernels, collectives or copied bytes as expected is work
      that nobody asked for.
    - Many calls with a small mean: see *Repeated sequences of kernels* for what to fuse.
    - `htareport diff BASE NEW` shows what a change added to a step, and what it saved.
    """

    title = "Work of a step"
    group = Group.KERNELS
    order = 60
    requires = frozenset({Capability.GPU})
    tables = (
        TableSpec(
            "kinds",
            "On average, per step and rank",
            (key("kind", "Class", Unit.TEXT, KIND_HELP), _COUNT, _TIME, _MEAN),
        ),
        TableSpec(
            "kernels",
            "By operator path, input shapes and kernel",
            (
                key("path", "Operators", Unit.NAME, "Operators around the launch, from outside to inside."),
                key("shapes", "Input shapes", Unit.TEXT, f"Of the innermost operator. {kernel_launches.SHAPES_HELP}"),
                key("kernel", "Kernel", Unit.NAME, NAME_HELP),
                key("kind", "Class", Unit.TEXT, KIND_HELP),
                _COUNT,
                _TIME,
            ),
            is_data=True,
        ),
        TableSpec(
            "collectives",
            "By collective and process group",
            (
                key("collective", "Collective", Unit.TEXT, "From the kernel's arguments, else from its name."),
                key("process_group", "Process group", Unit.TEXT, "Its description or name, where the trace has it."),
                Column("group_size", "Group size", Unit.COUNT, "Ranks of the group, where the trace has it."),
                _COUNT,
                _TIME,
                _BYTES,
            ),
            is_data=True,
        ),
        TableSpec(
            "copies",
            "By kind of copy",
            (key("kind", "Kind", Unit.TEXT, "Direction of the copy, or fill."), _COUNT, _TIME, _BYTES),
            is_data=True,
        ),
        TableSpec(
            "basis",
            "What the means are over",
            (
                Column("ranks", "Ranks", Unit.COUNT, "Ranks with device work, and with steps if any has some."),
                Column("steps", "Steps", Unit.COUNT, "Steps on all of them together; none: everything recorded."),
            ),
            is_data=True,
        ),
    )

    def map(self, rank: Rank) -> Frames:
        events, steps = rank.device_events, len(rank.steps)
        is_counted = (events["step"] >= 0).to_numpy() if steps else np.ones(len(events), np.bool_)
        kernels = _kernels(rank, is_counted)
        labels = labels_of(rank)
        labels = labels[is_counted[labels.index]]
        collectives = labels.assign(time=events["dur"], bytes=labels["bytes"].astype("float64"))
        collectives["group_size"] = collectives["group_size"].astype("float64").where(collectives["group_size"] > 0)
        copies = rank.copies[["copy_kind", "dur", "bytes"]].rename(columns={"copy_kind": "kind", "dur": "time"})
        copies = copies[is_counted[copies.index]]
        copies = copies.assign(bytes=copies["bytes"].astype("float64").where(copies["bytes"] >= 0))
        return {
            "kernels": _lumped(kernels),
            "collectives": _summed(collectives, _COLLECTIVE).assign(
                group_size=collectives.groupby(_COLLECTIVE)["group_size"].max().to_numpy()
            ),
            "copies": _summed(copies, ["kind"]),
            "basis": pd.DataFrame([{"steps": steps}]),
        }

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        basis = frames["basis"]
        if basis["steps"].any():  # What ranks without steps do is no part of a step.
            basis = basis[basis["steps"] > 0]
            frames = {name: frame[frame["rank"].isin(basis["rank"])] for name, frame in frames.items()}
        ranks, steps = len(basis), int(basis["steps"].sum())
        groups = frames["kernels"].groupby(_KERNEL, sort=False)[["count", "time"]].sum().reset_index()
        kernels = _lumped(groups).replace({"kind": KIND_LABELS})
        kinds = kernels.groupby("kind", sort=False)[["count", "time"]].sum().reset_index()
        collectives = frames["collectives"]
        sizes = collectives.groupby(_COLLECTIVE)["group_size"].max().to_numpy()
        tables = {
            "kinds": kinds.assign(mean=kinds["time"] / kinds["count"]),
            "kernels": kernels,
            "collectives": _added_up(collectives, _COLLECTIVE).assign(group_size=sizes),
            "copies": _added_up(frames["copies"], ["kind"]),
        }
        tables = {
            name: _divided(table, steps or ranks).sort_values("time", ascending=False) for name, table in tables.items()
        }
        return tables | {"basis": pd.DataFrame([{"ranks": ranks, "steps": float(steps or "nan")}])}

    def notes(self, frames: Frames) -> Iterator[str]:
        row = frames["basis"].iloc[0]
        if pd.isna(row["steps"]):
            yield "Without steps: everything recorded, per rank."


def _kernels(rank: Rank, is_counted: np.ndarray) -> pd.DataFrame:
    """Return count and time (ns) by operator path, shapes of the innermost operator, kernel and kind.

    `is_counted` says which device events count.
    """
    events, rows = rank.device_events, np.full(len(rank.device_events), kernel_launches.NONE)
    if Capability.HOST_OPS in rank.capabilities:
        rows = kernel_launches.operator_rows(rank)
    rows = rows[is_counted]
    paths, texts = paths_of(rank, rows)
    operators, operator_index = np.unique(rows, return_inverse=True)
    shapes = kernel_launches.shapes_of(rank, operators[operators != kernel_launches.NONE])
    shape_texts = [*[""] * int(len(operators) > len(shapes)), *shapes.astype(object)]  # The first is of no operator.
    shape_codes, distinct_shapes = pd.factorize(np.array(shape_texts, object))
    frame = pd.DataFrame(
        {
            "path": paths,
            "shapes": shape_codes[operator_index],
            "kernel": events["name"].array.codes[is_counted],
            "kind": events["kind"].array.codes[is_counted],
            "time": events["dur"].to_numpy()[is_counted],
        },
        copy=False,
    )
    table = frame.groupby(_KERNEL)["time"].agg(count="size", time="sum").reset_index()
    kinds = list(events["kind"].cat.categories)
    table["path"] = [texts[code] for code in table["path"]]
    table["shapes"] = [str(distinct_shapes[code]) for code in table["shapes"]]
    table["kernel"] = kernel_launches.texts(rank, table["kernel"])
    table["kind"] = [str(kinds[code]) for code in table["kind"]]
    return table.groupby(_KERNEL, sort=False)[["count", "time"]].sum().reset_index()  # Equal texts of different codes.


def _lumped(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of largest time, and the other rows of each kind as one."""
    kernels = kernels.sort_values(["time", *_KERNEL], ascending=[False, True, True, True, True], ignore_index=True)
    is_pooled = kernels["kernel"] == SMALL_KERNELS
    is_pooled |= (~is_pooled).cumsum() > at_most(_MAX_ROWS, len(kernels))
    pooled = kernels[is_pooled].assign(path="", shapes="", kernel=SMALL_KERNELS)
    return concat([kernels[~is_pooled], pooled.groupby(_KERNEL)[["count", "time"]].sum().reset_index()])


def _summed(events: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return count, time (ns) and bytes (nan where no size is known) by these keys."""
    groups = events.groupby(keys, observed=True)
    table = groups["time"].agg(count="size", time="sum").reset_index()
    return table.assign(bytes=groups["bytes"].sum(min_count=1).to_numpy())


def _added_up(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    groups = rows.groupby(keys)
    table = groups[["count", "time"]].sum().reset_index()
    return table.assign(bytes=groups["bytes"].sum(min_count=1).to_numpy())


def _divided(table: pd.DataFrame, divisor: int) -> pd.DataFrame:
    return table.assign(**{name: table[name] / divisor for name in ("count", "time", "bytes") if name in table})
