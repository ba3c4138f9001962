"""Who comes to collectives when, and whose lateness is more than chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pandas as pd

from htareport.algorithms.collectives import arrivals, chance
from htareport.job.matching import Matching
from htareport.rank.steps import OUTSIDE

IdentifyStragglers: TypeAlias = Callable[[pd.DataFrame], list[int]]
"""Names the stragglers, most late first, from who comes when; an empty list is a valid answer.

The frame has one row per matched collective and rank that takes part in it, times in ns on one clock: collective (a
number, in order of time), name and process_group (what it is), step (in which this rank launches it, -1 outside),
rank, ranks (how many take part), start, lateness (after the earliest start), wait (until the latest start), margin (for
the rank that starts last: how much later than the second-latest; 0 for the others), last (whether it is that rank),
transfer (from the latest start to the earliest end), spread (from the earliest to the latest end: how well the clocks
agree), step_time (of the step on this rank; outside steps the time recorded).
"""

_LEAST_MARGIN = 50_000  # A last rank this little after the second-latest (ns) has held up nobody,
_LEAST_SHARE = 0.05  # nor one that is late by this share of the transfer.
_MAJORITY = 0.5
_LEAST_CHANCE = 0.01
_LEAST_HELD_UP = 0.02  # Of the step time.
_ARRIVALS = (
    *("collective", "name", "process_group", "step", "rank", "ranks", "start"),
    *("lateness", "wait", "margin", "last", "transfer", "spread", "step_time"),
)


def arrival_rows(found: Matching, times: pd.DataFrame, zero_ns: int) -> pd.DataFrame:
    """Who comes when: the frame that IdentifyStragglers takes, in order of time and rank.

    `times` are the recorded_times of all ranks, with `rank`.
    """
    parts = []
    kinds, step = found.kinds.set_index("kind"), found.calls["step"].to_numpy(np.int64)
    for one in found.together:
        comes = arrivals(one, found.clocks)
        size = len(one.ranks)
        start = one.start - found.clocks.of(one.ranks)
        is_last = np.arange(size) == comes.last[:, None]
        calls = found.calls.iloc[one.rows[:, 0]]
        each = kinds.loc[calls["kind"], ["collective", "process_group"]]
        parts.append(
            pd.DataFrame(
                {
                    "first": np.repeat(start.min(axis=1) - zero_ns, size),
                    "instance": np.repeat(one.rows[:, 0], size),
                    "name": np.repeat(each["collective"].to_numpy(), size),
                    "process_group": np.repeat(each["process_group"].to_numpy(), size),
                    "step": step[one.rows].ravel(),
                    "rank": np.tile(one.ranks, len(one.key)),
                    "ranks": size,
                    "start": start.ravel() - zero_ns,
                    "lateness": comes.lateness.ravel(),
                    "wait": comes.wait.ravel(),
                    "margin": np.where(is_last, comes.margin[:, None], 0).ravel(),
                    "last": is_last.ravel(),
                    "transfer": np.repeat(comes.transfer, size),
                    "spread": np.repeat(comes.spread, size),
                }
            )
        )
    if not parts:
        return pd.DataFrame({name: [] for name in _ARRIVALS}, dtype="int64")
    every = pd.concat(parts).sort_values(["first", "instance", "rank"], ignore_index=True)
    every.insert(0, "collective", every.groupby(["first", "instance"], sort=True).ngroup())
    time = times.set_index(["rank", "step"])["time"]
    wanted = pd.MultiIndex.from_frame(every[["rank", "step"]])
    every["step_time"] = time.reindex(wanted).fillna(0).to_numpy().astype(np.int64)
    return every[list(_ARRIVALS)]


def significant(every: pd.DataFrame) -> list[int]:
    """Name the ranks whose lateness is more than chance and costs time: the default IdentifyStragglers."""
    late = every[is_late(every)]
    held = every[every["collective"].isin(late["collective"])]
    cost = held_share(late, every)
    found = []
    for rank in sorted(set(late["rank"].tolist())):
        mine, there = late[late["rank"] == rank], held[held["rank"] == rank]
        times, tries = len(mine), len(there)
        probability = chance(times, tries, float((1 / there["ranks"]).mean()))
        if times > _MAJORITY * tries and probability < _LEAST_CHANCE and cost[rank] >= _LEAST_HELD_UP:
            found.append((-int(mine["margin"].sum()), rank))
    return [rank for _, rank in sorted(found)]


def held_share(some: pd.DataFrame, every: pd.DataFrame) -> pd.Series[float]:
    """Share of each rank's step time for which it holds up the others, in `some` of the rows of `every`, by rank.

    What is held up within steps, over the time of the steps in which it has collectives; of a rank without collectives
    in steps, over the time recorded. nan where that is 0.
    """
    in_steps = every["step"] != OUTSIDE
    counts = every[in_steps | ~in_steps.groupby(every["rank"]).transform("any")]
    spent = counts.drop_duplicates(["rank", "step"]).groupby("rank")["step_time"].sum()
    held = some.loc[some.index.intersection(counts.index)].groupby("rank")["margin"].sum()
    return held.reindex(spent.index, fill_value=0) / spent.where(spent > 0).astype("float64")


def is_late(every: pd.DataFrame) -> pd.Series:
    """Which rows are those of a rank that holds up the others, by more than the clocks may be wrong."""
    margin = every["margin"]
    return (margin > _LEAST_MARGIN) & (margin > _LEAST_SHARE * every["transfer"]) & (margin > every["spread"])
