"""How trace files are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class ReadOptions:
    """`salvage` keeps what is complete of damaged files, `max_bytes` bounds what they unpack to.

    `redact` takes secrets out of names and metadata. `cache` is whether, or in which folder, what was read is kept for
    the next time (see htareport.reading.cache).
    """

    salvage: bool = False
    max_bytes: int | None = None
    redact: bool = False
    cache: Path | bool = True

    def cached(self, where: str | Path | bool) -> Self:  # noqa: FBT001  it is what `analyze` was given
        """Return the same options with another folder of the cache, or with none; True leaves it as it is."""
        return self if where is True else replace(self, cache=Path(where) if where else False)


DEFAULT_OPTIONS = ReadOptions()
