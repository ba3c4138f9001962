"""Sequences of kernels under operators, under HTA's names."""

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
    """In which order operators launch what."""

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

        As in HTA, of these calls (operators, annotations, runtime calls) those count that have the fewest calls around
        them, and that launch at least `min_pattern_len` kernels, copies and fills; unlike in HTA the fewest on their
        thread, and Python functions are no calls. A pattern is the name of the call and those of all that is launched
        below it, in order of start. With `output_dir` the file overlaid_<name of the trace file> there marks the first
        `top_k` of them (see augment.sequences.write_patterns); so many the picture shows, too.
        """
        trace = self.rank(rank)
        frequent_cuda_kernel_sequences = (
            _Patterns.of(trace, operator_name, min_pattern_len) if operator_name else _Patterns.none()
        )
        if visualize and len(frequent_cuda_kernel_sequences.table):
            from htareport.render.charts.plotly import figure  # noqa: PLC0415  only who asks for pictures loads Plotly

            figure(_chart(frequent_cuda_kernel_sequences.table.head(top_k), operator_name)).show()
        if output_dir and len(frequent_cuda_kernel_sequences.table):
            folder = CopyFolder(Path(output_dir).expanduser(), [capture.path for capture in trace.captures])
            write_patterns(
                trace, folder, frequent_cuda_kernel_sequences.marked(trace, top_k), compress=compress_other_kernels
            )
        return frequent_cuda_kernel_sequences.table

    get_frequent_cuda_kernel_patterns = get_frequent_cuda_kernel_sequences  # As HTA's README calls it.


class _Patterns(NamedTuple):
    """The table, and for each call (row of the host table) the row of the table, and its device events."""

    table: pd.DataFrame
    calls: NDArray[np.int64]
    rows: NDArray[np.int64]
    kernels: NDArray[np.int64]
    owners: NDArray[np.int64]

    @classmethod
    def none(cls) -> _Patterns:
        """Return that there are none."""
        empty = np.zeros(0, np.int64)
        return cls(pd.DataFrame(columns=_COLUMNS), empty, empty, empty, empty)

    @classmethod
    def of(cls, trace: Rank, operator_name: str, fewest: int) -> _Patterns:
        """Find the patterns of a rank."""
        nodes, counts, kernel_time = _outermost_calls(trace, operator_name, fewest)
        if not len(nodes):
            return cls.none()
        kernels, owners = kernel_launches.kernels_under(trace, nodes, counts)
        codes, stop = trace.device_events["name"].cat.codes.to_numpy()[kernels], np.cumsum(counts)
        calls = pd.DataFrame(
            {
                "operator": kernel_launches.names_of(trace, nodes),
                "number": numbers_of(stop - counts, stop, codes),
                "first": stop - counts,
                "kernels": counts,
                "gpu": kernel_time,
                "cpu": trace.host.at("dur", nodes),
            }
        )
        groups = calls.groupby(["operator", "number"], sort=False)
        table = groups.agg(
            first=("first", "first"), kernels=("kernels", "first"), count=("gpu", "size"),
            gpu=("gpu", "sum"), cpu=("cpu", "sum"),
        ).reset_index()  # fmt: skip
        patterns = [
            "|".join(kernel_launches.texts(trace, [operator, *codes[first : first + length].tolist()]))
            for operator, first, length in zip(table["operator"], table["first"], table["kernels"], strict=True)
        ]
        values = (patterns, table["count"].to_numpy(), table["gpu"] / PER_US, table["cpu"] / PER_US)
        frame = pd.DataFrame(dict(zip(_COLUMNS, values, strict=True)))
        frame = frame.sort_values(["count", "pattern"], ascending=[False, True])
        place = np.empty(len(frame), np.int64)
        place[frame.index] = np.arange(len(frame))
        return cls(frame.reset_index(drop=True), nodes, place[groups.ngroup().to_numpy()], kernels, owners)

    def marked(self, trace: Rank, most: int) -> list[Pattern]:
        """Return the first patterns with the rows of their calls and device events."""
        marked = []
        for place, row in self.table.head(most).iterrows():
            mine = np.flatnonzero(self.rows == place)
            events = trace.device_events.iloc[self.kernels[np.isin(self.owners, mine)]]
            marked.append(Pattern(row["pattern"], int(row["count"]), [trace.host.frame(self.calls[mine]), events]))
        return marked


def _outermost_calls(
    trace: Rank, operator_name: str, fewest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Calls of the name with the fewest around them on their thread: rows of the host, kernels below, their time."""
    host, events = trace.host, trace.device_events
    holds = np.array([operator_name in name for name in trace.loaded.strings], np.bool_)
    candidates = np.flatnonzero(holds[host["name"]]) if len(host) else np.zeros(0, np.int64)
    depth = host.at("depth", candidates)
    rows = launching_rows(host, events["launch"].to_numpy())
    work = work_under(host["parent"], rows, events["ts"].to_numpy(), events["end"].to_numpy())
    thread = pd.factorize(host.at("thread", candidates))[0]
    nodes = candidates[depth == pd.Series(depth).groupby(thread).transform("min").to_numpy()]
    nodes = nodes[work.num_kernels[nodes] >= max(fewest, 1)]
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
