"""Kernels and device work by operator and annotation, under HTA's names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.analyses.kernels.operator_kernels import OperatorKernels
from htareport.analyses.time.annotations import Annotations
from htareport.hta.ranks import LoadedRanks
from htareport.hta.units import DURATION_LABELS, PER_US, PERCENTILE_LABELS
from htareport.rank import kernel_launches, kernel_stats
from htareport.rank.annotations import annotation_of, device_annotations, host_annotations
from htareport.rank.host_calls import innermost
from htareport.rank.operator_calls import operator_calls
from htareport.rank.rank import Rank
from htareport.render import kernel_names

_ATEN = "aten::"
_DELAYS = {"op_delay": "avg_aten_op_launch_delay", "launch_delay": "avg_runtime_delay"}


class Operators(LoadedRanks):
    """Analyses of the device work of operators and annotations."""

    def get_aten_op_kernels_and_delay(
        self, ranks: list[int] | None = None, sort_by: Sequence[str] | None = None, visualize: bool = False
    ) -> dict[int, pd.DataFrame]:
        """Kernels launched by each operator with the mean delays (µs) of the first: by rank, in order of `sort_by`.

        The operator is the innermost aten:: one that encloses the launch, on its thread. As in HTA, copies and fills
        are no kernels here.
        """
        tables = {}
        for rank in self.selected_ranks(ranks):
            table = _aten_operators(rank)
            columns = [*(sort_by or ["occurrence_count"])]
            tables[rank.rank] = table.sort_values(columns, ascending=False, kind="stable", ignore_index=True)
        if visualize:
            analysis = OperatorKernels()
            self.show(analysis, self.mapped(analysis, ranks), "top", visualize=True)
        return tables

    def get_gpu_kernels_with_user_annotations(
        self, rank: int, expand_names: bool = True, shorten_names: bool = True
    ) -> pd.DataFrame | None:
        """The device events of a rank with the annotation that each belongs to; None if the trace has no annotations.

        It is the innermost one of the host that encloses the launch (for autograd's own thread: on that of the forward
        pass), else the innermost of the device that encloses the start; `annotation_stack` has its ancestors too,
        outermost first. Names are text; `expand_names` adds HTA's columns s_name, s_cat and s_user_annotation, which
        `shorten_names` makes short.
        """
        trace = self.rank(rank)
        on_host, on_device = host_annotations(trace), device_annotations(trace)
        if not len(on_host) and not len(on_device):
            return None
        events = trace.device_events
        owners = annotation_of(trace, on_host, on_device)
        stacks = _stacks(trace, on_host, owners.host)
        device_names = on_device["name"].to_numpy()[owners.device[owners.device >= 0]]
        stacks.loc[owners.device >= 0] = pd.Series(kernel_launches.texts(trace, device_names), dtype=object).to_numpy()
        categories = np.array([*trace.loaded.tables, ""], object)
        start = self.run.start_ns
        frame = pd.DataFrame(
            {
                "cat": categories[events["source"]],
                "name": events["name"].astype(object),
                "pid": events["device"],
                "tid": events["stream"],
                "ts": (events["ts"] - start) / PER_US,
                "dur": events["dur"] / PER_US,
                "end": (events["end"] - start) / PER_US,
                "stream": events["stream"],
                "device": events["device"],
                "correlation": events["correlation"],
                "iteration": events["step"],
                "user_annotation": pd.Series(
                    [stack and stack.rpartition(_SEPARATOR)[2] for stack in stacks.tolist()], dtype=object
                ),
                "annotation_stack": stacks,
            }
        )
        if expand_names:
            for column in ("name", "cat", "user_annotation"):
                labels = {
                    text: kernel_names.short(text) if shorten_names else text
                    for text in frame[column].dropna().unique()
                }
                frame[f"s_{column}"] = frame[column].map(labels)
        return frame

    def get_gpu_user_annotation_breakdown(
        self,
        use_gpu_annotation: bool = True,
        visualize: bool = False,
        duration_ratio: float = 0.8,
        num_kernels: int = 1000,
        allowlist_patterns: list[str] | None = None,
        image_renderer: str | None = None,
    ) -> pd.DataFrame | None:
        """Statistics of single annotations by name and rank; None without annotations.

        By rank the names of largest sum until they cover `duration_ratio` of it or are `num_kernels`; all others are
        one row "others", except names that match one of the regular expressions.
        """
        allowed = [re.compile(pattern) for pattern in allowlist_patterns or ()]
        stats = []
        for rank in self.ranks_loaded.values():
            annotations = device_annotations if use_gpu_annotation else host_annotations
            rows = annotations(rank)
            name = pd.Series(rank.names(rows["name"].to_numpy(np.int32)).astype(object), dtype=object)
            if len(rows):
                stats.append(_annotation_statistics(name, rows["dur"], allowed, num_kernels, duration_ratio, rank.rank))
        if not stats:
            return None
        if visualize:
            analysis = Annotations()
            side = "device" if use_gpu_annotation else "host"
            frames = self.mapped(analysis)
            for chart in (side, "durations", "ranks"):
                self.show(analysis, frames, chart, visualize=True, renderer=image_renderer or "")
        return pd.concat(stats).sort_values(["rank", "name"], ignore_index=True)


_SEPARATOR = " > "


def _aten_operators(rank: Rank) -> pd.DataFrame:
    events, host = rank.device_events, rank.host
    aten_names = np.array([name.startswith(_ATEN) for name in rank.loaded.strings], np.bool_)
    is_aten = host.of_level("operator") & aten_names[host["name"]]
    aten = kernel_launches.around(rank, innermost(host, is_aten))
    calls = operator_calls(rank, aten, (events["kind"] != "memory").to_numpy())
    groups = calls.sequences.groupby(["operator", "number"], sort=False)
    table = groups.agg(
        first=("first", "first"), stop=("stop", "first"), count=("row", "size"),
        op_delay=("op_delay", "mean"), launch_delay=("launch_delay", "mean"), device=("device", "sum"),
    ).reset_index()  # fmt: skip
    sequences = [
        " -> ".join(kernel_launches.texts(rank, calls.codes[first:stop].tolist()))
        for first, stop in zip(table["first"], table["stop"], strict=True)
    ]
    kernels = pd.DataFrame({"aten_op_name": pd.Series(kernel_launches.texts(rank, table["operator"]), dtype=object)})
    kernels["kernel_sequence"] = pd.Series(sequences, dtype=object)
    kernels["occurrence_count"] = table["count"]
    for column, label in _DELAYS.items():
        kernels[label] = (table[column] / PER_US).round(3)
    kernels["GPU kernel duration (us)"] = table["device"] / PER_US
    return kernels.sort_values(["aten_op_name", "kernel_sequence"], ignore_index=True)


def _stacks(rank: Rank, on_host: pd.DataFrame, owner: NDArray[np.int64]) -> pd.Series[Any]:
    """Names of the annotation of each device event and its ancestors, outermost first; None for none."""
    parent, name = on_host["parent"], on_host["name"]
    texts = {}
    for row in unique_sorted(owner[owner >= 0]).tolist():
        stack, ancestor = [], row
        while ancestor >= 0:
            stack.append(int(name[ancestor]))
            ancestor = int(parent[ancestor])
        texts[row] = _SEPARATOR.join(reversed(kernel_launches.texts(rank, stack)))
    return pd.Series([texts.get(row) for row in owner.tolist()], dtype=object)


def _annotation_statistics(
    names: pd.Series[Any], times: pd.Series[Any], allowed: list[re.Pattern[str]], limit: int, share: float, rank: int
) -> pd.DataFrame:
    sums = times.groupby(names).sum().rename("sum").rename_axis("name").reset_index().assign(kind="")
    sums = sums.sort_values(["sum", "name"], ascending=[False, True], ignore_index=True)
    shown = set(sums["name"][kernel_stats.top_names(sums, limit, share)])
    shown |= {text for text in sums["name"] if any(pattern.search(text) for pattern in allowed)}
    groups = times.groupby(names.where(names.isin(list(shown)), "others"))
    table_stats = groups.agg(["sum", "max", "min", "std", "mean"]).fillna({"std": 0.0})
    table_stats["p50"], table_stats["p95"] = groups.quantile(0.5), groups.quantile(0.95)
    table = pd.DataFrame({"name": table_stats.index.to_numpy(object)})
    for column, label in DURATION_LABELS.items():
        table[label] = table_stats[column].to_numpy() / PER_US
    table["rank"] = rank
    table["count"] = groups.size().to_numpy()
    for column, label in PERCENTILE_LABELS.items():
        table[label] = table_stats[column].to_numpy() / PER_US
    return table
