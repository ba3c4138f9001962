"""What a function makes of a rank's trace, or of what rules know of a rank, worked out once for all who ask."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class _Keeps(Protocol):
    @property
    def made(self) -> dict[Any, Any]:
        """What functions of it returned, by function and further arguments."""


Owner = TypeVar("Owner", bound=_Keeps)
Further = ParamSpec("Further")
Result = TypeVar("Result")


def kept(make: Callable[Concatenate[Owner, Further], Result]) -> Callable[Concatenate[Owner, Further], Result]:
    """Keep what a function returns with what it was given first. Nobody may change what is shared so."""

    @wraps(make)
    def once(owner: Owner, /, *further: Further.args, **named: Further.kwargs) -> Result:
        key = (make, *further, *named.items())
        if key not in owner.made:
            owner.made[key] = make(owner, *further, **named)
        found: Result = owner.made[key]
        return found

    return once
