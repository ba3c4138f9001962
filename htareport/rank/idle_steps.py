"""Idle time of each step by cause: the gaps of the devices, clipped to the windows of the steps."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.rank.rank import Rank

HOST_WAIT, OTHER = "host wait", "other"


def by_step(trace: Rank, gaps: pd.DataFrame) -> pd.DataFrame:
    """Idle time of each device and step by cause: device, step, one column per category of `gaps`, in ns.

    `gaps` are those between events (device, gap, begin, category, event). Before the first event of a capture the host
    is late if it launches that event after the step's start; behind the last event nothing is known.
    """
    parts = [pd.DataFrame({"device": [], "step": []}, dtype=object)]
    captures = trace.device_events["capture"].to_numpy()[gaps["event"].to_numpy()]
    for device, events in trace.devices.items():
        mine = (gaps["device"] == device).to_numpy() & (gaps["gap"] > 0).to_numpy()
        for number, busy in enumerate(trace.busy_by_capture(events)):
            steps = trace.steps[trace.steps["capture"] == number]
            if len(steps):
                own, there = gaps[mine & (captures == number)], events[events["capture"] == number]
                found = _of_capture(trace, own, there, steps, busy)
                parts.append(pd.DataFrame({"device": device, "step": steps["number"].to_numpy(), **found}))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def _of_capture(
    trace: Rank, gaps: pd.DataFrame, events: pd.DataFrame, steps: pd.DataFrame, busy: intervals.Intervals
) -> dict[str, NDArray[np.int64]]:
    start, end = steps["start"].to_numpy(), steps["end"].to_numpy()
    idle = end - start - intervals.covered(busy, start, end)
    begin, length = gaps["begin"].to_numpy(), gaps["gap"].to_numpy()
    of_capture = {}
    for category in gaps["category"].cat.categories:
        chosen = (gaps["category"] == category).to_numpy()
        starts, ends = begin[chosen], begin[chosen] + length[chosen]
        of_capture[str(category)] = intervals.covered(intervals.union(starts, ends), start, end)
    if len(events):
        first = int(events["ts"].iloc[0])
        before = np.clip(first - start, 0, end - start)
        late = _launched(trace, events) > start
        of_capture[HOST_WAIT] = of_capture[HOST_WAIT] + np.where(late, before, 0)
    of_capture[OTHER] = idle - sum(times for category, times in of_capture.items() if category != OTHER)
    return of_capture


def _launched(trace: Rank, events: pd.DataFrame) -> int:
    """Start of the launch of the first event; where it is unknown, before everything."""
    launch = int(events["launch"].iloc[0])
    return int(trace.launches["ts"].iloc[launch]) if launch >= 0 else int(np.iinfo(np.int64).min)
