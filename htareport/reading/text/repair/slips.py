"""Slips of trace writers that are mended in the text, and only there where it failed to parse.

PyTorch has written bare `nan`, `inf` and `N/A` for numbers (division by a duration of zero), paths with lone
backslashes, names with line breaks, values that are not there, and bytes that are not UTF-8. All of these show in one
token, and are mended in any stretch of text at once, in time proportional to it; for bare quotes see tolerant.py.
"""

from __future__ import annotations

import re

Slips = dict[str, tuple[int, int]]  # What: how many, and the offset of the first.

_TOKEN = re.compile(
    rb"""
    "(?:[^"\\]++|\\.)*+"                    # a string, with whatever it escapes
    | (?<=[:,\[\s])-?(?:nan|n/a|inf|infinity)\b(?:\(s?(?:nan|ind)\))?   # a number that JSON does not have
    | (?<=:)[ \t\r\n]*+(?=[,}\]])           # a value that is not there
    | ,(?=[ \t\r\n]*+[}\]])                 # a comma behind the last
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_IN_STRING = re.compile(
    rb"""
    \\(?:(["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})
    |(u[dD][89a-fA-F][0-9a-fA-F]{2})|)      # 1: a legal escape; 2: half a surrogate pair, for a name that is not UTF-8
    |(["\x00-\x1f])
    """,
    re.VERBOSE,
)
_TO_MEND = re.compile(rb"[\\\x00-\x1f]")
_BACKSLASHES, _SURROGATES, NUMBERS = "lone backslashes", "lone surrogates", "values that are no numbers"
_QUOTES, _CONTROLS, _UTF8 = "stray quotes", "control characters", "bytes that are not UTF-8"
_REPLACED = "\ufffd".encode()
_ONE = {"backslashes": "backslash", "surrogates": "surrogate", "values that are no numbers": "value that is no number",
        "quotes": "quote", "characters": "character", "bytes that are": "byte that is", "values": "value",
        "commas": "comma", "keys": "key"}  # fmt: skip
VALUES, COMMAS = "missing values", "stray or missing commas"


def singular(what: str) -> str:
    """Name one slip of a kind, of which the names are in the plural."""
    return next((what.replace(many, one, 1) for many, one in _ONE.items() if many in what), what)


def mend(text: bytes) -> tuple[bytes, Slips]:
    """Return a stretch of JSON with the slips in its tokens mended, and which they were.

    A backslash that starts no escape is doubled, control characters in strings are escaped, half a surrogate pair and
    what is not UTF-8 become the replacement character, bare nan, inf, N/A and missing values become null.
    """
    slips = Slips()

    def token(match: re.Match[bytes]) -> bytes:
        token_text = match[0]
        if token_text.startswith(b'"'):
            inner = token_text[1:-1]
            return b'"' + _escaped(inner, match.start() + 1, slips) + b'"' if _TO_MEND.search(inner) else token_text
        if token_text == b",":
            count(slips, COMMAS, match.start())
            return b""
        count(slips, NUMBERS if token_text.strip() else VALUES, match.start())
        return b"null"

    return _as_utf8(_TOKEN.sub(token, text), text, 0, slips), slips


def mend_string(inner: bytes, offset: int, slips: Slips) -> bytes:
    """Return what stands between the quotes of a string, at an offset of the text, so that it can stand there."""
    return _as_utf8(_escaped(inner, offset, slips), inner, offset, slips)


def _escaped(inner: bytes, offset: int, slips: Slips) -> bytes:

    def mended(match: re.Match[bytes]) -> bytes:
        slip_offset = offset + match.start()
        if match[1]:
            return match[0]
        if match[2]:
            count(slips, _SURROGATES, slip_offset)
            return rb"\ufffd"
        if match[3] == b'"':
            count(slips, _QUOTES, slip_offset)
            return rb"\""
        if match[3]:
            count(slips, _CONTROLS, slip_offset)
            return rb"\u%04x" % match[3][0]
        count(slips, _BACKSLASHES, slip_offset)
        return rb"\\"

    return _IN_STRING.sub(mended, inner)


def _as_utf8(mended: bytes, text: bytes, offset: int, slips: Slips) -> bytes:
    try:
        text.decode()  # What was mended before is ASCII, and leaves valid what was.
    except UnicodeDecodeError as error:
        replaced = mended.decode("utf-8", "replace").encode()
        count(slips, _UTF8, offset + error.start, replaced.count(_REPLACED) - mended.count(_REPLACED))
        return replaced
    return mended


def count(slips: Slips, what: str, offset: int, more: int = 1) -> None:
    """Note one more slip, or several, the first at an offset."""
    number, first = slips.get(what, (0, offset))
    slips[what] = number + more, first
