"""The lines of bytes of a trace, for messages: people look them up in an editor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from htareport.errors import TraceFileError
from htareport.reading.text.blocks import blocks


def line_numbers(path: Path, offsets: Sequence[int], max_bytes: int | None) -> list[int]:
    """Return the line of each byte of the unpacked content; of one behind packed data that end early the last line."""
    line_by_offset, line, block_start = dict[int, int](), 1, 0
    remaining = sorted(set(offsets), reverse=True)
    try:
        for block in blocks(path, max_bytes) if remaining else ():
            counted_to = 0
            while remaining and remaining[-1] <= block_start + len(block):
                offset = remaining.pop()
                line, counted_to = line + block.count(b"\n", counted_to, offset - block_start), offset - block_start
                line_by_offset[offset] = line
            if not remaining:
                break
            line, block_start = line + block.count(b"\n", counted_to), block_start + len(block)
    except (TraceFileError, OSError):  # Compressed data that end here.
        pass
    return [line_by_offset.get(offset, line) for offset in offsets]
