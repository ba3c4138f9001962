"""Matches the collectives of all ranks, and aligns their clocks by the ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from htareport.algorithms.collectives import Clocks, Matched, agree, align, match
from htareport.algorithms.frames import Frames
from htareport.rank.collective_calls import KIND_KEYS
from htareport.rank.steps import OUTSIDE
from htareport.report.tables import Unit
from htareport.report.units import text

_SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")


ONE_RANK = "of which one rank only is recorded"


UNEQUAL = "of which the ranks recorded different numbers"


APART = "whose ends lie apart, so that they hardly belong together"


@dataclass(frozen=True)
class Matching:
    """Collectives matched across ranks.

    `calls` are those of all ranks (rank, kind, start, dur, bytes, step), which their rows refer to; `kinds` says what
    each kind is. `together` holds those that no rank leaves before all have come, for waits and clocks, `others` those
    that it may (broadcast, say). `left_out` counts kernels by reason.
    """

    calls: pd.DataFrame
    kinds: pd.DataFrame
    together: tuple[Matched, ...]
    others: tuple[Matched, ...]
    clocks: Clocks
    left_out: dict[str, int]


def matching(frames: Frames) -> Matching:
    """Match the collectives of all ranks by process group and order, and align the clocks by their ends.

    Sequence numbers go through all steps; without them the order is that within a step. Where the arguments don't tell
    the process group, kernels of one name on the same lane of every rank are matched by order, and those whose ends
    don't agree afterwards are taken apart again.
    """
    calls, kinds = frames["calls"].copy(), frames["kinds"]
    ranks, first = np.unique(kinds["rank"].to_numpy(), return_index=True)
    row = first[np.searchsorted(ranks, calls["rank"].to_numpy())] + calls["kind"].to_numpy() if len(calls) else []
    codes = kinds.groupby(KIND_KEYS, sort=True, dropna=False).ngroup().to_numpy()
    calls["kind"] = codes[row] if len(calls) else calls["kind"]
    total = kinds.assign(kind=codes).groupby("kind")["calls"].sum()
    kinds = kinds.assign(kind=codes).drop_duplicates("kind").sort_values("kind", ignore_index=True)
    kinds["calls"] = total.to_numpy()
    known = (kinds["group"] + kinds["members"]).ne("").to_numpy()
    waits = kinds["collective"].str.startswith(_SYNCHRONISING).to_numpy(dtype=bool) | ~known

    has_seq = kinds.set_index("kind")["has_seq"].reindex(calls["kind"]).to_numpy(np.bool_)
    step = np.where(has_seq, OUTSIDE, calls["step"].to_numpy(np.int64))
    key = calls["kind"].to_numpy(np.int64) * (step.max(initial=0) + 2) + step + 1
    columns = [calls[name].to_numpy(np.int64) for name in ("rank", "ordinal", "count", "start", "dur")]
    rank, ordinal, count, start, dur = columns
    every = match(rank, key, ordinal, count, (start, start + dur))
    kind_of = calls["kind"].to_numpy()
    together, others = [], []
    for one in every:
        waiting = waits[kind_of[one.rows[:, 0]]]
        together.append(one.only(waiting))
        others.append(one.only(~waiting))
    clocks = align(_present(together))
    together = [one.only(known[kind_of[one.rows[:, 0]]] | agree(one, clocks)) for one in together]
    reasons = frames["set_aside"].groupby("reason", sort=False)["count"].sum()
    numbers = dict(zip(map(str, reasons.index), reasons.tolist(), strict=True))
    numbers |= _unmatched(calls, every, [*together, *others])
    left_out = {reason: number for reason, number in numbers.items() if number}
    together, others = _present(together), _present(others)
    return Matching(calls, kinds, tuple(together), tuple(others), align(together), left_out)


def _present(matched: list[Matched]) -> list[Matched]:
    return [one for one in matched if len(one.key)]


def _unmatched(calls: pd.DataFrame, every: list[Matched], sure: list[Matched]) -> dict[str, int]:
    there, kept = (sum(one.rows.size for one in each) for each in (every, sure))
    matched = np.zeros(len(calls), np.bool_)
    for one in every:
        matched[one.rows.ravel()] = True
    alone = calls.groupby("kind")["rank"].transform("nunique").to_numpy() == 1
    return {ONE_RANK: int((~matched & alone).sum()), UNEQUAL: int((~matched & ~alone).sum()), APART: there - kept}


def left_out_note(left_out: dict[str, int]) -> str:
    """Say how many kernels are not compared, and why; empty if all are."""
    parts = [f"{count:,} {reason}" for reason, count in left_out.items()]
    return f"Communication kernels that are not compared: {'; '.join(parts)}." if parts else ""


def clocks_note(found: Matching) -> str:
    """Say how far the clocks were apart, empty without anything to tell by."""
    clocks = found.clocks
    if not clocks.offset:
        return ""
    count = sum(len(one.key) for one in found.together)
    apart = text(max(clocks.offset.values()) - min(clocks.offset.values()), Unit.NANOSECONDS)
    said = f"Clocks are aligned by the ends of {count:,} collectives: they were up to {apart} apart"
    if count == 1:
        return f"{said.replace('collectives', 'collective')}. One is too little to tell how well that holds."
    rest = text(max(clocks.residual.values()), Unit.NANOSECONDS)
    return f"{said}, and now the ends agree to within {rest} (median of the worst rank)."
