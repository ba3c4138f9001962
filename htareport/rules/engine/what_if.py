"""What the step would take, were what a finding claims gone, with ranks that go on waiting for each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.rank_shifts import Calls, Ints, Late, Removed, Stream, saved, shifts
from htareport.job.facts import JobFacts
from htareport.job.matching import Matching
from htareport.report.findings import Finding
from htareport.report.number_lists import listed
from htareport.rules.engine.base import AnyRule, least_of, severity_of
from htareport.rules.engine.collective_schedule import ONE_RANK, CollectiveSchedule
from htareport.rules.engine.evaluate import RankEvidence
from htareport.rules.engine.evidence import Change, JobEvidence

_MOST_UNKNOWN = 0.1  # Of the step: waits for communication that is not followed.
_LARGEST = 4_000_000  # Numbers in an array.

_ENTRY = ("row", "rank", "place", "arrival", "end", "stall", "on_stream", "slack", "queued", "at_arrival", "at_end")

NOT_MATCHED = "no collective is matched across ranks"
NOT_ALIKE = "ranks recorded different steps"
NOT_RECORDED = "some ranks did not record what the others did"
NOT_FOLLOWED = "ranks also wait for communication that is not matched (sent from one to another, or on ranks not read)"
NO_PLACE = "it is not known where the time lies"


@dataclass(frozen=True)
class WhatIf:
    """The followed collectives of all ranks, and by how much a step gets shorter (ns) if time goes.

    `entries` has a row for each entry of `calls`: rank (its place in `ranks`), place (of the call in its moves),
    at_arrival and at_end (places among its points). `end` is when each rank's last step ends, on one clock, and `last`
    the place of that among its points.
    """

    ranks: tuple[int, ...]
    schedules: tuple[CollectiveSchedule, ...]
    calls: Calls
    entries: pd.DataFrame
    end: Ints
    last: tuple[int, ...]
    num_steps: int

    def saving(self, codes: Sequence[str]) -> dict[str, float]:
        """Without what each rule claims, by code; rules without claims are left out."""
        claimed = {code for move in self.schedules for code in move.codes}
        there, found = [code for code in codes if code in claimed], dict[str, float]()
        width = max(1, _LARGEST // max(len(self.entries), 1))
        for first in range(0, len(there), width):
            some = there[first : first + width]
            times = saved(self.end, shifts(self.calls, self._removed(some))) / self.num_steps
            found |= dict(zip(some, times.tolist(), strict=True))
        return found

    def changed(self, change: Change) -> float:
        """If this becomes of the job."""
        entries, late = self.entries, None
        removed = _nothing(len(entries), len(self.ranks), 1)
        for number, (rank, each) in enumerate(zip(self.ranks, self.schedules, strict=True)):
            if share := change.compute.get(rank):
                self._remove(removed, number, 0, share * np.cumsum(each.compute.of(0, _num_points(each))))
                removed = replace(removed, adds=True)
        if change.shorter:
            row = entries["row"]
            of_calls = row.map(change.shorter).fillna(0.0).groupby(self.calls.collective).transform("max").to_numpy()
            np.minimum(of_calls, self._moving(), out=removed.stalled[:, 0])
        if change.late is not None:
            late = Late(change.late[entries["row"].to_numpy()], change.to_mean)
        return float(saved(self.end, shifts(self.calls, removed, late))[0]) / self.num_steps

    def _removed(self, codes: Sequence[str]) -> Removed:
        entries = self.entries
        removed = _nothing(len(entries), len(self.ranks), len(codes))
        for number, each in enumerate(self.schedules):
            mine = self._mine[number]
            place = entries["place"].to_numpy()[mine]
            for column, code in enumerate(codes):
                if code in each.codes:
                    index = each.codes.index(code)
                    self._remove(removed, number, column, np.cumsum(each.own.of(index, _num_points(each))))
                    removed.stalled[mine, column] = each.stalled.of(index, len(each.rows))[place]
        # What is claimed of a wait for others is no time of the collective: it moves bytes from the last arrival on.
        moving = np.minimum(self._moving(), self.calls.stall)
        np.minimum(removed.stalled, moving[:, None], out=removed.stalled)
        return removed

    def _remove(self, removed: Removed, number: int, column: int, own: NDArray[Any]) -> None:
        """Take from a rank its own time: so much until each of its points."""
        mine = self._mine[number]
        at = [self.entries[name].to_numpy()[mine] for name in ("at_arrival", "at_end")]
        removed.at_arrival[mine, column], removed.at_end[mine, column] = own[at[0]], own[at[1]]
        removed.in_all[number, column] = own[self.last[number]]

    @cached_property
    def _mine(self) -> list[NDArray[np.intp]]:
        """The places of each rank's entries, worked out once: there may be thousands of ranks."""
        rank = self.entries["rank"].to_numpy()
        order = np.argsort(rank, kind="stable")
        return np.split(order, np.searchsorted(rank[order], np.arange(1, len(self.ranks))))

    def _moving(self) -> Ints:
        """How long each collective lasts once all have come."""
        latest = pd.Series(self.calls.arrival).groupby(self.calls.collective).transform("max").to_numpy(np.int64)
        moving: Ints = np.maximum(self.calls.end - latest, 0)
        return moving


