"""Reads one trace file: text to chunks to columns, and the metadata around the events."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from htareport.errors import TraceFileError
from htareport.trace.blocks import blocks
from htareport.trace.decode import Reader
from htareport.trace.repair import mend
from htareport.trace.split import (
    CHUNK,
    Cut,
    Window,
    bracketed,
    cut,
    ended_early,
    event_spans,
    find_events,
    learn_separator,
)

_BLANK = b" \t\r\n,"


class FileContent:
    """What one file gave besides its events: metadata and the repairs that were needed."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.repairs: Counter[str] = Counter()


def read_file(path: Path, reader: Reader) -> FileContent:
    """Read a trace into the reader. TraceFileError, with the place, if it is no trace, damaged or ends early."""
    content, window = FileContent(), Window(blocks(path))
    try:
        head = find_events(window)
        if head is None:
            raise TraceFileError("no traceEvents in it")
        learn_separator(window)
        _read_events(window, reader, content)
        _read_metadata(head, window, content)
    except TraceFileError as error:
        raise TraceFileError(_with_line(path, str(error))) from error
    return content


def _read_events(window: Window, reader: Reader, content: FileContent) -> None:
    """Everything up to the bracket that closes the events; the position is behind it then."""
    while True:
        window.fill(2 * CHUNK)
        found = cut(window) if len(window.data) - window.position > 2 * CHUNK or not window.at_end else None
        if found:
            with bracketed(window, found.end) as chunk:
                fine = reader.feed(chunk)
            if fine or _feed_mended(window, found, reader, content):
                window.position = found.next
                continue
        if _read_exactly(window, found, reader, content):
            return


def _feed_mended(window: Window, found: Cut, reader: Reader, content: FileContent) -> bool:
    """A chunk whose limits are certain, with the writer's slips mended."""
    if window.separator is None:
        return False
    mended, repairs = mend(b"[" + bytes(window.data[window.position : found.end]) + b"]")
    if not repairs or not reader.feed(mended):
        return False
    content.repairs.update(repairs)
    return True


def _read_exactly(window: Window, found: Cut | None, reader: Reader, content: FileContent) -> bool:
    """Events by their exact spans: the last ones, and those of unusual layouts. True when the array is closed."""
    size = 4 * CHUNK
    while True:
        limit = len(window.data) if found is None else min(len(window.data), window.position + size)
        spans, close = event_spans(bytes(window.data[window.position : limit]))
        if spans or close >= 0:
            break
        if limit == len(window.data) and not window.more():
            raise ended_early(window.place(limit))
        size *= 2  # An event larger than the window.
    end = close if close >= 0 else spans[-1][1]
    if window.data[window.position : window.position + end].strip(_BLANK):
        _feed_span(window, window.position + end, reader, content)
    window.position += end
    if close >= 0:
        window.position += 1
        return True
    window.skip(_BLANK)
    return False


def _feed_span(window: Window, end: int, reader: Reader, content: FileContent) -> None:
    text = b"[" + bytes(window.data[window.position : end]).strip(_BLANK) + b"]"
    if reader.feed(text):
        return
    mended, repairs = mend(text)
    if repairs and reader.feed(mended):
        content.repairs.update(repairs)
        return
    try:
        json.loads(mended.decode("utf-8"))
    except UnicodeDecodeError as error:
        place, reason = error.start, "bytes that are not UTF-8"
    except json.JSONDecodeError as error:
        place, reason = len(error.doc[: error.pos].encode()), error.msg
    else:
        place, reason = 1, "something else than a list of events"
    raise TraceFileError(f"not valid JSON at byte {window.place() + max(place - 1, 0)}: {reason}")


def _read_metadata(head: bytes, window: Window, content: FileContent) -> None:
    """Parse what stands around the events as one object; an array at the top has none."""
    tail = window.rest()
    if not head:
        if tail.strip(_BLANK):
            raise TraceFileError(f"not valid JSON at byte {window.place()}: text behind the array of events")
        return
    text = head + b"null" + tail
    try:
        content.metadata = orjson.loads(text)
    except orjson.JSONDecodeError:
        mended, repairs = mend(text)
        try:
            content.metadata = orjson.loads(mended)
        except orjson.JSONDecodeError as error:
            raise _metadata_error(error, mended, window.place() + len(tail)) from error
        content.repairs.update(repairs)


def _metadata_error(error: orjson.JSONDecodeError, text: bytes, end: int) -> TraceFileError:
    if error.pos >= len(text.decode("utf-8", "replace").rstrip()):
        return TraceFileError(f"the file ends early, at byte {end}: the metadata behind the events are not closed")
    return TraceFileError(f"the metadata around the events are not valid JSON: {error.msg}")


def _with_line(path: Path, message: str) -> str:
    """Add the line to a message that names a byte: people look damage up in an editor."""
    marker = " at byte "
    if marker not in message or "content" in message:
        return message
    before, _, after = message.partition(marker)
    number = after.split(":")[0].strip()
    left, line = int(number), 1
    try:
        for block in blocks(path):
            line += block[:left].count(b"\n")
            left -= min(left, len(block))
            if not left:
                break
    except (TraceFileError, OSError):
        return message
    return f"{before}{marker}{number} (line {line}){after[len(number) :]}"
