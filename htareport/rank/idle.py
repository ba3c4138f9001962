"""What the host did while a device had nothing to run, and what the device waited for when it had.

A gap of a device lasts from the latest end so far to the next start. Until that event's launch begins, the host is
late: that part is split by time over what its thread does, and where that thread does nothing, over what the others
do. While the launch call runs, the call itself is it. What is left, the device waits although the work is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.chunks import chunks
from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.intervals import Intervals
from htareport.rank.cached import cached_on_rank
from htareport.rank.host_calls import LEVELS, Host
from htareport.rank.tables import RankTables
from htareport.rows import classify

Stamps = NDArray[np.int64]

LATENCY_NS = 30_000  # A device that has work starts it within this time.
OUTSIDE = -1


class Cause(StrEnum):
    """What fills idle time, most telling first: of causes at the same time on a thread the first counts."""

    LOADING = "data loading"
    COMPILING = "compilation"
    COLLECTING = "garbage collection"
    ALLOCATING = "memory allocation"
    SYNCHRONISING = "synchronisation"
    COPYING = "copy calls"
    LAUNCHING = "launch calls"
    CALLING = "other runtime calls"
    OPERATING = "operators"
    ANNOTATED = "annotated code"
    NOTHING = "nothing recorded"
    LATENCY = "kernel start"
    WAITING = "wait on the device"
    UNKNOWN = "no launch recorded"


_NAMES = {
    Cause.LOADING: r"enumerate\(DataLoader\)|DataLoader\w*(?:Iter)?\.__next__|_next_data|^dataloader|data_load",
    Cause.COMPILING: r"TorchDynamo|AOTDispatcher|Inductor|triton.*compile|(?:cu|hip)(?:Module|Library)(?:Load|Get)|"
    r"(?:Lazy Function|Module) Loading|Driver Compiler|hiprtc|nvrtc",
    Cause.COLLECTING: r"Python GC|gc\.collect|garbage.collect",
    Cause.ALLOCATING: r"^(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostRegister)|empty_cache|"
    r"^(?:cu|hip)Mem(?:Alloc|Free|Create|Map|Release|Unmap|SetAccess|AddressReserve)",
    Cause.SYNCHRONISING: r"^(?:cuda|hip|cu)\w*Synchronize|^synchronize|Synchronize(?:Device|Stream|Event)$",
    Cause.COPYING: r"^(?:cuda|hip|cu)Mem(?:cpy|set)|^(?:cuda|hip)GraphExec.*Memcpy",
    Cause.LAUNCHING: r"^(?:cuda|hip|cu)\w*Launch",
}
_PYTHON_NAMES = {
    Cause.COLLECTING: r"^Python GC|^<built-in function collect>|\bgc\.collect",
    Cause.COMPILING: r"\(dynamo_timed\)|torch/_dynamo/convert_frame\.py|torch/_inductor/compile_fx\.py",
}
_OF_LEVEL = {"call": Cause.CALLING, "operator": Cause.OPERATING, "annotation": Cause.ANNOTATED}
_ON_HOST = tuple(Cause)[: tuple(Cause).index(Cause.NOTHING)]


@dataclass
class Attribution:
    """Idle time of a rank in ns: by device, step (-1 outside of all) and cause; and by cause and name of host rows.

    `sets` are the same by device, capture and cause: unions of intervals, which together are all gaps. What is before
    the first event of a device within the steps counts as a gap.
    """

    times: pd.DataFrame
    names: pd.DataFrame
    sets: dict[tuple[Any, int, Cause], Intervals]


@dataclass
class _Gaps:
    """Gaps of one device and capture: begin, end, and of the launch of what follows start, end, thread (-1 unknown)."""

    begin: Stamps
    end: Stamps
    launch: Stamps
    launched: Stamps
    thread: Stamps


@cached_on_rank
def attribute(trace: RankTables) -> Attribution:
    """Split the idle time of each device of a rank."""
    host = _Host(trace)
    times, names, parts = list[pd.DataFrame](), list[pd.DataFrame](), dict[tuple[Any, int, Cause], list[Intervals]]()
    for device, events in trace.devices.items():
        for capture, busy in enumerate(trace.busy_by_capture(events)):
            own, steps = events[events["capture"] == capture], trace.steps[trace.steps["capture"] == capture]
            gaps, first_gap = _gaps(trace, own, busy), _first_gap(trace, own, busy, steps)
            for cause, taken in (*_split(first_gap, host, capture, names), *_split(gaps, host, capture, names)):
                times.append(_by_step(taken, steps).assign(device=device, cause=str(cause)))
                parts.setdefault((device, capture, cause), []).append(taken)
    columns = ["device", "step", "cause", "time"]
    found = pd.concat(times, ignore_index=True)[columns] if times else pd.DataFrame({name: [] for name in columns})
    sums = found.groupby(["device", "step", "cause"], sort=False)["time"].sum().reset_index()
    named = pd.concat(names, ignore_index=True) if names else pd.DataFrame({"cause": [], "name": [], "time": []})
    sets = {place: _joined(mine) for place, mine in parts.items()}
    return Attribution(sums, named.groupby(["cause", "name"])["time"].sum().reset_index(), sets)


class PythonPauses(NamedTuple):
    """Rows of Python functions that stand for a cause of idle time (`cause`: its place among those on the host)."""

    start: Stamps
    end: Stamps
    thread: NDArray[Any]
    capture: NDArray[Any]
    code: NDArray[Any]
    cause: NDArray[np.int8]


@cached_on_rank
def python_pauses(trace: RankTables) -> PythonPauses:
    """Return the rows of Python functions in which the host pauses: to collect garbage, or to compile."""
    table = trace.loaded.tables.get("python_function", {})
    codes = table.get("name", np.zeros(0, np.int32))
    cause = np.full(len(trace.loaded.strings) + 1, -1, np.int8)
    patterns = [(which, re.compile(_PYTHON_NAMES[which], re.IGNORECASE)) for which in _PYTHON_NAMES]
    for code in unique_sorted(codes).tolist():
        name = trace.loaded.strings[code][:512]
        cause[code] = next((_ON_HOST.index(which) for which, pattern in patterns if pattern.search(name)), -1)
    rows = np.flatnonzero(cause[codes] >= 0)
    if not len(rows):
        none = np.zeros(0, np.int64)
        return PythonPauses(none, none, none, none, none, np.zeros(0, np.int8))
    start, code = table["ts"][rows], codes[rows]
    end = start + table["dur"][rows]
    return PythonPauses(start, end, table["thread"][rows], table["capture"][rows], code, cause[code])


def pauses_for(trace: RankTables, cause: Cause) -> PythonPauses:
    """Return those of one cause."""
    pauses = python_pauses(trace)
    chosen = pauses.cause == _ON_HOST.index(cause)
    return PythonPauses(*(column[chosen] for column in pauses))


@cached_on_rank
def _causes_of_rows(trace: RankTables) -> NDArray[np.int8]:
    """The cause that each row of the host stands for, as its place among those on the host; below 0 for none."""
    return _causes(trace.host, trace.host["name"], trace.loaded.strings)


def rows_of_causes(trace: RankTables, *causes: Cause) -> NDArray[np.int64]:
    """Rows of the host that stand for these causes."""
    return np.flatnonzero(np.isin(_causes_of_rows(trace), [_ON_HOST.index(cause) for cause in causes]))


def _joined(parts: list[Intervals]) -> Intervals:
    rows = np.concatenate(parts)
    return intervals.union(rows[:, 0], rows[:, 1])


def _first_gap(trace: RankTables, events: pd.DataFrame, busy: Intervals, steps: pd.DataFrame) -> _Gaps:
    """The gap from the start of the first step to the first event of a device, if the device is idle then."""
    start = int(steps["start"].min()) if len(steps) else 0
    if not len(busy) or not len(steps) or start >= busy[0, 0]:
        return _gaps(trace, events, busy[:0])
    return _gaps(trace, events, np.array([[start, start], busy[0]], np.int64))


def _gaps(trace: RankTables, events: pd.DataFrame, busy: Intervals) -> _Gaps:
    begin, end = busy[:-1, 1], busy[1:, 0]
    starts, launch = events["ts"].to_numpy(), events["launch"].to_numpy()
    following = launch[np.searchsorted(starts, end)] if len(end) else np.zeros(0, np.int64)
    known = following >= 0
    calls = trace.launches
    first, last, thread = (np.full(len(end), -1, np.int64) for _ in range(3))
    for out, name in ((first, "ts"), (last, "end"), (thread, "thread")):
        out[known] = calls[name].to_numpy()[following[known]]
    return _Gaps(begin, end, first, last, thread)


class _Host:
    """The host's rows by cause, thread and capture; of Python's only pauses, such as the garbage collector's."""

    def __init__(self, trace: RankTables) -> None:
        table, pauses = trace.host, python_pauses(trace)
        self.start, self.end, self.parent = table["ts"], table["end"], table["parent"]
        self.thread, self.capture, self.codes = table["thread"], table["capture"], table["name"]
        self.strings = trace.loaded.strings
        self.cause = _causes_of_rows(trace)
        if len(pauses.start):
            self.start, self.end = np.append(self.start, pauses.start), np.append(self.end, pauses.end)
            self.parent = np.append(self.parent, np.full(len(pauses.start), -1, self.parent.dtype))
            self.thread = np.append(self.thread, pauses.thread)
            self.capture = np.append(self.capture, pauses.capture)
            self.codes, self.cause = np.append(self.codes, pauses.code), np.append(self.cause, pauses.cause)
        self.outer = self._outer()

    def _outer(self) -> NDArray[np.bool_]:
        """Rows that do not lie within one of the same cause: together they last as long as all of it."""
        outer = np.ones(len(self.start), np.bool_)
        for chunk in chunks(len(outer)):
            parent = self.parent[chunk]
            within = (self.cause[parent] == self.cause[chunk]) & (self.end[parent] >= self.end[chunk])
            outer[chunk] = (parent < 0) | ~within
        return outer

    def rows(self, cause: Cause, capture: int, thread: int, *, others: bool) -> NDArray[np.int64]:
        """Rows of a cause on a thread of a capture, or on all the other threads."""
        on_thread = (self.thread != thread) if others else (self.thread == thread)
        return np.flatnonzero((self.cause == _ON_HOST.index(cause)) & (self.capture == capture) & on_thread)

    def named(self, cause: Cause, rows: NDArray[np.int64], taken: Intervals) -> pd.DataFrame:
        """What of these intervals lies in rows of each name, outside the rows of the same cause within them."""
        covered = np.empty(len(rows), np.int64)
        for chunk in chunks(len(rows)):
            covered[chunk] = intervals.covered(taken, self.start[rows[chunk]], self.end[rows[chunk]])
        used = covered > 0
        rows, covered = rows[used], covered[used]
        place = np.full(len(self.start), -1, np.int32)
        place[rows] = np.arange(len(rows))
        inner = place[self.parent[rows]]
        inner[self.parent[rows] < 0] = -1
        own = covered.copy()
        np.subtract.at(own, inner[inner >= 0], covered[inner >= 0])
        frame = pd.DataFrame({"code": self.codes[rows], "time": np.maximum(own, 0)})
        sums = frame.groupby("code")["time"].sum()
        names = pd.Series([self.strings[code] for code in sums.index], dtype=object)
        return pd.DataFrame({"cause": str(cause), "name": names, "time": sums.to_numpy()})


