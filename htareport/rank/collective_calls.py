"""The collectives of each rank as compact rows, and what becomes of them once every rank's rows are together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from htareport.algorithms.collectives import Clocks, Matched, agree, align, match
from htareport.algorithms.frames import Frames
from htareport.rank.budget import at_most
from htareport.rank.cached import cached_on_rank
from htareport.rank.collective_names import labels_of
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE
from htareport.report import Unit
from htareport.report.units import text
from htareport.rows.metadata import world_size_of

_MOST_CALLS = 2_000  # Of a rank,
_MOST_CALLS_IN_ALL = 400_000  # and of all ranks together.
_KEYS = ["collective", "process_group", "group", "members", "group_size", "size", "lane", "capture", "has_seq"]
_SAME_SIZE = ("all_reduce", "all_gather_base", "reduce_scatter_base", "broadcast")  # On every rank.
_SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
_POINT_TO_POINT = ("send", "recv", "isend", "irecv", "p2p", "batch_isend")

PER_SEQ = 1_024  # Kernels of one sequence number.
POINT_TO_POINT = "sent from one rank to another"
ONE_RANK = "of which one rank only is recorded"
UNEQUAL = "of which the ranks recorded different numbers"
APART = "whose ends lie apart, so that they hardly belong together"
NOT_SENT = "beyond those that were compared, evenly chosen"


def call_frames(trace: Rank) -> Frames:
    """A rank's collectives, evenly chosen where they are very many.

    `calls`: kind (row of `kinds`), start, dur (ns), bytes (-1 unknown), step (-1 outside), ordinal (place within the
    kind and step, or by sequence number), count (of the kind in the step, 0 with sequence numbers). `kinds`: what tells
    one collective from another, and calls (of this kind); those without any chosen call are one for each collective and
    process group. `set_aside`: reason, count.
    """
    return _call_frames(trace, at_most(_MOST_CALLS))


@cached_on_rank
def _call_frames(trace: Rank, most: int) -> Frames:
    labels = labels_of(trace)
    is_direct = goes_to_one(labels)
    labels = labels[~is_direct]
    events = trace.device_events.loc[labels.index]
    known = (labels["group"] + labels["members"]).ne("")
    frame = labels[["collective", "process_group", "group", "members", "group_size"]].assign(
        size=labels["elements"].where(known & labels["collective"].str.startswith(_SAME_SIZE), -1),
        lane=np.where(known, _places(events, "device"), _places(events, "device", "stream")),
        capture=events["capture"].astype("int64"),
        has_seq=labels["seq"] >= 0,
    )
    kind = frame.groupby(_KEYS, sort=False).ngroup() if len(frame) else pd.Series(0, frame.index)
    calls = pd.DataFrame({"kind": kind, "start": events["ts"], "dur": events["dur"], "step": events["step"]})
    calls["bytes"] = labels["bytes"].fillna(-1).astype("int64")
    places = calls.groupby(["kind", "step"])
    calls["ordinal"], calls["count"] = places.cumcount(), places["kind"].transform("size")
    repeated = pd.DataFrame({"kind": kind, "seq": labels["seq"]}).groupby(["kind", "seq"]).cumcount()
    calls["ordinal"] = calls["ordinal"].where(~frame["has_seq"], labels["seq"] * PER_SEQ + repeated)
    calls["count"] = calls["count"].where(~frame["has_seq"], 0)
    kinds = frame.assign(kind=kind).drop_duplicates("kind").drop(columns="kind").reset_index(drop=True)
    kinds["calls"] = np.bincount(kind, minlength=len(kinds)).astype(np.int64)
    chosen = calls[_chosen(calls, frame["has_seq"], trace, most)]
    set_aside = {POINT_TO_POINT: int(is_direct.sum()), NOT_SENT: len(calls) - len(chosen)}
    small = {"kind": "int32", "step": "int32", "count": "int32"}
    chosen, kinds = _used(chosen, kinds)
    return {
        "calls": chosen.astype(small).reset_index(drop=True),
        "kinds": kinds,
        "set_aside": pd.DataFrame({"reason": list(set_aside), "count": list(set_aside.values())}),
    }


def goes_to_one(labels: pd.DataFrame) -> pd.Series[bool]:
    """Which communication kernels (rows of `labels_of`) send from one rank to another."""
    return labels["group"].ne("") & labels["collective"].str.startswith(_POINT_TO_POINT)


def _used(chosen: pd.DataFrame, kinds: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Calls and their kinds; those of other kinds are only counted, by collective and process group."""
    used = np.zeros(len(kinds), np.bool_)
    used[chosen["kind"].to_numpy()] = True
    if used.all():
        return chosen, kinds
    rest = kinds[~used].assign(group="", members="", size=-1, lane=-1, capture=-1, has_seq=False)
    sums = rest.groupby(["collective", "process_group"], sort=False)
    rest = rest.drop_duplicates(["collective", "process_group"]).assign(
        group_size=sums["group_size"].max().to_numpy(), calls=sums["calls"].sum().to_numpy()
    )
    place = np.cumsum(used) - 1
    return chosen.assign(kind=place[chosen["kind"]]), pd.concat([kinds[used], rest], ignore_index=True)


def _places(events: pd.DataFrame, *columns: str) -> Any:
    """Place of each row's device or lane among those of the rank, in order of number."""
    lanes = list(events[list(columns)].drop_duplicates().itertuples(index=False, name=None))
    order = {lane: place for place, lane in enumerate(sorted(lanes, key=_by_type))}
    index = pd.MultiIndex.from_frame(events[list(columns)].astype(object))
    return np.array([order[each if len(columns) > 1 else (each[0],)] for each in index], np.int64)


def _by_type(lane: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(isinstance(part, str), part) for part in lane]


def _chosen(calls: pd.DataFrame, has_seq: pd.Series, trace: Rank, most: int) -> Any:
    """Which calls to compare: the same ones on every rank, whatever else it records."""
    ranks = world_size_of(trace.captures[0].meta) or 1
    most = max(1, min(most, _MOST_CALLS_IN_ALL // max(ranks, 1)))
    stride = 1
    while len(calls) > most * stride:
        stride *= 2
    place = (calls["ordinal"] + calls["step"].clip(lower=0)).where(~has_seq, calls["ordinal"] // PER_SEQ)
    return (place % stride == 0) & (np.cumsum(place % stride == 0) <= 2 * most)


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
    codes = kinds.groupby(_KEYS, sort=True, dropna=False).ngroup().to_numpy()
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
