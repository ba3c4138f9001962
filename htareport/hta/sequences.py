"""Frequent sequences of kernels under operators, under HTA's names."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.call_tree import work_under
from htareport.algorithms.sequences import numbers_of
from htareport.export.files import CopyFolder
from htareport.export.sequences import Pattern, write_patterns
from htareport.hta.ranks import LoadedRanks
from htareport.hta.units import PER_US
from htareport.rank import kernel_launches
from htareport.rank.host_calls import launching_rows
from htareport.rank.rank import Rank
from htareport.report import Chart, Mark, Unit

_COLUMNS = ("pattern", "count", "GPU kernel duration (us)", "CPU op duration (us)")


class Sequences(LoadedRanks):
    """Analysis of the order in which operators launch device work."""

    def get_frequent_cuda_kernel_sequences(
        self,
        operator_name: str,
        output_dir: str | Path | None = "",
        min_pattern_len: int = 3,
        rank: int = 0,
        top_k: int = 5,
        visualize: bool = False,
        compress_other_kernels: bool = True,
    ) -> pd.DataFrame:
        """Sequences of kernels under the calls whose name contains `operator_name`, most frequent first.

        As in HTA, of these calls (operators, annotations, runtime calls) only the outermost count, with the fewest
        ancestors, that launch at least `min_pattern_len` kernels, copies and fills; unlike in HTA the fewest on their
        thread, and Python functions are no calls. A pattern is the name of the call and those of all that is launched
        below it, in order of start. With `output_dir` the file overlaid_<name of the trace file> there marks the first
        `top_k` of them (see export.sequences.write_patterns); the chart shows as many.
        """
        trace = self.rank(rank)
        patterns = (
            _Patterns.under_operator(trace, operator_name, min_pattern_len) if operator_name else _Patterns.none()
        )
        if visualize and len(patterns.table):
            from htareport.render.charts.plotly import figure  # noqa: PLC0415  only who asks for pictures loads Plotly

            figure(_chart(patterns.table.head(top_k), operator_name)).show()
        if output_dir and len(patterns.table):
            folder = CopyFolder(Path(output_dir).expanduser(), [capture.path for capture in trace.captures])
            write_patterns(trace, folder, patterns.marked(trace, top_k), compress=compress_other_kernels)
        return patterns.table

    get_frequent_cuda_kernel_patterns = get_frequent_cuda_kernel_sequences  # As HTA's README calls it.


class _Patterns(NamedTuple):
    """The table of patterns, and of each call (row of the host table) the row of its pattern and its device events."""

    table: pd.DataFrame
    calls: NDArray[np.int64]
    rows: NDArray[np.int64]
    kernels: NDArray[np.int64]
    owners: NDArray[np.int64]

    @classmethod
    def none(cls) -> _Patterns:
        """Return an empty table."""
        empty = np.zeros(0, np.int64)
        return cls(pd.DataFrame(columns=_COLUMNS), empty, empty, empty, empty)

    @classmethod
    def under_operator(cls, rank: Rank, operator_name: str, min_kernels: int) -> _Patterns:
        """Return the patterns of kernels under some calls of a rank."""
        nodes, counts, kernel_time = _outermost_calls(rank, operator_name, min_kernels)
        if not len(nodes):
            return cls.none()
        kernels, owners = kernel_launches.kernels_under(rank, nodes, counts)
        codes, stop = rank.device_events["name"].cat.codes.to_numpy()[kernels], np.cumsum(counts)
        calls = pd.DataFrame(
            {
                "operator": kernel_launches.names_of(rank, nodes),
                "number": numbers_of(stop - counts, stop, codes),
                "first": stop - counts,
                "kernels": counts,
                "gpu": kernel_time,
                "cpu": rank.host.at("dur", nodes),
            }
        )
        groups = calls.groupby(["operator", "number"], sort=False)
        table = groups.agg(
            first=("first", "first"), kernels=("kernels", "first"), count=("gpu", "size"),
            gpu=("gpu", "sum"), cpu=("cpu", "sum"),
        ).reset_index()  # fmt: skip
        patterns = [
            "|".join(kernel_launches.texts(rank, [operator, *codes[first : first + length].tolist()]))
            for operator, first, length in zip(table["operator"], table["first"], table["kernels"], strict=True)
        ]
        values = (patterns, table["count"].to_numpy(), table["gpu"] / PER_US, table["cpu"] / PER_US)
        frame = pd.DataFrame(dict(zip(_COLUMNS, values, strict=True)))
        frame = frame.sort_values(["count", "pattern"], ascending=[False, True])
        table_row = np.empty(len(frame), np.int64)
        table_row[frame.index] = np.arange(len(frame))
        return cls(frame.reset_index(drop=True), nodes, table_row[groups.ngroup().to_numpy()], kernels, owners)

    def marked(self, rank: Rank, max_patterns: int) -> list[Pattern]:
        """Return the first patterns with the rows of their calls and device events."""
        marked = []
        for pattern_row, row in self.table.head(max_patterns).iterrows():
            positions = np.flatnonzero(self.rows == pattern_row)
            events = rank.device_events.iloc[self.kernels[np.isin(self.owners, positions)]]
            marked.append(Pattern(row["pattern"], int(row["count"]), [rank.host.frame(self.calls[positions]), events]))
        return marked


def _outermost_calls(
    rank: Rank, operator_name: str, min_kernels: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Outermost calls of a name on each thread: rows of the host, number of kernels below, sum of their durations."""
    host, events = rank.host, rank.device_events
    has_name = np.array([operator_name in name for name in rank.loaded.strings], np.bool_)
    candidates = np.flatnonzero(has_name[host["name"]]) if len(host) else np.zeros(0, np.int64)
    depth = host.at("depth", candidates)
    rows = launching_rows(host, events["launch"].to_numpy())
    work = work_under(host["parent"], rows, events["ts"].to_numpy(), events["end"].to_numpy())
    thread = pd.factorize(host.at("thread", candidates))[0]
    nodes = candidates[depth == pd.Series(depth).groupby(thread).transform("min").to_numpy()]
    nodes = nodes[work.num_kernels[nodes] >= max(min_kernels, 1)]
    return nodes, work.num_kernels[nodes], work.kernel_dur_sum[nodes]


def _chart(rows: pd.DataFrame, operator_name: str) -> Chart:
    return Chart(
        "patterns",
        f"Frequent sequences of kernels under {operator_name}",
        Mark.BAR,
        rows,
        "count",
        "pattern",
        x_label="calls",
        x_unit=Unit.COUNT,
        y_unit=Unit.NAME,
        caption="Calls with just these kernels.",
    )
