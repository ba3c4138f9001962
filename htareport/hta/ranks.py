"""The base of `TraceAnalysis`: loads ranks, runs analyses of the report over them, and shows their charts."""

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
    many processes ranks are loaded; a script that uses several needs the usual `if __name__ == "__main__":`. `cache` is
    the folder that caches what was read of large files, the user's own for True, none for False (needs pyarrow).
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
        """Load every rank, and warn of those that cannot be read. NothingToReadError if none can."""
        window = ALL if include_last_profiler_step else Window(without_last_step=True)
        options = ReadOptions(salvage=salvage).cached(cache)
        self.run = Run(open_trace(trace_files, trace_dir, options), window, jobs)
        self.run.load()
        for problem in self.run.problems:
            warnings.warn(problem, stacklevel=2)

    @classmethod
    def from_trace(cls, t: HtaTrace) -> Self:
        """Return the analyses of an opened `Trace` of HTA."""
        ranks = cls.__new__(cls)
        ranks.run = t.run
        ranks.run.load()
        ranks.__dict__["t"] = t
        return ranks

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.trace.label!r}, ranks={list(self.ranks_loaded)})"

    @cached_property
    def t(self) -> HtaTrace:
        """The events as HTA's `Trace` gives them; those of a rank are read again on first use, with all arguments."""
        return HtaTrace.from_run(self.run)

    @property
    def trace(self) -> Trace:
        """The files of the run."""
        return self.run.trace

    @property
    def ranks_loaded(self) -> dict[int, Rank]:
        """The ranks that could be read, in order."""
        return self.run.ranks

    def rank(self, rank: int) -> Rank:
        """Return the facts of one rank. KeyError, with the ranks of the run, if it was not loaded."""
        if rank not in self.ranks_loaded:
            raise KeyError(f"no rank {rank}; there are {sorted(self.ranks_loaded)}")
        return self.ranks_loaded[rank]

    def selected_ranks(self, ranks: Iterable[int] | None) -> list[Rank]:
        """Return some ranks, all for None."""
        return list(self.ranks_loaded.values()) if ranks is None else [self.rank(rank) for rank in ranks]

    def mapped(self, analysis: Analysis, ranks: Iterable[int] | None = None) -> Frames:
        """Return the frames of an analysis for some ranks, with all rows."""
        results: list[Frames] = []
        for rank in self.selected_ranks(ranks):
            missing = analysis.requires - rank.capabilities
            frames = analysis.without(rank) if missing else analysis.map(rank)
            if frames is not None:
                results.append({name: frame.assign(rank=rank.rank) for name, frame in frames.items()})
        return {name: concat([frames[name] for frames in results]) for name in results[0]} if results else {}

    def combined(self, analysis: Analysis, frames: Frames) -> Frames:
        """Return frames combined for the tables and charts of the report."""
        has_steps = any(len(rank.steps) for rank in self.ranks_loaded.values())
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
        """Show a chart of the report as a Plotly figure; with `shares`, stacked bars as shares of their sum."""
        if not visualize or not frames:
            return
        from htareport.render.charts.plotly import figure  # noqa: PLC0415  only who asks for pictures loads Plotly

        charts = analysis.charts(self.combined(analysis, frames))
        match = next((drawn for drawn in charts if drawn.name == chart), None)
        if match is not None:
            figure(_as_shares(match) if shares else match).show(renderer=renderer or None)


def _as_shares(chart: Chart) -> Chart:
    """Stacked bars as shares of their sum."""
    totals = chart.frame.groupby(chart.x, sort=False)[chart.y].transform("sum")
    frame = chart.frame.assign(**{chart.y: chart.frame[chart.y] / totals.where(totals > 0)})
    return replace(chart, frame=frame, y_unit=Unit.RATIO)
