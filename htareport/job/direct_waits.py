"""Which rank waits for what another sends to it alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from htareport.algorithms.collectives import Clocks, Matched, align, match
from htareport.algorithms.frame_packing import Packed, join
from htareport.job.facts import JobFacts
from htareport.rank.direct_calls import DIRECT_CALLS
from htareport.rank.steps import OUTSIDE

_COLUMNS = ["rank", "peer", "step", "start", "wait"]


def direct_waits(facts: JobFacts, packed_calls: Mapping[int, Packed]) -> pd.DataFrame:
    """Who waits for whom, on one clock: a row for each call that receives.

    Columns: rank, peer (who sends), step, start (on the rank's own clock), wait (until the peer begins to send, ns).
    `packed_calls` are the `direct_calls` of the ranks.
    """
    calls = join(packed_calls.items())[DIRECT_CALLS]
    if facts.has_steps:
        calls = calls[calls["step"] != OUTSIDE].reset_index(drop=True)
    if not len(calls):
        return _no_waits()
    rank, peer, sends = (calls[name].to_numpy(np.int64) for name in ("rank", "peer", "sends"))
    ends = pd.DataFrame({"source": np.where(sends == 1, rank, peer), "target": np.where(sends == 1, peer, rank)})
    keys = ends.assign(group=calls["group"], step=calls["step"])
    key = keys.groupby([*ends, "group", "step"]).ngroup().to_numpy().astype(np.int64)
    start, dur, ordinal, count = (calls[name].to_numpy(np.int64) for name in ("start", "dur", "place", "count"))
    matches = match(rank, key, ordinal, count, (start, start + dur))
    pairs = [matched for matched in matches if len(matched.ranks) == 2]  # noqa: PLR2004  who sends and who receives
    clocks = _clocks(facts, pairs)
    tables = [_receiving_rows(matched, calls, clocks) for matched in pairs]
    return pd.concat(tables, ignore_index=True) if tables else _no_waits()


def _no_waits() -> pd.DataFrame:
    return pd.DataFrame({name: [] for name in _COLUMNS}, dtype=np.int64)


def _clocks(facts: JobFacts, pairs: list[Matched]) -> Clocks:
    """Those of the collectives; where some rank has none, ends of what is sent tell as well."""
    matching = facts.matching
    if all(rank in matching.clocks.offset for matched in pairs for rank in matched.ranks.tolist()):
        return matching.clocks
    return align([*matching.together, *pairs])


def _receiving_rows(matched: Matched, calls: pd.DataFrame, clocks: Clocks) -> pd.DataFrame:
    start = matched.start - clocks.of(matched.ranks)
    wait = np.clip(start.max(axis=1)[:, None] - start, 0, matched.end - matched.start)
    rows = calls.iloc[matched.rows.ravel()].assign(wait=wait.ravel())
    return rows[rows["sends"] == 0][_COLUMNS]
