"""How many rows of a kind a rank may send: so many, and fewer where all that it sends would be too much.

Whoever looks at a rank asks `at_most` for its limit. Where the summary of a rank comes out too large, the runner asks
those that send most again, with half of the rows, or a quarter, and so on: see htareport.fitting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_halvings: ContextVar[int] = ContextVar("halvings", default=0)


def at_most(rows: int) -> int:
    """Return how many rows may be sent where there is room for so many; never none."""
    return max(1, rows >> _halvings.get())


@contextmanager
def halved(times: int) -> Iterator[None]:
    """Give half of the room within it, so many times."""
    token = _halvings.set(times)
    try:
        yield
    finally:
        _halvings.reset(token)
