"""Opening traces and the processes that read them: what every command that takes TRACES shares."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from htareport.cli import console
from htareport.errors import UsageError
from htareport.files.locations import shown
from htareport.run.executors import default_jobs, make_executor, raw_sizes

if TYPE_CHECKING:
    from htareport.cli.config import ReportOptions
    from htareport.reading.sources.job import Trace

log = logging.getLogger(__name__)


def open_trace(source: str, options: ReportOptions) -> Trace:
    """Find the trace files of one run; they will be read as the options say."""
    from htareport.reading.cache import is_possible
    from htareport.reading.sources.job import Trace
    from htareport.trace import ReadOptions

    if options.cache and not options.no_cache and not is_possible():
        console.warning("--cache: nothing is kept without pyarrow: pip install 'htareport[cache]'")
    cache = not options.no_cache and (options.cache or True)
    read_options = ReadOptions(salvage=options.salvage, max_bytes=options.max_bytes, cache=cache)
    trace = Trace.open(source, ranks=options.ranks, options=read_options)
    log.info("%s: %d ranks", shown(source), len(trace.files))
    return trace


@contextlib.contextmanager
def executor(trace: Trace, options: ReportOptions) -> Iterator[Executor | None]:
    """Give what reads a trace: a cluster, or processes: as many as asked for or as make sense; None for this one."""
    jobs, cluster = options.jobs, options.executor
    if cluster is not None:
        from htareport.run.clusters import dask_executor

        if cluster and jobs is not None:
            raise UsageError(f"-j: the cluster at {cluster} reads with the workers that it has")
        if not cluster and jobs is None:
            jobs = default_jobs(raw_sizes(trace.files.values()), min_bytes=0)
        with dask_executor(cluster, min(jobs or 1, len(trace.files))) as entered:
            yield entered
        return
    if jobs is None:
        jobs = default_jobs(raw_sizes(trace.files.values()))
    pool = make_executor(min(jobs, len(trace.files)))
    log.info("reading in %s", f"{jobs} processes" if pool else "this process")
    with pool or contextlib.nullcontext() as entered:
        yield entered
