"""Reads saved reports, and checks in them what their types do not: the numbers in `meta`, and columns of charts."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from htareport.files.locations import located, reading
from htareport.report.json_codec import DecodeError, decode


@dataclass(frozen=True, slots=True)
class _MetaShape:
    """The types of the fields of `meta` that are computed with; all other fields may hold any JSON."""

    num_ranks: int | None = None
    world_size: int | None = None
    devices: Mapping[str, int] | None = None
    steps: Mapping[str, int] | None = None
    ranks: tuple[Mapping[str, Any], ...] = ()
    files: tuple[_FileShape, ...] = ()
    left_out: tuple[Mapping[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    comparison: Mapping[str, Any] | None = None
    gates: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class _FileShape:
    name: str = ""
    rank: int | None = None
    bytes: int | None = None
    note: str = ""


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file, unpacked where it is gzip. DecodeError with the reason where that fails."""
    try:
        with reading(located(path)) as file:
            data = file.read()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise DecodeError(reason or str(error)) from error


def check_required(report: Mapping[str, Any]) -> None:
    """Raise DecodeError for a field that has a default, but without which nothing can be said of a saved report."""
    _require(report, ("meta", "warnings", "sections"), "")
    for index, section in enumerate(report["sections"]):
        _require(section, ("status", "facts", "findings", "charts", "tables"), f"sections[{index}].")


def _require(fields: Mapping[str, Any], names: Sequence[str], prefix: str) -> None:
    for name in names:
        if name not in fields:
            raise DecodeError(f"{prefix}{name}: is missing")


def check_meta(meta: Mapping[str, Any]) -> None:
    """Raise DecodeError, naming the field, where a field of `meta` has the wrong type."""
    decode(_MetaShape, meta, "meta")


def check_charts(sections: Sequence[Any]) -> None:
    """Raise DecodeError for a chart of these sections that names a column missing in its frame."""
    for section_index, section in enumerate(sections):
        for chart_index, chart in enumerate(section.charts):
            for channel in ("x", "y", "color", "low", "high", "q1", "q3", "x2", "text"):
                column = getattr(chart, channel)
                if column is not None and column not in chart.frame.columns:
                    field = f"sections[{section_index}].charts[{chart_index}].{channel}"
                    raise DecodeError(f"{field}: its frame has no column {column!r}")
