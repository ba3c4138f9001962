"""Loads the ranks of a run, in this process or in several."""

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
    """The files of a run and the ranks that were loaded of them, each once; shared by all who look at the run.

    `problems` says what could not be used. `jobs` is in how many processes ranks are loaded that are asked for at once.
    """

    def __init__(self, trace: Trace, window: Window = ALL, jobs: int = 1) -> None:
        self.trace, self.window, self.jobs = trace, window, jobs
        self.ranks: dict[int, Rank] = {}
        self.problems = [f"{name}: not used: {reason}" for name, reason in trace.unusable]
        self._failed: dict[int, str] = {}

    def load(self, ranks: Iterable[int] | None = None) -> Mapping[int, Rank]:
        """Load some ranks, all for None; those that cannot be read are left out. NothingToReadError if none is left."""
        asked = list(self.trace.files) if ranks is None else list(ranks)
        missing = {rank: self.trace.files[rank] for rank in asked if rank not in self.ranks.keys() | self._failed}
        for rank, loaded in _loaded(missing, partial(_load, window=self.window, options=self.trace.options), self.jobs):
            if isinstance(loaded, str):
                self._failed[rank] = loaded
                self.problems.append(loaded)
                continue
            self.ranks[rank] = loaded
            self.problems += [f"{name}: not used: {reason}" for name, reason in loaded.problems]
            self.problems += loaded.salvaged
        if asked and not any(rank in self.ranks for rank in asked):
            raise NothingToReadError("; ".join(self._failed.get(rank, f"no rank {rank}") for rank in asked))
        self.ranks = dict(sorted(self.ranks.items()))
        return {rank: self.ranks[rank] for rank in asked if rank in self.ranks}

    def narrowed(self, window: Window) -> Run:
        """Return the same run seen through another window."""
        other = Run(self.trace, window, self.jobs)
        other.ranks = {rank: each.narrowed(window) for rank, each in self.ranks.items()}
        other.problems, other._failed = self.problems, self._failed
        return other

    @property
    def start_ns(self) -> int:
        """Zero of relative times: the earliest start of a complete event on any rank."""
        starts = [each.start_ns for each in self.load().values() if each.start_ns is not None]
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
    """Find the files of a run, of a folder or given one by one; names that are not absolute are those of the folder."""

    def placed(name: str | Path) -> Path:
        path = located(name)
        return path if is_remote(path) or path.is_absolute() or path.exists() else located(folder) / path

    how = options or ReadOptions()
    if files is None:
        return Trace.open(located(folder).expanduser(), options=how)
    if isinstance(files, Mapping):
        return Trace.open(
            {
                rank: tuple(map(placed, name)) if isinstance(name, (tuple, list)) else placed(name)
                for rank, name in files.items()
            },
            options=how,
        )
    return Trace.open([placed(name) for name in files], options=how)
