"""Long columns, some thousands of rows at a time: what is worked out on the way then takes little room."""

from __future__ import annotations

from collections.abc import Iterator

_ROWS = 1 << 15


def chunks(size: int) -> Iterator[slice]:
    """Yield the places of so many rows, in order."""
    return (slice(first, min(first + _ROWS, size)) for first in range(0, size, _ROWS))
