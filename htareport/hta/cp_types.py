"""Nodes, edges and events of a critical path under HTA's names; times are µs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pandas as pd

from htareport.algorithms.frames import concat
from htareport.export.numbered import index_of, threads_of
from htareport.hta.units import PER_US
from htareport.hta.utils.utils import shorten_name
from htareport.rank.critical_path.activity import NONE
from htareport.rank.critical_path.graph import ActivityGraph, Kind
from htareport.rank.critical_path.summary import Bound

EVENT_COLUMNS = ("index", "s_name", "cat", "pid", "tid", "stream", "ts", "dur")


class BoundType(Enum):
    """What limits the time on a path; the last two only if Python's time counts."""

    GPU_KERNEL_KERNEL_OVERHEAD = "gpu_kernel_kernel_overhead"
    GPU_KERNEL_LAUNCH_OVERHEAD = "gpu_kernel_launch_overhead"
    DATA_LOADING = "data_loading"
    CPU_BOUND = "cpu_bound"
    GPU_COMPUTE_BOUND = "gpu_compute_bound"
    GPU_COMMUNICATION_BOUND = "gpu_communication_bound"
    PYTHON_BOUND = "python_bound"
    GPU_EARLIER_WORK = "gpu_earlier_work"


HTA_BOUNDS = {
    Bound.HOST: BoundType.CPU_BOUND,
    Bound.PYTHON: BoundType.PYTHON_BOUND,
    Bound.LOADING: BoundType.DATA_LOADING,
    Bound.LAUNCH: BoundType.GPU_KERNEL_LAUNCH_OVERHEAD,
    Bound.COMPUTE: BoundType.GPU_COMPUTE_BOUND,
    Bound.COMM: BoundType.GPU_COMMUNICATION_BOUND,
    Bound.MEMORY: BoundType.GPU_COMPUTE_BOUND,
    Bound.GAP: BoundType.GPU_KERNEL_KERNEL_OVERHEAD,
    Bound.EARLIER: BoundType.GPU_EARLIER_WORK,
}


class CPEdgeType(Enum):
    """What an edge means."""

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
SHOWN = frozenset({CPEdgeType.DEPENDENCY, CPEdgeType.KERNEL_LAUNCH_DELAY, CPEdgeType.SYNC_DEPENDENCY})
ATTRIBUTED = (Kind.HOST, Kind.DEVICE, Kind.GAP)


@dataclass(frozen=True)
class CPNode:
    """Start or end of an event; `ts` is µs from the start of the run. `is_blocking`: the end of a call that waited."""

    idx: int = -1
    ev_idx: int = -1
    ts: float = 0
    is_start: bool = False
    is_blocking: bool = False


@dataclass(frozen=True)
class CPEdge:
    """An edge between two nodes; `weight` is µs."""

    begin: int
    end: int
    type: CPEdgeType
    weight: float = 0


def events_frame(graph: ActivityGraph, zero_ns: int) -> pd.DataFrame:
    """The events of a graph with HTA's columns, host rows first."""
    activity = graph.activity
    trace, categories = activity.trace, np.array(list(activity.trace.loaded.tables), object)
    frames = []
    for rows in (activity.host, activity.device):
        pids, tids = threads_of(trace, rows)
        columns = {
            "index": index_of(trace, rows),
            "s_name": rows["name"].astype(object),
            "cat": categories[rows["source"].to_numpy()] if len(rows) else "",
            "pid": pids,
            "tid": tids,
            "stream": rows.get("stream", NONE),
            "ts": (rows["ts"] - zero_ns) / PER_US,
            "dur": rows["dur"] / PER_US,
        }
        frames.append(pd.DataFrame(columns, columns=list(EVENT_COLUMNS)))
    events = concat(frames)
    short_names = {name: shorten_name(name) for name in events["s_name"].unique()}
    return events.assign(s_name=events["s_name"].map(short_names))
