"""Telling a saved report from a trace, which may have the same name."""

from __future__ import annotations

import zlib
from pathlib import Path

from htareport.errors import TraceFileError
from htareport.reading.sources.heads import is_report
from htareport.reading.text.blocks import open_regular

_HEAD_BYTES = 65536


def is_saved_report(path: Path) -> bool:
    """Tell by content whether a file is a report's JSON, plain or gzip."""
    try:
        if not path.is_file():
            return False
        with open_regular(path) as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError, TraceFileError):
        return False
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return False
    return is_report(head)
