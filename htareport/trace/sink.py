"""What takes the events of a trace file in place of the loader, chunk by chunk, damage mended as for the loader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import cast

from htareport.trace.decode import Buffer, Reader
from htareport.trace.load import FileContent, read_file


class Sink(ABC):
    """Takes all events of a file, in its order. `fault` says why the last text was no array of events."""

    fault = ""

    @abstractmethod
    def feed(self, chunk: Buffer) -> bool:
        """Take a JSON array of events; False, and nothing taken, if the text is not one."""

    def read(self, path: Path) -> FileContent:
        """Take the events of a file; return what else is in it. TraceFileError as from `read_file`."""
        return read_file(path, cast("Reader", self))  # Which needs `feed` and `fault` alone.
