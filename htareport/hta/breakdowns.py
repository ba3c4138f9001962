"""Breakdowns of the time of devices, streams and kernels, under HTA's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htareport.algorithms.frames import concat
from htareport.analyses.communication.comm_overlap import CommOverlap
from htareport.analyses.kernels.kernel_breakdown import KernelBreakdown, exclusive_times
from htareport.analyses.time.idle_time import IdleTime
from htareport.analyses.time.temporal_breakdown import TemporalBreakdown
from htareport.hta.ranks import LoadedRanks
from htareport.hta.units import DURATION_LABELS, PER_US, PERCENTILE_LABELS
from htareport.rank import kernel_stats
from htareport.rank.rank import Rank

_TYPES = {"compute": "COMPUTATION", "comm": "COMMUNICATION", "memory": "MEMORY"}


class Breakdowns(LoadedRanks):
    """Analyses of compute, communication and idle time, and of the time of kernels."""

    def get_profiler_steps(self) -> list[int]:
        """Numbers of the profiler steps on any rank, in order."""
        return sorted({number for rank in self.ranks_loaded.values() for number in rank.steps["number"].tolist()})

    def get_temporal_breakdown(self, visualize: bool = False) -> pd.DataFrame:
        """Compute, communication, memory and idle time by rank and device. Percentages are of the span."""
        analysis = TemporalBreakdown()
        frames = self.mapped(analysis)
        table, breakdown = frames["ranks"], pd.DataFrame()
        breakdown["rank"] = table["rank"]
        non_compute = table["exposed_comm"] + table["exposed_memory"]
        times = {"idle": table["idle"], "compute": table["compute"], "non_compute": non_compute}
        for name, values in times.items():
            breakdown[f"{name}_time(us)"] = values / PER_US
        breakdown["kernel_time(us)"] = table["span"] / PER_US
        span = table["span"].astype("float64")
        for name, values in times.items():
            breakdown[f"{name}_time_pctg"] = (100 * values / span.where(span > 0)).round(2)
        breakdown["device"] = table["device"]
        for name in ("busy", "comm", "memory", "exposed_comm", "exposed_memory", "overlap"):
            breakdown[f"{name}_time(us)"] = table[name] / PER_US
        breakdown["num_device_events"] = table["num_device_events"]
        self.show(analysis, frames, "ranks", visualize=visualize)
        return breakdown

    def get_comm_comp_overlap(self, visualize: bool = False) -> pd.DataFrame:
        """Share of communication time that is hidden under compute, by rank and device; NaN without communication."""
        analysis = CommOverlap()
        frames = self.mapped(analysis)
        table = self.combined(analysis, frames)["ranks"]
        self.show(analysis, frames, "ranks", visualize=visualize)
        return pd.DataFrame(
            {
                "rank": table["rank"],
                "comp_comm_overlap_pctg": (100 * table["ratio"]).round(2),
                "device": table["device"],
                "comm_time(us)": table["comm"] / PER_US,
                "overlap_time(us)": table["overlap"] / PER_US,
                "exposed_comm_time(us)": table["exposed"] / PER_US,
            }
        )

    def get_gpu_kernel_breakdown(
        self,
        visualize: bool = False,
        duration_ratio: float = 0.8,
        num_kernels: int = 10,
        include_memory_kernels: bool = True,
        image_renderer: str = "",
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Time by classes of kernels that run at once, over all ranks; and statistics of calls by kernel and rank.

        The second frame has the top kernels of each class on each rank (see KernelBreakdown), all others as "others".
        """
        times = [exclusive_times(rank, with_memory=include_memory_kernels) for rank in self.ranks_loaded.values()]
        sums = pd.concat(times).groupby("type", sort=False)["time"].sum()
        sums = sums[sums > 0].sort_values(ascending=False, kind="stable")
        by_type = pd.DataFrame({"kernel_type": list(sums.index), "sum": sums.to_numpy() / PER_US})
        by_type["percentage"] = (100 * by_type["sum"] / max(by_type["sum"].sum(), 1e-9)).round(1)
        top_kernels = [_top_kernels(rank, duration_ratio, num_kernels) for rank in self.ranks_loaded.values()]
        kernels = concat([*top_kernels, _NO_KERNELS]) if top_kernels else _NO_KERNELS
        if not include_memory_kernels:
            kernels = kernels[kernels["kind"] != "memory"]
        by_kernel = pd.DataFrame({"name": kernels["name"]})
        for column, label in DURATION_LABELS.items():
            by_kernel[label] = kernels[column] / PER_US
        by_kernel["kernel_type"], by_kernel["rank"] = kernels["kind"].map(_TYPES), kernels["rank"]
        by_kernel["count"] = kernels["count"]
        for column, label in PERCENTILE_LABELS.items():
            by_kernel[label] = kernels[column] / PER_US
        if visualize:
            analysis = KernelBreakdown(num_kernels=num_kernels, duration_ratio=duration_ratio)
            self.show(analysis, self.mapped(analysis), "top", visualize=True, renderer=image_renderer)
        return by_type, by_kernel.sort_values(["kernel_type", "name", "rank"], ignore_index=True)

    def get_idle_time_breakdown(
        self,
        ranks: list[int] | None = None,
        streams: list[int] | None = None,
        visualize: bool = False,
        visualize_pctg: bool = True,
        show_idle_interval_stats: bool = False,
        consecutive_kernel_delay: float = 30,
    ) -> tuple[pd.DataFrame, pd.DataFrame | None]:
        """Idle time of each stream by cause, and optionally statistics of the gaps.

        `consecutive_kernel_delay` is in µs. `idle_time_ratio` is the share of the stream's idle time; the chart shows
        these shares, or times with `visualize_pctg=False`.
        """
        analysis = IdleTime(consecutive_kernel_delay=float(consecutive_kernel_delay))
        frames = self.mapped(analysis, ranks)
        if not frames:
            empty = pd.DataFrame(columns=[*_IDLE_COLUMNS, "device", "count"])
            return empty, empty.copy() if show_idle_interval_stats else None
        idle, gaps = frames["streams"], frames["intervals"]
        if streams is not None:
            idle, gaps = idle[idle["stream"].isin(streams)], gaps[gaps["stream"].isin(streams)]
        self.show(analysis, frames, "streams", visualize=visualize, shares=visualize_pctg)
        table = pd.DataFrame(
            {
                "rank": idle["rank"],
                "stream": idle["stream"],
                "idle_category": idle["category"].str.replace(" ", "_"),
                "idle_time": idle["idle"] / PER_US,
                "idle_time_ratio": idle["ratio"],
                "device": idle["device"],
                "count": idle["count"],
            }
        ).reset_index(drop=True)
        return table, _interval_statistics(gaps) if show_idle_interval_stats else None


