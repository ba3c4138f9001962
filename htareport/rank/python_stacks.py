"""GPU idle time by the Python function that the CPU is in, from recorded Python stacks."""

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
from htareport.rank.host_rows import threads_after_gaps
from htareport.rank.idle import Cause
from htareport.rank.interval_sets import Lane, Sets, common, joined
from htareport.rank.rank import Rank

OWN = (Cause.OPERATING, Cause.ANNOTATED, Cause.NOTHING)  # All other causes say more than a Python function does.
_FUNCTION = r"\(\d+\): "  # file(line): name. Built-in functions have no file and count for their caller.
_BUILT_IN = r"^<built-in "
_STEP = r"^ProfilerStep#"
_BACKWARD = r"^autograd::engine::evaluate_function|Backward\d*$|\): \w*(?:backward|hook)\w*$"


class ThreadIdle(NamedTuple):
    """Idle time (`pool`) of a lane that ends with a launch of a thread, and the pieces of its Python functions in it.

    Each piece has the name code of its function; it may be longer than what is idle of it.
    """

    lane: Lane
    thread: int
    pool: Intervals
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    code: NDArray[np.int32]
    is_backward: NDArray[np.bool_]

    def idle_ns(self) -> NDArray[np.int64]:
        """What of each piece is idle."""
        return intervals.covered(self.pool, self.start, self.end)

    def runs(self, code: int) -> Intervals:
        """The time of one function, idle or not."""
        is_function = self.code == code
        return intervals.union(self.start[is_function], self.end[is_function])


