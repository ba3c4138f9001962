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
    BETWEEN,
    CHUNK,
    MOST_AROUND,
    Cut,
    PlacedError,
    Window,
    bracketed,
    cut,
    event_spans,
    find_events,
    learn_separator,
)

_EDGE = 6  # An error this near to the end of the text means that the text ends too early: `\\u12` for an escape.


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
    except PlacedError as error:
        raise TraceFileError(error.text(_line(path, error.place))) from error
    return content


def _line(path: Path, place: int) -> int:
    """The line of a byte: people look damage up in an editor."""
    line, left = 1, place
    try:
        for block in blocks(path):
            line += block.count(b"\n", 0, left)
            left -= min(left, len(block))
            if not left:
                break
    except (TraceFileError, OSError):  # Compressed data that end here.
        pass
    return line


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
        if _read_exactly(window, reader, content):
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


def _read_exactly(window: Window, reader: Reader, content: FileContent) -> bool:
    """Events by their exact spans: the last ones, and those of unusual layouts. True when the array is closed."""
    size = 4 * CHUNK
    while True:
        window.fill(size)
        limit = min(len(window.data), window.position + size)
        text = bytes(window.data[window.position : limit])
        spans, close = event_spans(text)
        if spans or close >= 0:
            break
        if (limit == len(window.data) and window.at_end) or size > MOST_AROUND:
            raise _unfinished(text, window.place())
        size *= 4  # An event larger than the window.
    end = close if close >= 0 else spans[-1][1]
    if text[:end].strip(BETWEEN):
        _feed_span(text[:end], window.place(), reader, content)
    window.position += end
    if close >= 0:
        if text[close : close + 1] != b"]":
            raise PlacedError("not valid JSON", window.place(), "a bracket that does not close the array of events")
        window.position += 1
        return True
    window.skip_between()
    return False


def _feed_span(text: bytes, place: int, reader: Reader, content: FileContent) -> None:
    start = len(text) - len(text.lstrip(BETWEEN))
    array = b"[" + text[start:].rstrip(BETWEEN) + b"]"
    if reader.feed(array):
        return
    mended, repairs = mend(array)
    if repairs and reader.feed(mended):
        content.repairs.update(repairs)
        return
    at, why = _fault(mended)
    raise PlacedError("not valid JSON", place + start + max(at - 1, 0), why or reader.fault)


def _fault(text: bytes) -> tuple[int, str]:
    """Offset and reason of the first fault of a JSON text; no reason if it is valid, but refused for another one."""
    try:
        json.loads(text.decode("latin-1"))  # One character per byte; what is no ASCII stands in strings only.
        text.decode()
    except json.JSONDecodeError as error:
        return error.pos, error.msg
    except UnicodeDecodeError as error:
        return error.start, "bytes that are not UTF-8"
    except (RecursionError, ValueError):  # Nested too deeply, or a number of thousands of digits.
        pass
    return 0, ""


def _unfinished(text: bytes, place: int) -> TraceFileError:
    """The error for a text in which no event ends, and neither does the array: it breaks off, or is damaged."""
    at, why = _fault(text.lstrip(BETWEEN))
    at += len(text) - len(text.lstrip(BETWEEN))
    if why and at < len(text) - _EDGE and not why.startswith("Unterminated string") and why != "Extra data":
        return PlacedError("not valid JSON", place + at, why)
    if len(text) > MOST_AROUND:
        return PlacedError("no end of an event", place, f"it has more than {MOST_AROUND >> 20} MB")
    return PlacedError("the file ends early,", place + len(text), "the array of events is not closed")


def _read_metadata(head: bytes, window: Window, content: FileContent) -> None:
    """Parse what stands around the events as one object; an array at the top has none."""
    start, tail = window.place(), window.rest()
    if not head:
        if tail.strip(BETWEEN):
            raise PlacedError("not valid JSON", start, "text behind the array of events")
        return
    text = head + b"null" + tail
    try:
        content.metadata = orjson.loads(text)
    except orjson.JSONDecodeError:
        mended, repairs = mend(text)
        try:
            content.metadata = orjson.loads(mended)
        except orjson.JSONDecodeError as error:
            raise _metadata_error(mended, start - len(text) + len(tail), error.msg) from error
        content.repairs.update(repairs)
    if content.metadata.pop("traceEvents", 0) is not None:
        raise TraceFileError("traceEvents stands in it twice, or inside another object")


def _metadata_error(text: bytes, shift: int, reason: str) -> TraceFileError:
    """The error for metadata that do not parse; `shift` leads from an offset behind the events to one in the file."""
    at, why = _fault(text)
    if why != "Extra data" and (at >= len(text.rstrip()) - _EDGE or why.startswith("Unterminated string")):
        return PlacedError("the file ends early,", shift + len(text), "the metadata behind the events are not closed")
    behind = text.find(b'"traceEvents"') < at
    return PlacedError("the metadata around the events are not valid JSON", at + shift * behind, why or reason)
