"""Where the time of a device goes, as numbers: of everything, and of each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htareport.algorithms import intervals
from htareport.rank.rank import Rank

PARTS = {
    "compute": "compute",
    "exposed_comm": "exposed communication",
    "exposed_memory": "exposed memory",
    "idle": "idle",
}
NO_STEPS = pd.DataFrame({"number": [], "start": [], "end": [], "capture": []}, dtype="int64")


def busy_sets(trace: Rank, events: pd.DataFrame) -> dict[str, list[intervals.Intervals]]:
    """When a device is busy, with anything and with each class of work: a union of intervals for each capture."""
    return {
        "busy": trace.busy_by_capture(events),
        "compute": trace.busy_by_capture(events, "compute"),
        "comm": trace.busy_by_capture(events, "comm"),
        "memory": trace.busy_by_capture(events, "memory"),
        "compute_or_comm": trace.busy_by_capture(events, "compute", "comm"),
    }


def times(events: pd.DataFrame, sets: dict[str, list[intervals.Intervals]]) -> dict[str, Any]:
    """Times of one device over all captures, in ns."""
    by_capture = events.groupby("capture")
    span = int((by_capture["end"].max() - by_capture["ts"].min()).sum())
    total = {name: sum(map(intervals.total, parts)) for name, parts in sets.items()}
    return {
        "span": span,
        "compute": total["compute"],
        "exposed_comm": total["compute_or_comm"] - total["compute"],
        "exposed_memory": total["busy"] - total["compute_or_comm"],
        "idle": span - total["busy"],
        "busy": total["busy"],
        "comm": total["comm"],
        "memory": total["memory"],
        "overlap": total["compute"] + total["comm"] - total["compute_or_comm"],
        "num_device_events": len(events),
    }


def step_times(steps: pd.DataFrame, sets: dict[str, list[intervals.Intervals]]) -> pd.DataFrame:
    """The parts of each step of one device, in ns."""
    start, end, capture = (steps[name].to_numpy() for name in ("start", "end", "capture"))
    within = {name: np.zeros(len(steps), np.int64) for name in ("busy", "compute", "compute_or_comm")}
    for name, covered in within.items():
        for number, union in enumerate(sets.get(name, ())):
            mine = capture == number
            covered[mine] = intervals.covered(union, start[mine], end[mine])
    return pd.DataFrame(
        {
            "step": steps["number"].to_numpy(),
            "time": end - start,
            "compute": within["compute"],
            "exposed_comm": within["compute_or_comm"] - within["compute"],
            "exposed_memory": within["busy"] - within["compute_or_comm"],
            "idle": end - start - within["busy"],
        }
    )


def shares(ranks: pd.DataFrame, per_step: pd.DataFrame) -> pd.DataFrame:
    """The parts as shares over everything: of step time where there are steps, else of the span."""
    source, whole, of = (per_step, "time", "step time") if len(per_step) else (ranks, "span", "the recorded span")
    total = float(source[whole].sum())
    shares = {part: float(source[part].sum()) / total if total else None for part in PARTS}
    return pd.DataFrame([{**shares, "of": of}])
