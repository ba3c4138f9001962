"""What one rank sends to another: each rank's calls, in a worker, and who waits for whom in the parent."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from htareport.algorithms.collectives import Clocks, Matched, align, match
from htareport.algorithms.frame_packing import Packed, join, pack
from htareport.job.arrival_skew import matched
from htareport.rank.cached import cached_until_release
from htareport.rank.collective_calls import goes_to_one
from htareport.rank.communication import kernels
from htareport.rank.parallel_dimensions import PIPELINE, dimensions_of
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE
from htareport.rows.metadata import world_size_of
from htareport.rules.engine.evidence import JobEvidence

CALLS = "direct calls"  # Among the numbers of a rank.
_MOST_CALLS = 1_000  # Of a rank: the first, which are the same on every rank that takes part.
_CALLS = ["peer", "sends", "group", "step", "start", "dur", "place", "count"]
_WAITS = ["rank", "peer", "step", "start", "wait"]


@cached_until_release
def direct(rank: Rank) -> pd.DataFrame:
    """Communication kernels, as `kernels` has them, that send to one rank or receive from one which is known.

    `peer` is that rank, `sends` whether this one sends; without any kernel there are no such columns.
    """
    rows = kernels(rank)
    rows = rows[goes_to_one(rows).to_numpy(dtype=bool)]
    if not len(rows):
        return rows
    sends = rows["collective"].str.startswith(("send", "isend")).to_numpy(dtype=bool)
    receives = rows["collective"].str.startswith(("recv", "irecv")).to_numpy(dtype=bool)
    peer = np.where(sends, rows["receiver"], rows["sender"]).astype(np.int64)
    return rows.assign(peer=peer, sends=sends)[(sends | receives) & (peer >= 0)]


@cached_until_release
def pipeline(rank: Rank) -> pd.DataFrame:
    """Those of a pipeline whose group has all of its stages. A group of two among more ranks does not say how many."""
    rows = direct(rank)
    if not len(rows):
        return rows
    world = world_size_of(rank.captures[0].meta) or 0
    size = rows["group_size"].to_numpy()
    whole = (size > 2) | ((size == 2) & (world <= 2))  # noqa: PLR2004
    of_pipeline = (dimensions_of(rank, rows)["dimension"] == PIPELINE).to_numpy(dtype=bool)
    found: pd.DataFrame = rows[whole & of_pipeline]
    return found


@cached_until_release
def others(rank: Rank) -> pd.DataFrame:
    """Those that are not of a pipeline of which all stages are known."""
    rows = direct(rank)
    if not len(rows):
        return rows
    found: pd.DataFrame = rows[~rows.index.isin(pipeline(rank).index)]
    return found


@cached_until_release
def direct_calls(rank: Rank) -> Packed:
    """Calls of `others`, for the parent: peer, sends, group, start, dur (ns), step, place (among those of its kind)."""
    rows = others(rank)
    if not len(rows):
        return _nothing()
    calls = rows[["peer", "sends", "group", "step"]].assign(start=rows["ts"], dur=rows["dur"])
    kinds = calls.groupby(["peer", "sends", "group", "step"], sort=False)
    calls["place"], calls["count"] = kinds.cumcount(), kinds["peer"].transform("size")
    return pack({CALLS: calls.head(_MOST_CALLS).reset_index(drop=True)})


@cache
def _nothing() -> Packed:
    """The same of a rank without such calls."""
    return pack({CALLS: pd.DataFrame({name: np.zeros(0, np.int64) for name in _CALLS}).astype({"group": object})})


def waits_of(job: JobEvidence[Any]) -> pd.DataFrame:
    """Who waits for whom, on one clock, worked out once for all rules.

    A row for each call that receives: rank, peer (who sends), step, start (on the rank's own clock), wait (until that
    one begins to send, ns).
    """
    if "direct waits" not in job.shared:
        job.shared["direct waits"] = _waits(job)
    waits: pd.DataFrame = job.shared["direct waits"]
    return waits


def _waits(job: JobEvidence[Any]) -> pd.DataFrame:
    calls = join((rank, each.numbers[CALLS]) for rank, each in job.by_rank.items())[CALLS]
    if job.has_steps:
        calls = calls[calls["step"] != OUTSIDE].reset_index(drop=True)
    if not len(calls):
        return pd.DataFrame({name: [] for name in _WAITS}, dtype=np.int64)
    rank, peer, sends = (calls[name].to_numpy(np.int64) for name in ("rank", "peer", "sends"))
    ends = pd.DataFrame({"source": np.where(sends == 1, rank, peer), "target": np.where(sends == 1, peer, rank)})
    key: pd.Series[int] = (
        ends.assign(group=calls["group"], step=calls["step"]).groupby([*ends, "group", "step"]).ngroup()
    )
    start, dur, place, count = (calls[name].to_numpy(np.int64) for name in ("start", "dur", "place", "count"))
    every = match(rank, key.to_numpy().astype(np.int64), place, count, (start, start + dur))
    pairs = [each for each in every if len(each.ranks) == 2]  # noqa: PLR2004  who sends and who receives
    clocks = _clocks(job, pairs)
    parts = [_rows(each, calls, clocks) for each in pairs]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({name: [] for name in _WAITS}, dtype=np.int64)


def _clocks(job: JobEvidence[Any], pairs: list[Matched]) -> Clocks:
    """Those of the collectives; where some rank has none, ends of what is sent tell as well."""
    matching = matched(job)
    if all(rank in matching.clocks.offset for each in pairs for rank in each.ranks.tolist()):
        return matching.clocks
    return align([*matching.together, *pairs])


def _rows(pair: Matched, calls: pd.DataFrame, clocks: Clocks) -> pd.DataFrame:
    start = pair.start - clocks.of(pair.ranks)
    wait = np.clip(start.max(axis=1)[:, None] - start, 0, pair.end - pair.start)
    rows = calls.iloc[pair.rows.ravel()].assign(wait=wait.ravel())
    return rows[rows["sends"] == 0][_WAITS]
