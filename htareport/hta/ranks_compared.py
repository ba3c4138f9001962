"""Stragglers among the ranks, under HTA's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from htareport.analyses.ranks.stragglers import Stragglers
from htareport.hta.late_starts import run_finder
from htareport.hta.ranks import LoadedRanks
from htareport.job.arrivals import significant


class RanksCompared(LoadedRanks):
    """Analysis of the ranks that others wait for."""

    def get_potential_stragglers(
        self,
        profiler_steps: list[int] | None = None,
        num_candidates: int = 2,
        visualize: bool = False,
        straggler_identification_impl: Callable[..., Any] | None = None,
    ) -> list[int]:
        """Ranks that are late to collectives by more than chance, latest first, at most `num_candidates`.

        The list is empty if there are none. `straggler_identification_impl` replaces the way they are found: it takes
        the frame that `htareport.job.arrivals.IdentifyStragglers` describes; or, as in HTA, the ranks' events with a
        column `rank`, symbol table, number of candidates and `visualize`, and returns a series by rank that is above 0
        for stragglers. ValueError if a step isn't there.
        """
        steps = {number for rank in self.ranks_loaded.values() for number in rank.steps["number"].tolist()}
        if missing := sorted(set(profiler_steps or ()) - steps):
            raise ValueError(f"profiler_steps: no step {missing}; there are {sorted(steps)}")
        analysis = Stragglers()
        frames = self.mapped(analysis)
        if not frames:
            return []
        arrivals = self.combined(analysis, frames)["arrivals"]
        if profiler_steps is not None:
            arrivals = arrivals[arrivals["step"].isin(profiler_steps)].reset_index(drop=True)
        for chart in ("ranks", "lateness"):
            self.show(analysis, frames, chart, visualize=visualize)
        finder = straggler_identification_impl or significant

        def event_arguments() -> tuple[Any, ...]:
            frames = [self.t.get_trace(rank).assign(rank=rank) for rank in self.ranks_loaded]
            df = pd.concat(frames, ignore_index=True)
            selected = df if profiler_steps is None else df[df["iteration"].isin(profiler_steps)]
            return selected, self.t.symbol_table, num_candidates, visualize

        return run_finder(finder, arrivals, event_arguments)[: max(1, num_candidates)]
