"""Links within a frame of events: launches, profiler steps, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.hta.common.trace_df import host_rows
from htareport.hta.common.trace_symbol_table import TraceSymbolTable
from htareport.hta.units import PER_US
from htareport.rank.launch_links import launches_of
from htareport.rank.steps import step_of
from htareport.rows.classify import ANNOTATION_CATEGORIES, step_number

_NONE = -1


def transform_correlation_to_index(df: pd.DataFrame, symbol_table: TraceSymbolTable | None = None) -> pd.DataFrame:
    """Add index_correlation: the launch of device work, the first device work of a launch; -1 for all else."""
    del symbol_table  # Names are text.
    host, device = _in_time(host_rows(df)), _in_time(df[df["stream"] >= 0])
    one = np.zeros(len(df), np.int64)  # All of one capture.
    ids, launched = (rows["correlation"].to_numpy(np.int64) for rows in (device, host))
    launch = launches_of(ids, one[: len(ids)], launched, one[: len(launched)])
    linked = launch != _NONE
    launches, work = host.index.to_numpy()[launch[linked]], device.index.to_numpy()[linked]
    index = df["index"]
    df["index_correlation"] = _NONE
    df.loc[launches[::-1], "index_correlation"] = index.loc[work[::-1]].to_numpy()  # The first is written last.
    df.loc[work, "index_correlation"] = index.loc[launches].to_numpy()
    return df


def _in_time(rows: pd.DataFrame) -> pd.DataFrame:
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
    found = {name: step_number(str(name)) for name in df["name"].unique()}
    rows = df[df["name"].map(found).notna() & ~df["cat"].isin(ANNOTATION_CATEGORIES) & (df["stream"] < 0)]
    starts = _nanoseconds(rows["ts"])
    steps = pd.DataFrame({"number": rows["name"].map(found).to_numpy(np.int64), "start": starts})
    steps["end"] = starts + _nanoseconds(rows["dur"])
    steps = steps.sort_values("start", ignore_index=True).drop_duplicates("number", ignore_index=True)
    follows = steps["number"].diff(-1) == -1
    steps["end"] = steps["end"].where(~follows, steps["start"].shift(-1)).astype("int64")
    launched = df["index_correlation"].where(df["stream"] >= 0, _NONE) if "index_correlation" in df else _NONE
    begun = df.set_index("index")["ts"].reindex(pd.Series(launched, df.index)).to_numpy()
    df["iteration"] = step_of(steps, _nanoseconds(df["ts"].where(np.isnan(begun), begun))).astype(np.int64)
    return df


def _nanoseconds(column: pd.Series[Any]) -> NDArray[np.int64]:
    return np.rint(column.to_numpy(np.float64) * PER_US).astype(np.int64)


def add_fwd_bwd_links(df: pd.DataFrame) -> None:
    """Add fwdbwd (0: forward operator, 1: outermost backward one, -1: neither) and fwdbwd_index (its counterpart).

    They share the sequence number (column `sequence`, for which the parser configuration has to ask, as for
    fwd_thread_id). Of several operators of one number on a thread the last to start is the forward one.
    """
    df["fwdbwd"] = df["fwdbwd_index"] = _NONE
    if not {"sequence", "fwd_thread_id"} <= set(df):
        raise ValueError("add_fwd_bwd_links: the frame lacks the columns sequence and fwd_thread_id")
    rows = df[(df["sequence"] >= 0) & (df["stream"] < 0)].sort_values("ts", kind="stable")
    back = rows[rows["fwd_thread_id"] > 0].drop_duplicates(["tid", "sequence"])
    forward = rows[rows["fwd_thread_id"] <= 0].drop_duplicates(["tid", "sequence"], keep="last")
    pairs = back.merge(forward, on="sequence", suffixes=("", "_forward"))
    pairs = pairs[pairs["ts_forward"] < pairs["ts"]]
    threads = pairs.value_counts(
        ["fwd_thread_id", "tid_forward"]
    ).reset_index()  # The trace numbers them in its own way:
    threads = threads.drop_duplicates("fwd_thread_id")  # where most of the numbers are found is meant.
    pairs = pairs.merge(threads[["fwd_thread_id", "tid_forward"]], on=["fwd_thread_id", "tid_forward"])
    for kind, own, other in ((0, "index_forward", "index"), (1, "index", "index_forward")):
        partner = pairs.drop_duplicates(own).set_index(own)[other]
        chosen = df.index[df["index"].isin(partner.index)]
        df.loc[chosen, "fwdbwd"] = kind
        df.loc[chosen, "fwdbwd_index"] = partner.loc[df.loc[chosen, "index"]].to_numpy()
