"""What a rank says of its collectives and of what findings claim between them, so that the parent can ask: what if."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.frame_packing import Packed, pack
from htareport.algorithms.intervals import EMPTY, Intervals
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.collective_calls import call_frames
from htareport.rank.collectives import collectives_of
from htareport.rank.communication import awaited, compute, kernels
from htareport.rank.interval_sets import Lane
from htareport.rank.launch_links import UNLINKED
from htareport.rank.rank import Rank
from htareport.rows.metadata import world_size_of
from htareport.rules.engine.evidence import Claim

Ints = NDArray[np.int64]

_MOST_CALLS, _MOST_CALLS_IN_ALL, _FEWEST_CALLS = 512, 150_000, 64  # Of a rank, and of all ranks together.
_AT_ONCE = 10_000  # ns from the end of a call to the start of the next on its stream, if only that was waited for.
_MOST_ENTRIES, _MOST_OF_COMPUTE = 400, 64  # Of a rank, for all rules together; and for its compute.

ONE_RANK = "there is only one rank to go by"
NO_STEPS = "there are no steps"
NO_COLLECTIVES = "no collectives are recorded"
SEVERAL_DEVICES = "ranks drive several devices"


@dataclass(frozen=True)
class Pieces:
    """Time that rules claim, ns, by place and code (a place in `CollectiveSchedule.codes`): only where there is any."""

    place: NDArray[np.unsignedinteger[Any]]
    code: NDArray[np.uint8]
    ns: Ints

    def of(self, code: int, size: int) -> Ints:
        """What a rule claims at each of so many places."""
        mine = self.code == code
        return np.bincount(self.place[mine], self.ns[mine].astype(np.float64), size).astype(np.int64)


@dataclass(frozen=True)
class CollectiveSchedule:
    """A rank's collectives within some consecutive steps, and the time between them that rules claim.

    `rows` are rows of the frame of calls. `on_stream` is the place here of the call before on the same stream (-1
    none), `slack` for how long the stream was idle since, `queued` for how long the call had waited for only that
    one. `stall` is for how long the rank, at the end of a call, has waited for just that. `own` are claims outside all
    waits, by place in the order of calls that are ready, ends and ends of steps (all of these by time): what is claimed
    since the place before. `stalled` are claims within waits, by call. `compute` is how long kernels that compute run,
    by place as `own`, of a single code. `unknown` is for how long per step the rank waits for communication that is no
    row here.
    """

    rows: NDArray[np.int32]
    on_stream: NDArray[np.int16]
    slack: NDArray[np.int32]
    queued: NDArray[np.int32]
    stall: Ints
    steps: tuple[int, ...]
    begin: int
    ends: tuple[int, ...]
    codes: tuple[str, ...]
    own: Pieces
    stalled: Pieces
    compute: Pieces
    unknown: float


@dataclass(frozen=True)
class PackedSchedule:
    """CollectiveSchedule as few bytes."""

    frames: Packed
    begin: int
    codes: tuple[str, ...]
    unknown: float

    @classmethod
    def of(cls, moves: CollectiveSchedule) -> Self:
        """Pack them."""
        by_call = {name: getattr(moves, name).astype(np.int64) for name in _BY_CALL}
        frames = {"calls": pd.DataFrame(by_call), "steps": pd.DataFrame({"number": moves.steps, "end": moves.ends})}
        for name in _CLAIMED:
            pieces: Pieces = getattr(moves, name)
            columns = {"place": pieces.place, "code": pieces.code, "ns": pieces.ns}
            frames[name] = pd.DataFrame({column: values.astype(np.int64) for column, values in columns.items()})
        return cls(pack(frames), moves.begin, moves.codes, moves.unknown)

    def unpacked(self) -> CollectiveSchedule:
        """Return them."""
        frames = self.frames.frames()
        calls = {name: frames["calls"][name].to_numpy(dtype) for name, dtype in _BY_CALL.items()}
        steps, ends = (tuple(frames["steps"][name].tolist()) for name in ("number", "end"))
        own, stalled, computed = (_as_pieces(frames[name]) for name in _CLAIMED)
        return CollectiveSchedule(
            **calls, steps=steps, begin=self.begin, ends=ends, codes=self.codes, own=own, stalled=stalled,
            compute=computed, unknown=self.unknown,
        )  # fmt: skip


_BY_CALL: dict[str, Any] = {
    "rows": np.int32, "on_stream": np.int16, "slack": np.int32, "queued": np.int32, "stall": np.int64
}  # fmt: skip
_CLAIMED = ("own", "stalled", "compute")


def _as_pieces(frame: pd.DataFrame) -> Pieces:
    place, code, ns = (frame[name].to_numpy(np.int64) for name in ("place", "code", "ns"))
    return Pieces(place.astype(np.min_scalar_type(place.max(initial=0))), code.astype(np.uint8), ns)


def schedule_of(rank: Rank, claims: Mapping[str, Claim]) -> CollectiveSchedule | str:
    """What a rank can say; else why it cannot, as words."""
    if Capability.COMM not in rank.capabilities:
        return NO_COLLECTIVES
    if len({device for device, _ in rank.lanes}) != 1:
        return SEVERAL_DEVICES
    steps = _steps(rank)
    if not len(steps):
        return NO_STEPS
    lane: Lane = (rank.lanes[0][0], int(steps["capture"].iloc[0]))
    if lane not in rank.lanes:
        return NO_COLLECTIVES
    return _Recorded(rank, lane).moves(steps, {code: sets.get(lane, EMPTY) for code, sets in claims.items()})


def scaled(packed: PackedSchedule, code: str, share: float) -> PackedSchedule:
    """The same with only so much of what a rule claims everywhere."""
    if code not in packed.codes:
        return packed
    moves, place = packed.unpacked(), packed.codes.index(code)
    own, stalled = (_scaled(pieces, place, share) for pieces in (moves.own, moves.stalled))
    return PackedSchedule.of(replace(moves, own=own, stalled=stalled))


def _scaled(pieces: Pieces, code: int, share: float) -> Pieces:
    return replace(pieces, ns=np.where(pieces.code == code, pieces.ns * share, pieces.ns).astype(np.int64))


def is_alone(rank: Rank) -> bool:
    """Whether a rank is the only one of its job, as far as the trace tells, and drives one device."""
    world = world_size_of(rank.captures[0].meta)
    others = Capability.COMM in rank.capabilities if world is None else world > 1
    return not others and len({device for device, _ in rank.lanes}) == 1


def _steps(rank: Rank) -> pd.DataFrame:
    """The steps of the capture that has most, as far as one follows the other."""
    steps = rank.steps
    if not len(steps):
        return steps
    steps = steps[(steps["capture"] == steps["capture"].mode().iloc[0]).to_numpy()].sort_values("start")
    breaks = np.flatnonzero(steps["start"].to_numpy()[1:] > steps["end"].to_numpy()[:-1])
    chosen: pd.DataFrame = steps.iloc[: int(breaks[0]) + 1] if len(breaks) else steps
    return chosen


class _Recorded:
    """The communication kernels of a lane, in order of their ends, and when compute waits for each."""

    def __init__(self, rank: Rank, lane: Lane) -> None:
        self.awaited = awaited(rank).get(lane, EMPTY)
        self.compute = compute(rank).get(lane, EMPTY)
        rows = kernels(rank)
        rows = rows[(rows["device"] == lane[0]).to_numpy() & (rows["capture"] == lane[1]).to_numpy()]
        self.row = _rows_of(rows, call_frames(rank)["calls"])
        order = np.lexsort((rows["ts"].to_numpy(), rows["end"].to_numpy()))
        self.row = self.row[order]
        self.place, self.launch = (rank, lane), rows["launch"].to_numpy(np.int64)[order]
        self.start, self.end, self.lane = (rows[name].to_numpy(np.int64)[order] for name in ("ts", "end", "lane"))
        self.since = _waited_since(self.awaited, self.start, self.end)

    def moves(self, steps: pd.DataFrame, claims: Mapping[str, Intervals]) -> CollectiveSchedule:
        begin, ends = int(steps["start"].iloc[0]), steps["end"].to_numpy(np.int64)
        within = (self.start >= begin) & (self.end <= ends[-1])
        number = self._num_steps(np.sort(self.end[within & (self.row >= 0)]), ends)
        ends = ends[:number]
        within &= self.end <= ends[-1]
        mine = np.flatnonzero(within & (self.row >= 0))
        stall = np.maximum(self.end - self.since, 0)
        on_stream, slack = self._on_stream(mine)
        queued = self._queued(mine, on_stream, slack)
        slack[queued > 0] = 0  # They begin as soon behind the call before as they do now.
        points = np.sort(np.concatenate((self.start[mine] - _small(queued), self.end[mine], ends)))
        codes = tuple(code for code, claim in claims.items() if len(claim))
        own = [_between(intervals.difference(claims[code], self.awaited), begin, points) for code in codes]
        waits = [intervals.intersection(claims[code], self.awaited) for code in codes]
        stalled = [intervals.covered(wait, self.since[mine], self.end[mine]) for wait in waits]
        return CollectiveSchedule(
            self.row[mine].astype(np.int32), on_stream, _small(slack), _small(queued), stall[mine],
            tuple(steps["number"].tolist()[:number]), begin, tuple(ends.tolist()), codes,
            _pieces(own, carry=True), _pieces(stalled, carry=False),
            _pieces([_between(self.compute, begin, points)], carry=True, entries=_MOST_OF_COMPUTE),
            float(stall[within & (self.row < 0)].sum()) / number,
        )  # fmt: skip

    def _num_steps(self, ends_of_calls: Ints, ends: Ints) -> int:
        """How many steps hold no more calls than are told, and are no more than that; at least one."""
        world = collectives_of(self.place[0]).world_size
        most = min(at_most(_MOST_CALLS), max(_FEWEST_CALLS, _MOST_CALLS_IN_ALL // max(world, 1)))
        counts = np.searchsorted(ends_of_calls, ends, side="right")
        return max(1, min(most, int((counts <= most).sum())))

    def _queued(self, mine: Ints, on_stream: NDArray[np.int16], slack: Ints) -> Ints:
        """For how long each call had waited only for the one before it on its stream, behind which it begins."""
        launch = self.launch[mine]
        tied = np.flatnonzero((on_stream >= 0) & (slack <= _AT_ONCE) & (launch != UNLINKED))
        queued = np.zeros(len(mine), np.int64)
        queued[tied] = np.maximum(self.start[mine[tied]] - _ready_since(*self.place, launch[tied]), 0)
        return queued

    def _on_stream(self, mine: Ints) -> tuple[NDArray[np.int16], Ints]:
        """The call before each on its stream (a place in `mine`), and how long the stream was idle since."""
        before, slack = np.full(len(mine), -1, np.int64), np.zeros(len(mine), np.int64)
        for lane in unique_sorted(self.lane).tolist():
            every = np.flatnonzero(self.lane == lane)
            busy = np.append(0, np.cumsum((self.end - self.start)[every]))
            told = np.flatnonzero(np.isin(mine, every))
            place = np.searchsorted(every, mine[told])
            idle = self.start[mine[told]][1:] - self.end[mine[told]][:-1] - (busy[place[1:]] - busy[place[:-1] + 1])
            before[told[1:]], slack[told[1:]] = told[:-1], np.maximum(idle, 0)
        return before.astype(np.int16), slack  # `call_frames` has some thousands at most.


def _small(times: Ints) -> NDArray[np.int32]:
    """As few bytes as do: what is longer than two seconds bounds nothing."""
    return np.minimum(times, np.iinfo(np.int32).max).astype(np.int32)


def _ready_since(rank: Rank, lane: Lane, launch: Ints) -> Ints:
    """When all was done that calls wait for besides their stream, by launch: their own launch, and kernels before it.

    A collective waits for what its thread has launched so far; kernels of other streams are taken to be part of that.
    """
    events = rank.events_by_lane[lane]
    others = events[(events["kind"] != "comm").to_numpy() & (events["launch"] != UNLINKED).to_numpy()]
    launched, end = others["launch"].to_numpy(), others["end"].to_numpy()
    order = np.argsort(launched, kind="stable")
    latest = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end[order]))
    done = latest[np.searchsorted(launched[order], launch)]
    ready_since: Ints = np.maximum(done, rank.launches["end"].to_numpy()[launch])
    return ready_since


def _rows_of(rows: pd.DataFrame, calls: pd.DataFrame) -> Ints:
    """The row of the frame of calls for each communication kernel, -1 for none: those of equal times in order."""
    keys = ["start", "dur"]
    one = pd.DataFrame({"start": rows["ts"].to_numpy(), "dur": rows["dur"].to_numpy()})
    other = calls[keys].reset_index(drop=True)
    one["again"], other["again"] = one.groupby(keys).cumcount(), other.groupby(keys).cumcount()
    other["row"] = np.arange(len(other))
    found = one.merge(other, how="left", on=[*keys, "again"])["row"]
    return found.fillna(-1).to_numpy(np.int64)


def _waited_since(awaited: Intervals, start: Ints, end: Ints) -> Ints:
    """Since when compute has waited for each kernel's end, these in order; the end itself where it has not."""
    if not len(awaited) or not len(end):
        return end.copy()
    place = np.minimum(np.searchsorted(awaited[:, 1], end), len(awaited) - 1)
    before = np.append(np.iinfo(np.int64).min, end[:-1])
    since = np.maximum(np.maximum(awaited[place, 0], start), before)
    inside = (awaited[place, 0] < end) & (end <= awaited[place, 1])
    return np.where(inside, np.minimum(since, end), end)


