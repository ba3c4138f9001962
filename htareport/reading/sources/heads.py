"""What the head of a file tells: whether it is a trace, of which rank, and whether it is a copy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from htareport.errors import TraceFileError
from htareport.reading.text.blocks import blocks
from htareport.reading.text.repair.slips import mend
from htareport.reading.text.split import CHUNK, CutShortError, Window, event_spans, find_events, no_events
from htareport.reading.text.unpack import READ, DamagedDataError, not_read
from htareport.rows.metadata import copied_rank, is_copy, rank_of

_PHASE = re.compile(rb'"ph"\s*:')
_REPORT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{(.*?)"schema_version"\s*:', re.DOTALL)
_TRACE_KEY = re.compile(rb'"(?:traceEvents|schemaVersion)"\s*:')
_KINETO = re.compile(rb'"(?:schemaVersion|deviceProperties|baseTimeNanoseconds)"\s*:')
_DISTRIBUTED = b'"distributedInfo"'
_VALUE = re.compile(r'"distributedInfo"\s*:\s*')
_MAX_DISTRIBUTED = 4 << 20  # Bytes: thousands of process groups.


class Header(NamedTuple):
    """What a trace says of itself: its rank, and whether it is a copy of another with something added."""

    rank: int | None = None
    is_copy: bool = False


class NotATraceError(Exception):
    """The text is the reason."""


class SavedReportError(Exception):
    """The file is a report that this program saved."""


def read_header(file: Path, max_bytes: int | None) -> Header:
    """Return what a trace says of itself."""
    damage = list[DamagedDataError]()
    window = Window(_until_damage(blocks(file, max_bytes), damage))
    if not window.more():
        raise damage[0] if damage else TraceFileError("the file is empty")
    if not window.data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        raise NotATraceError(not_read(bytes(window.data[:READ])) or "not JSON")
    first = bytes(window.data)
    head = find_events(window)
    if head is None:
        if damage:
            raise damage[0]
        if is_report(first) and b'"verdict"' in first:  # Others have a schema_version, too.
            raise SavedReportError
        error = no_events(window)
        is_cut = isinstance(error, CutShortError)
        if is_cut and _KINETO.search(window.data):
            raise error
        raise NotATraceError(f"JSON, but {error}" if is_cut else "JSON without traceEvents")
    if not head:
        window.fill(2 * CHUNK)
        if not _begins_with_event(bytes(window.data[window.position : window.position + 2 * CHUNK])):
            raise NotATraceError("a JSON array, but not of trace events")
        return Header()
    return _header_of(_parsed(head + b"null}"), head, window)


def _header_of(metadata: dict[str, Any], head: bytes, window: Window) -> Header:
    """What the metadata in front of the events say, or those behind them."""
    if is_copy(metadata):
        return Header(copied_rank(metadata), is_copy=True)
    rank = rank_of(metadata)
    if rank is None and b'"schemaVersion"' not in head:  # Kineto writes its metadata first; others may put it last.
        rank = rank_of({"distributedInfo": _distributed_behind(window)})
    return Header(rank)


def _until_damage(content: Iterator[bytes], damage: list[DamagedDataError]) -> Iterator[bytes]:
    """What of a file can be unpacked; what is wrong with the rest matters when it is loaded."""
    try:
        yield from content
    except DamagedDataError as error:
        damage.append(error)


def is_report(start: bytes) -> bool:
    """Whether a file that starts so is a saved report of ours; a trace is none, whatever else it holds."""
    match = _REPORT.match(start)
    return match is not None and not _TRACE_KEY.search(match[1])


def _begins_with_event(text: bytes) -> bool:
    """Whether the first object of an array has a phase; of one larger than the text, what there is of it."""
    spans, array_end = event_spans(text)
    begin, end = spans[0] if spans else (0, len(text) if array_end < 0 else 0)
    return _PHASE.search(text, begin, end) is not None


def _parsed(text: bytes) -> dict[str, Any]:
    for candidate in (text, mend(text)[0]):
        try:
            value = orjson.loads(candidate)
        except orjson.JSONDecodeError:
            continue
        return value if isinstance(value, dict) else {}
    return {}


def _distributed_behind(window: Window) -> Any:
    """Return the value of the last `distributedInfo` behind what was read, wherever it stands."""
    data, has_key = window.data, False
    try:
        while True:
            if (offset := data.rfind(_DISTRIBUTED)) > 0:
                del data[:offset]
            has_key = offset >= 0
            if not has_key or len(data) > _MAX_DISTRIBUTED:
                has_key = False
                del data[: -len(_DISTRIBUTED)]
            if not window.more():
                break
    except TraceFileError:  # What is wrong with it will be said when it is loaded.
        return None
    text = data.decode("utf-8", "replace")
    start = _VALUE.match(text)
    if not has_key or start is None:
        return None
    try:
        return json.JSONDecoder().raw_decode(text, start.end())[0]
    except (ValueError, RecursionError):
        return None
