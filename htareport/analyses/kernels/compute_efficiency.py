"""The analysis of compute efficiency: FLOPs, MFU, and how near operators come to the roof of their device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from htareport.algorithms.frames import concat
from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.device_peaks import Precision
from htareport.rank.operator_work import NONE, Modelled, limits_of, model_of, modelled
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, chart_of, key
from htareport.report.rank_charts import cut_note

_NS = Unit.NANOSECONDS
_MAX_ROWS = 250
_MAX_BARS = 12
_MIN_COUNTED = 0.5  # Share of kernel time that MFU counts; with less, an overall number says little.
_PER_SECOND = 1e9
_KEYS = ["name", "shapes", "precision", "device"]
_SUMS = ["calls", "time", "flops", "bytes", "roof", "by_compute", "by_memory"]
_USED = (
    Column("flops", "Operations", Unit.FLOP, "Sum of the floating-point operations of operators that have a row here."),
    Column(
        "mfu", "MFU", Unit.RATIO, "Time that the operations take at peak / time; none where none of them has a peak.",
        better=Better.HIGHER,
    ),
    Column("counted", "Counted", Unit.RATIO, "Share of the compute kernels' time that MFU counts."),
)  # fmt: skip


class ComputeEfficiency(Analysis):
    """How much arithmetic matrix products, convolutions and attention do, and how near that is to the device's peak.

    ## How it is computed
    Operations and bytes follow from the shapes and types of an operator's inputs: 2 operations for each multiplication
    with its addition, each tensor read or written once, scores of fused attention not at all (they are computed again
    in its backward pass, which counts). Device time is all that the operator launches: casts, layout conversions and
    split sums too. The *roof* is what the device needs at least: its peak arithmetic of that type without sparsity, or
    its memory bandwidth, whichever takes longer, both from the maker's data sheet; above 100 % the data came from a
    cache. Whether float32 is computed in TF32 is known from the kernel's name only. Operators within CUDA graphs or
    compiled code leave no shapes. *MFU* (model FLOPs utilisation) is the time that the operations would take at the
    device's peak, each in its own type, over the time of the steps (of everything recorded without steps).

    ## What to do
    - Memory bound: fuse, or move smaller types. Compute bound and far below the roof: sizes that are multiples of 8
      (16 in fp8), larger batches, `torch.compile(mode="max-autotune")`.
    - fp32 where bf16 or TF32 would do: `torch.autocast`, `torch.set_float32_matmul_precision("high")`.
    - A low MFU with operators near their roof is lost elsewhere: idle time, communication, operators without a row.
    """

    title = "Compute efficiency"
    group = Group.KERNELS
    order = 30
    requires = frozenset({Capability.GPU, Capability.SHAPES})
    tables = (
        TableSpec(
            "operators",
            "By operator and shape, all ranks together",
            (
                key("name", "Operator", Unit.NAME, "Name in the trace; forward and backward each have theirs."),
                key("shapes", "Shapes", Unit.TEXT, "Shapes of its inputs."),
                key("precision", "Arithmetic", Unit.TEXT, "In which it is computed; empty where that is not known."),
                Column("calls", "Calls", Unit.COUNT, "Calls with device work."),
                Column("time", "Device time", _NS, "Sum of all that they launch.", better=Better.LOWER),
                Column(
                    "roof",
                    "Of the roof",
                    Unit.RATIO,
                    "Time at the device's limit / device time; none where the limit is not known.",
                    better=Better.HIGHER,
                ),
                Column("bound", "Bound", Unit.TEXT, "Which limit is the nearer one: compute or memory."),
                Column("flops", "Operations", Unit.FLOP, "Sum over calls; none where the arguments do not tell."),
                Column("flop_rate", "Rate", Unit.FLOP_PER_SECOND, "Operations / device time.", better=Better.HIGHER),
                Column("byte_rate", "Bandwidth", Unit.BYTES_PER_SECOND, "Bytes at least / device time."),
                key("device", "Device", Unit.TEXT, "Name in the trace."),
            ),
        ),
        TableSpec(
            "ranks",
            "By rank and device",
            (
                key("rank", "Rank"),
                key("device", "Device", Unit.ID, "Number of the device."),
                Column("model", "Name", Unit.TEXT, "Name of the device in the trace."),
                Column("window", "Time", _NS, "Sum of the steps; without steps, from the first event to the last."),
                *_USED,
                Column("known", "Known", Unit.RATIO, "Share of the compute kernels' time whose operations are known."),
            ),
        ),
        TableSpec(
            "steps",
            "By step",
            (
                key("rank", "Rank"),
                key("device", "Device", Unit.ID, "Number of the device."),
                key("step", "Step"),
                Column("window", "Step time", _NS, "Length of the step."),
                *_USED,
            ),
            is_detail=True,
        ),
    )

    def map(self, rank: Rank) -> Frames:
        operator_work = modelled(rank)
        operators = _operators(rank, operator_work)
        steps = _by_step(rank, operator_work)
        inside = steps[steps["step"] != OUTSIDE] if len(rank.steps) else steps
        groups = inside.groupby("device", sort=True)[["flops", "peak", "counted", "known", "kernels"]]
        ranks = groups.sum(min_count=1).reset_index()
        ranks["model"] = [model_of(rank, device) for device in ranks["device"]]
        lengths = _windows(rank)
        ranks["window"] = np.array([sum(lengths[device].values()) for device in ranks["device"]], np.int64)
        ranks["has_limits"] = [limit is not None for limit in limits_of(rank, ranks["device"]).values()]
        steps = inside if len(rank.steps) else inside.iloc[:0]
        windows = [lengths[device].get(step, 0) for device, step in zip(steps["device"], steps["step"], strict=True)]
        steps = steps.assign(window=np.array(windows, np.int64))
        return {
            "operators": operators.head(at_most(_MAX_ROWS, len(operators))),
            "ranks": ranks,
            "steps": steps.head(at_most(_MAX_ROWS, len(steps))),
            "size": pd.DataFrame([{"operators": len(operators), "steps": len(steps)}]),
        }

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        groups = frames["operators"].groupby(_KEYS)
        table = groups[_SUMS].sum(min_count=1).reset_index()
        seconds = table["time"] / _PER_SECOND
        table["flop_rate"], table["byte_rate"] = table["flops"] / seconds, table["bytes"] / seconds
        table["bound"] = np.where(table["by_compute"] >= table["by_memory"], "compute", "memory")
        table.loc[table["roof"].isna(), "bound"] = ""
        table["roof"] /= table["time"]
        table[["flop_rate", "byte_rate", "roof"]] = table[["flop_rate", "byte_rate", "roof"]].where(table["time"] > 0)
        table = table.sort_values(["time", *_KEYS], ascending=[False, *(True for _ in _KEYS)], ignore_index=True)
        joined = pd.DataFrame([{"operators": len(table)}])
        return {
            "operators": table.head(_MAX_ROWS).astype({"calls": "int64", "time": "int64"}),
            "ranks": _shares(frames["ranks"]),
            "steps": _shares(frames["steps"]),
            "size": frames["size"],
            "joined": joined,
        }

    def facts(self, frames: Frames) -> Iterator[Fact]:
        ranks = frames["ranks"]
        counted = (ranks["counted"] * ranks["kernels"]).sum() / max(ranks["kernels"].sum(), 1)
        if ranks["mfu"].notna().any() and counted >= _MIN_COUNTED:
            value = (ranks["mfu"] * ranks["window"]).sum() / ranks["window"].sum()
            yield Fact(
                "mfu",
                "MFU",
                float(value),
                Unit.RATIO,
                "of the devices' peak arithmetic",
                "Time that the known operations take at the devices' peak, as a share of the time of the steps.",
                better=Better.HIGHER,
            )

    def charts(self, frames: Frames) -> Iterator[Chart]:
        table = frames["operators"]
        top = table[table["roof"].notna()].head(_MAX_BARS)
        labels = [f"{name} {shapes}" for name, shapes in zip(top["name"], top["shapes"], strict=True)]
        top = top.assign(label=labels).drop_duplicates("label")
        yield chart_of(
            self.tables[0],
            "roof",
            "How near the costliest operators come to the roof",
            Mark.BAR,
            top,
            "roof",
            "label",
            "bound",
            x_label="time at the device's limit / device time",
            y_unit=Unit.NAME,
            caption="Most device time first; the colour says which limit is the nearer one.",
        )

    def notes(self, frames: Frames) -> Iterator[str]:
        ranks = frames["ranks"]
        unknown = sorted(set(ranks.loc[~ranks["has_limits"].astype(bool), "model"]))
        if unknown:
            models = ", ".join(model or "a device without a name" for model in unknown[:3])
            yield f"The limits of {models} are not known here, so there is neither a roof nor an MFU."
        size, joined = (frames[name]["operators"] for name in ("size", "joined"))
        yield from cut_note("by operator and shape", size, _MAX_ROWS, "of most device time", joined)
        yield from cut_note("by step", frames["size"]["steps"], _MAX_ROWS, "that come first")


def _operators(rank: Rank, operator_work: Modelled) -> pd.DataFrame:
    """Return sums by signature, arithmetic and device; nan where not known."""
    precisions = list(Precision)
    calls = operator_work.calls.assign(
        calls=1, flops=operator_work.works("flops"), bytes=operator_work.works("bytes"), roof=operator_work.roof
    )
    groups = calls.groupby(["signature", "precision", "device"], sort=True)
    table = groups[_SUMS].sum(min_count=1).reset_index()
    signatures = [operator_work.signatures[number] for number in table["signature"].tolist()]
    table["name"] = pd.Series([signature.name for signature in signatures], dtype=object)
    table["shapes"] = pd.Series([signature.shapes for signature in signatures], dtype=object)
    names = [str(precisions[code]) if code != NONE else "" for code in table["precision"].tolist()]
    table["precision"] = pd.Series(names, dtype=object)
    models = [model_of(rank, device) for device in table["device"].tolist()]
    table["device"] = pd.Series(models, dtype=object)
    table = table.groupby(_KEYS, sort=False)[_SUMS].sum(min_count=1).reset_index()
    return table.sort_values(["time", "name", "shapes"], ascending=[False, True, True], ignore_index=True)


def _by_step(rank: Rank, operator_work: Modelled) -> pd.DataFrame:
    """Return by device and step (-1 outside): operations, their time at peak, kernel time: all, counted and known."""
    is_compute, calls = (rank.device_events["kind"] == "compute").to_numpy(), operator_work.calls
    compute, owner = rank.device_events[is_compute], operator_work.owner[is_compute]
    keys = ["device", "step"]
    kernels = compute[keys].assign(kernels=compute["dur"], counted=0, known=0)
    for name, flags in (("counted", calls["by_compute"].notna()), ("known", ~np.isnan(operator_work.works("flops")))):
        if len(calls):
            has_flag = (owner != NONE) & np.asarray(flags)[np.maximum(owner, 0)]
            kernels[name] = np.where(has_flag, compute["dur"], 0)
    sums = kernels.groupby(keys)[["kernels", "counted", "known"]].sum()
    work = calls[keys].assign(flops=operator_work.works("flops"), peak=calls["by_compute"])
    work = work.groupby(keys)[["flops", "peak"]].sum(min_count=1)
    return sums.join(work, how="left").reset_index()


def _windows(rank: Rank) -> dict[object, dict[int, int]]:
    """Return the length (ns) of each step by device; without steps of what was recorded, by capture."""
    if len(rank.steps):
        lengths = (rank.steps["end"] - rank.steps["start"]).tolist()
        steps = dict(zip(rank.steps["number"].tolist(), lengths, strict=True))
        return dict.fromkeys(rank.devices, steps)
    return {
        device: {
            capture: int(busy[-1, 1] - busy[0, 0])
            for capture, busy in enumerate(rank.busy_by_capture(events))
            if len(busy)
        }
        for device, events in rank.devices.items()
    }


def _shares(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with sums of time as shares."""
    table = concat([table])
    kernels = table["kernels"].where(table["kernels"] > 0)
    table["mfu"] = (table["peak"] / table["window"].where(table["window"] > 0)).astype("float64")
    table["counted"] = (table["counted"] / kernels).where(table["mfu"].notna())
    if "known" in table:
        table["known"] /= kernels
    return table
