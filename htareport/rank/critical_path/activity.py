"""What a window of one rank holds, for its critical path: host rows as a tree, and device events launched from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.rank.rank import Rank
from htareport.rows.classify import step_number

Numbers = NDArray[np.int64]
NONE = -1
_CAPTURES = 4096  # More than a rank has; threads are told apart by capture too.
_BACKWARD = re.compile(r"autograd::|Backward\d*$")
_HOST_COLLECTIVE = re.compile(r"^(?:gloo|mpi|ucc):")


@dataclass(frozen=True)
class Span:
    """A stretch of time [start, end) in ns, within one capture (None: any) and seen from one thread (None: unknown).

    `is_whole` says that nothing is left out; its ends are then no events of their own.
    """

    start: int
    end: int
    capture: int | None = None
    thread: int | None = None
    is_whole: bool = False


class Activity:
    """The events of a window. Host rows come first, then device events: event e of `host` is e, of `device` hosts + e.

    `host` has the columns of trace.host.Host, with `parent` (row of it, -1 none) and `depth` among these rows, and
    `is_loading` for what lies within a row whose name contains one of the texts of `data_loading`. Annotations are left
    out but for those, and for collectives that the host runs itself, if these are wanted. `device` has the columns of
    Rank.device_events and `all`, the row in there.
    """

    def __init__(
        self, trace: Rank, span: Span, data_loading: tuple[str, ...] = (), *, host_collectives: bool = True
    ) -> None:
        self.trace, self.span = trace, span
        self.host = _host_rows(trace, span, data_loading, host_collectives=host_collectives)
        self.device = _device_rows(trace, span)

    @property
    def size(self) -> int:
        """Number of events."""
        return len(self.host) + len(self.device)

    @cached_property
    def groups(self) -> Numbers:
        """Thread and capture of each host row as one number."""
        threads, captures = (self.host[name].to_numpy().astype(np.int64) for name in ("thread", "capture"))
        groups: Numbers = threads * _CAPTURES + captures
        return groups

    @cached_property
    def place(self) -> Numbers:
        """Row within `device` of each device event of the rank, -1 outside."""
        place = np.full(len(self.trace.device_events), NONE, np.int64)
        place[self.device["all"].to_numpy()] = np.arange(len(self.device))
        return place

    @cached_property
    def call_of_launch(self) -> Numbers:
        """Host row of each of the rank's launches, -1 outside."""
        call = np.full(len(self.trace.launches), NONE, np.int64)
        launch = self.host["launch"].to_numpy()
        call[launch[launch >= 0]] = np.flatnonzero(launch >= 0)
        return call

    @cached_property
    def last_within(self) -> Numbers:
        """The last host row within each (itself if there is none): rows stand in order of their start."""
        last = np.arange(len(self.host))
        parent, depth = self.host["parent"].to_numpy(), self.host["depth"].to_numpy()
        for rows in _levels(depth)[:0:-1]:
            last[parent[rows]] = last[rows]  # Of several children the last wins.
        return last

    @cached_property
    def main_group(self) -> int:
        """The thread of the window's annotation, else the one whose outermost rows, backward apart, take most time."""
        if self.span.thread is not None:
            return self.span.thread * _CAPTURES + (self.span.capture or 0)
        outermost = (self.host["depth"].to_numpy() == 0) & ~self.is_collective
        forward = outermost & ~self._is_backward
        rows = forward if forward.any() else outermost
        if not rows.any():
            return NONE
        groups, inverse = np.unique(self.groups[rows], return_inverse=True)
        return int(groups[np.argmax(np.bincount(inverse, self.host["dur"].to_numpy()[rows]))])

    @property
    def backward_groups(self) -> list[int]:
        """Threads that run the backward pass for the main one."""
        groups: list[int] = unique_sorted(self.groups[self._is_backward]).tolist()
        return [group for group in groups if group != self.main_group]

    @cached_property
    def _is_backward(self) -> NDArray[np.bool_]:
        return _named(self.host, lambda name: _BACKWARD.search(name) is not None)

    @cached_property
    def is_collective(self) -> NDArray[np.bool_]:
        """Host rows that are collectives which the host itself runs."""
        return _named(self.host, lambda name: _HOST_COLLECTIVE.search(name) is not None)


def _named(host: pd.DataFrame, matches: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Rows whose name matches."""
    codes, inverse = np.unique(host["name"].cat.codes.to_numpy(), return_inverse=True)
    names = host["name"].cat.categories[codes]
    return np.fromiter(map(matches, names), np.bool_, len(names))[inverse]


def _host_rows(trace: Rank, span: Span, data_loading: tuple[str, ...], *, host_collectives: bool) -> pd.DataFrame:
    starts = trace.host["ts"]
    within = (starts >= span.start) & (starts < span.end)
    if span.capture is not None:
        within &= trace.host["capture"] == span.capture
    host = _renumbered(trace.host.frame(within), within, trace.host["parent"])
    loads = _named(host, lambda name: any(text in name for text in data_loading))
    keep = (host["level"] != "annotation").to_numpy() | loads
    if host_collectives:
        keep |= _named(host, lambda name: _HOST_COLLECTIVE.search(name) is not None)
    keep &= ~_named(host, lambda name: step_number(name) is not None)
    parent, depth, loading = _tree_of(host, keep, loads)
    host["depth"], host["is_loading"] = depth, loading
    return _renumbered(host[keep].reset_index(drop=True), keep, parent)


def _renumbered(kept: pd.DataFrame, keep: NDArray[np.bool_], parent: Numbers) -> pd.DataFrame:
    """The rows that are kept, with their parents' numbers among these; a parent that is not kept becomes none."""
    number = np.where(keep, np.cumsum(keep) - 1, NONE)
    above = parent[keep]
    return kept.assign(parent=np.where(above == NONE, NONE, number[above]))


def _tree_of(
    host: pd.DataFrame, keep: NDArray[np.bool_], marked: NDArray[np.bool_]
) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """Innermost kept row around each row, how many of them are around it, and whether it is in a marked one."""
    parent = host["parent"].to_numpy().copy()
    depth, within = np.zeros(len(host), np.int64), marked & keep
    for level in _levels(host["depth"].to_numpy()):
        rows = level[parent[level] != NONE]
        above = parent[rows]
        kept = keep[above]
        depth[rows] = depth[above] + kept
        within[rows] |= within[above]
        parent[rows] = np.where(kept, above, parent[above])
    return parent, depth, within


def _levels(depth: NDArray[Any]) -> list[Numbers]:
    """Rows of each depth, outermost first, in their order."""
    if not len(depth):
        return []
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.searchsorted(depth[order], np.arange(1, int(depth.max()) + 1)))


def _device_rows(trace: Rank, span: Span) -> pd.DataFrame:
    """Device events whose launch is within the window; those without one, that start in it."""
    events = trace.device_events
    launch = events["launch"].to_numpy()
    begun = events["ts"].to_numpy().copy()
    begun[launch >= 0] = trace.launches["ts"].to_numpy()[launch[launch >= 0]]
    keep = (begun >= span.start) & (begun < span.end)
    if span.capture is not None:
        keep &= events["capture"].to_numpy() == span.capture
    rows = np.flatnonzero(keep)
    return events.iloc[rows].assign(all=rows).reset_index(drop=True)
