"""Opens the files of a run and loads its ranks, in this process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from htareport.errors import NothingToReadError, TraceFileError
from htareport.export.numbered import load_numbered
from htareport.files.locations import is_remote, located, paths_of
from htareport.hta.configs.default_values import DEFAULT_TRACE_DIR
from htareport.rank.rank import Rank
from htareport.rank.window import ALL, Window
from htareport.reading.sources.job import Trace
from htareport.rows.options import ReadOptions
from htareport.run.executors import make_executor

Files = Path | tuple[Path, ...]


class Run:
    """The files of a run and its loaded ranks, each loaded once; shared by all objects of the run.

    `problems` names files that cannot be used. `jobs` is in how many processes several ranks are loaded at once.
    """

    def __init__(self, trace: Trace, window: Window = ALL, jobs: int = 1) -> None:
        self.trace, self.window, self.jobs = trace, window, jobs
        self.ranks: dict[int, Rank] = {}
        self.problems = [f"{name}: not used: {reason}" for name, reason in trace.unusable]
        self._failed: dict[int, str] = {}

    def load(self, ranks: Iterable[int] | None = None) -> Mapping[int, Rank]:
        """Load some ranks, all for None, without those that cannot be read. NothingToReadError if none can."""
        requested = list(self.trace.files) if ranks is None else list(ranks)
        missing = {rank: self.trace.files[rank] for rank in requested if rank not in self.ranks.keys() | self._failed}
        for rank, loaded in _loaded(missing, partial(_load, window=self.window, options=self.trace.options), self.jobs):
            if isinstance(loaded, str):
                self._failed[rank] = loaded
                self.problems.append(loaded)
                continue
            self.ranks[rank] = loaded
            self.problems += [f"{name}: not used: {reason}" for name, reason in loaded.problems]
            self.problems += loaded.salvaged
        if requested and not any(rank in self.ranks for rank in requested):
            raise NothingToReadError("; ".join(self._failed.get(rank, f"no rank {rank}") for rank in requested))
        self.ranks = dict(sorted(self.ranks.items()))
        return {rank: self.ranks[rank] for rank in requested if rank in self.ranks}

    def narrowed(self, window: Window) -> Run:
        """Return the run with another window of time."""
        run = Run(self.trace, window, self.jobs)
        run.ranks = {rank: loaded.narrowed(window) for rank, loaded in self.ranks.items()}
        run.problems, run._failed = self.problems, self._failed
        return run

    @property
    def start_ns(self) -> int:
        """Zero of relative times: the earliest start of a complete event on any rank."""
        starts = [loaded.start_ns for loaded in self.load().values() if loaded.start_ns is not None]
        return min(starts, default=0)


def _loaded(
    files: Mapping[int, Files], task: Callable[[int, Files], Rank | str], jobs: int
) -> Iterator[tuple[int, Rank | str]]:
    executor = make_executor(min(jobs, len(files)))
    if executor is None:
        yield from zip(files, map(task, files, files.values()), strict=True)
        return
    with executor:
        yield from zip(files, executor.map(task, files, files.values()), strict=True)


def _load(rank: int, files: Files, window: Window, options: ReadOptions) -> Rank | str:
    try:
        return load_numbered(rank, files, window, options)
    except TraceFileError as error:
        names = ", ".join(path.name for path in paths_of(files))
        return f"{names}: not used: {error} (rank {rank} is missing)"


def open_trace(
    files: Mapping[int, Any] | Sequence[str] | None,
    folder: str | Path = DEFAULT_TRACE_DIR,
    options: ReadOptions | None = None,
) -> Trace:
    """Find the files of a run, all of a folder or by name; relative names are looked for in the folder, too."""

    def resolved_path(name: str | Path) -> Path:
        path = located(name)
        return path if is_remote(path) or path.is_absolute() or path.exists() else located(folder) / path

    read_options = options or ReadOptions()
    if files is None:
        return Trace.open(located(folder).expanduser(), options=read_options)
    if isinstance(files, Mapping):
        return Trace.open(
            {
                rank: tuple(map(resolved_path, name)) if isinstance(name, (tuple, list)) else resolved_path(name)
                for rank, name in files.items()
            },
            options=read_options,
        )
    return Trace.open([resolved_path(name) for name in files], options=read_options)
