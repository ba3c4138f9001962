"""Idle time by the Python function that the host is in: of recorded stacks, those that share time with gaps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.call_tree import nearest_above
from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.intervals import Intervals
from htareport.algorithms.nesting import NO_PARENT, own_pieces
from htareport.rank.host_calls import PYTHON_CATEGORY
from htareport.rank.idle import Cause
from htareport.rank.interval_sets import Lane, Sets, common, joined
from htareport.rank.rank import Rank

OWN = (Cause.OPERATING, Cause.ANNOTATED, Cause.NOTHING)  # All others have something more telling than Python.
_FUNCTION = r"\(\d+\): "  # file(line): name. What is built in has none, and belongs to who calls it.
_BUILT_IN = r"^<built-in "
_STEP = r"^ProfilerStep#"
_BACKWARD = r"^autograd::engine::evaluate_function|Backward\d*$|\): \w*(?:backward|hook)\w*$"


class Part(NamedTuple):
    """Idle time (`pool`) of a lane behind which a thread launches: what Python functions of it fill, in pieces.

    Each piece has its function's name code; it may be longer than what is idle of it.
    """

    lane: Lane
    thread: int
    pool: Intervals
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    code: NDArray[np.int32]
    backward: NDArray[np.bool_]

    def idle(self) -> NDArray[np.int64]:
        """What of each piece is idle."""
        return intervals.covered(self.pool, self.start, self.end)

    def of(self, code: int) -> Intervals:
        """The time of one function, idle or not."""
        mine = self.code == code
        return intervals.union(self.start[mine], self.end[mine])


class Stacks:
    """The Python stacks of a rank. `without` is a pattern of names that, and within which, nothing counts."""

    def __init__(self, rank: Rank, without: str) -> None:
        self.rank, self.strings = rank, rank.loaded.strings
        self.table, self.host = rank.loaded.tables[PYTHON_CATEGORY], rank.host
        used = np.zeros(len(self.strings), np.bool_)
        used[self.table["name"]] = True
        used[self.host["name"]] = True
        self.used: list[int] = np.flatnonzero(used).tolist()
        self.without, self.functions = self._matching(without), self._matching(_FUNCTION)
        self.backward, self.steps = self._matching(_BACKWARD), self._matching(_STEP)
        self.parts = list(self._parts())

    def _matching(self, pattern: str) -> NDArray[np.bool_]:
        """Which name codes match."""
        search, found = re.compile(pattern).search, np.zeros(len(self.strings), np.bool_)
        found[[code for code in self.used if search(self.strings[code])]] = True
        return found

    def times(self) -> pd.DataFrame:
        """Idle time by code of the function, and what of it is in the backward pass; most first."""
        size = len(self.strings)
        time, backward = np.zeros(size), np.zeros(size)
        for part in self.parts:
            idle, back = part.idle(), part.backward
            time += np.bincount(part.code, idle, size)
            backward += np.bincount(part.code[back], idle[back], size)
        codes = np.flatnonzero(time)
        table = pd.DataFrame({"time": time[codes], "backward": backward[codes]}, codes)
        return table.sort_values("time", ascending=False, kind="stable")

    def sets(self, code: int) -> Sets:
        """The idle time of one function."""
        return joined(*({part.lane: intervals.intersection(part.pool, part.of(code))} for part in self.parts))

    def built_in(self, code: int) -> str:
        """What is built in, is called by a function, and takes at least half of its idle time; empty without."""
        sums, whole = np.zeros(len(self.strings)), 0
        is_built_in = self._matching(_BUILT_IN)
        for part in self.parts:
            runs = part.of(code)
            idle = intervals.intersection(part.pool, runs)
            rows = self._rows(part.lane, part.thread, is_built_in)
            ts, dur = self.table["ts"][rows], self.table["dur"][rows]
            called = intervals.touching(runs, ts, ts + 1)
            begun, ends = ts[called], ts[called] + dur[called]
            names = self.table["name"][rows[called]]
            sums += np.bincount(names, intervals.covered(idle, begun, ends), len(sums))
            whole += intervals.total(idle)
        most = int(sums.argmax())
        return self.strings[most] if 2 * sums[most] >= whole > 0 else ""

    def _parts(self) -> Iterator[Part]:
        unfilled, filled = self.rank.idle_by(Cause.NOTHING), self.rank.idle_by(Cause.OPERATING, Cause.ANNOTATED)
        for lane in self.rank.lanes:
            gaps, events = self.rank.gaps[lane], self.rank.events_by_lane[lane]
            launch = events["launch"].to_numpy()[np.searchsorted(events["ts"].to_numpy(), gaps[:, 1])]
            thread = np.where(launch >= 0, self.rank.launches["thread"].to_numpy()[launch], -1)
            for number in unique_sorted(thread[thread >= 0]).tolist():
                host = self._host_rows(lane, number)
                runs = {lane: intervals.union(host["ts"].to_numpy(), host["end"].to_numpy())}
                there = joined(unfilled, common(filled, runs))  # Not what only other threads fill.
                pool = intervals.intersection(there.get(lane, intervals.EMPTY), gaps[thread == number])
                if len(pool):
                    calls = pd.concat([self._functions(lane, number, pool), _operators(host, pool)], ignore_index=True)
                    yield self._part(lane, number, pool, _in_order(calls))

    def _part(self, lane: Lane, thread: int, pool: Intervals, calls: pd.DataFrame) -> Part:
        """Cut the time of a thread by the innermost of its Python functions and operators."""
        code = calls["code"].to_numpy()
        own = own_pieces(calls["ts"].to_numpy(), calls["end"].to_numpy())
        counts = calls["python"].to_numpy() & ~_at_or_within(own.parent, self.without[code])
        used = counts[own.row]
        row = own.row[used]
        backward = _at_or_within(own.parent, self.backward[code])
        return Part(lane, thread, pool, own.start[used], own.end[used], code[row], backward[row])

    def _rows(self, lane: Lane, thread: int, wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Rows of a thread with wanted names."""
        table = self.table
        return np.flatnonzero(wanted[table["name"]] & (table["thread"] == thread) & (table["capture"] == lane[1]))

    def _functions(self, lane: Lane, thread: int, pool: Intervals) -> pd.DataFrame:
        """Python functions of a thread that share time with the pool: code, ts, end and python."""
        rows = self._rows(lane, thread, self.functions | self.without)
        ts = self.table["ts"][rows]
        functions = pd.DataFrame({"code": self.table["name"][rows], "ts": ts, "end": ts + self.table["dur"][rows]})
        return _touching(functions, pool).assign(python=True)

    def _host_rows(self, lane: Lane, thread: int) -> pd.DataFrame:
        """Operators and annotations of a thread, but for steps: code, ts, end and operator."""
        host = self.host
        chosen = (host["thread"] == thread) & (host["capture"] == lane[1])
        is_operator = host.of_level("operator")
        rows = np.flatnonzero(chosen & (is_operator | host.of_level("annotation")))
        rows = rows[~self.steps[host.at("name", rows)]]
        times = {name: host.at(name, rows) for name in ("ts", "end")}
        return pd.DataFrame({"code": host.at("name", rows), **times, "operator": is_operator[rows]})


