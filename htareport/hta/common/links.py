"""Columns that link rows of a frame: device work and its launch, profiler steps, forward and backward operators."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htareport.hta.common.trace_df import host_rows
from htareport.hta.common.trace_symbol_table import TraceSymbolTable
from htareport.hta.units import nanoseconds
from htareport.rank.launch_links import launches_of
from htareport.rank.steps import step_of
from htareport.rows.classify import ANNOTATION_CATEGORIES, step_number

_MISSING = -1


def transform_correlation_to_index(df: pd.DataFrame, symbol_table: TraceSymbolTable | None = None) -> pd.DataFrame:
    """Add index_correlation: the launch of device work, the first device work of a launch; -1 for all else."""
    del symbol_table  # Names are text.
    host, device = _sorted_by_time(host_rows(df)), _sorted_by_time(df[df["stream"] >= 0])
    capture = np.zeros(len(df), np.int64)  # A frame is of one.
    ids, host_ids = (rows["correlation"].to_numpy(np.int64) for rows in (device, host))
    launch_of = launches_of(ids, capture[: len(ids)], host_ids, capture[: len(host_ids)])
    is_linked = launch_of != _MISSING
    launches, kernels = host.index.to_numpy()[launch_of[is_linked]], device.index.to_numpy()[is_linked]
    index = df["index"]
    df["index_correlation"] = _MISSING
    df.loc[launches[::-1], "index_correlation"] = index.loc[kernels[::-1]].to_numpy()  # The first is written last.
    df.loc[kernels, "index_correlation"] = index.loc[launches].to_numpy()
    return df


def _sorted_by_time(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values("ts", kind="stable")


def get_cpu_gpu_correlation(df: pd.DataFrame) -> pd.DataFrame:
    """Return gpu_index and cpu_index of device work and its launch, for the rows that have one."""
    rows = df[(df["stream"] >= 0) & (df["index_correlation"] >= 0)]
    return pd.DataFrame({"gpu_index": rows["index"].to_numpy(), "cpu_index": rows["index_correlation"].to_numpy()})


def add_iteration(df: pd.DataFrame, symbol_table: TraceSymbolTable | None = None) -> pd.DataFrame:
    """Add iteration: number of the profiler step in which a row starts, or is launched; -1 outside.

    A step ends where the next one begins; device work without a launch belongs to the step in which it starts.
    """
    del symbol_table
    step_numbers = {name: step_number(str(name)) for name in df["name"].unique()}
    step_rows = df[df["name"].map(step_numbers).notna() & ~df["cat"].isin(ANNOTATION_CATEGORIES) & (df["stream"] < 0)]
    starts = nanoseconds(step_rows["ts"])
    steps = pd.DataFrame({"number": step_rows["name"].map(step_numbers).to_numpy(np.int64), "start": starts})
    steps["end"] = starts + nanoseconds(step_rows["dur"])
    steps = steps.sort_values("start", ignore_index=True).drop_duplicates("number", ignore_index=True)
    is_followed = steps["number"].diff(-1) == -1
    steps["end"] = steps["end"].where(~is_followed, steps["start"].shift(-1)).astype("int64")
    launches = df["index_correlation"].where(df["stream"] >= 0, _MISSING) if "index_correlation" in df else _MISSING
    launch_ts = df.set_index("index")["ts"].reindex(pd.Series(launches, df.index)).to_numpy()
    df["iteration"] = step_of(steps, nanoseconds(df["ts"].where(np.isnan(launch_ts), launch_ts))).astype(np.int64)
    return df


def add_fwd_bwd_links(df: pd.DataFrame) -> None:
    """Add fwdbwd (0: forward operator, 1: outermost backward one, -1: neither) and fwdbwd_index (its counterpart).

    They share the sequence number (column `sequence`, for which the parser configuration has to ask, as for
    fwd_thread_id). Of several operators of one number on a thread the last to start is the forward one.
    """
    df["fwdbwd"] = df["fwdbwd_index"] = _MISSING
    if not {"sequence", "fwd_thread_id"} <= set(df):
        raise ValueError("add_fwd_bwd_links: the frame lacks the columns sequence and fwd_thread_id")
    rows = df[(df["sequence"] >= 0) & (df["stream"] < 0)].sort_values("ts", kind="stable")
    backward = rows[rows["fwd_thread_id"] > 0].drop_duplicates(["tid", "sequence"])
    forward = rows[rows["fwd_thread_id"] <= 0].drop_duplicates(["tid", "sequence"], keep="last")
    pairs = backward.merge(forward, on="sequence", suffixes=("", "_forward"))
    pairs = pairs[pairs["ts_forward"] < pairs["ts"]]
    # Traces number forward threads in their own way: the thread that has most of an id's sequence numbers is meant.
    threads = pairs.value_counts(["fwd_thread_id", "tid_forward"]).reset_index().drop_duplicates("fwd_thread_id")
    pairs = pairs.merge(threads[["fwd_thread_id", "tid_forward"]], on=["fwd_thread_id", "tid_forward"])
    for direction, column, partner_column in ((0, "index_forward", "index"), (1, "index", "index_forward")):
        partner = pairs.drop_duplicates(column).set_index(column)[partner_column]
        labels = df.index[df["index"].isin(partner.index)]
        df.loc[labels, "fwdbwd"] = direction
        df.loc[labels, "fwdbwd_index"] = partner.loc[df.loc[labels, "index"]].to_numpy()
