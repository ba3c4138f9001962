"""The collectives of each rank as compact rows, and what becomes of them once every rank's rows are together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htareport.algorithms.frames import Frames
from htareport.rank.budget import at_most
from htareport.rank.cached import cached_on_rank
from htareport.rank.collective_names import labels_of
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE
from htareport.rows.metadata import world_size_of

_MOST_CALLS = 4_000  # Of a rank,
_MOST_CALLS_IN_ALL = 400_000  # and of all ranks together.
KIND_KEYS = ["collective", "process_group", "group", "members", "group_size", "size", "lane", "capture", "has_seq"]
_SAME_SIZE = ("all_reduce", "all_gather_base", "reduce_scatter_base", "broadcast")  # On every rank.
_POINT_TO_POINT = ("send", "recv", "isend", "irecv", "p2p", "batch_isend")

PER_SEQ = 1_024  # Kernels of one sequence number.
POINT_TO_POINT = "sent from one rank to another"
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
    kind = frame.groupby(KIND_KEYS, sort=False).ngroup() if len(frame) else pd.Series(0, frame.index)
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


def recorded_times(trace: Rank, calls: pd.DataFrame) -> pd.DataFrame:
    """Length of each step of a rank that has calls, and of all recorded as that of step -1: step, time (ns)."""
    steps, by_capture = trace.steps, trace.device_events.groupby("capture")
    recorded = int((by_capture["end"].max() - by_capture["ts"].min()).sum())  # The time between is none.
    number, time = steps["number"].tolist(), (steps["end"] - steps["start"]).tolist()
    times = pd.DataFrame({"step": [*number, OUTSIDE], "time": [*time, recorded]})
    return times[times["step"].isin([*calls["step"], OUTSIDE])]
