"""Finds ranks that are late to collectives in frames of events, and runs straggler finders of HTA's or our kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from htareport.hta.common.types import CommunicateKernelGroupingPattern
from htareport.hta.units import PER_US
from htareport.job.arrivals import significant

_KEY = ["iteration", "name", "instance"]


def collectives_of(df: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels of a frame that communicate, by their name or the name of their collective."""
    kernels = df[df["stream"] >= 0]
    names = [name for name in kernels["name"].unique() if CommunicateKernelGroupingPattern.match(str(name))]
    is_collective = kernels["name"].isin(names)
    if "collective_name" in kernels:
        is_collective |= kernels["collective_name"] != ""
    return kernels[is_collective]


def late_ranks(df: pd.DataFrame) -> list[int]:
    """Return the ranks that are late to collectives by more than chance, latest first.

    The nth kernel of a name in a step is the same collective on all ranks that have it.
    """
    rows = collectives_of(df).sort_values("ts", kind="stable")
    rows = rows.assign(instance=rows.groupby(["rank", "iteration", "name"]).cumcount())
    rows = rows[rows.groupby(_KEY)["rank"].transform("nunique") > 1]
    if not len(rows):
        return []
    groups = rows.groupby(_KEY)
    start = np.rint(rows["ts"] * PER_US).astype("int64")
    end = start + np.rint(rows["dur"] * PER_US).astype("int64")
    starts, ends = start.groupby([rows[name] for name in _KEY]), end.groupby([rows[name] for name in _KEY])
    second_latest = starts.transform(lambda stamps: stamps.nlargest(2).iloc[-1])
    is_last = start == starts.transform("max")
    spans = df.groupby(["rank", "iteration"])["ts"].agg(lambda stamps: stamps.max() - stamps.min()) * PER_US
    step_times = spans.reindex(pd.MultiIndex.from_frame(rows[["rank", "iteration"]])).to_numpy()
    arrivals = pd.DataFrame(
        {
            "collective": groups.ngroup(),
            "rank": rows["rank"],
            "step": rows["iteration"],
            "ranks": groups["rank"].transform("nunique"),
            "margin": (start - second_latest).where(is_last, 0),
            "transfer": ends.transform("min") - starts.transform("max"),
            "spread": ends.transform("max") - ends.transform("min"),
            "step_time": step_times,
        }
    )
    return significant(arrivals)


def run_finder(finder: Callable[..., Any], arrivals: pd.DataFrame, events: Callable[[], tuple[Any, ...]]) -> list[int]:
    """Return the stragglers of a finder: one of ours takes arrivals, one of HTA's the result of `events`."""
    parameters = inspect.signature(finder).parameters
    required = [parameter for parameter in parameters.values() if parameter.default is parameter.empty]
    takes_events = len(required) > 1 or "symbol_table" in parameters
    stragglers = finder(*events()) if takes_events else finder(arrivals)
    if isinstance(stragglers, pd.Series):
        late = stragglers[stragglers > 0].sort_values(ascending=False, kind="stable")
        return [int(rank) for rank in late.index]
    return [int(rank) for rank in stragglers]
