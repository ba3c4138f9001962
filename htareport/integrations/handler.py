"""The handler of torch.profiler that writes the captures of its rank and has the report built."""

from __future__ import annotations

import atexit
import gzip
import logging
import os
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, Self

from htareport.integrations.builder import FINISH, IN_BACKGROUND, Builder, Order, Result, log_result
from htareport.integrations.records import Record, finished, process_start_ns, this_host

log = logging.getLogger(__name__)

_BLOCK = 1 << 20

_runs = Counter[Path]()  # Profiled runs of this process so far, by folder.


class Profiler(Protocol):
    """The part of torch.profiler.profile that the handler uses."""

    def export_chrome_trace(self, path: str) -> object:
        """Write the trace of the last cycle."""


@dataclass(frozen=True)
class Options:
    """The options of a handler."""

    directory: Path
    title: str
    outputs: tuple[str, ...]
    wait_s: float
    build_s: float
    ranks: frozenset[int] | None
    index: Path | None = None

    @property
    def traces(self) -> Path:
        """The folder of the trace files."""
        return self.directory / "traces"

    def includes(self, rank: int) -> bool:
        """Whether this rank is to be profiled."""
        return self.ranks is None or rank in self.ranks


class ReportHandler:
    """What `report_handler` returns. As a context manager it finishes where the block ends."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._run: _Run | None = None
        self._left: list[_Run] = []  # Over, but their reports were not waited for.
        atexit.register(self._at_exit)

    def __call__(self, prof: Profiler) -> None:
        """Write the capture that is ready. Whatever goes wrong is logged."""
        try:
            self._capture(prof)
        except Exception:
            log.warning("%s: no trace was written", self.options.directory, exc_info=True)

    def finish(self, *, wait: bool | None = None) -> tuple[Path, ...]:
        """End the run and have its report built; captures that follow begin another run.

        `wait` is whether to wait for the report, and return its files. By default only a process that is alone waits
        here; of several ranks none is held up, and what is left to wait for is waited for when the process ends.
        """
        run, self._run = self._run, None
        try:
            return self._finish(run, wait=wait) if run and run.is_own else ()
        except Exception:
            log.warning("%s: no report", self.options.directory, exc_info=True)
        return ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def _capture(self, prof: Profiler) -> None:
        if self._run and not self._run.is_own:  # Inherited by a process that was forked.
            self._run, self._left = None, []
        rank, world_size = this_rank()
        if self._run is None:
            if not self.options.includes(rank):
                return
            self._run = _Run(self.options, rank, world_size)
        self._run.add(prof)

    def _finish(self, run: _Run, *, wait: bool | None) -> tuple[Path, ...]:
        if wait is None:
            wait = run.record.world_size == 1
        run.end(FINISH if wait else IN_BACKGROUND)
        if wait:
            return run.result()
        self._left.append(run)
        return ()

    def _at_exit(self) -> None:
        try:
            self.finish(wait=True)
            for run in self._left:
                if run.is_own:
                    run.result()
        except (Exception, KeyboardInterrupt):  # The user need not wait.
            log.warning("%s: did not wait for the report", self.options.directory, exc_info=True)


class _Run:
    """One rank's captures from the first until the profiler is done, and the process that builds their report."""

    def __init__(self, options: Options, rank: int, world_size: int) -> None:
        _runs[options.directory] += 1
        self.options = options
        self.record = Record(
            rank=rank,
            world_size=world_size,
            host=this_host(),
            pid=os.getpid(),
            job=os.environ.get("TORCHELASTIC_RUN_ID", ""),
            number=_runs[options.directory],
            started_ns=time.time_ns(),
        )
        self._builder: Builder | None = None

    @property
    def is_own(self) -> bool:
        """Whether this is the process that began it; one that was forked from it has no part in it."""
        return self.record.pid == os.getpid()

    def add(self, prof: Profiler) -> None:
        """Write a capture, and see to it that the report will be built."""
        self.options.traces.mkdir(parents=True, exist_ok=True)
        name = self.record.file_name(time.time_ns())
        export(prof, self.options.traces / name)
        self.record = replace(self.record, files=(*self.record.files, name))
        self.record.write(self.options.traces)
        if self._builder is None and self.record.rank == self._expected()[0]:
            self._builder = Builder(self._order())

    def _expected(self) -> list[int]:
        """The ranks that are profiled, of which the first has the report built."""
        return [rank for rank in range(self.record.world_size) if self.options.includes(rank)]

    def _order(self) -> Order:
        options = self.options
        return Order(
            directory=str(options.directory),
            record=self.record,
            outputs=options.outputs,
            index=str(options.index or ""),
            title=options.title,
            wait_s=options.wait_s,
            ranks=tuple(self._expected()),
            since_ns=process_start_ns(),
            parent=os.getpid(),
        )

    def end(self, word: str) -> None:
        """Say that there will be no more captures."""
        try:
            self.record = finished(self.record)
            self.record.write(self.options.traces)
        finally:
            if self._builder:
                self._builder.say(word)

    def result(self) -> tuple[Path, ...]:
        """Wait for the report, log the outcome and return its files."""
        builder, self._builder = self._builder, None
        if builder is None:
            return ()
        try:
            result = builder.result(self.options.wait_s + self.options.build_s)
        except TimeoutError as error:
            result = Result(problems=(str(error),))
        log_result(log, result)
        return tuple(map(Path, result.written))


def export(prof: Profiler, target: Path) -> None:
    """Write a capture, compressed; the file appears whole or not at all."""
    temporary = target.with_name(f".{target.name}.part")
    with TemporaryDirectory(prefix="htareport-") as folder:
        plain = Path(folder, "trace.json")
        prof.export_chrome_trace(str(plain))
        try:
            with plain.open("rb") as source, _compressed(temporary) as packed:
                shutil.copyfileobj(source, packed, _BLOCK)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def _compressed(path: Path) -> Any:
    try:
        igzip: Any = import_module("isal.igzip")  # Several times as fast, and the training waits for it.
    except ImportError:  # pragma: no cover  where isal has no wheel
        return gzip.open(path, "wb", compresslevel=1)
    return igzip.open(path, "wb")


def this_rank() -> tuple[int, int]:
    """Return rank and world size: of torch.distributed, else as the launcher gives them, else of a process alone."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, world_size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if rank.isdecimal() and world_size.isdecimal() and int(rank) < int(world_size):
        return int(rank), int(world_size)
    return 0, 1
