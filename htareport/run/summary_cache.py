"""Caches the summary of each rank in a file, so that the same report can be made again without reading its events.

The file lies in the cache folder next to the cached events (htareport.reading.cache). Its name is a hash of everything
the summary depends on: the state of the trace files and how they are read, redaction, steps, analyses and rules with
all their options, the number of ranks that share the budget for rows, the source of this package, and the versions of
the libraries it computes with. Not cached are summaries with an error or with values of unknown classes, nor any if an
analysis or rule comes from another package, whose source may change.

Nothing here raises: a cache that does not work costs time and a line in the log.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pandas as pd
import zstandard

from htareport.analyses import Analysis
from htareport.files.locations import is_remote, paths_of
from htareport.reading import cache as trace_cache
from htareport.reading import cache_folder
from htareport.rules.engine.base import AnyRule
from htareport.run.summaries import RankSummary, Work, summary_classes
from htareport.run.summary_codec import decode, encode

_DIGEST = hashlib.sha256

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SummaryEntry:
    """The cache file for the summary of a rank, and the state of its trace files when it was looked up."""

    rank: int
    name: str
    files: trace_cache.State

    @classmethod
    def for_rank(cls, rank: int, files: Path | tuple[Path, ...], work: Work) -> Self | None:
        """Return the entry; None if the summary cannot be cached."""
        if (state := trace_cache.state_of(paths_of(files), work.options)) is None:
            return None
        if (settings := _settings_of((*work.analyses, *work.rules))) is None or (code := _code()) is None:
            return None
        window = work.window
        steps = [sorted(window.steps) if window.steps is not None else None, window.complete_only]
        key_values = [state.key, rank, work.options.redact, steps, window.without_last_step, work.ranks, settings, code]
        return cls(rank, f"{_DIGEST(json.dumps(key_values).encode()).hexdigest()[:40]}-summary", state)

    def load(self) -> RankSummary | None:
        """Return the cached summary; None if there is none, or its file is damaged."""
        if (file := cache_folder.find_file(self.files.folder, self.name)) is None:
            return None
        try:
            summary = _decoded(file.read_bytes(), self.name)
            if summary.rank != self.rank:
                raise ValueError(f"it is of rank {summary.rank}")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001  whatever is wrong with it, the trace is there to be read
            log.info("%s is no use: %s: %s", file.name, type(error).__name__, error)
            return None
        log.info("rank %d: its summary is read from %s", self.rank, file.name)
        return summary

    def store(self, summary: RankSummary) -> None:
        """Write the summary, unless it has errors or the trace files have changed meanwhile."""
        evidence, facts = summary.evidence, summary.facts
        is_complete = facts is not None and not summary.errors and not (evidence and evidence.errors)
        if (
            facts is None
            or not is_complete
            or not trace_cache.is_large(facts.num_events)
            or not self.files.still_holds()
        ):
            return
        try:
            data = _encoded(summary, self.name)
            size = cache_folder.put(self.files.folder, self.name, lambda file: _write(file, data))
        except Exception as error:  # noqa: BLE001  a full disk, a read-only folder, a value of another class
            log.info("rank %d: its summary is not kept: %s: %s", self.rank, type(error).__name__, error)
            return
        log.info("rank %d: its summary is kept in %d bytes", self.rank, size)


def load_summary(rank: int, files: Path | tuple[Path, ...], work: Work) -> RankSummary | None:
    """Return the cached summary of a rank, if its files are on this machine: that is cheaper than to start a worker."""
    if any(is_remote(path) for path in paths_of(files)):
        return None
    entry = SummaryEntry.for_rank(rank, files, work)
    return entry.load() if entry else None


# --- the file: a digest of its name and data, then the data


def _encoded(summary: RankSummary, name: str) -> bytes:
    if any(packed.odd for packed in summary.frames.values()):
        raise TypeError("a frame of other values than numbers and texts")
    data = zstandard.compress(encode(summary, summary_classes()), 1)
    return _digest(name, data) + data


def _digest(name: str, data: bytes) -> bytes:
    """Hash the data with its name: a file that was damaged or renamed does not match."""
    return _DIGEST(name.encode() + data).digest()


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(data)


def _decoded(file: bytes, name: str) -> RankSummary:
    digest, data = file[: _DIGEST().digest_size], file[_DIGEST().digest_size :]
    if _digest(name, data) != digest:
        raise ValueError("it is damaged, or not what was kept under this name")
    summary = decode(zstandard.decompress(data), summary_classes())
    if not isinstance(summary, RankSummary):
        raise TypeError("it is no summary")
    return summary


# --- the key


def _settings_of(plugins: Sequence[Analysis | AnyRule]) -> list[Any] | None:
    """Names and options of analyses and rules; None if one is of another package, or has fields that are no options."""
    package = __name__.partition(".")[0]
    settings = list[Any]()
    for plugin in plugins:
        kind, options = type(plugin), plugin.chosen_options()
        if kind.__module__.partition(".")[0] != package or not vars(plugin).keys() <= options.keys():
            return None
        settings.append([kind.__module__, kind.__qualname__, {name: repr(value) for name, value in options.items()}])
    return settings


@cache
def _code() -> list[str] | None:
    """Hash of the source of this package, and the versions of the libraries that it computes with."""
    sources = trace_cache.digest_of(trace_cache.PACKAGE.rglob("*.py"))
    return None if sources is None else [sources, np.__version__, pd.__version__, zstandard.__version__]
