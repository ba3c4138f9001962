"""Launch statistics, queue lengths, memory bandwidth and counters of kernels, under HTA's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Flag, auto
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from htareport.algorithms import series
from htareport.analyses.host.launch_stats import LaunchStats, launch_rows
from htareport.analyses.host.queue_length import without_pauses
from htareport.analyses.kernels.cupti_counters import counter_rows
from htareport.export.counters import write_counters
from htareport.export.files import CopyFolder
from htareport.hta.ranks import LoadedRanks
from htareport.hta.units import PER_US
from htareport.rank.bandwidth import bandwidth_levels
from htareport.rank.capability import Capability
from htareport.rank.queue import queue_series
from htareport.rank.rank import Rank

_COPIES = r"Memcpy|Memset|memcpy|memset"
_QUANTILES = {"25%": 0.25, "50%": 0.5, "75%": 0.75}
_SUMMARY = ("count", "mean", "std", "min", *_QUANTILES, "max")


class TimeSeriesTypes(Flag):
    """Series that become counter tracks."""

    QUEUE_LENGTH = auto()
    MEMCPY_BANDWIDTH = auto()


class Counters(LoadedRanks):
    """Analyses of launches, queue lengths, memory copies and hardware counters."""

    def get_cuda_kernel_launch_stats(
        self,
        ranks: list[int] | None = None,
        runtime_cutoff: float = 50,
        launch_delay_cutoff: float = 100,
        include_memory_events: bool = True,
        visualize: bool = False,
    ) -> dict[int, pd.DataFrame]:
        """One row per launch with device work, in order of start; the cut-offs (µs) are those of the charts."""
        stats_by_rank = {}
        for rank in self.selected_ranks(ranks):
            rows = launch_rows(rank)
            if not include_memory_events:
                rows = rows[~rows["call"].str.contains(_COPIES)]
            stats_by_rank[rank.rank] = pd.DataFrame(
                {
                    "correlation": rows["correlation"],
                    "cpu_duration": rows["cpu"] / PER_US,
                    "gpu_duration": rows["gpu"] / PER_US,
                    "launch_delay": rows["delay"] / PER_US,
                    "name": rows["name"],
                    "device": rows["device"],
                    "stream": rows["stream"],
                    "graph": rows["graph"],
                    "call": rows["call"],
                }
            )
        analysis = LaunchStats(runtime_cutoff=runtime_cutoff, launch_delay_cutoff=launch_delay_cutoff)
        frames = self.mapped(analysis, ranks) if visualize else {}
        for chart in ("short", "long_call", "long_delay"):
            self.show(analysis, frames, chart, visualize=visualize)
        return stats_by_rank

    def get_cupti_counter_data_with_operators(self, ranks: list[int] | None = None) -> list[pd.DataFrame]:
        """One frame per rank with counters of CUPTI's range profiler, a row for each kernel, counters as columns.

        `dur` is in µs; `op_stack` has the operators that enclose the launch, outermost first. If there are not as
        many ranges as launches, the counters have no operators.
        """
        frames = []
        for rank in self.selected_ranks(ranks):
            if Capability.CUPTI not in rank.capabilities:
                continue
            rows = counter_rows(rank)
            frame = rows[["name", "call", "correlation", *rows.attrs["counters"]]].copy()
            frame.insert(1, "ts", self._relative(rows["ts"]))
            frame.insert(2, "dur", rows["dur"] / PER_US)
            frame["op_stack"] = rows["op_stack"]
            for name in ("top_level_op", "bottom_level_op"):
                frame[name] = rows[name].where(rows[name] != "", None)
            frame["flops"], frame["dram_bytes"], frame["arithmetic_intensity"] = (
                rows[name] for name in ("flops", "dram", "intensity")
            )
            frames.append(frame)
        return frames

    # --- queues -----------------------------------------------------------------------------

    def get_queue_length_time_series(self, ranks: list[int] | None = None) -> dict[int, pd.DataFrame]:
        """Length of each stream's queue after each change; ranks without linked launches are left out."""
        series_by_rank = {}
        for rank in self.selected_ranks(ranks):
            points = queue_series(rank)
            if len(points):
                frame = pd.DataFrame(
                    {"ts": self._relative(points["ts"]), "pid": points["device"], "tid": points["stream"]}
                )
                details = points[["stream", "queue_length", "device", "capture"]]
                series_by_rank[rank.rank] = frame.join(details)
        return series_by_rank

    def get_queue_length_summary(self, ranks: list[int] | None = None) -> pd.DataFrame | None:
        """Statistics of the queue length by rank and stream, weighted by time; None without linked launches."""
        return self.get_queue_length_summary_from_time_series(self.get_queue_length_time_series(ranks))

    def get_queue_length_summary_from_time_series(
        self, queue_length_dict: dict[int, pd.DataFrame]
    ) -> pd.DataFrame | None:
        """Statistics of the queue length as get_queue_length_summary, from given time series."""
        return summary_of_queues(queue_length_dict)

    def get_time_spent_blocked_on_full_queue(
        self, queue_length_dict: dict[int, pd.DataFrame], max_queue_length: int = 1024
    ) -> pd.DataFrame:
        """Time (µs) for which each stream's queue is full, and that relative to the time recorded on the rank."""
        rows: list[dict[str, Any]] = []
        for rank, frame in queue_length_dict.items():
            trace = self.rank(rank)
            recorded = ((trace.end_ns or 0) - (trace.start_ns or 0)) / PER_US
            for stream, stamps, length in _queues(frame):
                full = float(np.diff(stamps)[length[:-1] >= max_queue_length].sum())
                if full:
                    share = full / recorded if recorded else np.nan
                    rows.append({"rank": rank, "stream": stream, _FULL: full, f"relative_{_FULL}": share})
        return pd.DataFrame(rows, columns=["rank", "stream", _FULL, f"relative_{_FULL}"])

    # --- augmented files --------------------------------------------------------------------

    def generate_trace_with_counters(
        self,
        time_series: TimeSeriesTypes | None = None,
        ranks: list[int] | None = None,
        output_suffix: str = "_with_counters",
        output_dir: str | Path | None = None,
    ) -> list[str]:
        """Write copies of the ranks' files with counters of some series (both by default); return their paths.

        By default the folder is next to that of the traces, with the suffix added to its name, as to those of the
        files. Ranks that have neither series get no file. UsageError if it is the folder of the traces.
        """
        kinds = time_series or TimeSeriesTypes.QUEUE_LENGTH | TimeSeriesTypes.MEMCPY_BANDWIDTH
        selected = self.selected_ranks(ranks)
        files = [capture.path for rank in selected for capture in rank.captures]
        trace_folder = Path(files[0]).absolute().parent
        folder = CopyFolder(output_dir or trace_folder.with_name(f"{trace_folder.name}{output_suffix}"), files)
        queues, bandwidth = TimeSeriesTypes.QUEUE_LENGTH in kinds, TimeSeriesTypes.MEMCPY_BANDWIDTH in kinds
        return [
            str(path)
            for rank in selected
            for path in write_counters(rank, folder, output_suffix, queues=queues, bandwidth=bandwidth)
        ]

    # --- copies -----------------------------------------------------------------------------

    def get_memory_bw_time_series(self, ranks: list[int] | None = None) -> dict[int, pd.DataFrame]:
        """Summed bandwidth (GB/s) of concurrent copies after each change, by kind; ranks without any are left out."""
        series_by_rank = {}
        for rank in self.selected_ranks(ranks):
            frames = [
                pd.DataFrame({"ts": self._relative(stamps), "pid": device, "name": kind, "memory_bw_gbps": level / 1e9})
                for (kind, device), stamps, level in _bandwidth(rank)
            ]
            if frames:
                series_by_rank[rank.rank] = pd.concat(frames, ignore_index=True)
        return series_by_rank

    def get_memory_bw_summary(self, ranks: list[int] | None = None) -> pd.DataFrame | None:
        """Statistics of the bandwidth by rank and kind, weighted by time over the part where it is above zero."""
        rows = {}
        for rank in self.selected_ranks(ranks):
            for (kind, _), stamps, level in _bandwidth(rank):
                rows[rank.rank, kind] = _time_weighted(stamps, level / 1e9, busy_only=True)
        return _summary_frame(rows, ["rank", "name"], "memory_bw_gbps") if rows else None

    def _relative(self, stamps: Iterable[int]) -> np.ndarray[Any, Any]:
        """Stamps in µs from the earliest start of a complete event on any rank."""
        return (np.asarray(stamps, np.int64) - self.run.start_ns) / PER_US


