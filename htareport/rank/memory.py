"""The [memory] rows of a rank as one series per device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.live import running_total
from htareport.rank.cached import cached_until_release
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE, step_of
from htareport.rank.window import ALL
from htareport.rows.columns import NONE

_CPU = 0
_DEVICE_TYPES = {_CPU: "CPU", 1: "CUDA", 6: "HIP", 12: "XPU", 13: "MPS", 15: "HPU", 19: "MTIA", 20: "NPU"}
NO_OPERATOR = "outside operators"


class Series(NamedTuple):
    """The rows of one device in one order of time, and the levels after each."""

    device: str
    is_cpu: bool
    capacity: float
    has_totals: bool
    ts: Any
    thread: Any
    capture: Any
    size: Any
    address: Any
    allocated: Any
    reserved: Any  # None where the trace doesn't tell.
    within: Any  # Which rows lie within the window.


def series_of(trace: Rank) -> Iterator[Series]:
    """The series of each device that has rows within the window."""
    memory = trace.loaded.memory
    inside = np.ones(len(memory["ts"]), np.bool_)
    if trace.window != ALL and trace.all_step_numbers:
        inside = step_of(trace.steps, memory["ts"]) != OUTSIDE
    devices = pd.Series(memory["device_type"]) * 4096 + memory["device_id"].clip(NONE, 4094) + 1
    for number in unique_sorted(devices.to_numpy()).tolist():
        kind, place = divmod(number, 4096)
        mine = np.flatnonzero(devices.to_numpy() == number)
        mine = mine[np.lexsort((memory["ts"][mine], memory["capture"][mine]))]
        if not inside[mine].any():
            continue
        columns = {name: values[mine] for name, values in memory.items()}
        has_totals = bool((columns["allocated"] >= 0).all())
        reserved = columns["reserved"] if has_totals and columns["reserved"].max() > 0 else None
        name = _DEVICE_TYPES.get(kind, f"device type {kind}")
        yield Series(
            name if kind == _CPU or place == 0 else f"{name} {place - 1}",
            kind == _CPU,
            _capacity(trace, place - 1) if kind != _CPU else np.nan,
            has_totals,
            columns["ts"],
            columns["thread"].astype(np.int64),
            columns["capture"],
            columns["size"],
            columns["address"],
            columns["allocated"] if has_totals else _summed_up(columns["size"], columns["capture"]),
            reserved,
            inside[mine],
        )


def _summed_up(sizes: Any, captures: Any) -> Any:
    """The running total, each capture by itself."""
    parts = [running_total(sizes[captures == capture]) for capture in unique_sorted(captures)]
    return np.concatenate(parts)


def _capacity(trace: Rank, device: int) -> float:
    """Memory of a device as the trace has it, nan if it hasn't."""
    devices = trace.captures[0].meta.get("deviceProperties")
    for place, each in enumerate(devices if isinstance(devices, list) else ()):
        if isinstance(each, dict) and each.get("id", place) == device:
            size = each.get("totalGlobalMem")
            return float(size) if isinstance(size, int) and size > 0 else np.nan
    return np.nan


def outermost_operators(trace: Rank, each: Series, rows: Any) -> Any:
    """Name of the outermost operator that runs on the thread at each of these rows."""
    host = trace.host
    if not len(host) or not len(rows):
        return np.full(len(rows), NO_OPERATOR, object)
    thread, start, end = (host[name] for name in ("thread", "ts", "end"))
    parent, is_operator = host["parent"], host.of_level("operator")
    limits = np.searchsorted(thread, [each.thread[rows], each.thread[rows] + 1])
    stamps = each.ts[rows]
    at = np.full(len(rows), -1, np.int64)
    for first, last in np.unique(limits, axis=1).T.tolist():
        mine = (limits[0] == first) & (limits[1] == last)
        order = np.searchsorted(start[first:last], stamps[mine], side="right") - 1
        at[mine] = np.where(order >= 0, first + order, -1)
    outermost_operators = np.full(len(rows), -1, np.int64)
    while (at >= 0).any():
        covers = (at >= 0) & (end[at] > stamps) & is_operator[at]
        outermost_operators[covers] = at[covers]
        at = np.where(at >= 0, parent[at], -1)
    return np.where(outermost_operators >= 0, np.asarray(host.names(outermost_operators), object), NO_OPERATOR)


@cached_until_release
def device_memory(rank: Rank) -> list[Series]:
    """The memory of each device, not of the host, within the window."""
    return [series for series in series_of(rank) if not series.is_cpu]


def fill(series: Series) -> float:
    """Most that is taken of the device's memory, as a share of it; nan where either is unknown."""
    level = series.allocated if series.reserved is None else series.reserved
    return float(level[series.within].max()) / series.capacity


def fullest(rank: Rank) -> Series | None:
    """The device whose memory is fullest; None where no size is known."""
    sized = [series for series in device_memory(rank) if np.isfinite(series.capacity)]
    return max(sized, key=fill, default=None)
