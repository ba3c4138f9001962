"""Writes copies of trace files with queue lengths and memory bandwidth as counter tracks."""

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
    rank: Rank, folder: CopyFolder, suffix: str = "_with_counters", *, queues: bool = True, bandwidth: bool = True
) -> list[Path]:
    """Write a copy of each file of a rank that has queues or copies of known bandwidth; return the copies' paths."""
    written = []
    for number, capture in enumerate(rank.captures):
        events = counter_events(rank, number, queues=queues, bandwidth=bandwidth)
        for first in events:  # If there is one.
            target = folder.path_for(capture.path, suffix=suffix)
            written.append(folder.write(rank, number, target, "counters", more=chain([first], events)))
    return written


def counter_events(rank: Rank, capture: int, *, queues: bool, bandwidth: bool) -> Iterator[bytes]:
    """Yield counter events (phase C) of one file of a rank, in the file's own time, one track after the other.

    Queue lengths have a track for each stream, by `id`; bandwidths (GB/s) one for each device and kind of copy. Ids are
    text, since Perfetto makes one track of all that have numbers.
    """
    base, events = rank.captures[capture].base_ns, rank.device_events
    lanes = events[events["capture"] == capture].drop_duplicates("lane")
    processes = dict(zip(lanes["lane"].tolist(), threads_of(rank, lanes)[0].tolist(), strict=True))
    if queues:
        points = queue_series(rank)
        points = points[points["capture"] == capture]
        for (lane, stream), rows in points.groupby(["lane", "stream"], sort=True):
            about = {"name": QUEUE, "pid": processes[lane], "id": str(stream)}
            yield from _track(about, QUEUE, rows["ts"].to_numpy() - base, rows["queue_length"].to_numpy())
    if bandwidth:
        copies = rank.copies[rank.copies["capture"] == capture]
        for (_, kind), rows in copies.groupby(["device", "copy_kind"], sort=True):
            stamps, level = bandwidth_levels(rows)[:2]
            if level.any():
                about = {"name": kind, "pid": processes[rows["lane"].iloc[0]]}
                yield from _track(about, BANDWIDTH, stamps - base, level / _PER_GB)


def _track(about: dict[str, Any], key: str, stamps: NDArray[np.int64], values: NDArray[Any]) -> Iterator[bytes]:
    """Yield one counter's events; the text of the stamps is exact, which no float is."""
    head = orjson.dumps({"ph": "C", **about}, option=orjson.OPT_SERIALIZE_NUMPY)[:-1]
    for stamp, value in zip(stamps.tolist(), values.tolist(), strict=True):
        yield head + f',"ts":{micros(stamp)},"args":{{"{key}":{value!r}}}}}'.encode()
