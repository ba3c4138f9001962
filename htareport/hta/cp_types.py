"""Nodes, edges and events of a critical path under HTA's names; times are µs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pandas as pd

from htareport.analyses.activity_graph import ActivityGraph, Kind
from htareport.analyses.path_summary import Bound
from htareport.hta.ranks import PER_US

EVENT_COLUMNS = ("s_name", "cat", "pid", "tid", "stream", "ts", "dur")
HTA_BOUNDS = {
    Bound.HOST: "cpu_bound",
    Bound.PYTHON: "python_bound",
    Bound.LOADING: "data_loading",
    Bound.LAUNCH: "gpu_kernel_launch_overhead",
    Bound.COMPUTE: "gpu_compute_bound",
    Bound.COMM: "gpu_communication_bound",
    Bound.MEMORY: "gpu_compute_bound",
    Bound.GAP: "gpu_kernel_kernel_overhead",
    Bound.EARLIER: "gpu_earlier_work",
}
_KEPT_WHOLE = re.compile(r"Memcpy|Memset|Copy")
_BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)")


class CPEdgeType(Enum):
    """What an edge stands for."""

    OPERATOR_KERNEL = "critical_path_operator"
    DEPENDENCY = "critical_path_dependency"
    KERNEL_LAUNCH_DELAY = "critical_path_kernel_launch_delay"
    KERNEL_KERNEL_DELAY = "critical_path_kernel_kernel_delay"
    SYNC_DEPENDENCY = "critical_path_sync_dependency"


TYPES = {
    Kind.HOST: CPEdgeType.OPERATOR_KERNEL,
    Kind.BETWEEN: CPEdgeType.DEPENDENCY,
    Kind.DEVICE: CPEdgeType.OPERATOR_KERNEL,
    Kind.LAUNCH: CPEdgeType.KERNEL_LAUNCH_DELAY,
    Kind.GAP: CPEdgeType.KERNEL_KERNEL_DELAY,
    Kind.SYNC: CPEdgeType.SYNC_DEPENDENCY,
    Kind.EARLIER: CPEdgeType.SYNC_DEPENDENCY,
}
ATTRIBUTED = (Kind.HOST, Kind.DEVICE, Kind.GAP)


@dataclass(frozen=True)
class CPNode:
    """Start or end of an event; `ts` is µs from the start of the run."""

    idx: int
    ev_idx: int
    ts: float
    is_start: bool


@dataclass(frozen=True)
class CPEdge:
    """An edge between two nodes; `weight` is µs."""

    begin: int
    end: int
    type: CPEdgeType
    weight: float


def events_frame(found: ActivityGraph, zero_ns: int) -> pd.DataFrame:
    """The events of a graph with HTA's columns."""
    activity = found.activity
    loaded, host, device = activity.trace.loaded, activity.host, activity.device
    categories = np.array(list(loaded.tables), object)
    threads = [loaded.threads[number] for number in host["thread"].tolist()]
    parts = [
        pd.DataFrame(
            {
                "name": rows["name"].astype(object),
                "cat": categories[rows["source"].to_numpy()] if len(rows) else "",
                "pid": pids,
                "tid": tids,
                "stream": streams,
                "ts": (rows["ts"] - zero_ns) / PER_US,
                "dur": rows["dur"] / PER_US,
            }
        )
        for rows, pids, tids, streams in (
            (host, [pid for pid, _ in threads], [tid for _, tid in threads], -1),
            (device, device["device"], device["stream"], device["stream"]),
        )
        if len(rows)
    ]
    empty = pd.DataFrame(columns=["name", *EVENT_COLUMNS[1:]])
    events = pd.concat(parts, ignore_index=True) if parts else empty
    short = {name: _short(name) for name in events["name"].unique()}
    events["s_name"] = events.pop("name").map(short)
    return events.assign(index=events.index)[[*EVENT_COLUMNS, "index"]]


def _short(name: str) -> str:
    """Drop arguments, template arguments and the return type, as HTA does."""
    if _KEPT_WHOLE.match(name):
        return name
    short, before = name.replace("->", ""), ""
    while short != before:
        before, short = short, _BRACKETS.sub("", short)
    return short.removeprefix("void ").strip()
