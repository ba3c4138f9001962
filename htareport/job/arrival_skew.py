"""Who waits for whom in collectives, and what that costs on each rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from htareport.job.arrivals import arrival_rows, is_late, significant
from htareport.job.matching import Matching
from htareport.rank.collectives import RankCollectives
from htareport.rank.own_work import OwnWork
from htareport.rank.steps import OUTSIDE


@dataclass(frozen=True)
class ArrivalSkew:
    """Who arrives when at the collectives, and what that costs.

    `arrivals` are the rows of `arrival_rows` within the steps, on the clock of the traces once aligned. `held` is the
    part of a wait that one of the `stragglers` alone causes, `rest` what is left of it. `straggling_ns` and
    `waiting_ns` are what these cost per step by rank, within what compute waits for there.
    """

    arrivals: pd.DataFrame
    stragglers: list[int]
    windows: Mapping[int, int]
    own_work: Mapping[int, OwnWork]
    straggling_ns: Mapping[int, float]
    waiting_ns: Mapping[int, float]

    def delays_others_ns(self, rank: int) -> float:
        """For how long a straggler delays the others, ns per step."""
        return float(self.arrivals.loc[self.arrivals["rank"] == rank, "margin"].sum() / self.windows[rank])

    def late_arrivals(self, rank: int) -> pd.DataFrame:
        """The collectives at which a rank alone is late."""
        return self.arrivals[is_late(self.arrivals) & (self.arrivals["rank"] == rank)]


def arrival_skew(
    matching: Matching, times: pd.DataFrame, collectives: Mapping[int, RankCollectives], *, has_steps: bool
) -> ArrivalSkew:
    """Compute it from the matched collectives of all ranks; `times` are the lengths of their steps."""
    # A straggler's margin is charged to every rank that waits; of what is left, no rank is charged more than the mean.
    arrivals = arrival_rows(matching, times, 0)
    stragglers = significant(arrivals)
    arrivals = arrivals[arrivals["step"] != OUTSIDE] if has_steps else arrivals
    last = arrivals[arrivals["last"].astype(bool) & arrivals["rank"].isin(stragglers)]
    margin = arrivals["collective"].map(last.set_index("collective")["margin"]).fillna(0)
    arrivals = arrivals.assign(held=margin.where(arrivals["wait"] > 0, 0))  # Whoever waits at all waits for the margin.
    rest = arrivals["wait"] - arrivals["held"]
    mean = rest.groupby(arrivals["collective"]).transform("sum") / (arrivals["ranks"] - 1)
    arrivals = arrivals.assign(rest=rest)
    windows = {rank: calls.windows for rank, calls in collectives.items()}
    awaited = {rank: calls.awaited_ns for rank, calls in collectives.items()}
    held = {rank: float(ns) for rank, ns in arrivals.groupby("rank")["held"].sum().items()}
    waits = {rank: float(ns) for rank, ns in rest.clip(upper=mean).groupby(arrivals["rank"]).sum().items()}
    straggling = {rank: min(awaited[rank], held.get(rank, 0.0) / windows[rank]) for rank in collectives}
    waiting = {
        rank: min(awaited[rank] - straggling[rank], waits.get(rank, 0.0) / windows[rank]) for rank in collectives
    }
    own_work = {rank: calls.own_work for rank, calls in collectives.items()}
    return ArrivalSkew(arrivals, stragglers, windows, own_work, straggling, waiting)
