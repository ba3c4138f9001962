"""A dask cluster as an executor: one that is running already, or one started on this machine for a single run."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from multiprocessing import resource_tracker
from typing import Any

from htareport._version import __version__
from htareport.errors import UsageError
from htareport.run.executors import interrupts_delayed

ANSWER_S = 10  # How many seconds to wait for a cluster to answer.

log = logging.getLogger(__name__)


@contextlib.contextmanager
def dask_executor(address: str, processes: int = 1) -> Iterator[Executor]:
    """Yield the executor of the dask scheduler at HOST:PORT or, without address, of `processes` workers started here.

    Dask tries the ranks of a lost worker again, by its own rules. UsageError if dask is not installed, no cluster
    answers, or a worker has another version of htareport.
    """
    try:
        import distributed  # noqa: PLC0415  few need it
    except ImportError as error:
        raise UsageError(f"--executor: needs dask: pip install 'htareport[dask]' ({error})") from error
    with contextlib.ExitStack() as stack:
        if not log.isEnabledFor(logging.INFO):
            _silence(distributed, stack)
        scheduler = address or _start_local_cluster(distributed, processes, stack)
        client = stack.enter_context(_client(distributed, scheduler))
        _check_versions(client.run(_remote_version(), on_error="ignore"))
        executor: Executor = client.get_executor(pure=False)  # What was read before may have changed.
        try:
            yield executor
        except BaseException:
            executor.shutdown(wait=False)
            raise
        executor.shutdown()


def _silence(distributed: Any, stack: contextlib.ExitStack) -> None:
    """Keep dask's tracebacks off the terminal; the report names the ranks that they cost."""
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]:
        stack.enter_context(distributed.utils.silence_logging_cmgr(logging.CRITICAL, root=name))


def _start_local_cluster(distributed: Any, processes: int, stack: contextlib.ExitStack) -> Any:
    """Start a cluster that the stack closes even after Ctrl-C; dask would close it later and print tracebacks."""
    log.info("starting a dask cluster of %d processes", processes)
    resource_tracker.ensure_running()  # Starting it unblocks SIGINT, so not within the next block.
    with interrupts_delayed():  # Dask's threads and processes inherit this: only this process answers Ctrl-C.
        return stack.enter_context(
            distributed.LocalCluster(
                n_workers=processes,
                threads_per_worker=1,
                host="127.0.0.1",
                silence_logs=logging.CRITICAL,
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # Otherwise it would be open to the network.
            )
        )


def _client(distributed: Any, scheduler: Any) -> Any:
    try:
        return distributed.Client(scheduler, timeout=ANSWER_S, set_as_default=False)
    except (OSError, ValueError) as error:
        log.info("dask: %s", error)
        reason = f"no dask scheduler answers within {ANSWER_S} s" if isinstance(error, OSError) else str(error)
        raise UsageError(f"--executor dask://{scheduler}: {reason}") from error


def _remote_version() -> Any:
    """Return a function that returns a worker's version; being local, it is sent as code and needs no htareport."""

    def version() -> str:
        try:
            from htareport._version import __version__  # noqa: PLC0415  that of the worker
        except ImportError:
            return ""
        return __version__

    return version


def _check_versions(versions: Mapping[str, str]) -> None:
    if not versions:
        log.warning("the cluster has no workers yet; waiting for some")
    for worker, version in sorted(versions.items()):
        if version != __version__:
            has = f"has htareport {version}" if version else "has no htareport"
            raise UsageError(f"--executor: the worker at {worker} {has}; every worker needs {__version__}, as is here")
