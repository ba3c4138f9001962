"""Opens the traces of a command, and runs a task for every rank in the processes that its options ask for."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from htareport.cli import console
from htareport.errors import UsageError
from htareport.files.locations import shown
from htareport.run.executors import default_jobs, make_executor, over_ranks, raw_sizes

if TYPE_CHECKING:
    from htareport.cli.config import ReportOptions
    from htareport.reading.sources.job import Trace

EXIT_PARTIAL = 4

log = logging.getLogger(__name__)


def open_trace(source: str, options: ReportOptions) -> Trace:
    """Find the trace files of one run, which are read later, as the options say."""
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
    """Yield an executor for the ranks of a trace: a dask cluster or a pool of -j processes; None for this process."""
    jobs, cluster = options.jobs, options.executor
    if cluster is not None:
        from htareport.run.clusters import dask_executor

        if cluster and jobs is not None:
            raise UsageError(f"-j: the cluster at {cluster} reads with the workers that it has")
        if not cluster and jobs is None:
            jobs = default_jobs(raw_sizes(trace.files.values()), min_bytes=0)
        with dask_executor(cluster, min(jobs or 1, len(trace.files))) as workers:
            yield workers
        return
    if jobs is None:
        jobs = default_jobs(raw_sizes(trace.files.values()))
    pool = make_executor(min(jobs, len(trace.files)))
    log.info("reading in %s", f"{jobs} processes" if pool else "this process")
    with pool or contextlib.nullcontext() as workers:
        yield workers


@dataclass(frozen=True)
class RankResult:
    """What a command's task returns for a rank; `errors` are about files that cannot be used."""

    rank: int
    errors: tuple[str, ...] = ()


Result = TypeVar("Result", bound=RankResult)


def results_by_rank(
    kind: type[Result], task: Callable[..., Result], trace: Trace, options: ReportOptions, *arguments: Any, quiet: bool
) -> list[Result]:
    """Run task(rank, files, *arguments) for every rank with a progress bar; return the results in order of rank."""

    def failure(rank: int, reason: str) -> Result:
        return kind(rank, errors=(f"rank {rank}: {reason}",))

    results = list[Result]()
    with executor(trace, options) as workers, console.progress(trace.label, quiet=quiet) as progress:
        for result in over_ranks(task, trace.files, workers, failure, *arguments):
            results.append(result)
            if progress:
                progress(len(results), len(trace.files), f"rank {result.rank}")
    return sorted(results, key=lambda result: result.rank)
