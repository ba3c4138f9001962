"""How long collectives move bytes once all ranks have arrived, by process group and message size."""

from __future__ import annotations

import pandas as pd

from htareport.algorithms.collectives import Matched, arrivals
from htareport.job.matching import Matching
from htareport.rank.steps import OUTSIDE

KIND = ["collective", "process_group", "group_size", "bytes"]  # What makes transfers comparable.
MIN_TRANSFERS = 3  # Of a group, for a median that says something.


def transfer_table(matching: Matching, *, has_steps: bool) -> pd.DataFrame:
    """Matched collectives of which all ranks are recorded, within steps: KIND, ranks, transfer (ns), step, first.

    `first` is the row of the first of its calls.
    """
    kinds = matching.kinds.set_index("kind")
    tables = [_transfers_of(matched, matching, kinds) for matched in matching.together]
    columns = [*KIND, "ranks", "transfer", "step", "first"]
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({name: [] for name in columns})
    return table[table["step"] != OUTSIDE] if has_steps else table


def _transfers_of(matched: Matched, matching: Matching, kinds: pd.DataFrame) -> pd.DataFrame:
    calls = matching.calls.iloc[matched.rows[:, 0]]
    named = kinds.loc[calls["kind"], ["collective", "process_group", "group_size"]].reset_index(drop=True)
    is_whole = named["group_size"].to_numpy() == len(matched.ranks)
    table: pd.DataFrame = named.assign(
        bytes=matching.calls["bytes"].to_numpy()[matched.rows].max(axis=1),
        ranks=pd.Series([tuple(matched.ranks.tolist())] * len(named), named.index, dtype=object),
        transfer=arrivals(matched, matching.clocks).transfer,
        step=calls["step"].to_numpy(),
        first=matched.rows[:, 0],
    )
    whole: pd.DataFrame = table[is_whole]
    return whole


def medians_by_group(transfers: pd.DataFrame) -> pd.DataFrame:
    """Transfers by KIND and ranks: their median (`transfer`, ns), number (`size`) and sum."""
    table = transfers.groupby([*KIND, "ranks"], sort=True)["transfer"].agg(["median", "size", "sum"]).reset_index()
    return table.rename(columns={"median": "transfer"})


def excess_by_call(transfers: pd.DataFrame, groups: pd.DataFrame, usual: str) -> dict[int, float]:
    """By how much transfers of some groups take longer than the column `usual` says: ns by row of the first call."""
    table = transfers.merge(groups[[*KIND, "ranks", usual]], on=[*KIND, "ranks"])
    excess = (table["transfer"] - table[usual]).clip(lower=0)
    return dict(zip(table["first"].tolist(), excess.tolist(), strict=True))
