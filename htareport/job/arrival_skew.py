"""Who waits for whom in collectives: each rank's calls, in a worker, and what comes of them in the parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from htareport.algorithms.frame_packing import join, pack
from htareport.job.arrivals import arrival_rows, is_late, recorded_times, significant
from htareport.rank.cached import cached_until_release
from htareport.rank.collective_calls import Matching, call_frames, matching
from htareport.rank.communication import awaited
from htareport.rank.host_rows import per
from htareport.rank.interval_sets import total
from htareport.rank.own_work import Own, own_time
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE
from htareport.rows.metadata import world_size_of
from htareport.rules.engine.evidence import Evidence, JobEvidence

STRAGGLERS = "stragglers"  # Shared: the ranks that all the others wait for.


@cached_until_release
def calls_of(rank: Rank) -> Evidence:
    """A rank's collectives and own time: the evidence of every rule that compares ranks, sent once for all of them."""
    frames = call_frames(rank)
    frames = frames | {"times": recorded_times(rank, frames["calls"])}
    every = per(rank)
    numbers = {"frames": pack(frames), "own": own_time(rank), "per": every, "awaited": total(awaited(rank)) / every}
    world = world_size_of(rank.captures[0].meta) or 1
    return Evidence(numbers=numbers | {"world": world})


def matched(job: JobEvidence[Any]) -> Matching:
    """The collectives of all ranks, matched and on one clock: once for all rules, which all have them of every rank."""
    if "matching" not in job.shared:
        frames = join((rank, each.numbers["frames"]) for rank, each in job.by_rank.items())
        job.shared["times"], job.shared["matching"] = frames["times"], matching(frames)
    made: Matching = job.shared["matching"]
    return made


@dataclass(frozen=True)
class Skew:
    """Who comes when to the collectives, and what that costs.

    `every` are the rows of arrival_rows within the steps, on the clock of the traces once aligned, with `held` (what of
    the wait one of the stragglers `named` alone causes) and `rest`. `straggling` and `waiting` are what these cost, in
    ns per step by rank, within what is awaited on it. `own` is each rank's own time.
    """

    every: pd.DataFrame
    named: list[int]
    per: Mapping[int, int]
    own: Mapping[int, Own]
    straggling: Mapping[int, float]
    waiting: Mapping[int, float]

    def held_up(self, rank: int) -> float:
        """For how long a straggler holds up the others, ns per step."""
        return float(self.every.loc[self.every["rank"] == rank, "margin"].sum() / self.per[rank])

    def late_of(self, rank: int) -> pd.DataFrame:
        """The collectives that a rank alone is late to."""
        return self.every[is_late(self.every) & (self.every["rank"] == rank)]


def skew_of(job: JobEvidence[Any]) -> Skew:
    """Work it out once for all rules that ask."""
    if "skew" not in job.shared:
        job.shared["skew"] = _skew(job)
        job.shared[STRAGGLERS] = job.shared["skew"].named
    made: Skew = job.shared["skew"]
    return made


def _skew(job: JobEvidence[Any]) -> Skew:
    every = arrival_rows(matched(job), job.shared["times"], 0)
    named = significant(every)
    every = every[every["step"] != OUTSIDE] if job.has_steps else every
    last = every[every["last"].astype(bool) & every["rank"].isin(named)]
    margin = every["collective"].map(last.set_index("collective")["margin"]).fillna(0)
    every = every.assign(held=margin.where(every["wait"] > 0, 0))  # Whoever waits at all waits for the margin.
    rest = every["wait"] - every["held"]
    mean = rest.groupby(every["collective"]).transform("sum") / (every["ranks"] - 1)
    every = every.assign(rest=rest)
    numbers = {rank: each.numbers for rank, each in job.by_rank.items()}
    divide = {rank: each["per"] for rank, each in numbers.items()}
    most = {rank: each["awaited"] for rank, each in numbers.items()}
    held = {rank: float(ns) for rank, ns in every.groupby("rank")["held"].sum().items()}
    waits = {rank: float(ns) for rank, ns in rest.clip(upper=mean).groupby(every["rank"]).sum().items()}
    straggling = {rank: min(most[rank], held.get(rank, 0.0) / divide[rank]) for rank in numbers}
    waiting = {rank: min(most[rank] - straggling[rank], waits.get(rank, 0.0) / divide[rank]) for rank in numbers}
    own: dict[int, Any] = {rank: each["own"] for rank, each in numbers.items()}
    return Skew(every, named, divide, own, straggling, waiting)
