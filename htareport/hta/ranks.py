"""The ranks behind `TraceAnalysis`: loading them, running an analysis over them, showing its chart."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

from htareport.algorithms.frames import concat
from htareport.analyses import Analysis, Frames, Job
from htareport.hta.common.trace import Trace as HtaTrace
from htareport.hta.configs.default_values import DEFAULT_TRACE_DIR
from htareport.hta.loading import Run, open_trace
from htareport.rank.rank import Rank
from htareport.rank.window import ALL, Window
from htareport.reading.sources.job import Trace
from htareport.report import Chart, Unit
from htareport.rows.options import ReadOptions


class LoadedRanks:
    """Analyses of one run, under HTA's names and parameters. All times in the returned frames are µs.

    `trace_files` is {rank: file or files}, a list of files, or None for all traces of the folder `trace_dir`.
    `include_last_profiler_step=False` leaves out GPU work that is launched in or after each rank's last profiler step.
    `salvage=True` keeps the complete events of files that are damaged or end early, and warns of each. `jobs` is in how
    many processes ranks are loaded; a script that asks for more than one needs the usual `if __name__ == "__main__":`.
    `cache` is the folder in which what was read of large files is kept for the next time, the user's own for True, none
    for False (only where pyarrow is installed).
    """

    def __init__(
        self,
        trace_files: Mapping[int, str] | Sequence[str] | None = None,
        trace_dir: str | Path = DEFAULT_TRACE_DIR,
        include_last_profiler_step: bool = True,
        salvage: bool = False,
        jobs: int = 1,
        cache: str | Path | bool = True,
    ) -> None:
        """Load every rank. NothingToReadError if there is none; a rank that cannot be read is warned of."""
        window = ALL if include_last_profiler_step else Window(without_last_step=True)
        options = ReadOptions(salvage=salvage).cached(cache)
        self.run = Run(open_trace(trace_files, trace_dir, options), window, jobs)
        self.run.load()
        for problem in self.run.problems:
            warnings.warn(problem, stacklevel=2)

    @classmethod
    def of(cls, t: HtaTrace) -> Self:
        """Analyses of a trace that was opened by HTA's `Trace`."""
        made = cls.__new__(cls)
        made.run = t.run
        made.run.load()
        made.__dict__["t"] = t
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.trace.label!r}, ranks={list(self.ranks_loaded)})"

    @cached_property
    def t(self) -> HtaTrace:
        """The events as HTA's `Trace` gives them; a rank's are read again, with their arguments, when asked for."""
        return HtaTrace.of(self.run)

    @property
    def trace(self) -> Trace:
        """The files of the run."""
        return self.run.trace

    @property
    def ranks_loaded(self) -> dict[int, Rank]:
        """The ranks that could be read, in order."""
        return self.run.ranks

    def rank(self, rank: int) -> Rank:
        """Return one rank's events and derived tables. KeyError names the ranks there are."""
        if rank not in self.ranks_loaded:
            raise KeyError(f"no rank {rank}; there are {sorted(self.ranks_loaded)}")
        return self.ranks_loaded[rank]

    def chosen(self, ranks: Iterable[int] | None) -> list[Rank]:
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
        has_steps = any(len(trace.steps) for trace in self.ranks_loaded.values())
        return analysis.combine(frames, Job(tuple(self.ranks_loaded), self.run.start_ns, has_steps))

    def show(
        self,
        analysis: Analysis,
        frames: Frames,
        chart: str,
        *,
        visualize: bool,
        renderer: str = "",
        shares: bool = False,
    ) -> None:
        """Show a chart of the report, as a Plotly figure; of stacked bars the shares of their whole, if asked for."""
        if not visualize or not frames:
            return
        from htareport.render.charts.plotly import figure  # noqa: PLC0415  only who asks for pictures loads Plotly

        charts = analysis.charts(self.combined(analysis, frames))
        found = next((each for each in charts if each.name == chart), None)
        if found is not None:
            figure(_as_shares(found) if shares else found).show(renderer=renderer or None)


def _as_shares(chart: Chart) -> Chart:
    """Stacked bars that are 100 % high."""
    whole = chart.frame.groupby(chart.x, sort=False)[chart.y].transform("sum")
    frame = chart.frame.assign(**{chart.y: chart.frame[chart.y] / whole.where(whole > 0)})
    return replace(chart, frame=frame, y_unit=Unit.RATIO)
