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
    """The memory rows of one device, sorted by capture and time, and the bytes allocated and reserved after each."""

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
    reserved: Any  # None where the trace lacks it.
    within: Any  # Which rows lie within the window.


def series_of(trace: Rank) -> Iterator[Series]:
    """The series of each device that has rows within the window."""
    memory = trace.loaded.memory
    inside = np.ones(len(memory["ts"]), np.bool_)
    if trace.window != ALL and trace.all_step_numbers:
        inside = step_of(trace.steps, memory["ts"]) != OUTSIDE
    devices = pd.Series(memory["device_type"]) * 4096 + memory["device_id"].clip(NONE, 4094) + 1
    for number in unique_sorted(devices.to_numpy()).tolist():
        device_type, device_number = divmod(number, 4096)  # The number is 0 where the trace has none.
        rows = np.flatnonzero(devices.to_numpy() == number)
        rows = rows[np.lexsort((memory["ts"][rows], memory["capture"][rows]))]
        if not inside[rows].any():
            continue
        columns = {name: values[rows] for name, values in memory.items()}
        has_totals = bool((columns["allocated"] >= 0).all())
        reserved = columns["reserved"] if has_totals and columns["reserved"].max() > 0 else None
        name, is_cpu = _DEVICE_TYPES.get(device_type, f"device type {device_type}"), device_type == _CPU
        yield Series(
            name if is_cpu or device_number == 0 else f"{name} {device_number - 1}",
            is_cpu,
            np.nan if is_cpu else _capacity(trace, device_number - 1),
            has_totals,
            columns["ts"],
            columns["thread"].astype(np.int64),
            columns["capture"],
            columns["size"],
            columns["address"],
            columns["allocated"] if has_totals else _summed_up(columns["size"], columns["capture"]),
            reserved,
            inside[rows],
        )


def _summed_up(sizes: Any, captures: Any) -> Any:
    """The running total, each capture by itself."""
    return np.concatenate([running_total(sizes[captures == capture]) for capture in unique_sorted(captures)])


def _capacity(trace: Rank, device: int) -> float:
    """Memory of a device as the trace has it, nan if it hasn't."""
    devices = trace.captures[0].meta.get("deviceProperties")
    for index, properties in enumerate(devices if isinstance(devices, list) else ()):
        if isinstance(properties, dict) and properties.get("id", index) == device:
            size = properties.get("totalGlobalMem")
            return float(size) if isinstance(size, int) and size > 0 else np.nan
    return np.nan


def outermost_operators(trace: Rank, series: Series, rows: Any) -> Any:
    """Name of the outermost operator that runs on the thread at each of these rows."""
    # From the innermost host row at each stamp up through the parents: the last operator met is the outermost.
    host = trace.host
    if not len(host) or not len(rows):
        return np.full(len(rows), NO_OPERATOR, object)
    thread, start, end = (host[name] for name in ("thread", "ts", "end"))
    parent, is_operator = host["parent"], host.of_level("operator")
    limits = np.searchsorted(thread, [series.thread[rows], series.thread[rows] + 1])
    stamps = series.ts[rows]
    host_row = np.full(len(rows), -1, np.int64)
    for first, last in np.unique(limits, axis=1).T.tolist():
        is_on_thread = (limits[0] == first) & (limits[1] == last)
        order = np.searchsorted(start[first:last], stamps[is_on_thread], side="right") - 1
        host_row[is_on_thread] = np.where(order >= 0, first + order, -1)
    outermost = np.full(len(rows), -1, np.int64)
    while (host_row >= 0).any():
        covers = (host_row >= 0) & (end[host_row] > stamps) & is_operator[host_row]
        outermost[covers] = host_row[covers]
        host_row = np.where(host_row >= 0, parent[host_row], -1)
    return np.where(outermost >= 0, np.asarray(host.names(outermost), object), NO_OPERATOR)


@cached_until_release
def device_memory(rank: Rank) -> list[Series]:
    """The memory of each device, not of the host, within the window."""
    return [series for series in series_of(rank) if not series.is_cpu]


def fill(series: Series) -> float:
    """Peak of the memory taken from the device, as a share of its capacity; nan where that is unknown."""
    level = series.allocated if series.reserved is None else series.reserved
    return float(level[series.within].max()) / series.capacity


def fullest(rank: Rank) -> Series | None:
    """The device whose memory is fullest; None where no size is known."""
    return max((series for series in device_memory(rank) if np.isfinite(series.capacity)), key=fill, default=None)
