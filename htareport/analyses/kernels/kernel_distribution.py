"""The analysis of kernel durations: their distribution within a rank and across ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd

from htareport.algorithms import histograms
from htareport.analyses import Analysis, Frames, Group, Job, Range
from htareport.rank import kernel_stats
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.kernel_stats import KIND_HELP, KIND_LABELS, NAME_HELP
from htareport.rank.rank import Rank
from htareport.report import Chart, Column, Mark, TableSpec, Unit, chart_of, key
from htareport.report.rank_charts import cut_note
from htareport.report.units import text

_NS = Unit.NANOSECONDS
_QUANTILES = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99}
_NUM_HISTOGRAMS = 60  # Kernels of a rank and class whose histograms are sent; few enough for thousands of ranks.
_SENT_COLUMNS = ["name", "kind", "count", "sum", "mean", "min", "max", "m2"]
_MAX_NAMES = 40
_MAX_BARS = 12
_MAX_SERIES = 8


@dataclass(frozen=True)
class KernelDistribution(Analysis):
    """How long the calls of a kernel take on each rank, and how far ranks and calls differ.

    ## How it is computed
    For the `num_kernels` kernels of largest sum in each class, at most 40 in all: mean, shortest and longest call on
    every rank (exact), and percentiles over the calls of all ranks, from histograms that are added up (error up to 1 %;
    a note says where a rank's calls are not among them). *Spread over ranks* is the largest mean of a rank over the
    smallest, less 1.

    ## What to do
    - One rank's mean is larger: its GPU is slower (compare clocks, temperature and power limit, with `nvidia-smi -q -d
      PERFORMANCE,CLOCK` or `amd-smi metric`) or its inputs are larger.
    - Calls differ much on every rank (p95 far above p50): the kernel serves several shapes (*Kernels by operator* tells
      them apart), or shares the device with others.
    - Communication kernels differ most, since they contain the wait for the last rank: see *Collectives*.
    """

    title = "Kernel duration distribution"
    group = Group.KERNELS
    order = 10
    requires = frozenset({Capability.GPU})
    tables = (
        TableSpec(
            "distribution",
            "Calls of the largest kernels, over all ranks",
            (
                key("name", "Kernel", Unit.NAME, NAME_HELP),
                key("kind", "Class", Unit.TEXT, KIND_HELP),
                Column(
                    "count", "Calls", Unit.COUNT, "Device events (kernels, copies, fills) of this name on all ranks."
                ),
                Column("mean", "Mean", _NS, "Mean duration of a call."),
                Column("min", "Min", _NS, "Shortest call."),
                *(
                    Column(name, name, _NS, f"{name[1:]}th percentile of the durations (error up to 1 %).")
                    for name in _QUANTILES
                ),
                Column("max", "Max", _NS, "Longest call."),
                Column(
                    "spread",
                    "Spread over ranks",
                    Unit.RATIO,
                    "Largest mean of a rank / smallest − 1; none with one rank.",
                ),
                Column("slowest_rank", "Slowest rank", Unit.ID, "The rank of the largest mean; none with one rank."),
            ),
        ),
        TableSpec(
            "by_rank",
            "The largest kernels by rank",
            (
                key("rank", "Rank"),
                key("name", "Kernel", Unit.NAME, NAME_HELP),
                key("kind", "Class", Unit.TEXT, KIND_HELP),
                Column("count", "Calls", Unit.COUNT, "Device events of this name on the rank."),
                Column("mean", "Mean", _NS, "Mean duration of a call."),
                Column("min", "Min", _NS, "Shortest call."),
                Column("max", "Max", _NS, "Longest call."),
            ),
            is_detail=True,
        ),
    )

    num_kernels: Annotated[int, Range(minimum=1)] = 10

    def map(self, rank: Rank) -> Frames:
        kernels = kernel_stats.by_name(rank)
        by_kind = kernels.groupby("kind", sort=False)
        max_histograms = at_most(max(_NUM_HISTOGRAMS, self.num_kernels), len(kernels))
        histogram = kernel_stats.histogram(rank, by_kind.head(max_histograms))
        coarse = histogram.assign(bin=np.floor_divide(histogram["bin"], histograms.COARSE))
        return {
            "kernels": by_kind.head(at_most(kernel_stats.MOST_NAMES, len(kernels)))[_SENT_COLUMNS],
            "histogram": histogram[histogram["name"] != kernel_stats.REST],
            "durations": coarse.groupby(["kind", "bin"])["count"].sum().reset_index(),
            "names": pd.DataFrame([{"names": by_kind.size().max()}]),
        }

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        by_rank, histogram = frames["kernels"], kernel_stats.pooled_bins(frames.pop("histogram"))
        merged = kernel_stats.merged(by_rank, ["name", "kind"]).sort_values(["sum", "name"], ascending=[False, True])
        top = merged.groupby("kind", sort=False).head(self.num_kernels).head(_MAX_NAMES).reset_index(drop=True)
        top = kernel_stats.with_quantiles(top, histogram, _QUANTILES)
        top_by_rank = by_rank.merge(top[["name", "kind"]], on=["name", "kind"])
        groups = top_by_rank.groupby(["name", "kind"], sort=False)["mean"]
        spread = groups.agg(["min", "max"])
        across_ranks = pd.DataFrame(
            {
                "spread": spread["max"] / spread["min"].where(spread["min"] > 0) - 1,
                "slowest_rank": top_by_rank.loc[groups.idxmax(), "rank"].to_numpy(),
            }
        ).reset_index()
        if by_rank["rank"].nunique() == 1:
            across_ranks = across_ranks.assign(spread=np.nan, slowest_rank=np.nan)
        durations = frames["durations"].groupby(["kind", "bin"])["count"].sum().reset_index()
        counted = histogram.groupby(["name", "kind"])["count"].sum()
        keys = pd.MultiIndex.from_frame(top[["name", "kind"]])
        lacking = top["count"] - counted.reindex(keys, fill_value=0).to_numpy()
        return {
            "distribution": top.merge(across_ranks, on=["name", "kind"]).replace({"kind": KIND_LABELS}),
            "by_rank": top_by_rank.replace({"kind": KIND_LABELS}),
            "durations": durations.replace({"kind": KIND_LABELS}),
            "names": frames["names"],
            "lacking": top[["name", "count"]].assign(lacking=lacking),
        }

    def notes(self, frames: Frames) -> Iterator[str]:
        names, lacking = frames["names"]["names"], frames["lacking"][frames["lacking"]["lacking"] > 0]
        yield from cut_note("of calls", names, kernel_stats.MOST_NAMES, "of largest sum in each class")
        if len(lacking):
            share = text((lacking["lacking"] / lacking["count"]).max(), Unit.RATIO)
            yield (
                f"Percentiles of {len(lacking)} of the kernels lack calls (up to {share}): those on ranks where "
                f"the kernel is not among the {max(_NUM_HISTOGRAMS, self.num_kernels)} of largest sum in its class."
            )

    def charts(self, frames: Frames) -> Iterator[Chart]:
        top, by_rank = frames["distribution"].head(_MAX_BARS), frames["by_rank"]
        spec = self.tables[0]
        yield chart_of(
            spec,
            "calls",
            "Durations of the largest kernels",
            Mark.BOX,
            top,
            "name",
            "p50",
            "kind",
            low="p5",
            q1="p25",
            q3="p75",
            high="p95",
            x_label="",
            y_label="duration of a call",
            caption="Box from p25 to p75 with the median, whiskers from p5 to p95, all ranks together.",
        )
        ranks = by_rank["rank"].nunique()
        top_by_rank = by_rank[by_rank["name"].isin(top["name"])]
        if 1 < ranks <= _MAX_SERIES:
            series = top_by_rank.assign(series="rank " + top_by_rank["rank"].astype(str))
            order = {name: position for position, name in enumerate(top["name"])}
            series = series.sort_values(["name", "rank"], key=lambda c: c.map(order) if c.name == "name" else c)
            yield chart_of(
                spec,
                "ranks",
                "Mean duration by rank",
                Mark.RANGE,
                series,
                "mean",
                "name",
                "series",
                low="min",
                high="max",
                x_label="duration of a call",
                caption="Mean on each rank, whiskers from its shortest to its longest call.",
            )
        elif ranks > 1:
            means = top_by_rank.groupby("name", sort=False)["mean"].agg(["median", "min", "max"])
            yield chart_of(
                spec,
                "ranks",
                "Mean duration over ranks",
                Mark.RANGE,
                means.reindex(top["name"]).reset_index(),
                "median",
                "name",
                low="min",
                high="max",
                x_unit=_NS,
                x_label="mean duration of a call on a rank",
                caption=f"Median over {ranks:,} ranks of the rank's mean, whiskers from the smallest to the largest.",
            )
        durations = frames["durations"]
        left, right = histograms.coarse_edges(durations["bin"].to_numpy())
        yield chart_of(
            spec,
            "durations",
            "Durations of all calls",
            Mark.HISTOGRAM,
            durations.assign(left=left, right=right),
            "left",
            "count",
            "kind",
            x2="right",
            x_label="duration",
            x_unit=_NS,
            log_x=True,
            caption="Every device event of every rank; the scale is logarithmic.",
        )
