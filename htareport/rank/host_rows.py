"""Rows of the CPU (operators, runtime calls, annotations) by name, and the GPU's idle time while they run."""

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
from htareport.rank.interval_sets import Lane, Sets, common
from htareport.rank.rank import Rank
from htareport.report.findings import Span
from htareport.rows import classify

IDLE = "idle_causes"  # The section with the numbers of most of these rules.
ON_HOST = (
    Cause.LOADING, Cause.COMPILING, Cause.COLLECTING, Cause.ALLOCATING, Cause.SYNCHRONISING, Cause.COPYING,
    Cause.LAUNCHING, Cause.CALLING, Cause.OPERATING, Cause.ANNOTATED, Cause.NOTHING,
)  # fmt: skip
DISPATCH = (Cause.LAUNCHING, Cause.CALLING, Cause.OPERATING, Cause.ANNOTATED, Cause.NOTHING, Cause.COPYING)
_MAX_SEARCHED = 512  # Characters of a name.
_MAX_SHOWN = 80  # Characters of a name in a sentence.
_TEMPLATE = re.compile(r"<.*>?")
_LIBRARY = re.compile(r"^<|^nn\.Module|(?:^|/)torch/|(?:^|/)(?:contextlib|functools|threading)\.py")


def late(rank: Rank) -> Sets:
    """Idle time in which the host has not launched what comes next, within the windows."""
    return rank.idle_by(*ON_HOST)


def coded(rank: Rank, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Which name codes are names of host rows that match."""
    strings = rank.loaded.strings
    is_match = np.zeros(len(strings), np.bool_)
    is_match[[code for code in _name_codes(rank) if pattern.search(strings[code][:_MAX_SEARCHED])]] = True
    return is_match


@cached_until_release
def _name_codes(rank: Rank) -> list[int]:
    """Codes of the names of host rows."""
    codes: list[int] = unique_sorted(rank.host["name"]).tolist()
    return codes


def rows_named(rank: Rank, pattern: re.Pattern[str], level: str = "") -> NDArray[np.int64]:
    """Rows of the host table whose names match, of one level (`call`, `operator`, `annotation`) or of any."""
    is_match = coded(rank, pattern)[rank.host["name"]]
    return np.flatnonzero(is_match & _has_level(rank, level) if level else is_match)


@cached_until_release
def _has_level(rank: Rank, level: str) -> NDArray[np.bool_]:
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


def by_lane(rank: Rank, start: NDArray[np.int64], end: NDArray[np.int64], captures: NDArray[Any]) -> Sets:
    """When rows run, for each device: those of its capture."""
    runs = {
        capture: intervals.union(start[captures == capture], end[captures == capture])
        for capture in unique_sorted(captures).tolist()
    }
    return {lane: runs.get(lane[1], EMPTY) for lane in rank.lanes}


def rows_in(rank: Rank, category: str, pattern: re.Pattern[str]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Start, end and capture of the events of a category whose names match."""
    table, strings = rank.loaded.tables.get(category, {}), rank.loaded.strings
    if not table:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int16)
    codes = [code for code in unique_sorted(table["name"]).tolist() if pattern.search(strings[code])]
    rows = np.flatnonzero(np.isin(table["name"], codes))
    start = table["ts"][rows]
    return start, start + table["dur"][rows], table["capture"][rows]


def launches_after_gaps(rank: Rank, lane: Lane) -> NDArray[np.int64]:
    """Row of the launch of the device event that ends each gap of a lane, -1 where the trace has none."""
    events = rank.events_by_lane[lane]
    launches: NDArray[np.int64] = events["launch"].to_numpy()
    return launches[np.searchsorted(events["ts"].to_numpy(), rank.gaps[lane][:, 1])]


def threads_after_gaps(rank: Rank, lane: Lane) -> NDArray[np.int64]:
    """The thread that launched the device event that ends each gap of a lane, -1 where the trace does not say."""
    threads = np.append(rank.launches["thread"].to_numpy(), np.int64(-1))  # Row -1 is none.
    return threads[launches_after_gaps(rank, lane)]


def in_front(rank: Rank, launch_mask: NDArray[np.bool_]) -> Sets:
    """Gaps right before device events of some launches, not clipped to the windows."""
    mask = np.append(launch_mask, False)  # Row -1 is none.
    return {lane: gaps[mask[launches_after_gaps(rank, lane)]] for lane, gaps in rank.gaps.items()}


def graphed(rank: Rank, launch_rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these rows of launches, of which -1 is none, replay a CUDA graph."""
    is_graph: NDArray[np.bool_] = np.append(rank.launches["graph"].to_numpy(), False)[launch_rows]
    return is_graph


def kernel_launch_mask(rank: Rank) -> NDArray[np.bool_]:
    """Which launches start a single kernel: no copy, no CUDA graph."""
    names = rank.launches["name"].cat
    is_kernel = np.array([classify.is_kernel_launch(str(name)) for name in names.categories], np.bool_)
    return is_kernel[names.codes.to_numpy()]


def times(names: Iterable[tuple[str, float]], num_windows: float) -> str:
    """Names with how often they occur, per step."""
    return ", ".join(f"`{short(name)}` {_count_text(count / num_windows)}×" for name, count in names)


def _count_text(count: float) -> str:
    """How often, with one digit below one: five times in six steps are 0.8 per step."""
    return f"{count:.3g}" if count >= 1 else f"{count:.1g}"


def short(name: str) -> str:
    """A name that fits into a sentence: a long one is without parameters and template arguments."""
    if len(name) > _MAX_SHOWN and ".py(" not in name:
        name = name.removeprefix("void ").replace("(anonymous namespace)::", "").partition("(")[0]
        name = _TEMPLATE.sub("<…>", name)
    return name if len(name) <= _MAX_SHOWN else f"{name[: _MAX_SHOWN - 1]}…"


def frame_at(rank: Rank, thread: int, stamp: int) -> str:
    """The innermost function of the user's Python code that runs on a thread at a time, empty if not recorded.

    A function is the user's if it is written in Python and is no part of PyTorch.
    """
    table, strings = rank.loaded.tables.get("python_function", {}), rank.loaded.strings
    if not table:
        return ""
    ts = table["ts"]
    rows = np.flatnonzero((table["thread"] == thread) & (ts <= stamp) & (ts + table["dur"] > stamp))
    rows = rows[np.argsort(ts[rows], kind="stable")[::-1]]
    names = (strings[code] for code in table["name"][rows].tolist())
    return next((name for name in names if not is_library(name)), "")


def is_library(name: str) -> bool:
    """Whether a Python function is built in, or belongs to PyTorch or to helpers of the standard library."""
    return _LIBRARY.search(name) is not None


def frame_in(rank: Rank, spans: Sequence[Span]) -> str:
    """The user's function in the middle of the first span, on the thread that launches most; empty if not recorded."""
    threads = rank.launches["thread"].to_numpy()
    if not spans or not len(threads):
        return ""
    return frame_at(rank, int(np.bincount(threads).argmax()), (spans[0].start + spans[0].end) // 2)


def per(rank: Rank) -> int:
    """The number of steps times devices, by which sums are divided to be per step and device."""
    return rank.num_steps * max(len({device for device, _ in rank.lanes}), 1)
