"""Facts of a rank that are functions: computed once, and kept with the rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from htareport.rank.tables import RankTables

Owner = TypeVar("Owner", bound=RankTables)
Further = ParamSpec("Further")
Result = TypeVar("Result")
Fact = Callable[Concatenate[Owner, Further], Result]


def cached_on_rank(compute: Fact[Owner, Further, Result]) -> Fact[Owner, Further, Result]:
    """Keep what a function of a rank returns for the life of the rank. Nobody may change what is shared so."""
    return _cached(compute, lambda rank: rank.cache)


def cached_until_release(compute: Fact[Owner, Further, Result]) -> Fact[Owner, Further, Result]:
    """Keep it until `Rank.release`: for what takes much room, and is of use to few."""
    return _cached(compute, lambda rank: rank.releasable)


def _cached(
    compute: Fact[Owner, Further, Result], cache_of: Callable[[RankTables], dict[Any, Any]]
) -> Fact[Owner, Further, Result]:
    @wraps(compute)
    def cached(rank: Owner, /, *further: Further.args, **named: Further.kwargs) -> Result:
        cache, key = cache_of(rank), (compute, *further, *named.items())
        if key not in cache:
            cache[key] = compute(rank, *further, **named)
        result: Result = cache[key]
        return result

    return cached
