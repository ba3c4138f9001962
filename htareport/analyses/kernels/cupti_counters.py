"""The analysis of CUPTI's hardware counters: operations and memory traffic of kernels and operators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pandas as pd

from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.host_calls import launching_rows
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE, step_of
from htareport.rank.window import ALL
from htareport.report import Chart, Column, Mark, TableSpec, Unit, chart_of, key
from htareport.report.rank_charts import cut_note

FLOP_OF = {
    f"smsp__sass_thread_inst_executed_op_{size}{what}_pred_on.sum": flop
    for size in "fhd"
    for what, flop in (("fma", 2), ("mul", 1), ("add", 1))
}
"""Operations of one executed instruction, by counter."""

DRAM_BYTES = ("dram__bytes.sum", "dram__bytes_read.sum", "dram__bytes_write.sum")
_KERNEL_LAUNCH = re.compile(r"Launch\w*Kernel")
_CATEGORY = "cuda_profiler_range"
_MAX_ROWS = 250
_MAX_BARS = 15
_UNNAMED = {"__missing__": "(kernel whose name the profiler did not find)"}  # Kineto's word for it.
_FLOP_HELP = "2 for each fused multiply-add, 1 for add and multiply; without tensor cores."
_DRAM_HELP = "Bytes to and from device memory; none where they were not counted."
_INTENSITY_HELP = "Floating-point operations per byte to and from device memory; none without bytes."
_MEASURES = (
    Column("kernels", "Kernels", Unit.COUNT, "Kernel calls that were measured."),
    Column("flops", "Operations", Unit.FLOP, _FLOP_HELP),
    Column("share", "Share", Unit.RATIO, "Share of the floating-point operations of all kernels, on all ranks."),
    Column("dram", "Device memory", Unit.BYTES, _DRAM_HELP),
    Column("intensity", "FLOP/byte", Unit.COUNT, _INTENSITY_HELP),
)
_SUMS = ["kernels", "flops", "dram"]


class CuptiCounters(Analysis):
    """Hardware counters by kernel and operator: floating-point operations, device memory, arithmetic intensity.

    ## How it is computed
    CUPTI's range profiler (NVIDIA only) runs each kernel by itself, several times if it needs several passes, and
    writes one row with its counters. A row belongs to the launch of its correlation id; where rows have none, the n-th
    row to the n-th kernel launch by time, if there are as many of both. The operator is the innermost around the
    launch, the top-level operator the outermost. Floating-point operations come from the SASS (machine code) counters,
    2 for each fused multiply-add; tensor cores are not among them. Durations are those of the replay and say nothing
    about speed.

    ## What to do
    - To record: `torch.profiler._ExperimentalConfig` with `profiler_metrics=["dram__bytes.sum"]`, for operations also
      `smsp__sass_thread_inst_executed_op_ffma_pred_on.sum` (likewise `fadd`, `fmul`), and
      `profiler_measure_per_kernel=True`, in a run of its own. A warning of an unrecognized `CUPTI_PROFILER_METRICS`
      means a PyTorch without range profiler.
    - FLOP/byte below the device's own (19.5e12 / 1.6e12 = 12 for an A100 in float32): memory is the limit. Fuse
      (`torch.compile`), or move less (bf16).
    - Operations where you expect none: look for a float32 or float64 that was not meant.
    """

    title = "Hardware counters"
    group = Group.KERNELS
    order = 60
    requires = frozenset({Capability.CUPTI})
    tables = (
        TableSpec(
            "operators",
            "By top-level operator",
            (
                key("operator", "Operator", Unit.NAME, "Outermost operator around the launch; empty if unknown."),
                *_MEASURES,
            ),
        ),
        TableSpec(
            "kernels",
            "By kernel and operator",
            (
                key("kernel", "Kernel", Unit.NAME, "Name in the trace."),
                key("operator", "Operator", Unit.NAME, "Innermost operator around the launch; empty if unknown."),
                *_MEASURES,
            ),
        ),
        TableSpec(
            "counters",
            "Counters as recorded",
            (
                key("counter", "Counter", Unit.TEXT, "CUPTI's name for it."),
                Column("kernels", "Kernels", Unit.COUNT, "Kernel calls that have it."),
                Column("mean", "Mean", Unit.COUNT, "Mean over these calls."),
                Column("max", "Max", Unit.COUNT, "Largest value of a call."),
            ),
            is_detail=True,
        ),
    )

    def map(self, rank: Rank) -> Frames:
        rows = counter_rows(rank)
        measured = rows.assign(kernels=1, dram=rows["dram"].fillna(0), dram_known=rows["dram"].notna())
        sums = {**dict.fromkeys(_SUMS, "sum"), "dram_known": "max"}
        by_top = measured.groupby("top_level_op").agg(sums).reset_index(names="operator")
        measured["name"] = measured["name"].replace(_UNNAMED)
        by_kernel = measured.groupby(["name", "bottom_level_op"]).agg(sums).reset_index(names=["kernel", "operator"])
        size = {"operators": len(by_top), "kernels": len(by_kernel), "flops": float(measured["flops"].sum())}
        size |= {"ranges": len(rows), "launches": rows.attrs["launches"], "joined": rows.attrs["joined"]}
        values = rows[rows.attrs["counters"]]
        counters = pd.DataFrame(
            {"counter": values.columns, "kernels": values.count(), "sum": values.sum(), "max": values.max()}
        )
        return {
            "operators": by_top.nlargest(at_most(_MAX_ROWS, len(by_top)), "flops"),
            "kernels": by_kernel.nlargest(at_most(_MAX_ROWS, len(by_kernel)), "flops"),
            "counters": counters.reset_index(drop=True).astype({"sum": "float64", "max": "float64"}),
            "size": pd.DataFrame([size]),
        }

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        groups, size = frames["counters"].groupby("counter"), frames["size"]
        counters = groups.agg(kernels=("kernels", "sum"), sum=("sum", "sum"), max=("max", "max")).reset_index()
        total_flops = float(size["flops"].sum())
        operators = _measured(frames["operators"], ["operator"], total_flops)
        kernels = _measured(frames["kernels"], ["kernel", "operator"], total_flops)
        return {
            "operators": operators.head(_MAX_ROWS),
            "kernels": kernels.head(_MAX_ROWS),
            "counters": counters.assign(mean=counters["sum"] / counters["kernels"]),
            "size": size,
            "joined": pd.DataFrame([{"operators": len(operators), "kernels": len(kernels)}]),
        }

    def charts(self, frames: Frames) -> Iterator[Chart]:
        joined = bool(frames["size"]["joined"].any())
        table, label = (frames["operators"], "operator") if joined else (frames["kernels"], "kernel")
        top = table[table["flops"] > 0].drop_duplicates(label).head(_MAX_BARS)
        yield chart_of(
            self.tables[0] if joined else self.tables[1],
            "flop",
            f"Floating-point operations by {'top-level operator' if joined else 'kernel'}",
            Mark.BAR,
            top,
            "flops",
            label,
            caption="From the SASS counters, all ranks together; tensor cores are not among them.",
        )

    def notes(self, frames: Frames) -> Iterator[str]:
        sizes = frames["size"][["rank", "ranges", "launches", "joined"]]
        for rank, ranges, launches, joined in sizes.itertuples(index=False):
            if not joined:
                yield (
                    f"Rank {rank} has {ranges:,} rows of counters, but {launches:,} kernel launches: which belongs to "
                    "which can't be told, so the counters stand by kernel, without operators."
                )
        if not frames["size"]["flops"].any() and len(frames["operators"]):
            yield "No counter of floating-point instructions was recorded; the counters themselves stand below."
        for table, title in (("operators", "by top-level operator"), ("kernels", "by kernel and operator")):
            size, joined_size = (frames[name][table] for name in ("size", "joined"))
            yield from cut_note(title, size, _MAX_ROWS, "of most operations", joined_size)


def counter_rows(rank: Rank) -> pd.DataFrame:
    """Return a row per range of the profiler, in order of time, with the operators around its launch.

    Columns: name, ts, dur (ns), call, correlation, op_stack (names of the operators, outermost first), top_level_op,
    bottom_level_op (empty where not known), flops, dram (bytes), intensity (nan where not counted), then the counters.
    `attrs` has counters (their names), launches (how many kernels were launched), joined (whether operators are known).
    """
    ranges = rank.events[_CATEGORY].sort_values(["capture", "ts"], kind="stable", ignore_index=True)
    values = pd.DataFrame.from_records([_numbers(rank.loaded.strings, code) for code in ranges["args"]])
    correlation = values.pop("correlation") if "correlation" in values else None
    values = values.astype("float64")
    launch, launches = _launches_of(rank, ranges, correlation)
    stacks = _op_stacks(rank, launch)
    flops = sum((values[name].fillna(0) * flop for name, flop in FLOP_OF.items() if name in values), start=0.0)
    dram_counters = [name for name in DRAM_BYTES if name in values]
    has_sum = dram_counters[:1] == [DRAM_BYTES[0]]
    dram = values[dram_counters[:1] if has_sum else dram_counters].sum(axis=1, min_count=1)
    rows = pd.DataFrame(
        {
            "name": ranges["name"].astype(object),
            "ts": ranges["ts"],
            "dur": ranges["dur"],
            "call": [str(rank.launches["name"].iloc[row]) if row >= 0 else "" for row in launch.tolist()],
            "correlation": np.where(launch >= 0, rank.launches["correlation"].to_numpy()[launch], -1)
            if len(rank.launches)
            else -1,
            "op_stack": stacks,
            "top_level_op": [stack[0] if stack else "" for stack in stacks],
            "bottom_level_op": [stack[-1] if stack else "" for stack in stacks],
            "flops": flops,
            "dram": dram if dram_counters else np.nan,
        }
    )
    rows["intensity"] = rows["flops"] / rows["dram"].where(rows["dram"] > 0)
    rows = pd.concat([rows, values], axis=1)
    joined = bool((launch >= 0).all())
    if rank.window != ALL and rank.all_step_numbers and joined:
        rows = rows[step_of(rank.steps, rank.launches["ts"].to_numpy()[launch]) != OUTSIDE].reset_index(drop=True)
    rows.attrs.update(counters=list(values.columns), launches=launches, joined=joined)
    return rows


def _numbers(strings: list[str], code: int) -> dict[str, Any]:
    """Return the numbers among a row's arguments."""
    try:
        args = orjson.loads(strings[code]) if code >= 0 else {}
    except orjson.JSONDecodeError:
        return {}
    items = args.items() if isinstance(args, dict) else ()
    return {name: value for name, value in items if isinstance(value, (int, float)) and not isinstance(value, bool)}


