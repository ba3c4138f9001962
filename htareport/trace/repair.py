"""Slips of trace writers that are mended in the text, and only there where it failed to parse.

PyTorch has written bare `nan` and `inf` for numbers (division by a duration of zero) and paths with lone backslashes.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    rb"""
    "(?:[^"\\]++|\\.)*+"                    # a string, with whatever it escapes
    | (?<=[:,\[\s])-?(?:nan|inf|infinity)\b(?:\(s?(?:nan|ind)\))?   # a number that JSON does not have
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_MAY_NEED_IT = re.compile(rb"\\|(?i:nan|inf)")
# Group 1: what is a legal escape. Python and C++ write half a surrogate pair where a name is not UTF-8.
_ESCAPE = re.compile(
    rb"""
    \\(?:(["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})
    |(u[dD][89a-fA-F][0-9a-fA-F]{2})|)
    """,
    re.VERBOSE,
)


def mend(text: bytes) -> tuple[bytes, dict[str, int]]:
    """Return the text with its slips mended, and how many of each.

    A backslash that starts no escape is doubled, half a surrogate pair becomes the replacement character, and bare nan
    and inf become null.
    """
    if not _MAY_NEED_IT.search(text):
        return text, {}
    counts = {"lone backslashes": 0, "lone surrogates": 0, "bare nan or inf values": 0}

    def escape(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return match[0]
        if match[2]:
            counts["lone surrogates"] += 1
            return rb"\ufffd"
        counts["lone backslashes"] += 1
        return rb"\\"

    def token(match: re.Match[bytes]) -> bytes:
        found = match[0]
        if found[:1] != b'"':
            counts["bare nan or inf values"] += 1
            return b"null"
        return _ESCAPE.sub(escape, found) if b"\\" in found else found

    mended = _TOKEN.sub(token, text)
    return mended, {what: count for what, count in counts.items() if count}
