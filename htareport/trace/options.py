"""How trace files are read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadOptions:
    """`salvage` keeps what is complete of damaged files, `max_bytes` bounds what they unpack to.

    `redact` takes secrets out of names and metadata.
    """

    salvage: bool = False
    max_bytes: int | None = None
    redact: bool = False


DEFAULT_OPTIONS = ReadOptions()
