"""Writes copies of trace files with sequences of kernels marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from htareport.algorithms.distinct import unique_sorted
from htareport.export.files import CopyFolder
from htareport.export.numbered import column_of
from htareport.export.rewrite import with_fields, without_args
from htareport.rank.rank import Rank
from htareport.rows.classify import PROFILER_CATEGORY
from htareport.rows.schema import POSITION

PATTERNS = "Patterns"
_NAMES = "names"  # Where names that were replaced by numbers are spelled out.


class Pattern(NamedTuple):
    """A sequence as text, how often it comes, and the rows of its calls and of their device work (source, row)."""

    text: str
    times: int
    rows: Sequence[pd.DataFrame]


class _Kind(msgspec.Struct, gc=False):
    ph: Any = ""
    cat: Any = ""
    name: Any = ""


_KIND = msgspec.json.Decoder(_Kind).decode


def write_patterns(
    rank: Rank, folder: CopyFolder, patterns: Sequence[Pattern], *, compress: bool, prefix: str = "overlaid_"
) -> list[Path]:
    """Write a copy of each file of a rank; return the copies' paths.

    Events of a pattern get the argument `Patterns`: {its text: how often it comes}. With `compress` all other complete
    events lose their arguments, and their names become numbers, which the profiler's own row (or, without one, the
    metadata) spells out.
    """
    written = []
    for number, capture in enumerate(rank.captures):
        names = _name_numbers(rank) if compress else {}
        marks = _marks(rank, number, patterns)
        spelled = {str(code): name for name, code in names.items()}
        has_row = rank.loaded.counts.get(PROFILER_CATEGORY, 0) > 0

        def edit(row: int, event: bytes, marks: Mapping[int, Any] = marks, names: Mapping[str, int] = names) -> bytes:
            if row in marks:
                return with_fields(event, {PATTERNS: marks[row]})
            if not compress or (kind := _KIND(event)).ph != "X":
                return event
            if kind.cat == PROFILER_CATEGORY:
                return with_fields(event, {_NAMES: spelled})  # noqa: B023  used within this round
            return without_args(event, str(names.get(kind.name, kind.name)))

        target = folder.path_for(capture.path, prefix=prefix)
        metadata = {_NAMES: spelled} if compress and not has_row else None
        written.append(folder.write(rank, number, target, "kernel sequences", edit=edit, metadata=metadata))
    return written


def _marks(rank: Rank, capture: int, patterns: Sequence[Pattern]) -> dict[int, dict[str, int]]:
    """Return what to write to the events of a file, by their position."""
    marks: dict[int, dict[str, int]] = {}
    for pattern in patterns:
        for rows in pattern.rows:
            in_capture = rows[rows["capture"] == capture]
            for position in column_of(rank, in_capture, POSITION).tolist():
                marks.setdefault(position, {})[pattern.text] = pattern.times
    return marks


def _name_numbers(rank: Rank) -> dict[str, int]:
    """Return a number for each name of a complete event."""
    tables = rank.loaded.tables.values()
    codes = unique_sorted(np.concatenate([unique_sorted(table["name"]) for table in tables])).tolist()
    return {rank.loaded.strings[code]: code for code in codes}
