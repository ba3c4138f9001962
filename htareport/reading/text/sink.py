"""What takes the events of a trace file in place of the loader, chunk by chunk, damage mended as for the loader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any, cast

import orjson

from htareport.reading.text.decode import Buffer, Reader
from htareport.reading.text.load import FileContent, read_file
from htareport.rows.options import ReadOptions

_EVENTS = "events"


class Sink(ABC):
    """Takes all events of a file, in its order. `fault` says why the last text was no array of events."""

    def __init__(self) -> None:
        self.fault = ""
        self.counts: Counter[str] = Counter()

    @property
    def passed(self) -> int:
        """How many events were taken before the chunk at hand: the place of its first."""
        return self.counts[_EVENTS]

    def feed(self, chunk: Buffer) -> bool:
        """Take a JSON array of events; False, and nothing taken, if the text is not valid to its last string."""
        try:
            values = orjson.loads(chunk)
        except orjson.JSONDecodeError as error:
            self.fault = str(error)
            return False
        self.take(chunk, values)
        self.counts[_EVENTS] += sum(isinstance(value, dict) for value in values)  # The loader passes others over, too.
        return True

    @abstractmethod
    def take(self, chunk: Buffer, values: list[Any]) -> None:
        """Take some events, as text and as plain values."""

    def read(self, path: Path, options: ReadOptions | None = None) -> FileContent:
        """Take the events of a file; return what else is in it. TraceFileError as from `read_file`."""
        return read_file(path, cast("Reader", self), options)  # Of which `feed`, `fault` and `counts` are used.
