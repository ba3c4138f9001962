"""Keeps what was measured on a rank, so that the same report is made again without looking at its events.

What is kept is the packed summary of a rank, in the folder of the cache beside what was read of its files
(htareport.reading.cache), under a key of all that it depends on: the state of the files and how they are read, whether
names are redacted, the steps, the analyses and rules with all their options, the number of ranks that share the room
for rows, the source of this package, and the versions of what it computes with. Another option or another version is
another key. Summaries with an error in them are not kept, nor those that hold classes which are not known here, nor any
where an analysis or rule comes from elsewhere, since its source may change.

Nothing here raises: whatever is wrong with the cache costs the time it would have saved, and a line in the log.
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
class Place:
    """Where the summary of a rank is kept, if it is, and the state of its files when that was asked."""

    rank: int
    name: str
    files: trace_cache.State

    @classmethod
    def of(cls, rank: int, files: Path | tuple[Path, ...], work: Work) -> Self | None:
        """Return the place; None where nothing is kept."""
        if (state := trace_cache.state_of(paths_of(files), work.options)) is None:
            return None
        if (asked := _asked((*work.analyses, *work.rules))) is None or (code := _code()) is None:
            return None
        window = work.window
        steps = [sorted(window.steps) if window.steps is not None else None, window.complete_only]
        known = [state.key, rank, work.options.redact, steps, window.without_last_step, work.ranks, asked, code]
        return cls(rank, f"{_DIGEST(json.dumps(known).encode()).hexdigest()[:40]}-summary", state)

    def found(self) -> RankSummary | None:
        """Return what is kept; None where nothing is, or its file is damaged."""
        if (file := cache_folder.find(self.files.folder, self.name)) is None:
            return None
        try:
            summary = _read(file.read_bytes(), self.name)
            if summary.rank != self.rank:
                raise ValueError(f"it is of rank {summary.rank}")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001  whatever is wrong with it, the trace is there to be read
            log.info("%s is no use: %s: %s", file.name, type(error).__name__, error)
            return None
        log.info("rank %d: its summary is read from %s", self.rank, file.name)
        return summary

    def keep(self, summary: RankSummary) -> None:
        """Keep what was measured, unless something went wrong, or the files have changed meanwhile."""
        evidence, facts = summary.evidence, summary.facts
        is_whole = facts is not None and not summary.errors and not (evidence and evidence.errors)
        if facts is None or not is_whole or not trace_cache.is_large(facts.num_events) or not self.files.still_holds():
            return
        try:
            data = _written(summary, self.name)
            size = cache_folder.put(self.files.folder, self.name, lambda file: _write(file, data))
        except Exception as error:  # noqa: BLE001  a full disk, a folder nobody may write to, a value of another class
            log.info("rank %d: its summary is not kept: %s: %s", self.rank, type(error).__name__, error)
            return
        log.info("rank %d: its summary is kept in %d bytes", self.rank, size)


def look_up(rank: int, files: Path | tuple[Path, ...], work: Work) -> RankSummary | None:
    """Return the summary that is kept of a rank whose files lie on this machine: to look costs less than a worker."""
    if any(is_remote(path) for path in paths_of(files)):
        return None
    place = Place.of(rank, files, work)
    return place.found() if place else None


# --- the file: a digest of its name and of what follows, which is packed


def _written(summary: RankSummary, name: str) -> bytes:
    if any(packed.odd for packed in summary.frames.values()):
        raise TypeError("a frame of other values than numbers and texts")
    data = zstandard.compress(encode(summary, summary_classes()), 1)
    return _digest(name, data) + data


def _digest(name: str, data: bytes) -> bytes:
    """Tell what is kept under a name from what is damaged, and from what was kept under another name."""
    return _DIGEST(name.encode() + data).digest()


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(data)


def _read(file: bytes, name: str) -> RankSummary:
    digest, data = file[: _DIGEST().digest_size], file[_DIGEST().digest_size :]
    if _digest(name, data) != digest:
        raise ValueError("it is damaged, or not what was kept under this name")
    read = decode(zstandard.decompress(data), summary_classes())
    if not isinstance(read, RankSummary):
        raise TypeError("it is no summary")
    return read


# --- the key


def _asked(asked: Sequence[Analysis | AnyRule]) -> list[Any] | None:
    """What analyses and rules are asked, and how; None where one comes from elsewhere, or is not all in its options."""
    own = __name__.partition(".")[0]
    found = list[Any]()
    for each in asked:
        kind, options = type(each), each.chosen_options()
        if kind.__module__.partition(".")[0] != own or not vars(each).keys() <= options.keys():
            return None
        found.append([kind.__module__, kind.__qualname__, {name: repr(value) for name, value in options.items()}])
    return found


@cache
def _code() -> list[str] | None:
    """What measures: the source of this package, and the versions of what it computes with."""
    sources = trace_cache.digest_of(trace_cache.PACKAGE.rglob("*.py"))
    return None if sources is None else [sources, np.__version__, pd.__version__, zstandard.__version__]
