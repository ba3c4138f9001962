"""A dask cluster as an executor: one that is there, or one of this machine for as long as it is needed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from multiprocessing import resource_tracker
from typing import Any

from htareport._version import __version__
from htareport.errors import UsageError
from htareport.run.executors import interrupts_held

ANSWER_S = 10  # Seconds in which a cluster has to answer.

log = logging.getLogger(__name__)


@contextlib.contextmanager
def dask_executor(address: str, processes: int = 1) -> Iterator[Executor]:
    """Give the executor of the dask scheduler at HOST:PORT, or, without address, of so many processes started here.

    A worker that is lost costs its ranks another try, by dask's own rules. UsageError where the library or the cluster
    is not there, or a worker has another version of htareport.
    """
    try:
        import distributed  # noqa: PLC0415  few need it
    except ImportError as error:
        raise UsageError(f"--executor: needs dask: pip install 'htareport[dask]' ({error})") from error
    with contextlib.ExitStack() as stack:
        if not log.isEnabledFor(logging.INFO):
            _silence(distributed, stack)
        where = address or _local(distributed, processes, stack)
        client = stack.enter_context(_client(distributed, where))
        _check_versions(client.run(_version_finder(), on_error="ignore"))
        executor: Executor = client.get_executor(pure=False)  # What was read before may have changed.
        try:
            yield executor
        except BaseException:
            executor.shutdown(wait=False)
            raise
        executor.shutdown()


def _silence(distributed: Any, stack: contextlib.ExitStack) -> None:
    """Keep dask's tracebacks off the terminal: what they come to is said of the ranks that they cost."""
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]:
        stack.enter_context(distributed.utils.silence_logging_cmgr(logging.CRITICAL, root=name))


def _local(distributed: Any, processes: int, stack: contextlib.ExitStack) -> Any:
    """Start a cluster, which the stack closes even where Ctrl-C came meanwhile: dask would do so later, and aloud."""
    log.info("starting a dask cluster of %d processes", processes)
    resource_tracker.ensure_running()  # Whoever starts it hears Ctrl-C from then on.
    with interrupts_held():  # Which dask's own threads and processes inherit: the first Ctrl-C is ours to answer.
        return stack.enter_context(
            distributed.LocalCluster(
                n_workers=processes,
                threads_per_worker=1,
                host="127.0.0.1",
                silence_logs=logging.CRITICAL,
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # Else it would be open to the network.
            )
        )


def _client(distributed: Any, where: Any) -> Any:
    try:
        return distributed.Client(where, timeout=ANSWER_S, set_as_default=False)
    except (OSError, ValueError) as error:
        log.info("dask: %s", error)
        told = f"no dask scheduler answers within {ANSWER_S} s" if isinstance(error, OSError) else str(error)
        raise UsageError(f"--executor dask://{where}: {told}") from error


def _version_finder() -> Any:
    """Return a function that tells a worker's version; being local, it travels as code to where htareport is not."""

    def version() -> str:
        try:
            from htareport._version import __version__  # noqa: PLC0415  that of the worker
        except ImportError:
            return ""
        return __version__

    return version


def _check_versions(found: Mapping[str, str]) -> None:
    if not found:
        log.warning("the cluster has no workers yet; waiting for some")
    for worker, version in sorted(found.items()):
        if version != __version__:
            has = f"has htareport {version}" if version else "has no htareport"
            raise UsageError(f"--executor: the worker at {worker} {has}; every worker needs {__version__}, as is here")
