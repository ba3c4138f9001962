"""Kineto traces by rank, and the events and facts of one rank: the public face of `htareport.reading` and `.rank`."""

from __future__ import annotations

from typing import Self

from htareport.files.locations import Files, paths_of
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.rank.window import ALL, Window
from htareport.reading.cache import load_rank
from htareport.reading.redact import redacted
from htareport.reading.sources.job import Trace
from htareport.rows.options import ReadOptions

__all__ = ["ALL", "Capability", "RankTrace", "ReadOptions", "Trace", "Window"]


class RankTrace(Rank):
    """The trace of one rank: its events and its facts."""

    @classmethod
    def load(cls, rank: int, path: Files, window: Window = ALL, options: ReadOptions | None = None) -> Self:
        """Read the file or files of a rank. TraceFileError if none can be used; `problems` names the others."""
        rows = load_rank(paths_of(path), options)
        return cls(rank, redacted(rows) if options and options.redact else rows, window)
