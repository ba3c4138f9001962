"""In what one rank spends more time than the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd

from htareport.rank.own_work import COPIES, IDLE_CAUSES, MORE, OTHER_KERNELS, SLOWER, OwnWork

_MIN_SHARE = 0.01  # Of its compute: a kernel that counts in how evenly a rank is slower.
_EVEN_SPREAD = 0.25  # Of the median ratio's excess: how far apart the quartiles are of ranks whose device is slow.


@dataclass(frozen=True)
class KernelDifference:
    """A kernel of a rank against the others: additional ns per step, and calls per step here and usually."""

    name: str
    more_ns: float
    calls: float
    usual_calls: float


@dataclass(frozen=True)
class ComputeDifference:
    """How the compute kernels of a rank differ from those of the others, per step."""

    ratio: float  # How many times as long they take.
    is_even: bool  # Whether all kernels are slower by the same factor.
    count: float
    usual_count: float
    slowest: KernelDifference
    additional: KernelDifference


@dataclass(frozen=True)
class Difference:
    """In what a rank differs most from the others: ns per step more than their median, and what that consists of."""

    cause: str
    more_ns: float
    compute: ComputeDifference | None  # Where the cause is kernels,
    names: list[tuple[str, float]]  # else host rows that fill the idle time, with ns per step.


def difference(work_by_rank: Mapping[int, OwnWork], rank: int) -> Difference:
    """Return in what a rank spends more time than the median of the others, the most of several."""
    own, others = work_by_rank[rank], [work for other, work in work_by_rank.items() if other != rank]
    more = {name: own.idle_ns[name] - median(work.idle_ns[name] for work in others) for name in IDLE_CAUSES}
    more[COPIES] = own.copies_ns - median(work.copies_ns for work in others)
    kernels = _compared(own.kernel_table(), [work.kernel_table() for work in others])
    slower_ns, additional_ns = float(kernels["slower"].sum()), float(kernels["additional"].sum())
    by_kernels = SLOWER if slower_ns >= additional_ns else MORE
    more[by_kernels] = own.compute_ns - median(work.compute_ns for work in others)
    cause = max(more, key=lambda name: more[name])
    if cause == by_kernels:
        return Difference(cause, more[cause], _compute_difference(kernels), [])
    return Difference(cause, more[cause], None, own.names.get(cause, []))


def _compared(own: pd.DataFrame, others: list[pd.DataFrame]) -> pd.DataFrame:
    """Kernels of a rank and the medians of others: time that is due to slower calls, and to additional calls."""
    names = own.index.union(pd.Index(np.concatenate([table.index for table in others])).unique(), sort=False)
    stacked = [table.reindex(names, fill_value=0.0) for table in others]
    usual = {name: np.median([table[name].to_numpy() for table in stacked], axis=0) for name in ("count", "time")}
    table = own.reindex(names, fill_value=0.0).assign(usual_count=usual["count"], usual_time=usual["time"])
    on_both = (table["count"] > 0) & (table["usual_count"] > 0)
    mean = (table["time"] / table["count"]).where(on_both)
    usual_mean = (table["usual_time"] / table["usual_count"]).where(on_both)
    slower = (table["count"] * (mean - usual_mean)).fillna(0.0)
    return table.assign(ratio=mean / usual_mean, slower=slower, additional=table["time"] - table["usual_time"] - slower)


def _compute_difference(table: pd.DataFrame) -> ComputeDifference:
    """How many and how slow kernels are against the others, whether all by the same factor, and which stands out."""
    compared = table[table["ratio"].notna() & (table["time"] >= _MIN_SHARE * table["time"].sum())]
    ratios = compared["ratio"].to_numpy()
    low, middle, high = np.percentile(ratios, [25, 50, 75]) if len(ratios) else (np.nan, np.nan, np.nan)
    by_name = table.drop(index=OTHER_KERNELS, errors="ignore")
    return ComputeDifference(
        ratio=float(1 + table["slower"].sum() / max(table["time"].sum() - table["slower"].sum(), 1)),
        is_even=bool(len(ratios) and high - low <= _EVEN_SPREAD * (middle - 1)),
        count=float(table["count"].sum()),
        usual_count=float(table["usual_count"].sum()),
        slowest=_largest(by_name, "slower"),
        additional=_largest(by_name, "additional"),
    )


def _largest(table: pd.DataFrame, column: str) -> KernelDifference:
    """The kernel with most of a column."""
    if not len(table):
        return KernelDifference("", 0.0, 0.0, 0.0)
    row = table.sort_values(column, ascending=False, kind="stable").iloc[0]
    return KernelDifference(str(row.name), float(row[column]), float(row["count"]), float(row["usual_count"]))