def _num_points(moves: CollectiveSchedule) -> int:
    return 2 * len(moves.rows) + len(moves.ends)


def _nothing(entries: int, ranks: int, columns: int) -> Removed:
    first, second, third = (np.zeros((entries, columns)) for _ in range(3))
    return Removed(first, second, third, np.zeros((ranks, columns)))


def what_if(ranks: Sequence[RankEvidence], facts: JobFacts) -> WhatIf | str:
    """Join the collectives of all ranks; why not, as words, where that cannot be done."""
    if len(ranks) < 2:  # noqa: PLR2004  nobody to wait for
        return ONE_RANK
    moves = {rank.rank: rank.schedule for rank in ranks}
    packed = {rank: each for rank, each in moves.items() if not isinstance(each, str)}
    if len(packed) < len(moves):
        said = next(move for move in moves.values() if isinstance(move, str))
        lacking = [rank for rank in moves if rank not in packed]
        return f"{NOT_RECORDED} ({_ranks(lacking)}: {said})" if packed else said
    known = {rank: each.unpacked() for rank, each in packed.items()}
    steps = min((each.steps for each in known.values()), key=len)
    if any(each.steps[: len(steps)] != steps for each in known.values()):
        return NOT_ALIKE
    return _joined(facts, known, len(steps))


def _joined(facts: JobFacts, known: Mapping[int, CollectiveSchedule], number: int) -> WhatIf | str:
    found = facts.matching
    told, lasts = _told(found, known, number)
    entries = _entries(found, told, max(len(known), facts.world_size))
    if not len(entries):
        there = set(told["rank"].tolist())
        lacking = [rank for place, rank in enumerate(known) if place not in there]
        has = "have" if len(lacking) > 1 else "has"
        return f"{NOT_MATCHED}: {_ranks(lacking)} {has} none" if there and lacking else NOT_MATCHED
    ranks, offset = tuple(known), [found.clocks.offset.get(rank, 0) for rank in known]
    times = np.array([each.ends[number - 1] - each.begin for each in known.values()])
    waits = [np.bincount(some["rank"], some["stall"], len(known)) for some in (told, entries)]
    missing = waits[0] - waits[1] + number * np.array([each.unknown for each in known.values()])
    if (missing > _MOST_UNKNOWN * times).any():
        return NOT_FOLLOWED
    end = np.array([each.ends[number - 1] for each in known.values()], np.int64) - np.array(offset, np.int64)
    columns = [entries[name].to_numpy(np.int64) for name in ("collective", "rank", "arrival", "end", "stall")]
    collective, rank, arrival, finish, stall = columns
    on_stream, slack, queued = (entries[name].to_numpy(np.int64) for name in ("on_stream", "slack", "queued"))
    calls = Calls.of(collective, rank, (arrival, finish), stall, Stream(on_stream, slack, queued))
    return WhatIf(ranks, tuple(known.values()), calls, entries, end, tuple(lasts), number)


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def _points(ready: Ints, end: Ints, moves: CollectiveSchedule) -> Ints:
    """The points between which own claims are told, in order of time: of calls, and the ends of steps."""
    return np.sort(np.concatenate((ready, end, np.array(moves.ends, np.int64))))


def _entries(found: Matching, told: pd.DataFrame, world: int) -> pd.DataFrame:
    """Each followed collective on each of its ranks, by end of the collective."""
    size = len(found.calls)
    place = np.full(size, -1, np.int64)
    place[told["row"].to_numpy()] = np.arange(len(told))
    group_size = found.kinds.set_index("kind")["group_size"].reindex(found.calls["kind"]).to_numpy()
    parts, collectives = [], 0
    for one in found.together:
        sizes = group_size[one.rows[:, 0]]
        whole = np.where(sizes > 0, sizes == len(one.ranks), len(one.ranks) == world)
        rows = one.rows[whole & (place[one.rows] >= 0).all(axis=1)]
        each = told.iloc[place[rows].ravel()].reset_index(drop=True)
        each["collective"] = collectives + np.repeat(np.arange(len(rows)), len(one.ranks))
        collectives += len(rows)
        parts.append(each)
    table = pd.concat(parts, ignore_index=True) if parts else told.iloc[:0].assign(collective=0)
    order = table.groupby("collective")["end"].median().rank(method="first").astype("int64")
    table = table.assign(collective=table["collective"].map(order))
    table = table.sort_values(["collective", "rank"], kind="stable", ignore_index=True)
    return _with_streams(table)