class Stacks:
    """The Python stacks of a rank. Nothing counts that is in a call whose name matches the pattern `excluded`."""

    def __init__(self, rank: Rank, excluded: str) -> None:
        self.rank, self.strings = rank, rank.loaded.strings
        self.table, self.host = rank.loaded.tables[PYTHON_CATEGORY], rank.host
        is_used = np.zeros(len(self.strings), np.bool_)
        is_used[self.table["name"]] = True
        is_used[self.host["name"]] = True
        self.codes: list[int] = np.flatnonzero(is_used).tolist()
        self.is_excluded, self.is_function = self._matching(excluded), self._matching(_FUNCTION)
        self.is_backward, self.is_step = self._matching(_BACKWARD), self._matching(_STEP)
        self.idle_of_threads = list(self._idle_of_threads())

    def _matching(self, pattern: str) -> NDArray[np.bool_]:
        """Which name codes match."""
        search, is_match = re.compile(pattern).search, np.zeros(len(self.strings), np.bool_)
        is_match[[code for code in self.codes if search(self.strings[code])]] = True
        return is_match

    def times(self) -> pd.DataFrame:
        """Idle time in ns by name code of the function, and what of it is in the backward pass; longest first."""
        size = len(self.strings)
        time, backward = np.zeros(size), np.zeros(size)
        for idle in self.idle_of_threads:
            idle_ns, is_backward = idle.idle_ns(), idle.is_backward
            time += np.bincount(idle.code, idle_ns, size)
            backward += np.bincount(idle.code[is_backward], idle_ns[is_backward], size)
        codes = np.flatnonzero(time)
        table = pd.DataFrame({"time": time[codes], "backward": backward[codes]}, codes)
        return table.sort_values("time", ascending=False, kind="stable")

    def sets(self, code: int) -> Sets:
        """The idle time of one function."""
        return joined(*({i.lane: intervals.intersection(i.pool, i.runs(code))} for i in self.idle_of_threads))

    def built_in(self, code: int) -> str:
        """The built-in function that a function calls and that takes at least half of its idle time; else empty."""
        sums, total = np.zeros(len(self.strings)), 0
        is_built_in = self._matching(_BUILT_IN)
        for idle in self.idle_of_threads:
            runs = idle.runs(code)
            idle_runs = intervals.intersection(idle.pool, runs)
            rows = self._rows(idle.lane, idle.thread, is_built_in)
            rows = rows[intervals.touching(runs, self.table["ts"][rows], self.table["ts"][rows] + 1)]
            start = self.table["ts"][rows]
            covered = intervals.covered(idle_runs, start, start + self.table["dur"][rows])
            sums += np.bincount(self.table["name"][rows], covered, len(sums))
            total += intervals.total(idle_runs)
        longest = int(sums.argmax())
        return self.strings[longest] if 2 * sums[longest] >= total > 0 else ""

    def _idle_of_threads(self) -> Iterator[ThreadIdle]:
        unfilled, filled = self.rank.idle_by(Cause.NOTHING), self.rank.idle_by(Cause.OPERATING, Cause.ANNOTATED)
        for lane in self.rank.lanes:
            gaps, threads = self.rank.gaps[lane], threads_after_gaps(self.rank, lane)
            for thread in unique_sorted(threads[threads >= 0]).tolist():
                host = self._host_rows(lane, thread)
                runs = {lane: intervals.union(host["ts"].to_numpy(), host["end"].to_numpy())}
                idle = joined(unfilled, common(filled, runs))  # Not what only other threads fill.
                pool = intervals.intersection(idle.get(lane, intervals.EMPTY), gaps[threads == thread])
                if len(pool):
                    calls = pd.concat([self._functions(lane, thread, pool), _operators(host, pool)], ignore_index=True)
                    yield self._thread_idle(lane, thread, pool, _in_order(calls))

    def _thread_idle(self, lane: Lane, thread: int, pool: Intervals, calls: pd.DataFrame) -> ThreadIdle:
        """Cut the time of a thread by the innermost of its Python functions and operators."""
        code = calls["code"].to_numpy()
        own = own_pieces(calls["ts"].to_numpy(), calls["end"].to_numpy())
        is_counted = calls["python"].to_numpy() & ~_is_in(own.parent, self.is_excluded[code])
        mask = is_counted[own.row]
        row = own.row[mask]
        is_backward = _is_in(own.parent, self.is_backward[code])
        return ThreadIdle(lane, thread, pool, own.start[mask], own.end[mask], code[row], is_backward[row])

    def _rows(self, lane: Lane, thread: int, code_mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Python rows of a thread with names of these codes."""
        table = self.table
        return np.flatnonzero(code_mask[table["name"]] & (table["thread"] == thread) & (table["capture"] == lane[1]))

    def _functions(self, lane: Lane, thread: int, pool: Intervals) -> pd.DataFrame:
        """Python functions of a thread that share time with the pool: code, ts, end and python."""
        rows = self._rows(lane, thread, self.is_function | self.is_excluded)
        ts = self.table["ts"][rows]
        functions = pd.DataFrame({"code": self.table["name"][rows], "ts": ts, "end": ts + self.table["dur"][rows]})
        return _touching(functions, pool).assign(python=True)

    def _host_rows(self, lane: Lane, thread: int) -> pd.DataFrame:
        """Operators and annotations of a thread, but for steps: code, ts, end and operator."""
        host, is_operator = self.host, self.host.of_level("operator")
        is_on_thread = (host["thread"] == thread) & (host["capture"] == lane[1])
        rows = np.flatnonzero(is_on_thread & (is_operator | host.of_level("annotation")))
        rows = rows[~self.is_step[host.at("name", rows)]]
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
    """Calls by start, the outer before the inner; without an operator whose previous call is an operator around it."""
    ts, end, is_python = (calls[name].to_numpy() for name in ("ts", "end", "python"))
    # Functions and operators each are in order, so this sort is a merge. Only equal starts need more than it.
    order = np.argsort(ts, kind="stable")
    equal = ts[order[1:]] == ts[order[:-1]]
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal)[: len(order) + 1])
    rows = order[tied]
    order[tied] = rows[np.lexsort((~is_python[rows], -end[rows], ts[rows]))]
    calls = calls.iloc[order]
    is_operator, end = ~calls["python"].to_numpy(), calls["end"].to_numpy()
    is_inner = is_operator[1:] & is_operator[:-1] & (end[1:] <= end[:-1])
    return calls[np.append(True, ~is_inner)[: len(calls)]]


def _is_in(parent: NDArray[np.int32], mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each row is one of the mask or within one."""
    return mask | (nearest_above(parent, mask) != NO_PARENT) if mask.any() else mask
