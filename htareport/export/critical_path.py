"""Writes copies of trace files with a critical path: its events marked, and arrows along its edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson

from htareport.export.files import CopyFolder
from htareport.export.rewrite import micros, with_fields
from htareport.rank.rank import Rank

NAME = "critical_path"
_MARK = {"critical": 1}
_CONTEXT = frozenset({"user_annotation", "python_function"})  # What shows where one is, on or off the path.


class Point(NamedTuple):
    """A time (ns, as the loader counts) on a thread, by the ids that the file gives it."""

    ns: int
    pid: Any
    tid: Any


class Arrow(NamedTuple):
    """An arrow between two points, with the arguments that a viewer shows."""

    begin: Point
    end: Point
    args: Mapping[str, Any]


@dataclass(frozen=True)
class PathMarks:
    """What to mark in the file of a capture: positions of events among all of the file, and arrows."""

    capture: int
    events: frozenset[int]
    arrows: Sequence[Arrow]


class _Kind(msgspec.Struct, gc=False):
    ph: Any = ""
    cat: Any = ""


_KIND = msgspec.json.Decoder(_Kind).decode


def write_path(
    rank: Rank,
    folder: CopyFolder,
    marks: PathMarks,
    *,
    only_critical: bool = False,
    prefix: str = "overlaid_critical_path_",
) -> Path:
    """Write a copy of the file that a path is in; return its path.

    Events on the path get the argument `critical` = 1. With `only_critical` complete events off the path are left out,
    but for annotations and Python functions.
    """
    capture = rank.captures[marks.capture]

    def edit(position: int, event: bytes) -> bytes | None:
        if position in marks.events:
            return with_fields(event, _MARK)
        if only_critical and (kind := _KIND(event)).ph == "X" and kind.cat not in _CONTEXT:
            return None
        return event

    target = folder.path_for(capture.path, prefix=prefix)
    arrows = arrow_events(marks.arrows, capture.base_ns)
    return folder.write(rank, marks.capture, target, "critical path", more=arrows, edit=edit)


def arrow_events(arrows: Sequence[Arrow], base_ns: int) -> Iterator[bytes]:
    """Yield flow events (phases s and f) of arrows, in the file's own time. They end on events of that time (bp: e)."""
    for number, arrow in enumerate(arrows, 1):
        for phase, point in (("s", arrow.begin), ("f", arrow.end)):
            about = {"ph": phase, "id": number, "pid": point.pid, "tid": point.tid, "cat": NAME, "name": NAME}
            binding = {"bp": "e"} if phase == "f" else {}
            head = orjson.dumps({**about, **binding, "args": arrow.args}, option=orjson.OPT_SERIALIZE_NUMPY)[:-1]
            yield head + f',"ts":{micros(point.ns - base_ns)}}}'.encode()
