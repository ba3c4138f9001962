"""What several analyses and rules derive of a trace alike is derived once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from htareport.trace import RankTrace

Derived = TypeVar("Derived")


def once(derive: Callable[[RankTrace], Derived]) -> Callable[[RankTrace], Derived]:
    """Keep what a function derives with the trace it is of. As with the trace's own tables, nobody changes it."""
    name = f"{derive.__module__}.{derive.__qualname__}"

    @wraps(derive)
    def derived(trace: RankTrace) -> Derived:
        if name not in trace.shared:
            trace.shared[name] = derive(trace)
        found: Derived = trace.shared[name]
        return found

    return derived