_IDLE_COLUMNS = ("rank", "stream", "idle_category", "idle_time", "idle_time_ratio")
_NO_KERNELS = pd.DataFrame(
    {name: [] for name in ("name", "kind", "rank", "count", *DURATION_LABELS, *PERCENTILE_LABELS)}, dtype="float64"
)


def _top_kernels(rank: Rank, min_share: float, max_kernels: int) -> pd.DataFrame:
    """Exact statistics of a rank's top kernels by class, with the calls of all others pooled as "others"."""
    if not len(rank.device_events):
        return _NO_KERNELS
    table = kernel_stats.by_name(rank)
    top = table[kernel_stats.top_names(table, max_kernels, min_share)]
    events = rank.device_events
    remaining = events[~events["name"].isin(top["name"])]
    pooled = [
        {"name": "others", "kind": kind, **_statistics(durations.to_numpy())}
        for kind, durations in remaining.groupby("kind", observed=True)["dur"]
    ]
    return pd.concat([top, pd.DataFrame(pooled)], ignore_index=True).assign(rank=rank.rank)


def _statistics(durations: np.ndarray[Any, Any]) -> dict[str, float]:
    p50, p95 = np.percentile(durations, [50, 95])
    return {
        "count": len(durations),
        "sum": durations.sum(),
        "mean": durations.mean(),
        "min": durations.min(),
        "max": durations.max(),
        "std": durations.std(ddof=1) if len(durations) > 1 else 0.0,
        "p50": p50,
        "p95": p95,
    }


def _interval_statistics(gaps: pd.DataFrame) -> pd.DataFrame:
    """HTA's frame of gap statistics, with gaps above zero only."""
    names = {"mean": "mean", "std": "std", "min": "min", "p25": "25%", "p50": "50%", "p75": "75%", "max": "max"}
    stats = gaps[["rank", "stream", "count"]].copy()
    for column, label in names.items():
        stats[label] = gaps[column] / PER_US
    stats["std"] = stats["std"].where(gaps["count"] > 1)  # HTA has none for a single gap.
    stats["device"] = gaps["device"]
    return stats.set_index(pd.Index(gaps["category"].str.replace(" ", "_"), name="idle_category"))
