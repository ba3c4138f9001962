"""Reads one trace file: text to chunks to columns, and the metadata around the events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from htareport.errors import TraceFileError
from htareport.reading.text.blocks import blocks
from htareport.reading.text.decode import Buffer, Reader
from htareport.reading.text.line_numbers import line_numbers
from htareport.reading.text.repair.careful import Repairs, read_carefully
from htareport.reading.text.repair.repeated_keys import REPEATED, in_events, in_object
from htareport.reading.text.repair.slips import COMMAS, Slips, mend
from htareport.reading.text.repair.tolerant import FaultError, mend_object
from htareport.reading.text.split import (
    BETWEEN,
    CHUNK,
    EARLY,
    EDGE,
    MAX_HELD_BYTES,
    Cut,
    PlacedError,
    Window,
    bracketed,
    cut,
    event_spans,
    find_events,
    learn_separator,
    no_events,
)
from htareport.reading.text.unpack import DamagedDataError
from htareport.rows.capture import Salvaged
from htareport.rows.options import DEFAULT_OPTIONS, ReadOptions

_LOOK_BACK = 256  # Bytes before the end of the array in which its last comma is looked for.
_NULL = b"null"  # Stands for the events between the metadata before and behind them.
_NOTHING = "no event is complete before that"
_BEHIND = "text behind the end of the metadata"
_TELLING = re.compile(rb'"(baseTimeNanoseconds|rank)"\s*:\s*"?(-?\d{1,19})\b')


@dataclass
class FileContent:
    """What one file gave besides its events: metadata, repairs, and what was salvaged if it is damaged."""

    metadata: dict[str, Any] = field(default_factory=dict)
    repairs: Repairs = field(default_factory=Repairs)
    salvaged: Salvaged | None = None


def read_file(path: Path, reader: Reader, options: ReadOptions | None = None) -> FileContent:
    """Read a trace into the reader. TraceFileError, with the place, if it is no trace, damaged or ends early."""
    return _Loading(path, reader, options or DEFAULT_OPTIONS).read()


class _Loading:
    """The way through one file."""

    def __init__(self, path: Path, reader: Reader, options: ReadOptions) -> None:
        self._path, self._reader, self._options = path, reader, options
        self._content = FileContent()
        self._cut_short = ""  # Why packed data that are salvaged give no more.
        self._window = Window(self._source())
        self._head: bytes | None = None  # What stands before the events; empty if they are all there is.
        self._kinds = 0  # How many kinds of events were looked at for keys that are repeated.
        self._events_end = 0  # Behind the bracket that closes the events; 0 until it is reached.

    def read(self) -> FileContent:
        """Read everything."""
        try:
            self._head = find_events(self._window)
            if self._head is None:
                raise TraceFileError(f"{self._cut_short}; {_NOTHING}") if self._cut_short else no_events(self._window)
            learn_separator(self._window)
            self._read_events()
            self._events_end = self._window.file_offset()
            self._content.metadata = self._metadata()
        except PlacedError as error:
            message = error.text(self._line_numbers([error.offset])[0])
            if not self._options.salvage or self._head is None:
                raise TraceFileError(f"{message}{self._hint()}") from error
            self._note_salvaged(message)
            self._content.metadata = self._metadata_before()
        except DamagedDataError as error:
            raise TraceFileError(f"{error}{self._hint()}") from error
        else:
            if self._content.repairs.damage.count or self._cut_short:
                self._note_salvaged("")
        self._number_lines()
        return self._content

    def _source(self) -> Iterator[bytes]:
        try:
            yield from blocks(self._path, self._options.max_bytes)
        except DamagedDataError as error:
            if not self._options.salvage:
                raise
            self._cut_short = str(error)

    # --- events

    def _read_events(self) -> None:
        """Everything up to the bracket that closes the events; the position is behind it then."""
        window, reader = self._window, self._reader
        window.skip_between()
        while True:
            window.fill(2 * CHUNK)
            chunk_cut = cut(window) if len(window.data) - window.position > 2 * CHUNK or not window.at_end else None
            if chunk_cut:
                with bracketed(window, chunk_cut.end) as chunk:
                    fine = reader.feed(chunk) and self._looked_at(chunk)
                if fine or self._feed_mended(chunk_cut):
                    window.position = chunk_cut.next
                    continue
            if self._read_exactly():
                return

    def _feed_mended(self, chunk_cut: Cut) -> bool:
        """A chunk whose limits are certain, with the writer's slips mended."""
        window = self._window
        if window.separator is None:
            return False
        return self._mended(bytes(window.data[window.position : chunk_cut.end]), window.file_offset())

    def _mended(self, events: bytes, offset: int) -> bool:
        """Whether the reader took some events, once the slips that show in their tokens were mended."""
        self._content.repairs.entered += 1
        mended, slips = mend(events)
        if not slips or not self._reader.feed(b"[" + mended + b"]"):
            return False
        self._content.repairs.add(slips, offset)
        return True

    def _read_exactly(self) -> bool:
        """Events by their exact spans: the last ones, and those of unusual layouts. True when the array is closed."""
        window, size = self._window, 4 * CHUNK
        while True:
            window.fill(size)
            limit = min(len(window.data), window.position + size)
            text = bytes(window.data[window.position : limit])
            spans, array_end = event_spans(text)
            if spans or array_end >= 0:
                break
            if (limit == len(window.data) and window.at_end) or size >= MAX_HELD_BYTES:
                return self._read_carefully()
            size = min(4 * size, MAX_HELD_BYTES)  # An event larger than the window.
        is_closed = array_end >= 0
        if is_closed and text[array_end : array_end + 1] != b"]":  # Damage, or a quote that turns all into strings.
            return self._read_carefully()
        end = array_end if is_closed else spans[-1][1]
        if not self._feed_span(text[:end]):
            return self._read_carefully()
        window.position += end
        if is_closed:
            self._note_comma()
            window.position += 1
            return True
        window.skip_between()
        return False

    def _feed_span(self, text: bytes) -> bool:
        start = len(text) - len(text.lstrip(BETWEEN))
        events = text[start:].rstrip(BETWEEN)
        if not events:
            return True
        array = b"[" + events + b"]"
        if self._reader.feed(array):
            return self._looked_at(array, start)
        return self._mended(events, self._window.file_offset() + start)

    def _looked_at(self, array: Buffer, start: int = 0) -> bool:
        """True; repeated keys are counted in the first stretch with events of a kind, and in all once there are any."""
        repairs, kinds = self._content.repairs, len(self._reader.counts)
        if kinds > self._kinds or REPEATED in repairs.slips:
            self._kinds = kinds
            repairs.add(in_events(bytes(array)), self._window.file_offset() + start - 1)  # Without the bracket.
        return True

    def _read_carefully(self) -> bool:
        return read_carefully(self._window, self._reader, self._content.repairs, salvage=self._options.salvage)

    def _note_comma(self) -> None:
        """Count a comma behind the last event, which everything before takes for one between events."""
        end = self._window.position
        before = bytes(self._window.data[max(0, end - _LOOK_BACK) : end]).rstrip(b" \t\r\n")
        if before.endswith(b","):
            self._content.repairs.add({COMMAS: (1, len(before) - 1 - min(end, _LOOK_BACK))}, self._window.file_offset())

    # --- metadata

    def _metadata(self) -> dict[str, Any]:
        """Parse what stands around the events as one object; an array at the top has none."""
        events_end, tail = self._events_end, self._window.read_to_end()
        head = self._head or b""
        if not head:
            if tail.strip(BETWEEN):
                raise PlacedError("not valid JSON", events_end, "text behind the array of events")
            return {}
        try:
            metadata = self._parsed(head + b"null" + tail)
        except FaultError as error:
            end = len(head) + len(_NULL) + len(tail.rstrip())
            if error.ended or (error.offset >= end - EDGE and error.why != _BEHIND):
                text = "the metadata behind the events are not closed"
                raise PlacedError(EARLY, events_end + len(tail), text) from error
            raise PlacedError(
                "the metadata around the events are not valid JSON", self._in_file(error.offset), error.why
            ) from error
        if metadata.pop("traceEvents", 0) is not None:
            raise TraceFileError("traceEvents stands in it twice, or inside another object")
        return metadata

    def _parsed(self, text: bytes) -> dict[str, Any]:
        """Parse metadata, mended if need be. FaultError at an offset of the text if they are no object."""
        try:
            parsed = dict(orjson.loads(text))
        except orjson.JSONDecodeError:
            self._content.repairs.entered += 1
        else:
            self._repaired(in_object(text))
            return parsed
        mended, slips = mend(text)
        try:
            parsed = orjson.loads(mended)
        except orjson.JSONDecodeError:
            mended, end, slips = mend_object(text, text.index(b"{"), len(text))
            if text[end:].strip():
                raise FaultError(end, _BEHIND) from None
            try:
                parsed = orjson.loads(mended)
            except orjson.JSONDecodeError as error:
                raise FaultError(0, error.msg) from error
        self._repaired(slips)
        return dict(parsed)

    def _repaired(self, slips: Slips) -> None:
        self._content.repairs.add(
            {what: (number, self._in_file(offset)) for what, (number, offset) in slips.items()}, 0
        )

    def _in_file(self, offset: int) -> int:
        """Lead from an offset in the metadata to that in the file, which has events in their middle."""
        head = self._head or b""
        return offset if offset <= len(head) else self._events_end + offset - len(head) - len(_NULL)

    # --- salvage

    def _note_salvaged(self, ended: str) -> None:
        """Note what was kept of a damaged file, and why it ended, if it did. TraceFileError if nothing is kept."""
        window, events = self._window, sum(self._reader.counts.values())
        end = self._events_end or window.file_offset(len(bytes(window.data[: window.position]).rstrip(BETWEEN)))
        reason = "; ".join(filter(None, (self._cut_short or ended, self._damage_text())))
        if not events:
            raise TraceFileError(f"{reason}; {_NOTHING}")
        self._content.salvaged = Salvaged(reason, events, end, window.file_offset(len(window.data)))

    def _hint(self) -> str:
        return "; --salvage (salvage=True) keeps what is complete" if self._reader.counts or self._window.data else ""

    def _metadata_before(self) -> dict[str, Any]:
        """As much of the metadata as stands before the events, and can be read."""
        head = self._head or b""
        if not head:
            return {}
        try:
            return self._parsed(head + b"null}")
        except FaultError:
            values = {match[1].decode(): int(match[2]) for match in _TELLING.finditer(head)}
            return {"distributedInfo": {"rank": values.pop("rank", None)}} | values

    def _damage_text(self) -> str:
        damage = self._content.repairs.damage
        if not damage.count:
            return ""
        line = self._line_numbers([damage.byte])[0]
        passed_over = f"{damage.count} damaged piece{'s' if damage.count > 1 else ''} passed over"
        return f"{passed_over}, the first at byte {damage.byte} (line {line}): {damage.why}"

    # --- places

    def _number_lines(self) -> None:
        """People look up in an editor what was mended."""
        slips = self._content.repairs.slips.values()
        for slip, line in zip(slips, self._line_numbers([slip.byte for slip in slips]), strict=True):
            slip.line = line

    def _line_numbers(self, offsets: list[int]) -> list[int]:
        return line_numbers(self._path, offsets, self._options.max_bytes)
