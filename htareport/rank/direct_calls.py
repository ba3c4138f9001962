"""Communication kernels that send to one rank, or receive from one."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from htareport.algorithms.frame_packing import Packed, pack
from htareport.rank.cached import cached_until_release
from htareport.rank.collective_calls import goes_to_one
from htareport.rank.communication import kernels
from htareport.rank.parallel_dimensions import PIPELINE, dimensions_of
from htareport.rank.rank import Rank
from htareport.rows.metadata import world_size_of

DIRECT_CALLS = "direct calls"  # Name of the packed frame.


_MAX_CALLS = 1_000  # Of a rank: the first, which are the same on every rank that takes part.


_COLUMNS = ["peer", "sends", "group", "step", "start", "dur", "place", "count"]


@cached_until_release
def direct_kernels(rank: Rank) -> pd.DataFrame:
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
def pipeline_kernels(rank: Rank) -> pd.DataFrame:
    """Those of a pipeline whose group has all of its stages. A group of two among more ranks does not say how many."""
    rows = direct_kernels(rank)
    if not len(rows):
        return rows
    world = world_size_of(rank.captures[0].meta) or 0
    size = rows["group_size"].to_numpy()
    is_whole = (size > 2) | ((size == 2) & (world <= 2))  # noqa: PLR2004
    of_pipeline = (dimensions_of(rank, rows)["dimension"] == PIPELINE).to_numpy(dtype=bool)
    in_pipeline: pd.DataFrame = rows[is_whole & of_pipeline]
    return in_pipeline


@cached_until_release
def other_direct_kernels(rank: Rank) -> pd.DataFrame:
    """Those that are not of a pipeline of which all stages are known."""
    rows = direct_kernels(rank)
    if not len(rows):
        return rows
    return rows[~rows.index.isin(pipeline_kernels(rank).index)]


@cached_until_release
def direct_calls(rank: Rank) -> Packed:
    """Calls of `other_direct_kernels`, packed for the job.

    Columns: peer, sends, group, step, start, dur (ns), place (among those of its kind), count (of its kind).
    """
    rows = other_direct_kernels(rank)
    if not len(rows):
        return _no_calls()
    calls = rows[["peer", "sends", "group", "step"]].assign(start=rows["ts"], dur=rows["dur"])
    kinds = calls.groupby(["peer", "sends", "group", "step"], sort=False)
    calls["place"], calls["count"] = kinds.cumcount(), kinds["peer"].transform("size")
    return pack({DIRECT_CALLS: calls.head(_MAX_CALLS).reset_index(drop=True)})


@cache
def _no_calls() -> Packed:
    """The same of a rank without such calls."""
    return pack(
        {DIRECT_CALLS: pd.DataFrame({name: np.zeros(0, np.int64) for name in _COLUMNS}).astype({"group": object})}
    )
