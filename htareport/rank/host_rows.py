"""Rows of the host by their names, and the idle time while they run: shared by the rules about the host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.intervals import EMPTY
from htareport.rank.cached import cached_until_release
from htareport.rank.host_calls import nearest
from htareport.rank.idle import Cause
from htareport.rank.interval_sets import Sets, common
from htareport.rank.rank import Rank
from htareport.report.findings import Span

IDLE = "idle_causes"  # The section with the numbers of most of these rules.
ON_HOST = (
    Cause.LOADING, Cause.COMPILING, Cause.COLLECTING, Cause.ALLOCATING, Cause.SYNCHRONISING, Cause.COPYING,
    Cause.LAUNCHING, Cause.CALLING, Cause.OPERATING, Cause.ANNOTATED, Cause.NOTHING,
)  # fmt: skip
DISPATCH = (Cause.LAUNCHING, Cause.CALLING, Cause.OPERATING, Cause.ANNOTATED, Cause.NOTHING, Cause.COPYING)
_MOST_SEARCHED = 512  # Characters of a name.
_MOST_SHOWN = 80
_TEMPLATE = re.compile(r"<.*>?")
_LIBRARY = re.compile(r"^<|^nn\.Module|(?:^|/)torch/|(?:^|/)(?:contextlib|functools|threading)\.py")


def late(rank: Rank) -> Sets:
    """Idle time in which the host has not launched what comes next, within the windows."""
    return rank.idle_by(*ON_HOST)


def coded(rank: Rank, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Which name codes are those of host rows whose names match."""
    strings = rank.loaded.strings
    coded = np.zeros(len(strings), np.bool_)
    coded[[code for code in _names(rank) if pattern.search(strings[code][:_MOST_SEARCHED])]] = True
    return coded


@cached_until_release
def _names(rank: Rank) -> list[int]:
    """Codes of the names of host rows."""
    used: list[int] = unique_sorted(rank.host["name"]).tolist()
    return used


def rows_named(rank: Rank, pattern: re.Pattern[str], level: str = "") -> NDArray[np.int64]:
    """Rows of the host table whose names match, of one level or of any, in order of the table."""
    host = rank.host
    rows_named = coded(rank, pattern)[host["name"]]
    return np.flatnonzero(rows_named & _of_level(rank, level) if level else rows_named)


@cached_until_release
def _of_level(rank: Rank, level: str) -> NDArray[np.bool_]:
    """Which rows of the host table are of a level."""
    return rank.host.of_level(level)


def name_of(rank: Rank, row: int) -> str:
    """Name of a row of the host table."""
    code = int(rank.host["name"][row])
    return rank.loaded.strings[code]


def names_of(rank: Rank, rows: Iterable[int]) -> list[str]:
    """Names of rows of the host table."""
    return [name_of(rank, row) for row in rows]


@cached_until_release
def operators_around(rank: Rank) -> NDArray[np.int32]:
    """Row of the innermost operator around each row of the host table, -1 for none."""
    return nearest(rank.host, "operator")


def during(rank: Rank, rows: NDArray[np.int64]) -> Sets:
    """Idle time in which the host is late and runs any of these rows, within the windows."""
    host = rank.host
    return common(late(rank), by_lane(rank, *(host.at(name, rows) for name in ("ts", "end", "capture"))))


def by_lane(rank: Rank, start: NDArray[np.int64], end: NDArray[np.int64], capture: NDArray[Any]) -> Sets:
    """When rows run, for each device: those of its capture."""
    captures = unique_sorted(capture).tolist()
    runs = {each: intervals.union(start[capture == each], end[capture == each]) for each in captures}
    return {lane: runs.get(lane[1], EMPTY) for lane in rank.lanes}


def rows_in(rank: Rank, category: str, pattern: re.Pattern[str]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Start, end and capture of the events of a category whose names match."""
    table, strings = rank.loaded.tables.get(category, {}), rank.loaded.strings
    if not table:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int16)
    codes = [code for code in unique_sorted(table["name"]).tolist() if pattern.search(strings[code])]
    mine = np.flatnonzero(np.isin(table["name"], codes))
    start = table["ts"][mine]
    return start, start + table["dur"][mine], table["capture"][mine]


def in_front(rank: Rank, chosen: NDArray[np.bool_]) -> Sets:
    """Idle time right before device events that some launches started, chosen by their rows; not clipped to windows."""
    in_front = Sets()
    for lane, gaps in rank.gaps.items():
        events = rank.events_by_lane[lane]
        launch = events["launch"].to_numpy()[np.searchsorted(events["ts"].to_numpy(), gaps[:, 1])]
        in_front[lane] = gaps[(launch >= 0) & chosen[launch]] if len(chosen) else EMPTY
    return in_front


def graphed(rank: Rank, launch: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these rows of launches, of which -1 is none, replay a graph."""
    graphed: NDArray[np.bool_] = np.append(rank.launches["graph"].to_numpy(), False)[launch]
    return graphed


def times(names: Iterable[tuple[str, float]], per: float) -> str:
    """Names with how often they occur, per step."""
    return ", ".join(f"`{short(name)}` {_number(count / per)}×" for name, count in names)


def _number(count: float) -> str:
    """How often, in few digits: what does not occur in each step is no matter of thousandths."""
    return f"{count:.3g}" if count >= 1 else f"{count:.1g}"


def short(name: str) -> str:
    """A name that fits into a sentence: of a long one without parameters and what stands in angle brackets."""
    if len(name) > _MOST_SHOWN and ".py(" not in name:
        name = name.removeprefix("void ").replace("(anonymous namespace)::", "").partition("(")[0]
        name = _TEMPLATE.sub("<…>", name)
    return name if len(name) <= _MOST_SHOWN else f"{name[: _MOST_SHOWN - 1]}…"


def frame_at(rank: Rank, thread: int, stamp: int) -> str:
    """The innermost function of the user's Python code that runs on a thread at a time, empty if not recorded.

    A function is one of the user's if it belongs to no part of PyTorch and is written in Python.
    """
    table, strings = rank.loaded.tables.get("python_function", {}), rank.loaded.strings
    if not table:
        return ""
    ts = table["ts"]
    rows = np.flatnonzero((table["thread"] == thread) & (ts <= stamp) & (ts + table["dur"] > stamp))
    rows = rows[np.argsort(ts[rows], kind="stable")[::-1]]
    names = (strings[code] for code in table["name"][rows].tolist())
    return next((name for name in names if not _LIBRARY.search(name)), "")


def frame_in(rank: Rank, spans: Sequence[Span]) -> str:
    """The user's function in the middle of the first span, on the thread that launches most; empty if not recorded."""
    threads = rank.launches["thread"].to_numpy()
    if not spans or not len(threads):
        return ""
    return frame_at(rank, int(np.bincount(threads).argmax()), (spans[0].start + spans[0].end) // 2)


def per(rank: Rank) -> int:
    """By what times of all steps and devices are divided to be those per step and device."""
    return rank.num_steps * max(len({device for device, _ in rank.lanes}), 1)
