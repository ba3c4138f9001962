"""Opening traces and the processes that read them: what every command that takes TRACES shares."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

from htareport.executors import default_jobs, make_executor, raw_sizes

if TYPE_CHECKING:
    from htareport.config import ReportOptions
    from htareport.trace import Trace

log = logging.getLogger(__name__)


def open_trace(source: str, options: ReportOptions) -> Trace:
    """Find the trace files of one run; they will be read as the options say."""
    from htareport.trace import ReadOptions, Trace

    cache = not options.no_cache and (options.cache or True)
    how = ReadOptions(salvage=options.salvage, max_bytes=options.max_bytes, cache=cache)
    trace = Trace.open(source, ranks=options.ranks, options=how)
    log.info("%s: %d ranks", source, len(trace.files))
    return trace


@contextlib.contextmanager
def executor(trace: Trace, jobs: int | None) -> Iterator[Executor | None]:
    """Give the processes for a trace: as many as asked for, else as many as make sense; None for this one."""
    if jobs is None:
        jobs = default_jobs(raw_sizes(trace.files.values()))
    made = make_executor(min(jobs, len(trace.files)))
    log.info("reading in %s", f"{jobs} processes" if made else "this process")
    with made or contextlib.nullcontext() as entered:
        yield entered


def paths_of(paths: Path | tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the files of one rank, of which there may be one or several."""
    return (paths,) if isinstance(paths, Path) else tuple(paths)
