"""Profiler steps by rank, and stragglers found in frames of events."""

from __future__ import annotations

import pandas as pd

from htareport.hta.common.trace import Trace
from htareport.hta.common.trace_symbol_table import TraceSymbolTable
from htareport.hta.late_starts import collectives_of, late_ranks
from htareport.hta.units import PER_US


def extract_iteration_info(trace: Trace) -> pd.DataFrame:
    """Return profiler_step, ts, dur and end (µs) of each profiler step, indexed by rank and iter (its number)."""
    origin_ns, frames = trace.run.start_ns, []
    for rank in sorted(trace.run.load()):
        steps = trace.rank(rank).steps
        rows = pd.DataFrame({"rank": rank, "iter": steps["number"], "profiler_step": steps["number"]})
        rows["ts"], rows["end"] = (steps["start"] - origin_ns) / PER_US, (steps["end"] - origin_ns) / PER_US
        frames.append(rows.assign(dur=rows["end"] - rows["ts"]))
    columns = ["profiler_step", "ts", "dur", "end"]
    return pd.concat(frames, ignore_index=True).set_index(["rank", "iter"])[columns]


def find_stragglers_with_late_start_comm_kernels(
    df: pd.DataFrame, symbol_table: TraceSymbolTable | None = None, n_stragglers: int = 2, visualize: bool = False
) -> pd.Series[int]:
    """Return 1 for each rank of a frame (with the column `rank`) that starts collectives late, 0 for the others.

    The clocks of ranks are taken as they are; get_potential_stragglers aligns them first. At most `n_stragglers` are
    named, and none whose lateness may be chance. With `visualize` the ranks' timelines of collectives are shown.
    """
    del symbol_table  # Names are text.
    late = late_ranks(df)[: max(1, n_stragglers)]
    if visualize:
        from htareport.hta.analyzers.timeline import plot_timeline_gpu_kernels  # noqa: PLC0415  for pictures only

        plot_timeline_gpu_kernels("Collectives by rank", collectives_of(df))
    ranks = sorted(df["rank"].unique().tolist())
    return pd.Series([int(rank in late) for rank in ranks], pd.Index(ranks, name="rank"))