def _operators(host: pd.DataFrame, pool: Intervals) -> pd.DataFrame:
    """Operators that share time with the pool: code, ts, end and python."""
    operators = host.loc[host["operator"].to_numpy(), ["code", "ts", "end"]]
    return _touching(operators, pool).assign(python=False)


def _touching(rows: pd.DataFrame, pool: Intervals) -> pd.DataFrame:
    ts, end = rows["ts"].to_numpy(), rows["end"].to_numpy()
    return rows[(end > ts) & intervals.touching(pool, ts, end)]


def _in_order(calls: pd.DataFrame) -> pd.DataFrame:
    """Calls by start, outside first; without operators right behind and within another, as both are its time."""
    ts, end, is_python = (calls[name].to_numpy() for name in ("ts", "end", "python"))
    order = np.argsort(ts, kind="stable")  # Of two parts in order: a merge. Only of equal stamps more has to be told.
    equal = ts[order[1:]] == ts[order[:-1]]
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal)[: len(order) + 1])
    some = order[tied]
    order[tied] = some[np.lexsort((~is_python[some], -end[some], ts[some]))]
    calls = calls.iloc[order]
    is_operator, end = ~calls["python"].to_numpy(), calls["end"].to_numpy()
    inner = is_operator[1:] & is_operator[:-1] & (end[1:] <= end[:-1])
    return calls[np.append(True, ~inner)[: len(calls)]]


def _at_or_within(parent: NDArray[np.int32], wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each row is a wanted one or within one."""
    return wanted | (nearest_above(parent, wanted) != NO_PARENT) if wanted.any() else wanted