def _launches_of(rank: Rank, ranges: pd.DataFrame, correlation: pd.Series | None) -> tuple[np.ndarray[Any, Any], int]:
    """Return the row of each range's launch (-1 unknown), and how many kernels were launched."""
    calls = rank.launches[["name", "correlation", "capture"]]
    kernel_calls = {name for name in calls["name"].unique() if _KERNEL_LAUNCH.search(name)}
    calls = calls[calls["name"].isin(kernel_calls)]
    launches = np.full(len(ranges), -1, np.int64)
    if correlation is not None and (correlation > 0).all():
        first_calls = calls.reset_index(names="row").drop_duplicates(["capture", "correlation"])
        keys = pd.DataFrame({"capture": ranges["capture"], "correlation": correlation.astype("int64")})
        rows = keys.merge(first_calls, how="left", on=["capture", "correlation"])["row"]
        return rows.fillna(-1).to_numpy(np.int64), len(calls)
    for capture in ranges["capture"].unique():
        in_capture = (ranges["capture"] == capture).to_numpy()
        call_rows = calls.index[calls["capture"] == capture].to_numpy()
        if in_capture.sum() == len(call_rows):
            launches[in_capture] = call_rows
    return launches, len(calls)


def _op_stacks(rank: Rank, launch: np.ndarray[Any, Any]) -> list[list[str]]:
    """Return the names of the operators around each launch, outermost first."""
    if not (launch >= 0).any():
        return [[] for _ in launch]
    host = rank.host
    calls = launching_rows(host, np.maximum(launch, 0))
    parent, names = host["parent"], host["name"]
    is_operator = host.of_level("operator")
    stacks: dict[int, list[str]] = {-1: []}

    def stack(row: int) -> list[str]:
        ancestors = []
        while row not in stacks:
            ancestors.append(row)
            row = int(parent[row])
        for ancestor in reversed(ancestors):
            stacks[ancestor] = stacks[row]
            if is_operator[ancestor]:
                stacks[ancestor] = [*stacks[row], rank.loaded.strings[names[ancestor]]]
            row = ancestor
        return stacks[row]

    caller_rows = np.where((launch >= 0) & (calls >= 0), parent[calls], -1)
    return [stack(row) for row in caller_rows.tolist()]


def _measured(frame: pd.DataFrame, keys: list[str], flops: float) -> pd.DataFrame:
    table = frame.groupby(keys).agg({**dict.fromkeys(_SUMS, "sum"), "dram_known": "max"}).reset_index()
    table["dram"] = table["dram"].astype("float64").where(table["dram_known"].astype(bool))
    table["share"] = table["flops"] / max(flops, 1.0)
    table["intensity"] = table["flops"] / table["dram"].where(table["dram"] > 0)
    return table.sort_values(["flops", *keys], ascending=[False, *(True for _ in keys)], ignore_index=True)