def _causes(table: Host, codes: NDArray[Any], strings: list[str]) -> NDArray[np.int8]:
    """Cause of each row of the host: by its name, else by its level; steps are none (-1)."""
    patterns = [(cause, re.compile(pattern, re.IGNORECASE)) for cause, pattern in _NAMES.items()]
    of_name = np.full(len(strings), -1, np.int8)
    for code in unique_sorted(codes).tolist():
        name = strings[code][:512]
        of_name[code] = next((_ON_HOST.index(cause) for cause, pattern in patterns if pattern.search(name)), -1)
        if classify.step_number(name) is not None:
            of_name[code] = -2
    levels = [_ON_HOST.index(_OF_LEVEL[level]) if level in _OF_LEVEL else -2 for level in LEVELS]
    of_level = np.array(levels, np.int8)[table["level"]]
    found = of_name[codes]
    causes: NDArray[np.int8] = np.where(found == -1, of_level, found)
    return causes


def _split(gaps: _Gaps, host: _Host, capture: int, names: list[pd.DataFrame]) -> Iterator[tuple[Cause, Intervals]]:
    """The gaps as sets of intervals by cause; together they are all of them."""
    known = gaps.thread >= 0
    late = np.clip(np.where(known, gaps.launch, gaps.begin), gaps.begin, gaps.end)
    called = np.clip(np.where(known, gaps.launched, gaps.begin), late, gaps.end)
    yield Cause.UNKNOWN, intervals.union(gaps.begin[~known], gaps.end[~known])
    yield Cause.LAUNCHING, intervals.union(late[known], called[known])
    rest = gaps.end - called
    soon = known & (rest < LATENCY_NS)
    yield Cause.LATENCY, intervals.union(called[soon], gaps.end[soon])
    yield Cause.WAITING, intervals.union(called[known & ~soon], gaps.end[known & ~soon])
    for thread in unique_sorted(gaps.thread[known]).tolist():
        mine = gaps.thread == thread
        free = intervals.union(gaps.begin[mine], late[mine])
        for others in (False, True):
            for cause in _ON_HOST:
                rows = host.rows(cause, capture, thread, others=others)
                outer = rows[host.outer[rows]]
                taken = intervals.intersection(free, intervals.union(host.start[outer], host.end[outer]))
                if len(taken):
                    free = intervals.difference(free, taken)
                    names.append(host.named(cause, rows, taken))
                    yield cause, taken
        yield Cause.NOTHING, free


def _by_step(taken: Intervals, steps: pd.DataFrame) -> pd.DataFrame:
    """Length of a set within each step, and outside of all."""
    within = intervals.covered(taken, steps["start"].to_numpy(), steps["end"].to_numpy())
    number = np.append(steps["number"].to_numpy(), OUTSIDE)
    return pd.DataFrame({"step": number, "time": np.append(within, intervals.total(taken) - within.sum())})