def _told(found: Matching, known: Mapping[int, CollectiveSchedule], number: int) -> tuple[pd.DataFrame, list[int]]:
    """Each rank's calls within the steps, on one clock, and the place of the end of its last step among its points.

    `row` is where a call stands among those of all ranks.
    """
    places, firsts = np.unique(found.calls["rank"].to_numpy(), return_index=True)
    starts, lengths = (found.calls[name].to_numpy(np.int64) for name in ("start", "dur"))
    parts: dict[str, list[Ints]] = {name: [] for name in _ENTRY}
    lasts = list[int]()
    for place, (rank, moves) in enumerate(known.items()):
        rows = firsts[np.searchsorted(places, rank)] + moves.rows if len(moves.rows) else moves.rows
        start, offset = starts[rows], found.clocks.offset.get(rank, 0)
        end = start + lengths[rows]
        ready = start - moves.queued.astype(np.int64)
        points = _points(ready, end, moves)
        lasts.append(int(np.searchsorted(points, moves.ends[number - 1], side="right")) - 1)
        at = [np.searchsorted(points, stamp, side="right") - 1 for stamp in (ready, end)]
        number_of = np.arange(len(rows))
        each = (rows, np.full(len(rows), place), number_of, start - offset, end - offset, moves.stall,
                *(each.astype(np.int64) for each in (moves.on_stream, moves.slack, moves.queued)), *at)  # fmt: skip
        within = end <= moves.ends[number - 1]
        for name, values in zip(_ENTRY, each, strict=True):
            parts[name].append(values[within])
    return pd.DataFrame({name: np.concatenate(mine) for name, mine in parts.items()}), lasts


def _with_streams(entries: pd.DataFrame) -> pd.DataFrame:
    """`on_stream` as a row of the table; -1 where the call before is not followed."""
    keys = pd.MultiIndex.from_arrays([entries["rank"], entries["place"]])
    wanted = pd.MultiIndex.from_arrays([entries["rank"], entries["on_stream"]])
    return entries.assign(on_stream=keys.get_indexer(wanted))


def with_step_times(
    findings: Sequence[Finding], told: Mapping[str, tuple[AnyRule, JobEvidence[Any]]], ranks: Sequence[RankEvidence]
) -> list[Finding]:
    """Say of each finding what the step would take without it, never less than its saving allows; or why not.

    `told` has rule and evidence by code. None is graver than what the step would be shorter by.
    """
    saving = [finding for finding in findings if finding.saving_ns and finding.is_per_step]
    if not saving:
        return list(findings)
    times, why = dict[str, float](), ""
    if len(ranks) == 1 and ranks[0].is_alone:  # Nobody waits: the step gets shorter by all that goes.
        times = {each.code: float(each.saving_ns or 0) for each in saving}
        return [
            _with_step_time(finding, told[finding.code][1], times, why) if finding in saving else finding
            for finding in findings
        ]
    try:
        found = what_if(ranks, next(job.facts for _, job in told.values()))
        if isinstance(found, str):
            why = found
        else:
            times = found.saving([each.code for each in saving])
            changes = {each.code: told[each.code][0].change(told[each.code][1]) for each in saving}
            times |= {code: found.changed(change) for code, change in changes.items() if change}
    except Exception as error:  # noqa: BLE001  it costs only the answer to what if
        times, why = {}, f"collectives could not be followed: {type(error).__name__}: {error}"
    return [
        _with_step_time(finding, told[finding.code][1], times, why) if finding in saving else finding
        for finding in findings
    ]


def _with_step_time(finding: Finding, job: JobEvidence[Any], times: Mapping[str, float], why: str) -> Finding:
    step, most = round(job.step_ns), finding.saving_ns or 0
    if finding.code not in times:
        return replace(finding, step_ns=step, ceiling=why or NO_PLACE)
    saves = min(round(times[finding.code]), most, step)
    low = None if finding.low_ns is None else min(finding.low_ns, saves)
    severity = least_of(finding.severity, severity_of(saves / step if step else 0.0))
    return replace(
        finding,
        step_ns=step,
        without_ns=step - saves,
        low_ns=low,
        severity=severity,
        is_across_ranks=job.num_ranks > 1,
    )
