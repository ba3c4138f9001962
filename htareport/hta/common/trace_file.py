"""Finds the trace files of a run by rank, and reads and writes whole files."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from htareport.errors import HtaReportError, OutputError
from htareport.export.files import packed
from htareport.export.rewrite import rewrite
from htareport.files.atomic import whole_file
from htareport.files.locations import located, paths_of
from htareport.reading.sources.job import Trace
from htareport.reading.text.decode import Buffer
from htareport.reading.text.sink import Sink

log = logging.getLogger(__name__)


def create_rank_to_trace_dict_from_dir(trace_dir: str | Path) -> tuple[bool, dict[int, str]]:
    """Return whether a folder has traces, and the file of each rank; of several, the first."""
    try:
        return True, _files(Trace.open(located(trace_dir).expanduser()))
    except HtaReportError as error:
        log.warning("%s", error)
        return False, {}


def create_rank_to_trace_dict(file_list: Sequence[str | Path]) -> tuple[bool, dict[int, str]]:
    """Return whether some files are traces, and the file of each rank; of several, the first."""
    try:
        return True, _files(Trace.open(list(file_list)))
    except HtaReportError as error:
        log.warning("%s", error)
        return False, {}


def get_trace_files(trace_path: str | Path) -> dict[int, str]:
    """Return the file of each rank of a folder. NothingToReadError if there is none."""
    return _files(Trace.open(located(trace_path).expanduser()))


def _files(trace: Trace) -> dict[int, str]:
    return {rank: str(paths_of(paths)[0]) for rank, paths in trace.files.items()}


def read_trace(file_path: str | Path) -> dict[str, Any]:
    """Return everything in a trace file, plain or compressed, as plain values (times as floats). TraceFileError."""
    sink = _AllEvents()
    return dict(sink.read(located(file_path)).metadata) | {"traceEvents": sink.events}


class _AllEvents(Sink):
    """Keeps all events as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def take(self, chunk: Buffer, values: list[Any]) -> None:
        del chunk
        self.events += values


def write_trace(trace_data: Mapping[str, Any], file_path: str | Path) -> None:
    """Write plain values as a trace file; compressed if its name ends with .gz. OutputError."""
    data = orjson.dumps(dict(trace_data), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    path = Path(file_path)
    try:
        with whole_file(path) as file:
            file.write(gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from error


def update_trace_rank(file_path: str | Path, rank: int) -> None:
    """Write a rank into a trace file, in place; its events keep their exact text. OutputError."""
    path = Path(file_path)
    metadata = _NoEvents().read(path).metadata
    info = metadata.get("distributedInfo")
    rewritten(path, path, metadata | {"distributedInfo": {**(info if isinstance(info, dict) else {}), "rank": rank}})


def convert_to_perfetto(file_path: str | Path, output_file: str | Path) -> None:
    """Write a trace file without metadata, which some viewers cannot read. OutputError."""
    rewritten(Path(file_path), Path(output_file), {})


def rewritten(source: Path, target: Path, metadata: Mapping[str, Any]) -> None:
    """Write a trace file with other metadata; compressed if the name ends with .gz."""
    try:
        with whole_file(target) as file, packed(file, target) as out:
            rewrite(source, out, metadata)
    except OSError as error:
        raise OutputError(f"{target}: {error.strerror or error}") from error


class _NoEvents(Sink):
    """Drops all events."""

    def take(self, chunk: Buffer, values: list[Any]) -> None:
        pass
