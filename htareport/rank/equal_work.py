"""What a rank's kernels take, by what names equal work on all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2s

from htareport.rank.cached import cached_until_release
from htareport.rank.equal_kernels import equal_kernels
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank

_MAX_KERNELS = 64  # Of a rank that are compared: those of most time.
_MIN_NS = 20_000  # Shorter kernels vary by themselves.


@cached_until_release
def equal_work(rank: Rank) -> dict[str, float]:
    """Return the median time (ns) of the kernels that take most, by a digest of name, grid, operator and shapes."""
    events = equal_kernels(rank)
    events = events[events["alone"]]
    if not len(events):
        return {}
    groups = events.groupby("key")
    table = groups["dur"].agg(["median", "sum"])
    table = table[table["median"] >= _MIN_NS].nlargest(_MAX_KERNELS, "sum")
    first = groups[["name", "grid", "operator", "shapes"]].first().loc[table.index]
    strings = rank.loaded.strings
    keys = [_digest(strings[code] if code != NONE else "" for code in codes) for codes in first.to_numpy().tolist()]
    return dict(zip(keys, table["median"].tolist(), strict=True))


def _digest(texts: Iterable[str]) -> str:
    """A short name for kernels that do equal work, the same on all ranks."""
    return blake2s("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
