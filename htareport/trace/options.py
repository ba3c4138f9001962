"""How trace files are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ReadOptions:
    """`salvage` keeps what is complete of damaged files, `max_bytes` bounds what they unpack to.

    `redact` takes secrets out of names and metadata. `cache` is whether, or in which folder, what was read is kept for
    the next time (see htareport.trace.cache).
    """

    salvage: bool = False
    max_bytes: int | None = None
    redact: bool = False
    cache: Path | bool = True


DEFAULT_OPTIONS = ReadOptions()
