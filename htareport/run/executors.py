"""Runs a task for every rank, in this process or in several, and chooses how many processes cores and memory allow.

Architecture invariants: workers never write to the terminal, not even on Ctrl-C, and never outlive their parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor, as_completed
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from htareport.files.locations import paths_of, size_of

COMPRESSION_RATIO = 17  # Of Kineto's JSON; 13 to 20 were measured.
SMALL_INPUT = 300_000_000  # Raw bytes below which a second process saves less than the half second it takes to start.
RANK_BYTES = 10_000_000  # Fixed cost of a rank, a tenth of a second, as raw bytes.
WORKER_BYTES = 150_000_000  # Memory of a process before it reads anything.
MEMORY_PER_RAW_BYTE = 0.5  # Peak of a rank over the size of its raw JSON.

NO_MEMORY = "there was not enough memory for it; with -j 1 there is more for each rank"
KILLED = f"its process was killed, most likely since {NO_MEMORY}"
KILLED_REPEATEDLY = (
    "the workers that read it were killed again and again, most likely since they had not enough memory for it"
)

Result = TypeVar("Result")
Files: TypeAlias = Path | tuple[Path, ...]

_COMPRESSED = {".gz", ".zst", ".zip", ".tgz"}
_CGROUPS = Path("/sys/fs/cgroup")


def make_executor(jobs: int) -> Executor | None:
    """Return a pool of `jobs` processes, or None (this process) for one. Leaving its `with` early ends the workers."""
    return None if jobs <= 1 else _Pool(jobs)


def is_local_pool(executor: Executor) -> bool:
    """Whether it is a pool of processes that this one starts with the first task."""
    return isinstance(executor, _Pool)


def _isolated(task: Callable[..., Result], *arguments: Any) -> Future[Result]:
    """Run one task in a separate process, and wait for it."""
    with _Pool(1) as pool:
        return pool.submit(task, *arguments)


def over_ranks(
    task: Callable[..., Result],
    files: Mapping[int, Files],
    executor: Executor | None,
    failure: Callable[[int, str], Result],
    *arguments: Any,
) -> Iterator[Result]:
    """Yield task(rank, files, *arguments) of every rank as they complete, and failure(rank, reason) if a worker fails.

    The executor is any of concurrent.futures; None runs the task in this process. If a killed worker breaks it, the
    other ranks are not lost: each runs in a process of its own, or alone on the same executor if it is not local.
    Workers get absolute paths.
    """
    if executor is None:
        yield from (task(rank, paths, *arguments) for rank, paths in files.items())
        return
    futures, broken, blamed = dict[Future[Result], int](), list[int](), list[int]()
    for rank, paths in files.items():
        try:
            futures[executor.submit(task, rank, _absolute(paths), *arguments)] = rank
        except BrokenExecutor:  # A worker died before all ranks were submitted.
            broken.append(rank)
    for future in as_completed(futures):
        rank = futures.pop(future)  # So that the result is not kept in memory.
        try:
            yield future.result()
        except BrokenExecutor:
            broken.append(rank)
        except Exception as error:  # noqa: BLE001  for example a result that cannot be sent
            if _is_killed(error):
                blamed.append(rank)
            else:
                yield failure(rank, _reason(error))
    # One killed worker breaks a whole pool, and dask blames all tasks that ran on it: run alone, only its rank fails.
    for rank in sorted((*blamed, *broken)):
        submit = executor.submit if rank in blamed else _isolated
        try:
            yield submit(task, rank, _absolute(files[rank]), *arguments).result()
        except Exception as error:  # noqa: BLE001  as above
            yield failure(rank, _reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, BrokenExecutor):
        return KILLED
    if isinstance(error, CancelledError):
        return "the cluster was lost before it was read"
    return KILLED_REPEATEDLY if _is_killed(error) else f"its worker failed: {error}"


def _absolute(paths: Files) -> Files:
    return tuple(path.absolute() for path in paths) if isinstance(paths, tuple) else paths.absolute()


def _is_killed(error: Exception) -> bool:
    """Whether dask gave up on a task whose workers kept dying."""
    return type(error).__name__ == "KilledWorker"


def default_jobs(rank_sizes: Sequence[int], *, min_bytes: int = SMALL_INPUT) -> int:
    """Return how many processes to use for ranks of these raw sizes: limited by cores, ranks and free memory.

    One, if all ranks together are less work than `min_bytes`.
    """
    if sum(rank_sizes) + RANK_BYTES * len(rank_sizes) < min_bytes:
        return 1
    jobs = min(usable_cores(), len(rank_sizes))
    if (free := free_memory()) is not None:
        jobs = min(jobs, int(free / (MEMORY_PER_RAW_BYTE * max(rank_sizes) + WORKER_BYTES)))
    return max(1, jobs)


def raw_sizes(files: Iterable[Files]) -> list[int]:
    """Estimate the bytes of each rank's uncompressed JSON. The members of an archive share its size."""
    ranks = [[(path, _on_disk(path)) for path in paths_of(paths)] for paths in files]
    shares = Counter(on_disk for rank in ranks for _, on_disk in rank)
    return [sum(_raw_size(path, on_disk) // shares[on_disk] for path, on_disk in rank) for rank in ranks]


def _on_disk(path: Path) -> Path:
    return next((ancestor for ancestor in (path, *path.parents) if ancestor.is_file()), path)


def _raw_size(path: Path, on_disk: Path) -> int:
    try:
        size = size_of(on_disk) if on_disk.is_file() else 0
    except OSError:  # Reported when the rank is read.
        size = 0
    return size * COMPRESSION_RATIO if _COMPRESSED & {path.suffix, on_disk.suffix} else size


def usable_cores() -> int:
    """Return the cores this process may use: its affinity, and the quota of its container."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        cores = os.process_cpu_count() or 1
    elif hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    for cgroup in _own_cgroups():
        quota, _, period = _text(cgroup / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def free_memory() -> int | None:
    """Return the bytes this process can still allocate: free on the machine and in its container. None: unknown."""
    bounds = [1024 * kilobytes for kilobytes in _numbers(Path("/proc/meminfo"), "MemAvailable:")]
    for cgroup in _own_cgroups():
        limit, used = _text(cgroup / "memory.max"), _text(cgroup / "memory.current")
        if limit.isdigit() and used.isdigit():
            bounds.append(int(limit) - int(used) + sum(_numbers(cgroup / "memory.stat", "inactive_file")))
    limit, used = (_text(_CGROUPS / "memory" / f"memory.{name}_in_bytes") for name in ("limit", "usage"))  # cgroups v1
    if limit.isdigit() and used.isdigit():
        bounds.append(int(limit) - int(used))
    return max(0, min(bounds)) if bounds else None


def release_freed_memory() -> None:
    """Give memory that was freed back to the system; the C library would keep it for later requests."""
    with contextlib.suppress(OSError, AttributeError):  # Only glibc has it.
        ctypes.CDLL(None).malloc_trim(0)


def _own_cgroups() -> Iterator[Path]:
    """Yield the cgroup folders (v2) whose limits apply to this process, its own first."""
    path = next((line[3:] for line in _text(Path("/proc/self/cgroup")).splitlines() if line.startswith("0::")), None)
    if path is not None:
        folder = _CGROUPS / path.lstrip("/")
        yield from (ancestor for ancestor in (folder, *folder.parents) if ancestor.is_relative_to(_CGROUPS))


def _numbers(path: Path, label: str) -> list[int]:
    lines = map(str.split, _text(path).splitlines())
    return [int(line[1]) for line in lines if line[:1] == [label]]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


@contextlib.contextmanager
def interrupts_delayed() -> Iterator[None]:
    """Delay Ctrl-C until the block ends, so that no process is half started; children inherit the blocked SIGINT."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived = list[int]()
    handler = signal.signal(signal.SIGINT, lambda number, _: arrived.append(number))  # Another thread may get it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        if arrived:
            signal.raise_signal(signal.SIGINT)


class _Worker(SpawnProcess):
    def start(self) -> None:
        """Start with SIGINT blocked: Ctrl-C reaches the whole process group, and only the parent handles it."""
        with interrupts_delayed():
            super().start()


class _Context(SpawnContext):
    """Starts the workers of a pool, and knows them before they start."""

    def __init__(self) -> None:
        self.workers = set[BaseProcess]()

    def Process(self, *arguments: Any, **options: Any) -> _Worker:  # type: ignore[override]  # noqa: N802  Its name.
        self.workers.add(worker := _Worker(*arguments, **options))
        return worker


class _Pool(ProcessPoolExecutor):
    def __init__(self, jobs: int) -> None:
        self._context = _Context()
        super().__init__(jobs, mp_context=self._context, initializer=_end_with_parent)

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> bool | None:  # noqa: PYI036  Passed on.
        if kind is not None:
            for child in set(multiprocessing.active_children()) & self._context.workers:  # Not those of another pool.
                child.terminate()
        return super().__exit__(kind, *details)
