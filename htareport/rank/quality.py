"""Rows of the tables about the files of a rank: what was done to them, and which device events overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from htareport.rank.rank import Rank
from htareport.rows.capture import Capture

Row: TypeAlias = dict[str, Any]


def of_file(name: str, file: Capture) -> dict[str, list[Row]]:
    """Rows of the tables about one file."""
    slips, set_aside, salvaged = sorted(file.slips.items()), sorted(file.set_aside.items()), file.salvaged
    row = {"file": name, "host": file.host, "events": 0, "repairs": sum(slip.count for _, slip in slips)}
    share = salvaged.kept_bytes / salvaged.all_bytes if salvaged else 1.0
    rows: dict[str, list[Row]] = {
        "files": [row | {"set_aside": sum(count for _, count in set_aside), "kept": share}],
        "repairs": [
            {"file": name, "what": what, "count": slip.count, "line": slip.line, "byte": slip.byte}
            for what, slip in slips
        ],
        "set_aside": [
            {"file": name, "where": where, "reason": reason, "count": count} for (where, reason), count in set_aside
        ],
    }
    if salvaged:
        sizes = {"events": salvaged.events, "kept_bytes": salvaged.kept_bytes, "all_bytes": salvaged.all_bytes}
        rows["salvaged"] = [{"file": name, **sizes, "reason": salvaged.reason}]
    return rows


def names(trace: Rank) -> list[str]:
    """Names of the files, numbered where several folders have the same."""
    names = [file.name for file in trace.captures]
    counts = Counter(names)
    return [f"{name} ({number})" if counts[name] > 1 else name for number, name in enumerate(names, 1)]


def events(trace: Rank) -> list[int]:
    """How many rows each file has."""
    counts = np.zeros(len(trace.captures), np.int64)
    for columns in (*trace.loaded.tables.values(), *filter(None, [trace.loaded.memory])):
        counts += np.bincount(columns["capture"], minlength=len(counts))
    return [int(count) for count in counts]


def overlaps(trace: Rank) -> Iterator[Row]:
    """Streams on which device events overlap."""
    for (device, stream), lane in trace.device_events.groupby(["device", "stream"], sort=False):
        count = longest = 0
        for _, events_of_capture in lane.groupby("capture"):
            ends, starts = (events_of_capture[name].to_numpy() for name in ("end", "ts"))
            shared = np.minimum(np.maximum.accumulate(ends)[:-1], ends[1:]) - starts[1:]
            count += int((shared > 0).sum())
            longest = max(longest, int(shared.max(initial=0)))
        if count:
            yield {"device": device, "stream": stream, "count": count, "longest": longest}
