"""Cuts the text of a trace into chunks of whole events, and keeps what stands around the array of events.

Small chunks matter twice: memory stays bounded, and the decoded objects stay in the processor's cache. The cut is found
without parsing wherever the layout allows: Kineto writes events on lines of their own, and a JSON string cannot hold a
raw line break, so what separates the first two events separates all. Whatever else is valid JSON (one line, other
indentation, nested objects) goes through an exact scanner.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from htareport.errors import TraceFileError

CHUNK = 128 << 10
MAX_HELD_BYTES = 64 << 20  # Bytes before or behind the events; also of one event. Beyond it lies no trace of PyTorch's.
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_KEY_LENGTH = 64  # The key with a reasonable amount of blank.
_START = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*")
_BOM = b"\xef\xbb\xbf"
BETWEEN = b" \t\r\n,"
_BETWEEN = re.compile(rb"[ \t\r\n,]*")
_COMPACT = (b'}, {"', b'},{"')  # A string that holds one of these ends with its quote; such a cut does not parse.
_OPEN, _CLOSE = ord("["), ord("]")
EDGE = 6  # A fault this near to the end of the text means that the text ends too early: `\\u12` for an escape.
EARLY = "the file ends early,"


class Cut(NamedTuple):
    """Where a chunk ends and the next event begins."""

    end: int
    next: int


def _behind(pattern: re.Pattern[bytes], text: bytearray, position: int = 0) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


class PlacedError(TraceFileError):
    """A fault at a byte of the decompressed text."""

    def __init__(self, what: str, offset: int, why: str) -> None:
        self.what, self.offset, self.why = what, offset, why
        super().__init__(f"{what} at byte {offset}: {why}")

    def text(self, line: int) -> str:
        """Return the message with the line, too."""
        return f"{self.what} at byte {self.offset} (line {line}): {self.why}"


class CutShortError(TraceFileError):
    """A text that ends before its events begin."""


class Window:
    """The part of the text that is held, and how far it has been used."""

    def __init__(self, source: Iterable[bytes]) -> None:
        self._source: Iterator[bytes] = iter(source)
        self.data = bytearray()
        self.position = 0
        self.offset = 0  # Of data[0] in the whole text.
        self.at_end = False
        self.separator: bytes | None = None

    def more(self) -> bool:
        """Read another block; False at the end."""
        block = next(self._source, None)
        if block is None:
            self.at_end = True
            return False
        self.data += block
        return True

    def fill(self, size: int) -> None:
        """Have `size` bytes ahead if there are as many; what was used is dropped."""
        if len(self.data) - self.position >= size or self.at_end:
            return
        self._drop_used()
        while len(self.data) - self.position < size and self.more():
            pass

    def skip_between(self) -> None:
        """Move on to the first byte of the next event, or of what closes the array."""
        while True:
            self.position = _behind(_BETWEEN, self.data, self.position)
            if self.position < len(self.data):
                return
            self._drop_used()
            if not self.more():
                return

    def _drop_used(self) -> None:
        used = self.position - 1  # The byte before the position is needed for the bracket of the next chunk.
        if used > 0:
            del self.data[:used]
            self.offset += used
            self.position -= used

    def file_offset(self, position: int | None = None) -> int:
        """Offset in the whole text."""
        return self.offset + (self.position if position is None else position)

    def read_to_end(self) -> bytes:
        """Everything from the position on."""
        start = self.file_offset()
        del self.data[: self.position]
        self.offset, self.position = start, 0
        while self.more():
            if len(self.data) > MAX_HELD_BYTES:
                raise PlacedError("no end", start, f"more than {MAX_HELD_BYTES >> 20} MB follow the array of events")
        return bytes(self.data)


def find_events(window: Window) -> bytes | None:
    """Move to the first byte behind the `[` of the events; return what stands before it, None without events.

    An array at the top counts as events; what stands before it is empty then.
    """
    searched = 0
    while True:
        start = _behind(_START, window.data)
        first = window.data[start : start + 1]
        if first == b"[":
            window.position = start + 1
            return b""
        if first and first != b"{":
            return None
        if match := _KEY.search(window.data, searched):
            window.position = match.end()
            return bytes(window.data[: match.end() - 1]).removeprefix(_BOM)
        searched = max(0, len(window.data) - _KEY_LENGTH)
        if len(window.data) > MAX_HELD_BYTES or not window.more():
            return None


def no_events(window: Window) -> TraceFileError:
    """Return the error for a text in which find_events has found none: it may end before they begin."""
    offset, why = _fault(bytes(window.data))
    ends = why and (offset >= len(window.data) - EDGE or why.startswith("Unterminated"))
    if window.at_end and window.data.lstrip(_BOM + b" \t\r\n")[:1] == b"{" and ends:
        line = window.data.count(b"\n") + 1
        return CutShortError(f"{EARLY} at byte {len(window.data)} (line {line}): no traceEvents in it")
    return TraceFileError("no traceEvents in it")


def _fault(text: bytes) -> tuple[int, str]:
    """Offset and reason of the first fault of a JSON text; no reason if there is none that Python sees."""
    try:
        json.loads(text.removeprefix(_BOM).decode("latin-1"))  # One character per byte.
    except json.JSONDecodeError as error:
        return error.pos, error.msg
    except (RecursionError, ValueError):  # Nested too deeply, or a number of thousands of digits.
        pass
    return 0, ""


def learn_separator(window: Window) -> None:
    """See what stands between the first two events, if there is a line break in it."""
    window.fill(2 * CHUNK)
    text = bytes(window.data[window.position : window.position + 2 * CHUNK])
    spans, _ = event_spans(text)
    if len(spans) < 2:  # noqa: PLR2004  it takes two events to see what separates them
        return
    end, following = spans[0][1], spans[1][0]
    line = text.rfind(b"\n", 0, end)
    between = text[end:following]
    if b"\n" not in between or not text[following:].startswith(b"{") or between.strip(BETWEEN):
        return
    own_line = line >= 0 and not text[line : end - 1].strip()
    window.separator = text[line if own_line else end - 1 : following + 1]


def cut(window: Window) -> Cut | None:
    """As many whole events as fit into a chunk, judged by separators alone; None where there is no cut."""
    data, begin = window.data, window.position
    if window.separator is not None:
        offset = data.rfind(window.separator, begin, begin + CHUNK)
        if offset < begin:
            offset = data.find(window.separator, begin)
        if offset < begin:
            return None
        return Cut(offset + window.separator.index(b"}") + 1, offset + len(window.separator) - 1)
    for pattern in _COMPACT:
        offset = data.rfind(pattern, begin, begin + CHUNK)
        if offset > begin:
            return Cut(offset + 1, offset + len(pattern) - 2)
    return None


class bracketed:  # noqa: N801  a context manager, named for what it makes
    """A view of the window in which a chunk is a JSON array of its own, without a copy.

    Where events of it are still held when it ends, which refer to it, the window goes on with a copy: a profiler that
    samples our frames, as that of dask's workers does, keeps what is in them for a moment.
    """

    def __init__(self, window: Window, end: int) -> None:
        self._window, self._start, self._end = window, window.position - 1, end

    def __enter__(self) -> memoryview:
        data = self._window.data
        self._kept = data[self._start], data[self._end] if self._end < len(data) else None
        data[self._start] = _OPEN
        if self._end < len(data):
            data[self._end] = _CLOSE
        else:
            data.append(_CLOSE)
        self._whole = memoryview(data)
        self._view = self._whole[self._start : self._end + 1]
        return self._view

    def __exit__(self, *exception: object) -> None:
        window = self._window
        try:
            self._view.release()
            self._whole.release()
        except BufferError:
            window.data = bytearray(window.data)
        first, last = self._kept
        window.data[self._start] = first
        if last is None:
            window.data.pop()
        else:
            window.data[self._end] = last


_DEPTH = np.zeros(256, np.int8)
for _character, _change in zip(b"{[}]", (1, 1, -1, -1), strict=True):
    _DEPTH[_character] = _change


def event_spans(text: bytes) -> tuple[list[tuple[int, int]], int]:
    """Exact spans of the objects at the top of an array that was opened just before `text`, for any valid JSON.

    Returns (spans, offset of the array's closing bracket or -1). Objects that are not complete in `text` are left out.
    """
    if b"\\" in text:  # Escapes are blanked out, at equal length, so that every quote left opens or ends a string.
        text = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    data = np.frombuffer(text, np.uint8)
    change = _DEPTH[data]
    brackets = np.flatnonzero(change)
    quotes = np.flatnonzero(data == ord('"'))
    brackets = brackets[np.searchsorted(quotes, brackets) % 2 == 0]  # Those outside strings.
    depth = np.cumsum(change[brackets], dtype=np.int64)
    ends = np.flatnonzero((depth == 0) & (change[brackets] == -1))
    closing = np.flatnonzero(depth == -1)
    array_end = -1
    if len(closing):
        ends = ends[ends < closing[0]]
        array_end = int(brackets[closing[0]])
    begins = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    return list(zip(brackets[begins].tolist(), (brackets[ends] + 1).tolist(), strict=True)), array_end
