"""What a function makes of a rank's trace, worked out once for all analyses and rules that ask."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from htareport.trace.model import RankTrace

Result = TypeVar("Result")


def kept(make: Callable[[RankTrace], Result]) -> Callable[[RankTrace], Result]:
    """Keep what a function returns with the trace that it was given. Nobody may change what is shared so."""

    @wraps(make)
    def once(trace: RankTrace) -> Result:
        if make not in trace.made:
            trace.made[make] = make(trace)
        found: Result = trace.made[make]
        return found

    return once
