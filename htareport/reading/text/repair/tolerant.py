"""Mends one object of a text that no parser takes: bare quotes in strings, values or commas that are not there.

Where a string with bare quotes ends shows in what follows: only a string that ends is followed by the next key, or by
brackets that fit. Every character is looked at a bounded number of times. What comes out is kept only if it is an event
with all that an event must have; an object that lost a piece of itself is damaged, and nothing is made up for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeAlias, cast

from htareport.reading.text.repair.slips import COMMAS, NUMBERS, VALUES, Slips, count, mend_string

_TOP_KEYS = frozenset(
    b"ph cat name pid tid ts dur args id id2 s bp tts tdur cname sf stack esf estack scope bind_id v".split()
)
_BLANK = re.compile(rb"[ \t\r\n]*+")
_PLAIN = re.compile(rb'[^"\\]*+')
_KEY = re.compile(rb'"((?:[^"\\]++|\\.)*+)"[ \t\r\n]*+:', re.DOTALL)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NEXT_KEY = re.compile(rb',[ \t\r\n]*+(?:"([^"\\\n]{1,200})"[ \t\r\n]*+:|[}\]]|\Z)')
_NEXT_ITEM = re.compile(rb',[ \t\r\n]*+(?:["{\[\]\-\dtfnNI]|\Z)')
_CLOSED = re.compile(rb"[}\]][ \t\r\n]*+(?:[,}\]]|\Z)")
_CLOSED_AT_TOP = re.compile(rb"\}[ \t\r\n]*+(?:[,\]{]|\Z)")
_KEY_WITHIN = re.compile(rb'(,[ \t\r\n]*+)?"([^"\\\n]{1,200})"[ \t\r\n]*+:')
_SCALAR = re.compile(rb"(?:-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?|true|false|null)(?=[ \t\r\n,}\]]|\Z)")
_BARE = re.compile(rb"[-+./\w]++")  # A number, or true, false and null, as far as the text goes.
_NO_NUMBER = re.compile(rb"-?(?:nan|n/a|inf|infinity)(?:\(s?(?:nan|ind)\))?(?=[ \t\r\n,}\]]|\Z)", re.IGNORECASE)
_Step: TypeAlias = Callable[[int, int], tuple[int, Any]]  # The other Any is a step, too.
_DEEPEST = 1000
_CLOSER = {ord("{"): ord("}"), ord("["): ord("]")}
_OBJECT, _ARRAY, _COMMA, _QUOTE, _BACKSLASH = b'}],"\\'


class FaultError(Exception):
    """What could not be mended, at an offset of the text; `ended`: the text ended before the object did."""

    def __init__(self, offset: int, why: str, *, ended: bool = False) -> None:
        super().__init__(why)
        self.offset, self.why, self.ended = offset, why, ended


class Mended(NamedTuple):
    """An object in valid JSON, where it ended in the text, and what was mended."""

    text: bytes
    end: int
    slips: Slips


def mend_object(text: bytes, start: int, stop: int) -> Mended:
    """Mend the object that starts at an offset, and ends before `stop`. FaultError if it cannot be."""
    return _Object(text, start, stop).mended()


def mend_event(text: bytes, start: int, stop: int, ends: Collection[int] = ()) -> Mended:
    """Mend an event that starts at an offset, and ends before `stop`: at one of some `ends`, if they are known.

    First only the keys of events are taken for the next key at its top: a name may hold what looks like others.
    FaultError if it cannot be mended.
    """
    fault = FaultError(start, "no event")
    for keys in (_TOP_KEYS, None):
        event = _Object(text, start, stop, top_keys=keys, ends=ends)
        try:
            mend_event = event.mended()
        except FaultError as error:
            fault = error
        else:
            if not mend_event.slips or _is_event(mend_event.text):
                return mend_event
            fault = FaultError(min(offset for _, offset in mend_event.slips.values()), "part of an event is missing")
        if not event.has_other_keys:
            break
    raise fault


def _is_event(text: bytes) -> bool:
    try:
        event = json.loads(text)
    except json.JSONDecodeError:
        return False
    except (ValueError, RecursionError):  # A number of thousands of digits, say: the reader will tell.
        return True
    return "ph" in event and "name" in event and (event["ph"] != "X" or "ts" in event)


class _Object:
    """One pass over the text of an object; what is to be changed is noted on the way."""

    def __init__(
        self,
        text: bytes,
        start: int,
        stop: int,
        *,
        top_keys: frozenset[bytes] | None = None,
        ends: Collection[int] = (),
    ) -> None:
        self._text, self._start, self._stop, self._top_keys, self._ends = text, start, stop, top_keys, ends
        self._open = bytearray()  # The brackets that are to come.
        self._edits: list[tuple[int, int, bytes]] = []
        self._comma: int | None = None  # Where a comma stands behind which nothing has come yet.
        self._slips = Slips()
        self.has_other_keys = False  # At its top, where a string may have ended before them.

    def mended(self) -> Mended:
        """Return the object. FaultError where it is not one."""
        offset, step = self._start, cast("_Step", self._value)
        while True:
            offset = self._skip_blank(offset)
            if offset >= self._stop:
                raise FaultError(self._stop, "the text ends within an object", ended=True)
            offset, step = step(offset, self._text[offset])
            if not self._open:
                break
        next_offset = self._skip_blank(offset)
        if self._ends and next_offset < self._stop and self._text[next_offset] not in b",]{":
            raise FaultError(offset, "Expecting ',' delimiter")
        fragments, done = list[bytes](), self._start
        for begin, end, instead in self._edits:
            fragments += [self._text[done:begin], instead]
            done = end
        return Mended(b"".join([*fragments, self._text[done:offset]]), offset, self._slips)

    # --- steps: each takes what stands at an offset, and returns the offset behind it and the next step

    def _value(self, offset: int, byte: int) -> tuple[int, _Step]:
        if byte in _CLOSER:
            return self._enter(offset, byte)
        in_array = self._open[-1] == _ARRAY
        if in_array and byte == _ARRAY:
            return self._close(offset)
        if in_array and byte == _COMMA:
            return self._drop_comma(offset, self._value)
        self._comma = None
        if byte == _QUOTE:
            return self._string(offset), self._next
        if scalar := _SCALAR.match(self._text, offset, self._stop):
            return scalar.end(), self._next
        return self._slip(offset, byte), self._next

    def _slip(self, offset: int, byte: int) -> int:
        """What stands in the place of a value becomes null, if it is known for one."""
        if number := _NO_NUMBER.match(self._text, offset, self._stop):
            self._edit(offset, number.end(), b"null", NUMBERS)
            return number.end()
        if byte in b",}":
            self._edit(offset, offset, b"null", VALUES)
            return offset
        bare = _BARE.match(self._text, offset, self._stop)
        raise FaultError(offset, "Expecting value", ended=bare is not None and bare.end() == self._stop)

    def _enter(self, offset: int, byte: int) -> tuple[int, _Step]:
        self._open.append(_CLOSER[byte])
        if len(self._open) > _DEEPEST:
            raise FaultError(offset, "nested beyond the limit of recursion")
        self._comma = None
        return offset + 1, self._key if byte == ord("{") else self._value

    def _key(self, offset: int, byte: int) -> tuple[int, _Step]:
        if byte == _OBJECT:
            return self._close(offset)
        if byte == _COMMA:
            return self._drop_comma(offset, self._key)
        if key := _KEY.match(self._text, offset, self._stop):
            self._comma = None
            self._mend_string(offset + 1, key.end(1))
            return key.end(), self._value
        if byte != _QUOTE:
            raise FaultError(offset, "Expecting property name enclosed in double quotes")
        string = _STRING.match(self._text, offset, self._stop)
        next_offset = self._skip_blank(string.end()) if string else self._stop
        raise FaultError(next_offset, "Expecting ':' delimiter", ended=next_offset >= self._stop)

    def _next(self, offset: int, byte: int) -> tuple[int, _Step]:
        if byte == _COMMA:
            self._comma = offset
            return offset + 1, self._key if self._open[-1] == _OBJECT else self._value
        if byte == self._open[-1]:
            return self._close(offset)
        raise FaultError(offset, "Expecting ',' delimiter")

    def _close(self, offset: int) -> tuple[int, _Step]:
        if self._comma is not None:
            self._edit(self._comma, self._comma + 1, b"", COMMAS)
        self._comma = None
        self._open.pop()
        return offset + 1, self._next

    def _drop_comma(self, offset: int, step: _Step) -> tuple[int, _Step]:
        self._edit(offset, offset + 1, b"", COMMAS)
        return offset + 1, step

    # --- strings

    def _string(self, start: int) -> int:
        """Find the end of the string that starts at an offset, and return the offset behind its quote."""
        offset, has_quotes = start + 1, False
        while True:
            plain = _PLAIN.match(self._text, offset, self._stop)
            offset = plain.end() if plain else offset
            if offset >= self._stop:
                raise FaultError(start, "Unterminated string", ended=True)
            if self._text[offset] == _QUOTE:
                if self._ends_before(offset + 1):
                    break
                offset, has_quotes = offset + 1, True
            elif self._text[offset + 1 : offset + 2] == b'"' and self._is_next_key(offset + 2):
                offset += 1  # A backslash for itself, and the quote that ends the string.
                break
            else:
                offset += 2
        if has_quotes:
            self._refuse_swallowed(start + 1, offset)
        self._mend_string(start + 1, offset)
        return offset + 1

    def _ends_before(self, offset: int) -> bool:
        """Whether what stands at an offset can follow the end of a string."""
        offset = self._skip_blank(offset)
        if offset >= self._stop:
            return True
        if self._text[offset] == _COMMA:
            if self._open[-1] == _ARRAY:
                return _NEXT_ITEM.match(self._text, offset, self._stop) is not None
            return self._is_next_key(offset, any_key=self._top_keys is None or len(self._open) > 1)
        return self._text[offset] == self._open[-1] and self._is_closed(offset)

    def _is_closed(self, offset: int) -> bool:
        """Whether what follows a bracket can follow it."""
        if len(self._open) == 1 and self._ends:
            return offset + 1 in self._ends
        return (_CLOSED if len(self._open) > 1 else _CLOSED_AT_TOP).match(self._text, offset, self._stop) is not None

    def _is_next_key(self, offset: int, *, any_key: bool = False) -> bool:
        match = _NEXT_KEY.match(self._text, offset, self._stop)
        if not match:
            return False
        is_known = match[1] is None or match[1] in _TOP_KEYS
        self.has_other_keys = self.has_other_keys or not is_known
        return any_key or is_known

    def _refuse_swallowed(self, start: int, end: int) -> None:
        """FaultError for a string that holds what looks like the next key: it has lost the quote at its end."""
        for match in _KEY_WITHIN.finditer(self._text, start, end):
            is_key = match[2] in _TOP_KEYS if len(self._open) == 1 and self._top_keys else match[1]
            if is_key:
                raise FaultError(match.start(), "Expecting ',' delimiter")

    def _mend_string(self, start: int, end: int) -> None:
        inner = self._text[start:end]
        mended = mend_string(inner, start, self._slips)
        if mended != inner:
            self._edits.append((start, end, mended))

    # --- helpers

    def _skip_blank(self, offset: int) -> int:
        match = _BLANK.match(self._text, offset, self._stop)
        return match.end() if match else offset

    def _edit(self, start: int, end: int, instead: bytes, what: str) -> None:
        count(self._slips, what, start)
        self._edits.append((start, end, instead))
