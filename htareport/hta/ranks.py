"""The ranks behind `TraceAnalysis`: loading them, running an analysis over them, showing its chart."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from htareport.analyses.base import Analysis, Frames, Job
from htareport.errors import NothingToReadError, TraceFileError
from htareport.report import concat
from htareport.trace import ALL, RankTrace, ReadOptions, Trace, Window

PER_US = 1000.0


class LoadedRanks:
    """Analyses of one run, under HTA's names and parameters. All times in the returned frames are µs.

    `trace_files` is {rank: file or files}, a list of files, or None for all traces of the folder `trace_dir`.
    `include_last_profiler_step=False` leaves out GPU work that is launched in or after each rank's last profiler step.
    `salvage=True` keeps the complete events of files that are damaged or end early, and warns of each.
    """

    def __init__(
        self,
        trace_files: Mapping[int, str] | Sequence[str] | None = None,
        trace_dir: str | Path = "/tmp/trace",  # noqa: S108  HTA's default
        include_last_profiler_step: bool = True,
        salvage: bool = False,
    ) -> None:
        """Load every rank. NothingToReadError if there is none; a rank that cannot be read is warned of."""
        source = _within(trace_dir, trace_files) if trace_files is not None else trace_dir
        self.trace = Trace.open(source, options=ReadOptions(salvage=salvage))
        window = ALL if include_last_profiler_step else Window(without_last_step=True)
        self.ranks_loaded: dict[int, RankTrace] = {}
        problems = [f"{name}: not used: {reason}" for name, reason in self.trace.unusable]
        for rank, files in self.trace.files.items():
            try:
                self.ranks_loaded[rank] = RankTrace.load(rank, files, window, self.trace.options)
                problems += [f"{name}: not used: {reason}" for name, reason in self.ranks_loaded[rank].problems]
                problems += self.ranks_loaded[rank].salvaged
            except TraceFileError as error:
                problems.append(f"{_names(files)}: not used: {error} (rank {rank} is missing)")
        if not self.ranks_loaded:
            raise NothingToReadError("; ".join(problems))
        for problem in problems:
            warnings.warn(problem, stacklevel=2)

    def rank(self, rank: int) -> RankTrace:
        """Return one rank's events and derived tables. KeyError names the ranks there are."""
        if rank not in self.ranks_loaded:
            raise KeyError(f"no rank {rank}; there are {sorted(self.ranks_loaded)}")
        return self.ranks_loaded[rank]

    def chosen(self, ranks: Iterable[int] | None) -> list[RankTrace]:
        """Return the ranks asked for, all for None."""
        return list(self.ranks_loaded.values()) if ranks is None else [self.rank(rank) for rank in ranks]

    def mapped(self, analysis: Analysis, ranks: Iterable[int] | None = None) -> Frames:
        """What an analysis makes of some ranks, all rows; those that lack what it needs have empty rows, if any."""
        parts: list[Frames] = []
        for trace in self.chosen(ranks):
            lacking = analysis.requires - trace.capabilities
            frames = analysis.without(trace) if lacking else analysis.map(trace)
            if frames is not None:
                parts.append({name: frame.assign(rank=trace.rank) for name, frame in frames.items()})
        return {name: concat([p[name] for p in parts]) for name in parts[0]} if parts else {}

    def combined(self, analysis: Analysis, frames: Frames) -> Frames:
        """The same, joined for the report's tables and charts."""
        starts = [trace.start_ns for trace in self.ranks_loaded.values() if trace.start_ns is not None]
        has_steps = any(len(trace.steps) for trace in self.ranks_loaded.values())
        return analysis.combine(frames, Job(tuple(self.ranks_loaded), min(starts, default=0), has_steps))

    def show(self, analysis: Analysis, frames: Frames, chart: str, *, visualize: bool, renderer: str = "") -> None:
        """Show a chart of the report, as a Plotly figure."""
        if not visualize or not frames:
            return
        from htareport.render.plotly import figure  # noqa: PLC0415  only who asks for pictures loads Plotly

        charts = analysis.charts(self.combined(analysis, frames))
        found = next((each for each in charts if each.name == chart), None)
        if found is not None:
            figure(found).show(renderer=renderer or None)


def _within(folder: str | Path, files: Mapping[int, str] | Sequence[str]) -> Any:
    """File names that are not absolute are those of the folder, as in HTA."""

    def placed(name: str) -> Path:
        path = Path(name)
        return path if path.is_absolute() or path.exists() else Path(folder) / path

    if isinstance(files, Mapping):
        return {
            rank: placed(name) if isinstance(name, (str, Path)) else tuple(map(placed, name))
            for rank, name in files.items()
        }
    return [placed(name) for name in files]


def _names(files: Path | tuple[Path, ...]) -> str:
    return files.name if isinstance(files, Path) else ", ".join(path.name for path in files)
