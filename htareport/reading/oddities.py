"""What is odd about one file: nothing is wrong with its text, but its numbers may mislead."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from htareport.errors import printable
from htareport.report.units import counted
from htareport.rows.columns import Columns

_HOUR_NS = 3_600 * 10**9
_AS_HOST = "they are taken for host rows, not for device work"
_NO_CATEGORIES = (
    "none of its events has a category, as where PyTorch's old profiler or another program wrote it: which of them are "
    "operators, launches or device work cannot be told"
)
_NO_EVENTS = "no event of any duration is in it, so it adds nothing to the numbers of its rank"
_DROPPED = re.compile(r"Out-of-range = (\d{1,18})\b")
_STOPPED = re.compile(r"CUPTI stopped early\? = 1\b")


def oddities(
    tables: Mapping[str, Columns], meta: Mapping[str, Any], like_device: Collection[str], *, has_memory: bool
) -> Iterator[str]:
    """Say what is odd about a file, of whose events these are the columns, by category."""
    if like_device:
        listed = ", ".join(sorted(map(printable, like_device)))
        yield f"rows of unknown categories have a stream: {listed}; {_AS_HOST}"
    if set(tables) == {""}:
        yield _NO_CATEGORIES
    if not tables and not has_memory:
        yield _NO_EVENTS
    yield from _far(tables)
    yield from _lost(meta)


def _far(tables: Mapping[str, Columns]) -> Iterator[str]:
    """Name events that lie far from all others: the time between them counts as recorded."""
    stamps = [columns["ts"] for columns in tables.values() if len(columns["ts"])]
    if not stamps or max(map(np.max, stamps)) - min(map(np.min, stamps)) <= _HOUR_NS:
        return
    starts = np.sort(np.concatenate(stamps))
    limits = [0, *(np.flatnonzero(np.diff(starts) > _HOUR_NS) + 1).tolist(), len(starts)]
    sizes = np.diff(limits)
    if num_far := int(sizes.sum() - sizes.max()):
        far_events = counted(num_far, "event lies", "events lie")
        yield f"{far_events} more than an hour from all others, and the time between counts as recorded"


def _lost(meta: Mapping[str, Any]) -> Iterator[str]:
    """Read in the profiler's own log, which Kineto writes behind the events, what it has not kept."""
    lines = meta.get("INFO")
    log = "\n".join(map(str, lines)) if isinstance(lines, list) else ""
    if dropped := sum(map(int, _DROPPED.findall(log))):
        yield f"the profiler dropped {counted(dropped, 'record')} that lay outside of its window, as its own log says"
    if _STOPPED.search(log):
        yield "the profiler ran out of room for device records and stopped early, as its own log says"
