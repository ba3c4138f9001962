"""How many rows of a kind a rank may send: so many, and fewer where all that it sends would be too much.

Whoever looks at a rank asks `at_most` for its limit. Where the summary of a rank comes out too large, the runner asks
those that send most again, for a share of what they have: see htareport.run.shrink.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_share: ContextVar[float] = ContextVar("share", default=1.0)


def at_most(rows: int, there: int | None = None) -> int:
    """Return how many rows may be sent, of so many that are there, where there is room for `rows`; never none."""
    share = _share.get()
    return rows if share == 1 else max(1, int((rows if there is None else min(rows, there)) * share))


@contextmanager
def room_for(share: float) -> Iterator[None]:
    """Give room for a share of the rows within it."""
    token = _share.set(share)
    try:
        yield
    finally:
        _share.reset(token)
