"""Who comes when to collectives, seen in frames of events alone; and straggler finders of either kind."""

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
    """Return the kernels of a frame that communicate, by their name or their collective."""
    work = df[df["stream"] >= 0]
    names = [name for name in work["name"].unique() if CommunicateKernelGroupingPattern.match(str(name))]
    is_one = work["name"].isin(names)
    if "collective_name" in work:
        is_one |= work["collective_name"] != ""
    return work[is_one]


def late_ranks(df: pd.DataFrame) -> list[int]:
    """Return the ranks that are late to collectives by more than chance, most late first.

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
    second = starts.transform(lambda each: each.nlargest(2).iloc[-1])
    is_last = start == starts.transform("max")
    times = df.groupby(["rank", "iteration"])["ts"].agg(lambda each: each.max() - each.min()) * PER_US
    spent = times.reindex(pd.MultiIndex.from_frame(rows[["rank", "iteration"]])).to_numpy()
    arrivals = pd.DataFrame(
        {
            "collective": groups.ngroup(),
            "rank": rows["rank"],
            "step": rows["iteration"],
            "ranks": groups["rank"].transform("nunique"),
            "margin": (start - second).where(is_last, 0),
            "transfer": ends.transform("min") - starts.transform("max"),
            "spread": ends.transform("max") - ends.transform("min"),
            "step_time": spent,
        }
    )
    return significant(arrivals)


def found_by(finder: Callable[..., Any], arrivals: pd.DataFrame, for_htas: Callable[[], tuple[Any, ...]]) -> list[int]:
    """Ask a finder of stragglers: one of ours takes arrivals alone, one of HTA's what `for_htas` gives."""
    parameters = inspect.signature(finder).parameters
    needed = [parameter for parameter in parameters.values() if parameter.default is parameter.empty]
    is_htas = len(needed) > 1 or "symbol_table" in parameters
    found = finder(*for_htas()) if is_htas else finder(arrivals)
    if isinstance(found, pd.Series):
        late = found[found > 0].sort_values(ascending=False, kind="stable")
        return [int(rank) for rank in late.index]
    return [int(rank) for rank in found]