_FULL = "duration_at_max_queue_length"


def summary_of_queues(queue_length_dict: dict[int, pd.DataFrame]) -> pd.DataFrame | None:
    """Statistics of queue lengths by rank and stream, weighted by time; None without any."""
    rows = {
        (rank, stream): _time_weighted(stamps, length)
        for rank, frame in queue_length_dict.items()
        for stream, stamps, length in _queues(frame)
    }
    return _summary_frame(rows, ["rank", "stream"], "queue_length") if rows else None


def _queues(frame: pd.DataFrame) -> Iterator[tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Stream, stamps without the time between captures, and lengths of each queue of a time series.

    Streams of several devices with the same number are named device/stream.
    """
    devices = frame.groupby("stream")["pid"].nunique().to_dict()
    for (device, stream), points in frame.groupby(["pid", "stream"], sort=False):
        stamps, length = points["ts"].to_numpy(), points["queue_length"].to_numpy()
        if "capture" in points:
            stamps = without_pauses(stamps, points["capture"].to_numpy())
        yield (stream if devices[stream] == 1 else f"{device}/{stream}"), stamps, length


def _bandwidth(rank: Rank) -> Iterator[tuple[tuple[str, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Kind and device, stamps and levels of each kind of copy with a bandwidth."""
    for kind, copies in rank.copies.groupby("copy_kind", sort=True):
        captures = [bandwidth_levels(capture_copies)[:2] for _, capture_copies in copies.groupby("capture")]
        stamps, level = (np.concatenate(values) for values in zip(*captures, strict=True))
        if level.any():
            yield (str(kind), copies["device"].iloc[0]), stamps, level


def _time_weighted(
    stamps: np.ndarray[Any, Any], level: np.ndarray[Any, Any], *, busy_only: bool = False
) -> dict[str, float]:
    """HTA's statistics, weighted by the time for which each value lasts; `count` is that of the changes."""
    stats = series.time_weighted(stamps, level, tuple(_QUANTILES.values()), busy_only=busy_only)
    quantiles = dict(zip(_QUANTILES, stats.quantiles, strict=True))
    moments = {"mean": stats.mean, "std": stats.std, "min": stats.min, "max": stats.max}
    return {"count": float(len(level)), **moments, **quantiles}


def _summary_frame(rows: dict[Any, dict[str, float]], index: list[str], title: str) -> pd.DataFrame:
    columns = pd.MultiIndex.from_product([[title], _SUMMARY])
    keys = pd.MultiIndex.from_tuples(list(rows), names=index)
    return pd.DataFrame([[row[name] for name in _SUMMARY] for row in rows.values()], index=keys, columns=columns)
