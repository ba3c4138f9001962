"""What a rank does with its own time, in a worker, and by what one differs from the others, in the parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from htareport.algorithms import intervals
from htareport.algorithms.frame_packing import Packed, pack
from htareport.algorithms.intervals import EMPTY
from htareport.rank.cached import cached_until_release
from htareport.rank.communication import compute, steps_of
from htareport.rank.host_rows import per
from htareport.rank.idle import Cause
from htareport.rank.interval_sets import minus, total
from htareport.rank.rank import Rank

Own: TypeAlias = Mapping[str, Any]

SLOWER, MORE, COPIES, HOST = "slower kernels", "more kernels", "copies", "host"
_IDLE: dict[str, tuple[Cause, ...]] = {
    **{str(cause): (cause,) for cause in (Cause.LOADING, Cause.COMPILING, Cause.COLLECTING, Cause.ALLOCATING)},
    HOST: (
        Cause.SYNCHRONISING, Cause.COPYING, Cause.LAUNCHING, Cause.CALLING, Cause.OPERATING, Cause.ANNOTATED,
        Cause.NOTHING,
    ),
}  # fmt: skip
_MOST_NAMES, _MOST_CHARACTERS = 40, 160
_FEWEST_STEPS = 3
_REST = "(other kernels)"
_LEAST_SHARE = 0.01  # Of its compute: a kernel that counts in how evenly a rank is slower.
_EVEN = 0.25  # Of the median ratio's excess: how far apart the quartiles are of ranks whose device is slow.


@cached_until_release
def own_time(rank: Rank) -> Own:
    """Where a rank's time goes but for communication, in ns per step; and its kernels of most time."""
    every, busy = per(rank), rank.busy("comm", "compute")
    idle = {name: total(rank.idle_by(*causes)) / every for name, causes in _IDLE.items()}
    names = {name: [(host, time / every) for host, time in rank.idle_names(*_IDLE[name])] for name in _IDLE}
    return {
        "compute": total(compute(rank)) / every,
        "error": _error(rank),
        "copies": total(minus(rank.busy("memory"), busy)) / every,
        "idle": idle,
        "names": names,
        "kernels": pack({"kernels": _kernels(rank, every).reset_index()}),
    }


def kernels_of(own: Own) -> pd.DataFrame:
    """A rank's compute kernels per step by name: count and time, those of most time and the rest together."""
    packed: Packed = own["kernels"]
    return packed.frames()["kernels"].set_index("name")


def _error(rank: Rank) -> float:
    """Standard error of compute per step and device, ns; inf where there are too few steps to tell."""
    steps = [steps_of(rank, lane) for lane in rank.lanes]
    parts = [
        intervals.covered(compute(rank).get(lane, EMPTY), mine[:, 0], mine[:, 1])
        for lane, mine in zip(rank.lanes, steps, strict=True)
    ]
    times = np.concatenate(parts or [np.zeros(0, np.int64)])
    if not len(rank.steps) or len(times) < _FEWEST_STEPS:
        return float("inf")
    return float(times.std(ddof=1) / np.sqrt(len(times)))


def _kernels(rank: Rank, every: int) -> pd.DataFrame:
    events = rank.device_events
    computing = (events["kind"] == "compute").to_numpy()
    codes = events["name"].cat.codes.to_numpy()[computing]
    strings = rank.loaded.strings
    count = np.bincount(codes, minlength=len(strings))
    time = np.bincount(codes, events["dur"].to_numpy()[computing].astype(np.float64), minlength=len(strings))
    top = np.argsort(-time, kind="stable")[:_MOST_NAMES]
    top = top[count[top] > 0]
    names = [*(strings[code][:_MOST_CHARACTERS] for code in top.tolist()), _REST]
    counts = [*count[top].tolist(), int(count.sum() - count[top].sum())]
    times = [*time[top].tolist(), float(time.sum() - time[top].sum())]
    table = pd.DataFrame({"name": names, "count": counts, "time": times}).groupby("name", sort=False).sum()
    return table / every


@dataclass(frozen=True)
class Difference:
    """In what a rank differs most from the others: ns per step more than their median, and numbers for the words."""

    cause: str
    more: float
    numbers: Mapping[str, Any]


def difference(own: Mapping[int, Own], rank: int) -> Difference:
    """Say in what a rank spends more time than the median of the others, the most of several."""
    mine, others = own[rank], [each for other, each in own.items() if other != rank]
    more = {name: mine["idle"][name] - median(each["idle"][name] for each in others) for name in _IDLE}
    more[COPIES] = mine["copies"] - median(each["copies"] for each in others)
    kernels = _compared(kernels_of(mine), [kernels_of(each) for each in others])
    slower, further = float(kernels["slower"].sum()), float(kernels["further"].sum())
    by_kernels = SLOWER if slower >= further else MORE
    more[by_kernels] = mine["compute"] - median(each["compute"] for each in others)
    cause = max(more, key=lambda name: more[name])
    numbers = _kernel_numbers(kernels) if cause == by_kernels else {"names": mine["names"].get(cause, [])}
    return Difference(cause, more[cause], numbers)


def _compared(mine: pd.DataFrame, others: list[pd.DataFrame]) -> pd.DataFrame:
    """Kernels of a rank and the medians of others: time that is due to slower calls, and to further calls."""
    names = mine.index.union(pd.Index(np.concatenate([each.index for each in others])).unique(), sort=False)
    own = mine.reindex(names, fill_value=0.0)
    stacked = [each.reindex(names, fill_value=0.0) for each in others]
    usual = {name: np.median([each[name].to_numpy() for each in stacked], axis=0) for name in ("count", "time")}
    table = own.assign(usual_count=usual["count"], usual_time=usual["time"])
    both = (table["count"] > 0) & (table["usual_count"] > 0)
    mean = (table["time"] / table["count"]).where(both)
    usual_mean = (table["usual_time"] / table["usual_count"]).where(both)
    slower = (table["count"] * (mean - usual_mean)).fillna(0.0)
    return table.assign(ratio=mean / usual_mean, slower=slower, further=table["time"] - table["usual_time"] - slower)


def _kernel_numbers(table: pd.DataFrame) -> dict[str, Any]:
    """How many and how slow kernels are against the others, whether all alike, and which stands out."""
    known = table[table["ratio"].notna() & (table["time"] >= _LEAST_SHARE * table["time"].sum())]
    ratios = known["ratio"].to_numpy()
    low, middle, high = np.percentile(ratios, [25, 50, 75]) if len(ratios) else (np.nan, np.nan, np.nan)
    named = table.drop(index=_REST, errors="ignore")
    return {
        "ratio": float(1 + table["slower"].sum() / max(table["time"].sum() - table["slower"].sum(), 1)),
        "alike": bool(len(ratios) and high - low <= _EVEN * (middle - 1)),
        "count": float(table["count"].sum()),
        "usual_count": float(table["usual_count"].sum()),
        "slowest": _at_top(named, "slower"),
        "further": _at_top(named, "further"),
    }


def _at_top(table: pd.DataFrame, column: str) -> tuple[str, float, float, float]:
    """Name, additional time per step, calls per step here and usually, of the kernel with most of a column."""
    if not len(table):
        return "", 0.0, 0.0, 0.0
    row = table.sort_values(column, ascending=False, kind="stable").iloc[0]
    return str(row.name), float(row[column]), float(row["count"]), float(row["usual_count"])
