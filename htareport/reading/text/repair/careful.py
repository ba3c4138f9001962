"""The slow road through the array of events: one by one, where a stretch of it is no valid JSON.

Nothing comes here from a good file. What a writer's slip is, is mended and counted; an event that is damaged is an
error with its place, unless the file is to be salvaged: then it is passed over, up to where the next event begins.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from htareport.reading.text import split
from htareport.reading.text.decode import Reader
from htareport.reading.text.repair.repeated_keys import in_events
from htareport.reading.text.repair.slips import COMMAS, Slips
from htareport.reading.text.repair.tolerant import FaultError, Mended, mend_event
from htareport.reading.text.split import EARLY, EDGE, MAX_HELD_BYTES, PlacedError, Window
from htareport.rows.capture import Slip

_MAX_NESTED = 8  # Objects within an event that look like the next event, before it counts as damaged.
_BOUNDARY = re.compile(
    rb'\}[ \t\r\n]*+,?[ \t\r\n]*+(?=\{[ \t\r\n]*+"(?:ph|cat|name|pid|tid|ts|dur|args|id|s|bp|tts|cname)"[ \t\r\n]*+:)'
)
_BLANKS = re.compile(rb"[ \t\r\n]*+")
_BETWEEN = re.compile(rb"[ \t\r\n,]*+")
_VALUE_AT = json.JSONDecoder().raw_decode


@dataclass
class Damage:
    """What was passed over to salvage a file: how many stretches, and place and reason of the first."""

    count: int = 0
    byte: int = 0
    why: str = ""


@dataclass
class Repairs:
    """What was wrong with one file, as far as it could be read on."""

    slips: dict[str, Slip] = field(default_factory=dict)
    damage: Damage = field(default_factory=Damage)
    entered: int = 0  # How many stretches of text needed mending or the slow road.

    def add(self, slips: Slips, stretch_offset: int) -> None:
        """Count the slips of a stretch of text that begins at a byte of the file."""
        for what, (number, first) in slips.items():
            slip = self.slips.setdefault(what, Slip(0, stretch_offset + first))
            slip.count += number
            slip.byte = min(slip.byte, stretch_offset + first)


def read_carefully(window: Window, reader: Reader, repairs: Repairs, *, salvage: bool) -> bool:
    """Take some events, or the rest; True when the array is closed. PlacedError where it cannot go on."""
    repairs.entered += 1
    size = 4 * split.CHUNK
    while True:
        window.fill(size)
        limit = min(len(window.data), window.position + size)
        is_all = window.at_end and limit == len(window.data)
        text = bytes(window.data[window.position : limit])
        stretch = _Stretch(text, window.file_offset(), reader, repairs, _Means(is_all, salvage))
        try:
            end, is_closed = stretch.read()
        except PlacedError:
            stretch.store()
            window.position += stretch.done
            raise
        if end or is_all:
            window.position += end
            return is_closed
        if size >= MAX_HELD_BYTES:
            raise PlacedError("no end of an event", window.file_offset(), f"it has more than {MAX_HELD_BYTES >> 20} MB")
        size = min(4 * size, MAX_HELD_BYTES)  # An event larger than the window.


class _Means(NamedTuple):
    """Whether a text is all there is up to the end of the file, and whether the file is to be salvaged."""

    is_all: bool
    salvage: bool


class _Stretch:
    """The text from an event on, with the events that were found in it."""

    def __init__(self, text: bytes, file_offset: int, reader: Reader, repairs: Repairs, means: _Means) -> None:
        self._text, self._file_offset, self._reader, self._repairs = text, file_offset, reader, repairs
        self._is_all, self._salvage = means
        self._events: list[tuple[int, Mended]] = []  # Start of each event, and what there is of it.
        self._stops: list[int] | None = None  # Behind the brackets that seem to end an event.
        self._after_damage = False
        self.done = 0  # Behind the last event that was complete.

    def read(self) -> tuple[int, bool]:
        """Find the complete events; return how far they reach, and whether the array is closed there."""
        offset = self._skip(_BETWEEN, 0)
        while offset < len(self._text):
            if self._text.startswith(b"]", offset):
                self.store()
                return offset + 1, True
            end = self._value(offset)
            if end is None:
                break
            offset = self._skip_comma(end)
        else:
            if self._is_all:
                raise self._early()
        self.store()
        return offset, False

    @cached_property
    def _as_str(self) -> str:
        return self._text.decode("latin-1")  # A character per byte, so that offsets are the same.

    def store(self) -> None:
        """Let the reader have what was found."""
        events, self._events = self._events, []
        array = b"[" + b",".join(event.text for _, event in events) + b"]"
        if events and self._reader.feed(array):
            repeats = in_events(array)
            for start, event in events:
                self._repairs.add(event.slips, self._file_offset)
                if repeats:
                    self._repairs.add(in_events(b"[" + event.text + b"]"), self._file_offset + start - 1)
            return
        for start, event in events:
            self._store_one(start, event)

    def _store_one(self, start: int, event: Mended) -> None:
        if self._reader.feed(b"[" + event.text + b"]"):
            self._repairs.add(event.slips, self._file_offset)
        else:  # Valid JSON, but a number is out of range, or something is nested too deeply.
            self._damage(start, self._reader.fault)

    def _value(self, offset: int) -> int | None:
        """Take the value at an offset; return the offset behind it, None if there has to be more text to tell."""
        is_event = self._text.startswith(b"{", offset)
        try:
            value, end = self._event(offset) if is_event else _VALUE_AT(self._as_str, offset)
        except (ValueError, RecursionError) as error:
            return self._mended(offset) if is_event else self._no_value(offset, error)
        if end == len(self._text) and not is_event:  # Of a number there may be more.
            return self._more_or_early()
        next_offset = self._skip(_BLANKS, end)
        if next_offset < len(self._text) and self._text[next_offset] not in b",]{":
            return self._damaged_behind(offset, end if is_event and self._is_whole(value) else offset, next_offset)
        if is_event and not (self._after_damage and "ph" not in value):
            self._take(offset, Mended(self._text[offset:end], end, {}))
        return end

    def _event(self, offset: int) -> tuple[dict[str, Any], int]:
        """The object at an offset, and the offset behind it. ValueError if it is not valid, or not complete."""
        if not (stops := self._stops_after(offset)):
            value, end = _VALUE_AT(self._as_str, offset)
        else:
            with contextlib.suppress(ValueError):  # Most end where they seem to.
                return orjson.loads(self._text[offset : stops[0]]), stops[0]
            # An error of Python's parser counts the lines before it: so only what is needed is given to it.
            value, length = _VALUE_AT(self._text[offset : stops[-1]].decode("latin-1"))
            end = offset + length
        orjson.loads(self._text[offset:end])  # Python takes NaN, and cannot tell here what is not UTF-8.
        return value, end

    def _take(self, start: int, event: Mended) -> int:
        self._events.append((start, event))
        self._after_damage, self.done = False, event.end
        return event.end

    def _no_value(self, offset: int, error: Exception) -> int | None:
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        if why.startswith("Unterminated"):
            return self._more_or_early()
        return self._past_damage(offset, getattr(error, "pos", offset), why)

    def _mended(self, offset: int) -> int | None:
        """Mend the event at an offset, which ends before the next event at the latest."""
        stops = self._stops_after(offset)
        attempts = [(stops[-1], frozenset(stops))] if stops else []
        if len(stops) < _MAX_NESTED:  # It may be the last in the text.
            attempts.append((len(self._text), frozenset()))
        fault = FaultError(offset, "")
        for stop, ends in attempts:
            try:
                return self._take(offset, mend_event(self._text, offset, stop, ends))
            except FaultError as error:
                if stop == len(self._text) and (error.ended or error.offset >= stop - EDGE):
                    return self._more_or_early()
                if not error.ended:
                    return self._past_damage(offset, error.offset, error.why)
                fault = fault if fault.why else error
        return self._past_damage(offset, fault.offset, fault.why)

    def _past_damage(self, offset: int, fault: int, why: str) -> int | None:
        """Note the damage of an event; return the offset behind it, None if there has to be more text to find it."""
        stops = self._stops_after(offset)
        if self._salvage and not stops and not self._is_all:
            return None
        if not stops:  # It is the last, and what stands behind it cannot be told from it.
            raise PlacedError("not valid JSON", self._file_offset + fault, why)
        self._damage(fault, why)
        self._after_damage = True
        return stops[0]

    def _damaged_behind(self, start: int, end: int, fault: int) -> int | None:
        """Keep the event between two offsets, if there is one, of which only what follows is damaged."""
        if end > start and self._salvage and (self._is_all or self._stops_after(end)):
            self._take(start, Mended(self._text[start:end], end, {}))
        return self._past_damage(end, fault, "Expecting ',' delimiter")

    @staticmethod
    def _is_whole(event: dict[str, Any]) -> bool:
        return "ph" in event and "name" in event and (event["ph"] != "X" or {"ts", "dur"} <= event.keys())

    def _damage(self, offset: int, why: str) -> None:
        if not self._salvage:
            raise PlacedError("not valid JSON", self._file_offset + offset, why)
        damage = self._repairs.damage
        if not damage.count:
            damage.byte, damage.why = self._file_offset + offset, why
        damage.count += not self._after_damage  # What is left of a damaged event is none of its own.

    def _more_or_early(self) -> int | None:
        """More text is needed; where there is none the file ends early."""
        if self._is_all:
            raise self._early()
        return None

    def _early(self) -> PlacedError:
        return PlacedError(EARLY, self._file_offset + len(self._text), "the array of events is not closed")

    def _stops_after(self, offset: int) -> list[int]:
        """Offsets behind the brackets that seem to end an event, from an offset on."""
        if self._stops is None:
            self._stops = [match.start() + 1 for match in _BOUNDARY.finditer(self._text)]
        first = bisect.bisect_right(self._stops, offset)
        return self._stops[first : first + _MAX_NESTED]

    def _skip(self, pattern: re.Pattern[bytes], offset: int) -> int:
        match = pattern.match(self._text, offset)
        return match.end() if match else offset

    def _skip_comma(self, offset: int) -> int:
        """The offset of the next value; anything but one comma before it is a slip, behind the last none is due."""
        end = self._skip(_BETWEEN, offset)
        commas = self._text.count(b",", offset, end)
        is_last = self._text.startswith(b"]", end)
        if end < len(self._text) and commas != (0 if is_last else 1):
            self._repairs.add({COMMAS: (1, end)}, self._file_offset)
        return end
