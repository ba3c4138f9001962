"""Trace: a job, as its files by rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeAlias

from htareport.errors import NothingToReadError, printable
from htareport.files.locations import Files, exists, located, named, paths_of, shown, size_of
from htareport.reading.sources import discover
from htareport.reading.text import blocks
from htareport.report.number_lists import listed
from htareport.rows.options import DEFAULT_OPTIONS, ReadOptions

Source: TypeAlias = Files | Mapping[int, Files]


@dataclass(frozen=True)
class Trace:
    """A job's trace files by rank. Opening one reads no events.

    `files` has a path per rank, or a tuple of paths where a rank has several captures. `unasked` are the ranks that are
    there too, but were not asked for.
    """

    label: str
    files: Mapping[int, Path | tuple[Path, ...]]
    warnings: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    unusable: tuple[tuple[str, str], ...] = ()
    unasked: frozenset[int] = frozenset()
    options: ReadOptions = DEFAULT_OPTIONS

    @classmethod
    def open(cls, source: Source, *, ranks: frozenset[int] | None = None, options: ReadOptions | None = None) -> Self:
        """Find the traces of a folder, file, glob, archive, list of files, or {rank: file}.

        NothingToReadError if there is none, or none of the ranks asked for. `options` say how the files are read.
        """
        options = options or DEFAULT_OPTIONS
        if isinstance(source, Mapping):
            discovery = discover.Discovery({rank: paths_of(files) for rank, files in sorted(source.items())})
            label = _common_label(discovery)
            if missing := [shown(p) for files in discovery.ranks.values() for p in files if not _is_there(p)]:
                raise NothingToReadError(f"{', '.join(missing[:3])}: there is no such file")
        elif isinstance(source, str) or not isinstance(source, Iterable):
            discovery, label = discover.find_traces(source, options), _label(located(source))
        else:
            discovery = discover.find_among(source, options)
            label = _common_label(discovery)
        selected = {r: f for r, f in discovery.ranks.items() if ranks is None or r in ranks}
        if not selected:
            available = listed(discovery.ranks) or "none"
            raise NothingToReadError(f"{label}: no trace of the ranks asked for (ranks found: {available})")
        files = {rank: paths[0] if len(paths) == 1 else paths for rank, paths in selected.items()}
        warnings = list(discovery.warnings)
        if ranks is not None and (absent := ranks - discovery.ranks.keys()):
            warnings.append(f"asked for, but not there: rank{'s' if len(absent) > 1 else ''} {listed(absent)}")
        unasked = frozenset(discovery.ranks.keys() - selected.keys())
        return cls(
            label, files, tuple(warnings), tuple(discovery.left_out), tuple(discovery.unusable), unasked, options
        )

    @property
    def total_bytes(self) -> int:
        """Size of all files on disk."""
        return sum(size_of(p) for files in self.files.values() for p in paths_of(files) if exists(p))


def _common_label(discovery: discover.Discovery) -> str:
    files = [path for paths in discovery.ranks.values() for path in paths]
    return _label(files[0] if len(files) == 1 else files[0].parent) if files else "trace files"


def _is_there(path: Path) -> bool:
    try:
        return blocks.exists(path)
    except OSError as error:
        raise NothingToReadError(f"{shown(path)}: {error.strerror or error}") from error


def _label(path: Path) -> str:
    return printable(named(path))
