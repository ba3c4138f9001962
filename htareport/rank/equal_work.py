"""What a rank's kernels take, by what names equal work on all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2s

from htareport.rank.cached import cached_until_release
from htareport.rank.equal_kernels import equal_kernels
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank

_MAX_KERNELS = 64  # Of a rank that are compared: those of most time.
_MIN_NS = 20_000  # Shorter kernels vary by themselves.


@dataclass(frozen=True)
class EqualWork:
    """The median times (ns) of the kernels that take most, by a digest of name, grid, operator and shapes.

    `share` is how much of the time of all compute kernels those take whose grid or shapes are known: a name alone does
    not say how much work it is.
    """

    median_ns: dict[str, float]
    share: float


@cached_until_release
def equal_work(rank: Rank) -> EqualWork:
    """Return what the kernels of a rank take that can be compared with those of other ranks."""
    events = equal_kernels(rank)
    whole = int(events["dur"].sum())
    events = events[events["alone"]]
    if not len(events):
        return EqualWork({}, 0.0)
    groups = events.groupby("key")
    table = groups["dur"].agg(["median", "sum"])
    table = table[table["median"] >= _MIN_NS].nlargest(_MAX_KERNELS, "sum")
    is_known = (events["grid"] != NONE) | (events["shapes"] != NONE)
    known = int(events.loc[is_known & events["key"].isin(table.index), "dur"].sum())
    first = groups[["name", "grid", "operator", "shapes"]].first().loc[table.index]
    strings = rank.loaded.strings
    keys = [_digest(strings[code] if code != NONE else "" for code in codes) for codes in first.to_numpy().tolist()]
    return EqualWork(dict(zip(keys, table["median"].tolist(), strict=True)), known / max(whole, 1))


def _digest(texts: Iterable[str]) -> str:
    """A short name for kernels that do equal work, the same on all ranks."""
    return blake2s("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
