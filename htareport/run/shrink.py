"""Keeps what a rank sends within bounds, whatever it ran: those that send most send less."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from htareport.algorithms.frame_packing import Packed
from htareport.run.summaries import RankSummary, weight

MOST_BYTES = 94_000  # Of a summary without what is known of its files, and what sending it takes.
RULES = "rules"  # Beside the names of analyses.
_ROUNDS = 6
_CLOSE = 0.95  # Not all of a part shrinks with its rows.
_HARDLY = 0.95
_OTHERS = 0.5  # Of the room: what is left at least for those that shrink, whatever the others send.
_LEAST = 1e-5  # Share of its rows: there is nothing left then.
_SHARED = 4_000  # Bytes from which on it matters that several send the same ones.


def fit(summary: RankSummary, again: Callable[[str, float], None]) -> None:
    """Make a summary small enough: `again` replaces a part of it by one with a share of the rows.

    What parts have in common is sent once only if it stays the same, so that they are made again together. A part that
    hardly shrinks is left alone, and the others have to make up for it, but not with all that they have: an analysis
    from elsewhere may send what it likes.
    """
    asked, had = dict[tuple[str, ...], int](), dict[str, float]()  # Sizes before, and shares.
    for _ in range(_ROUNDS):
        sizes = _sizes(summary)
        for part in (part for parts, size in asked.items() if sizes.get(parts) == size for part in parts):
            summary.shares.pop(part, None)  # It lacks nothing, or no more than it did before.
            summary.shares.update({part: had[part]} if part in had else {})
        fixed = {parts for parts, size in asked.items() if sizes.get(parts, 0) > _HARDLY * size}
        left = max(MOST_BYTES - sum(sizes[parts] for parts in fixed), int(_OTHERS * MOST_BYTES))
        sizes = {parts: size for parts, size in sizes.items() if parts not in fixed}
        if (limit := _limit(sizes.values(), left)) is None:
            return
        for parts, size in sizes.items():
            if size <= limit:
                continue
            asked[parts] = size
            before = min(summary.shares.get(part, 1.0) for part in parts)
            share = max(_LEAST, before * _CLOSE * limit / size)
            for part in parts if share < before else ():
                had.update({part: summary.shares[part]} if part in summary.shares else {})
                summary.shares[part] = share
                again(part, share)


def _limit(sizes: Iterable[int], most: int) -> int | None:
    """What no part may be larger than for all together to fit; None where they do."""
    left, ordered = most, sorted(sizes)
    for place, size in enumerate(ordered):
        if size * (len(ordered) - place) > left:
            return max(0, left // (len(ordered) - place))
        left -= size
    return None


def _sizes(summary: RankSummary) -> Mapping[tuple[str, ...], int]:
    """Bytes of each part, those together that have bytes in common."""
    parts: dict[str, Any] = {**summary.frames, **({RULES: summary.evidence} if summary.evidence else {})}
    owners, groups = dict[bytes, str](), {name: [name] for name in parts}
    for name, part in parts.items():
        for shared in _long(part):
            other = owners.setdefault(shared, name)
            if (mine := groups[other]) is not groups[name]:
                mine += groups[name]
                for group in groups[name]:
                    groups[group] = mine
    together = {tuple(names): [parts[name] for name in names] for names in groups.values()}
    return {names: weight(values) for names, values in together.items()}


def _long(part: Any) -> list[bytes]:
    """The bytes of a part that others may have, too."""
    return [data for packed in _packed_frames(part) for data in packed.long if len(data) >= _SHARED]


def _packed_frames(value: Any) -> Iterator[Packed]:
    """All packed frames in a value made of dataclasses, mappings and sequences."""
    if isinstance(value, Packed):
        yield value
    elif is_dataclass(value):
        yield from _packed_frames([getattr(value, item.name) for item in fields(value)])
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _packed_frames(inner)
