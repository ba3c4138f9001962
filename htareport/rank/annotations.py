"""Annotations of the host and of the devices, and which of them each device event belongs to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.call_tree import around_points, self_times
from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.nesting import NO_PARENT
from htareport.algorithms.nesting import self_times as times_outside
from htareport.rank import kernel_launches
from htareport.rank.host_calls import backward_links, nearest
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE, step_of
from htareport.rank.window import ALL


class Owners(NamedTuple):
    """Row of the host's or of the device's annotations that each device event belongs to; -1 for none."""

    host: NDArray[np.int64]
    device: NDArray[np.int64]


def host_annotations(trace: Rank) -> pd.DataFrame:
    """Annotations of the host within the window: name (code), ts, end, dur, self (ns), thread, capture, parent, row.

    `parent` is the row of the annotation around it here, `row` its own of the host table.
    """
    host = trace.host
    keep = host.of_level("annotation")
    if trace.window != ALL and trace.all_step_numbers:
        keep = keep & (step_of(trace.steps, host["ts"]) != OUTSIDE)
    rows = np.flatnonzero(keep)
    place = np.full(len(host) + 1, NO_PARENT, np.int64)
    place[rows] = np.arange(len(rows))
    parent = place[nearest(host, "annotation")[rows]]
    table = pd.DataFrame({name: host.at(name, rows) for name in ("ts", "end", "dur", "thread", "capture")})
    own = self_times(table["ts"].to_numpy(), table["end"].to_numpy(), parent)
    return table.assign(name=kernel_launches.names_of(trace, rows), parent=parent, own=own, row=rows)


def device_annotations(trace: Rank) -> pd.DataFrame:
    """Annotations of the devices: name (code), ts, end, dur, self (ns), lane (of the device events), capture.

    Where only a part of the trace is looked at, those in which one of its device events starts.
    """
    columns = trace.loaded.tables.get("gpu_user_annotation", {})
    table = pd.DataFrame({name: np.asarray(columns.get(name, _NOTHING), np.int64) for name in _TAKEN})
    lanes = {tuple(map(str, lane)): number for number, lane in enumerate(trace.loaded.lanes)}
    lane_of = np.array([lanes.get(tuple(map(str, each)), -1 - i) for i, each in enumerate(trace.loaded.threads)])
    table["lane"] = lane_of[table["thread"]] if len(table) else table["thread"]
    table["end"] = table["ts"] + table["dur"]
    if trace.window != ALL and trace.all_step_numbers:
        events = trace.device_events
        starts, lane = events["ts"].to_numpy(), events["lane"].to_numpy()
        keep = np.zeros(len(table), np.bool_)
        for number in unique_sorted(table["lane"].to_numpy()).tolist():
            mine, there = (table["lane"] == number).to_numpy(), starts[lane == number]
            first, last = (np.searchsorted(there, table[name].to_numpy()[mine]) for name in ("ts", "end"))
            keep[mine] = last > first
        table = table[keep].reset_index(drop=True)
    stream = pd.factorize(_row_of(table["lane"], table["capture"]))[0].astype(np.int32)
    own = times_outside(table["ts"].to_numpy(), table["end"].to_numpy(), stream)[0] if len(table) else table["dur"]
    return table.assign(own=own, parent=np.full(len(table), NO_PARENT, np.int64))


_NOTHING = np.zeros(0, np.int64)
_TAKEN = ("name", "ts", "dur", "thread", "capture")


def annotation_of(trace: Rank, on_host: pd.DataFrame, on_device: pd.DataFrame) -> Owners:
    """The annotation of each device event: of the host around its launch, else of the device around its start.

    What a thread of the backward pass launches belongs to the annotation then open on the thread of the forward pass.
    """
    host, events = trace.host, trace.device_events
    place = np.full(len(host) + 1, NO_PARENT, np.int64)
    place[on_host["row"]] = np.arange(len(on_host))
    owner = place[kernel_launches.around(trace, nearest(host, "annotation"))]
    launch, calls = events["launch"].to_numpy(), trace.launches
    branches, onto = backward_links(trace.loaded, host) if len(on_host) else (owner[:0], owner[:0])
    thread = host["thread"]
    ahead = dict(zip(thread[branches].tolist(), thread[onto].tolist(), strict=True))
    left = np.flatnonzero((owner == NO_PARENT) & (launch >= 0))
    if ahead and len(left):
        launching = calls["thread"].to_numpy()[launch[left]]
        left, launching = (each[np.isin(launching, list(ahead))] for each in (left, launching))
        forward = np.array([ahead[each] for each in launching.tolist()], np.int64)
        owner[left] = around_points(
            on_host["ts"].to_numpy(),
            on_host["end"].to_numpy(),
            _row_of(on_host["thread"], on_host["capture"]),
            calls["ts"].to_numpy()[launch[left]],
            _row_of(forward, events["capture"].to_numpy()[left]),
        )
    on_stream = np.full(len(events), NO_PARENT, np.int64)
    left = np.flatnonzero(owner == NO_PARENT)
    if len(left) and len(on_device):
        on_stream[left] = around_points(
            on_device["ts"].to_numpy(),
            on_device["end"].to_numpy(),
            _row_of(on_device["lane"], on_device["capture"]),
            events["ts"].to_numpy()[left],
            _row_of(events["lane"].to_numpy()[left], events["capture"].to_numpy()[left]),
        )
    return Owners(owner, on_stream)


def _row_of(thread: Any, capture: Any) -> NDArray[np.int64]:
    """A number for each thread, or stream, of each capture."""
    return np.asarray(thread, np.int64) * 4096 + np.asarray(capture, np.int64)
