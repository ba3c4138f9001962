"""Who comes to collectives when, and whose lateness is more than chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pandas as pd

from htareport.algorithms.collectives import arrivals, chance
from htareport.analyses.collective_calls import Matching

IdentifyStragglers: TypeAlias = Callable[[pd.DataFrame], list[int]]
"""Names the stragglers, most late first, from who comes when; an empty list is a valid answer.

The frame has one row per matched collective and rank that takes part in it, times in ns on one clock: collective (a
number, in order of time), name and process_group (what it is), step (-1 outside), rank, ranks (how many take part),
start, lateness (after the earliest start), wait (until the latest start), margin (for the rank that starts last: how
much later than the second-latest; 0 for the others), last (whether it is that rank), transfer (from the latest start
to the earliest end), spread (from the earliest to the latest end: how well the clocks agree), step_time (of the step on
this rank; outside steps the time recorded).
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
    """Who comes when: the frame that IdentifyStragglers takes, in order of time and rank."""
    parts = []
    kinds = found.kinds.set_index("kind")
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
                    "step": np.repeat(calls["step"].to_numpy(np.int64), size),
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
    spent = every.drop_duplicates(["rank", "step"]).groupby("rank")["step_time"].sum()
    found = []
    for rank in sorted(set(late["rank"].tolist())):
        mine, there = late[late["rank"] == rank], held[held["rank"] == rank]
        times, tries, cost = len(mine), len(there), int(mine["margin"].sum())
        probability = chance(times, tries, float((1 / there["ranks"]).mean()))
        if times > _MAJORITY * tries and probability < _LEAST_CHANCE and cost >= _LEAST_HELD_UP * spent[rank]:
            found.append((-cost, rank))
    return [rank for _, rank in sorted(found)]


def is_late(every: pd.DataFrame) -> pd.Series:
    """Which rows are those of a rank that holds up the others, by more than the clocks may be wrong."""
    margin = every["margin"]
    return (margin > _LEAST_MARGIN) & (margin > _LEAST_SHARE * every["transfer"]) & (margin > every["spread"])
