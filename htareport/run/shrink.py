"""Limits the bytes of a rank's summary: the analyses and rules that send most are run again for fewer rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from htareport.algorithms.frame_packing import Packed
from htareport.run.summaries import RankSummary, weight

MAX_BYTES = 94_000  # Of the frames and the evidence in a summary.
RULES = "rules"  # The evidence of all rules, among the names of analyses.
MAX_ROUNDS = 6
SAFETY = 0.95  # Aim below the limit: not all bytes shrink with the number of rows.
MIN_SHRINK = 0.95  # What is larger than this share of its previous size does not shrink any further.
RESERVED_SHARE = 0.5  # Of the budget, for those that shrink, whatever the others send.
MIN_SHARE = 1e-5  # Of the rows: practically none.
MIN_SHARED_BYTES = 4_000  # Of one array or text that several analyses send and that is packed once.


def shrink_to_budget(summary: RankSummary, remeasure: Callable[[str, float], None]) -> None:
    """Reduce a summary to MAX_BYTES; `remeasure(name, share)` runs an analysis or RULES again for a share of its rows.

    Analyses that send the same bytes are run again together, as these are packed once only while they are equal. What
    does not shrink is left as it is; the others shrink more instead, but keep RESERVED_SHARE of the budget.
    """
    # In each round all groups larger than the limit (the largest size at which all fit) are run again for the share of
    # rows that should bring them down to it. Groups that hardly got smaller are fixed and taken out of the budget, and
    # where a size did not change at all, no rows are missing: the share is set back to what it was.
    sizes_before, shares_before = dict[tuple[str, ...], int](), dict[str, float]()
    for _ in range(MAX_ROUNDS):
        sizes = _sizes(summary)
        for name in (name for names, size in sizes_before.items() if sizes.get(names) == size for name in names):
            summary.shares.pop(name, None)
            summary.shares.update({name: shares_before[name]} if name in shares_before else {})
        fixed = {names for names, size in sizes_before.items() if sizes.get(names, 0) > MIN_SHRINK * size}
        budget = max(MAX_BYTES - sum(sizes[names] for names in fixed), int(RESERVED_SHARE * MAX_BYTES))
        sizes = {names: size for names, size in sizes.items() if names not in fixed}
        if (limit := _limit(sizes.values(), budget)) is None:
            return
        for names, size in sizes.items():
            if size <= limit:
                continue
            sizes_before[names] = size
            previous = min(summary.shares.get(name, 1.0) for name in names)
            share = max(MIN_SHARE, previous * SAFETY * limit / size)
            for name in names if share < previous else ():
                shares_before.update({name: summary.shares[name]} if name in summary.shares else {})
                summary.shares[name] = share
                remeasure(name, share)


def _limit(sizes: Iterable[int], budget: int) -> int | None:
    """The size that larger ones must shrink to for all to fit into the budget; None if they fit already."""
    remaining, ordered = budget, sorted(sizes)
    for index, size in enumerate(ordered):
        if size * (len(ordered) - index) > remaining:
            return max(0, remaining // (len(ordered) - index))
        remaining -= size
    return None


def _sizes(summary: RankSummary) -> Mapping[tuple[str, ...], int]:
    """Bytes by group of names; those that send the same bytes are one group."""
    contents: dict[str, Any] = {**summary.frames, **({RULES: summary.evidence} if summary.evidence else {})}
    owners, groups = dict[bytes, str](), {name: [name] for name in contents}
    for name, content in contents.items():
        for data in _shareable_bytes(content):
            owner = owners.setdefault(data, name)
            if (group := groups[owner]) is not groups[name]:
                group += groups[name]
                for member in groups[name]:
                    groups[member] = group
    contents_by_group = {tuple(names): [contents[name] for name in names] for names in groups.values()}
    return {names: weight(values) for names, values in contents_by_group.items()}


def _shareable_bytes(content: Any) -> list[bytes]:
    """The long arrays and texts that others may send, too."""
    return [data for packed in _packed_frames(content) for data in packed.long if len(data) >= MIN_SHARED_BYTES]


def _packed_frames(value: Any) -> Iterator[Packed]:
    """All packed frames in a value made of dataclasses, mappings and sequences."""
    if isinstance(value, Packed):
        yield value
    elif is_dataclass(value):
        yield from _packed_frames([getattr(value, field.name) for field in fields(value)])
    elif isinstance(value, dict | list | tuple):
        for element in value.values() if isinstance(value, dict) else value:
            yield from _packed_frames(element)
