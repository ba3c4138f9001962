"""Copies of trace files with queue lengths and memory bandwidth as counter tracks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from htareport.export.files import CopyFolder
from htareport.export.numbered import threads_of
from htareport.export.rewrite import micros
from htareport.rank.bandwidth import bandwidth_levels
from htareport.rank.queue import queue_series
from htareport.rank.rank import Rank

QUEUE, BANDWIDTH = "Queue Length", "Memcpy BW"
_PER_GB = 1e9


def write_counters(
    trace: Rank, folder: CopyFolder, suffix: str = "_with_counters", *, queues: bool = True, bandwidth: bool = True
) -> list[Path]:
    """Write a copy of each file of a rank that has queues or copies of known bandwidth; return the copies' paths."""
    written = []
    for number, capture in enumerate(trace.captures):
        events = counter_events(trace, number, queues=queues, bandwidth=bandwidth)
        for first in events:  # If there is one.
            target = folder.path_for(capture.path, suffix=suffix)
            written.append(folder.write(trace, number, target, "counters", more=chain([first], events)))
    return written


def counter_events(trace: Rank, capture: int, *, queues: bool, bandwidth: bool) -> Iterator[bytes]:
    """Counter events (phase C) of one file of a rank, in the file's own time, one track after the other.

    Queue lengths have a track for each stream, by `id`; bandwidths (GB/s) one for each device and kind of copy. Ids are
    text, since Perfetto makes one track of all that have numbers.
    """
    base, events = trace.captures[capture].base_ns, trace.device_events
    one_each = events[events["capture"] == capture].drop_duplicates("lane")
    processes = dict(zip(one_each["lane"].tolist(), threads_of(trace, one_each)[0].tolist(), strict=True))
    if queues:
        points = queue_series(trace)
        points = points[points["capture"] == capture]
        for (lane, stream), mine in points.groupby(["lane", "stream"], sort=True):
            about = {"name": QUEUE, "pid": processes[lane], "id": str(stream)}
            yield from _track(about, QUEUE, mine["ts"].to_numpy() - base, mine["queue_length"].to_numpy())
    if bandwidth:
        copies = trace.copies[trace.copies["capture"] == capture]
        for (_, kind), mine in copies.groupby(["device", "copy_kind"], sort=True):
            stamps, level = bandwidth_levels(mine)[:2]
            if level.any():
                about = {"name": kind, "pid": processes[mine["lane"].iloc[0]]}
                yield from _track(about, BANDWIDTH, stamps - base, level / _PER_GB)


def _track(about: dict[str, Any], key: str, stamps: NDArray[np.int64], values: NDArray[Any]) -> Iterator[bytes]:
    """One counter's events; the text of the stamps is exact, which no float is."""
    head = orjson.dumps({"ph": "C", **about}, option=orjson.OPT_SERIALIZE_NUMPY)[:-1]
    for stamp, value in zip(stamps.tolist(), values.tolist(), strict=True):
        yield head + f',"ts":{micros(stamp)},"args":{{"{key}":{value!r}}}}}'.encode()