def _between(claim: Intervals, begin: int, points: Ints) -> Ints:
    """How much of a claim lies between points, from `begin` on."""
    until = intervals.cumulative(claim, np.append(begin, points))
    return np.maximum(np.diff(until), 0)


def _pieces(claimed: list[Ints], *, carry: bool, entries: int = _MOST_ENTRIES) -> Pieces:
    """Only what is more than a small part of all; what is less is carried on to the next place, or left out."""
    most = sum(int(each.sum()) for each in claimed) / at_most(entries)
    found: list[tuple[Any, Ints]] = []
    for each in claimed:
        until = np.cumsum(each)
        if carry and len(until):
            level = np.floor(until / max(most, 1.0))
            told = np.union1d(np.flatnonzero(np.diff(level, prepend=0.0) > 0), len(until) - 1)
            found.append((told, np.diff(until[told], prepend=0)))
        else:
            told = np.flatnonzero(each > most)
            found.append((told, each[told]))
    place = np.concatenate([told for told, _ in found] or [np.zeros(0, np.int64)])
    code = np.repeat(np.arange(len(found)), [len(told) for told, _ in found])
    ns = np.concatenate([each for _, each in found] or [np.zeros(0, np.int64)])
    kept = ns > 0
    small = np.min_scalar_type(place.max(initial=0))  # Steps, of which there may be many, are places, too.
    return Pieces(place[kept].astype(small), code[kept].astype(np.uint8), ns[kept].astype(np.int64))
