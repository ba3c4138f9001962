"""The analysis of kernels: total time and statistics by name, and which classes run at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

import numpy as np
import pandas as pd

from htareport.algorithms import intervals
from htareport.analyses import Analysis, Frames, Group, Job, Range
from htareport.rank import kernel_stats
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.kernel_stats import KIND_HELP, KIND_LABELS, NAME_HELP, REST, STATISTICS
from htareport.rank.rank import Rank
from htareport.report import Chart, Column, Mark, TableSpec, Unit, chart_of, key

_NS = Unit.NANOSECONDS
_TYPES = ("COMPUTATION", "COMMUNICATION", "MEMORY")  # As HTA calls the classes.
_MAX_ROWS = 2_000
_MAX_BARS = 15
_POOLED_NAME = "(kernels of small sums)"
_QUANTILES = {"p50": 0.5, "p95": 0.95}


@dataclass(frozen=True)
class KernelBreakdown(Analysis):
    """Which kernels and kinds of kernels take the devices' time, and how long their calls take.

    ## How it is computed
    By type: each busy instant of a device belongs to the set of classes (compute, communication, memory) that run in
    it, so the rows add up to the busy time. By kernel: the durations of all calls of a name are summed over ranks and
    steps; calls that run at the same time count each. Mean, deviation, shortest and longest are exact; percentiles are
    exact for one rank, and come from added-up histograms (error up to 1 %) over several ranks and for *others*. The top
    list of a class holds the kernels of largest sum until they cover `duration_ratio` of it or are `num_kernels`;
    *others* is all the rest.

    ## What to do
    - Start at the top: a kernel's share is the most of the device time that a faster one can save.
    - Many short calls: fuse them with `torch.compile`; `fused=True` for the optimizer.
    - Long matrix products or convolutions: `torch.autocast(device_type="cuda", dtype=torch.bfloat16)`, or
      `torch.set_float32_matmul_precision("high")`; sizes that are multiples of 8. Attention in several kernels:
      `torch.nn.functional.scaled_dot_product_attention`.
    - A change has helped if the kernels' total and the step time are both smaller.
    """

    title = "Kernels by total time"
    group = Group.KERNELS
    order = 0
    requires = frozenset({Capability.GPU})
    worst = MappingProxyType({"by_rank": "sum"})
    tables = (
        TableSpec(
            "kernels",
            "All kernels, over all ranks",
            (
                key("name", "Kernel", Unit.NAME, NAME_HELP),
                key("kind", "Class", Unit.TEXT, KIND_HELP),
                Column("share", "Share", Unit.RATIO, "Total as a share of the totals of all kernels."),
                *STATISTICS,
            ),
        ),
        TableSpec(
            "types",
            "By type, with what runs at the same time",
            (
                key("type", "Running", Unit.TEXT, "The classes of what runs at the same time."),
                Column("time", "Time", _NS, "Time in which exactly these classes run, summed over ranks and devices."),
                Column("share", "Share", Unit.RATIO, "Share of the busy time of all devices."),
            ),
        ),
        TableSpec(
            "top",
            "Top of each class",
            (
                key("kind", "Class", Unit.TEXT, KIND_HELP),
                key("name", "Kernel", Unit.NAME, NAME_HELP),
                Column("share", "Share of class", Unit.RATIO, "Total as a share of the totals of its class."),
                *STATISTICS,
            ),
            is_detail=True,
        ),
        TableSpec(
            "by_rank",
            "Top kernels by rank",
            (
                key("rank", "Rank"),
                key("name", "Kernel", Unit.NAME, NAME_HELP),
                key("kind", "Class", Unit.TEXT, KIND_HELP),
                *STATISTICS,
            ),
            is_detail=True,
        ),
    )

    num_kernels: Annotated[int, Range(minimum=1)] = 10
    duration_ratio: Annotated[float, Range(above=0, maximum=1)] = 0.8

    def map(self, rank: Rank) -> Frames:
        kernels = kernel_stats.by_name(rank)
        largest = kernels.iloc[: at_most(kernel_stats.MOST_NAMES, len(kernels))]
        return {
            "kernels": kernel_stats.lumped(kernels),
            "histogram": kernel_stats.histogram(rank, largest),
            "types": exclusive_times(rank),
        }

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        by_rank, histogram = frames["kernels"], kernel_stats.pooled_bins(frames.pop("histogram"))
        if by_rank["rank"].nunique() == 1:
            kernels = by_rank.drop(columns="rank")
        else:
            kernels = kernel_stats.merged(by_rank, ["name", "kind"])
            kernels = kernel_stats.with_quantiles(kernels, histogram, _QUANTILES)
        kernels = kernels.sort_values(["sum", "name"], ascending=[False, True], ignore_index=True)
        kernels["share"] = kernels["sum"] / max(float(kernels["sum"].sum()), 1)
        in_top = kernel_stats.top_names(kernels, self.num_kernels, self.duration_ratio)
        top_of_rank = by_rank.merge(kernels.loc[in_top, ["name", "kind"]], on=["name", "kind"])
        types = frames["types"].groupby("type", sort=False)["time"].sum().reset_index()
        types = types[types["time"] > 0].sort_values("time", ascending=False, ignore_index=True)
        types = types.replace({"type": dict(zip(_TYPES, KIND_LABELS.values(), strict=True))}, regex=True)
        pooled, has_pooled = kernel_stats.label(_POOLED_NAME, kernels["name"]), (kernels["name"] == REST).any()
        return {
            "kernels": kernels.head(_MAX_ROWS).replace({"name": {REST: pooled}, "kind": KIND_LABELS}),
            "types": types.assign(share=types["time"] / max(float(types["time"].sum()), 1)),
            "top": self.top(kernels, in_top, histogram).replace({"kind": KIND_LABELS}),
            "by_rank": top_of_rank.replace({"kind": KIND_LABELS}),
            "size": pd.DataFrame([{"names": len(kernels), "pooled": pooled if has_pooled else None}]),
        }

    def top(self, kernels: pd.DataFrame, in_top: pd.Series, histogram: pd.DataFrame) -> pd.DataFrame:
        """Return the top of each class, and its other kernels as one row with the statistics of their single calls."""
        tables, pooled_name = [], kernel_stats.label("others", kernels["name"])
        for kind in KIND_LABELS:
            is_kind = kernels["kind"] == kind
            top, small = kernels[is_kind & in_top], kernels[is_kind & ~in_top]
            if len(small):
                pooled = kernel_stats.merged(small.assign(name=pooled_name), ["name", "kind"])
                bins = histogram[(histogram["kind"] == kind) & ~histogram["name"].isin(top["name"])]
                pooled = kernel_stats.with_quantiles(pooled, bins.assign(name=pooled_name), _QUANTILES)
                top = pd.concat([top, pooled], ignore_index=True)
            tables.append(top.assign(share=top["sum"] / max(float(top["sum"].sum()), 1)))
        return pd.concat([table for table in tables if len(table)], ignore_index=True)

    def charts(self, frames: Frames) -> Iterator[Chart]:
        top = frames["kernels"].head(_MAX_BARS)
        yield chart_of(
            self.tables[0],
            "top",
            "Kernels by total time",
            Mark.BAR,
            top[["name", "kind", "sum"]],
            "sum",
            "name",
            "kind",
            x_label="sum of durations",
            caption=f"The {len(top)} largest of {frames['size']['names'].iloc[0]}, all ranks and steps together.",
        )
        yield chart_of(
            self.tables[1],
            "types",
            "What runs at the same time",
            Mark.BAR,
            frames["types"],
            "time",
            "type",
            caption="Every instant of busy time belongs to one row; all ranks together.",
        )

    def notes(self, frames: Frames) -> Iterator[str]:
        if pooled := frames["size"]["pooled"].iloc[0]:
            yield (
                f"Where a rank has over {kernel_stats.MOST_NAMES} kernel names, those of smallest sum are one row, "
                f"{pooled}; a kernel may be among them on one rank and not on another."
            )
        names = int(frames["size"]["names"].iloc[0])
        if names > _MAX_ROWS:
            yield f"The table holds the {_MAX_ROWS} kernels of largest sum, of {names}."


def exclusive_times(rank: Rank, *, with_memory: bool = True) -> pd.DataFrame:
    """Return the time in which exactly these classes run, in ns, summed over devices: type (in HTA's words), time."""
    # Inclusion-exclusion: the time in all classes of a subset and in no other follows from the unions of its
    # subsets, each with all classes outside it.
    kinds = ("compute", "comm", "memory")[: 3 if with_memory else 2]
    subsets = _subsets(len(kinds))
    time_of_set = dict.fromkeys(map(_set_name, subsets), 0)
    for events in rank.devices.values():
        unions = {
            subset: sum(map(intervals.total, rank.busy_by_capture(events, *(kinds[i] for i in subset))))
            for subset in subsets
        }
        unions[()] = 0
        for subset in subsets:
            outside = tuple(i for i in range(len(kinds)) if i not in subset)
            for inner in [(), *_subsets(len(subset))]:
                united = tuple(sorted((*outside, *(subset[i] for i in inner))))
                time_of_set[_set_name(subset)] += (-1) ** (len(inner) + 1) * unions[united]
    return pd.DataFrame({"type": list(time_of_set), "time": np.array(list(time_of_set.values()), np.int64)})


def _subsets(size: int) -> list[tuple[int, ...]]:
    return [tuple(i for i in range(size) if mask >> i & 1) for mask in range(1, 1 << size)]


def _set_name(subset: tuple[int, ...]) -> str:
    return " overlapping ".join(_TYPES[i] for i in subset)
