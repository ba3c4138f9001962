"""How long the launch queue of each stream is."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.rank.rank import Rank


def queue_series(trace: Rank) -> pd.DataFrame:
    """Length of each stream's queue after each change: ts (ns), pid, tid, device, stream, queue_length, capture, lane.

    All launches of one stamp make one row, then all starts of that stamp another.
    """
    stamps, length, event = queue_changes(trace)
    chosen = trace.device_events[["device", "stream", "capture", "lane"]].iloc[event]
    return pd.DataFrame(
        {
            "ts": stamps,
            "device": chosen["device"].to_numpy(),
            "stream": chosen["stream"].to_numpy(),
            "queue_length": length,
            "capture": chosen["capture"].to_numpy(),
            "lane": chosen["lane"].to_numpy(),
        }
    )


def queue_changes(trace: Rank) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Stamps by lane, the length of its queue after each, and a device event that it is due to."""
    linked = np.flatnonzero((trace.device_events["launch"] >= 0).to_numpy())
    events = trace.device_events[["launch", "ts", "lane", "capture"]].iloc[linked]
    launched = trace.launches["ts"].to_numpy()[events["launch"].to_numpy()]
    started = np.maximum(events["ts"].to_numpy(), launched)
    lane = pd.factorize(events["lane"])[0] * len(trace.captures) + events["capture"].to_numpy()
    lanes, stamps = np.tile(lane.astype(np.int32), 2), np.concatenate((launched, started))
    starts = np.repeat(np.array([0, 1], np.int8), len(events))
    order = np.lexsort((starts, stamps, lanes))
    lanes, stamps, starts = lanes[order], stamps[order], starts[order]
    length = np.cumsum(1 - 2 * starts, dtype=np.int64)  # Each lane ends at 0, so the next begins there.
    last = np.append((lanes[1:] != lanes[:-1]) | (stamps[1:] != stamps[:-1]) | (starts[1:] != starts[:-1]), True)[
        : len(order)
    ]
    return stamps[last], length[last], linked[order[last] % max(len(events), 1)]
