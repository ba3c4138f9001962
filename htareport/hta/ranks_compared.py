"""Comparisons of ranks, under HTA's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from htareport.analyses.ranks.stragglers import Stragglers
from htareport.hta.late_starts import found_by
from htareport.hta.ranks import LoadedRanks
from htareport.job.arrivals import significant


class RanksCompared(LoadedRanks):
    """What ranks do to each other."""

    def get_potential_stragglers(
        self,
        profiler_steps: list[int] | None = None,
        num_candidates: int = 2,
        visualize: bool = False,
        straggler_identification_impl: Callable[..., Any] | None = None,
    ) -> list[int]:
        """Ranks that are late to collectives by more than chance, most late first, at most `num_candidates`.

        An empty list says that nobody is. `straggler_identification_impl` names the stragglers in its own way: from
        the frame that `htareport.job.arrivals.IdentifyStragglers` describes; or, as in HTA, from the ranks' events
        with a column `rank`, symbol table, number of candidates and `visualize`, as a series by rank that is above 0
        for stragglers. ValueError if a step isn't there.
        """
        steps = {number for trace in self.ranks_loaded.values() for number in trace.steps["number"].tolist()}
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

        def for_htas() -> tuple[Any, ...]:
            parts = [self.t.get_trace(rank).assign(rank=rank) for rank in self.ranks_loaded]
            every = pd.concat(parts, ignore_index=True)
            chosen = every if profiler_steps is None else every[every["iteration"].isin(profiler_steps)]
            return chosen, self.t.symbol_table, num_candidates, visualize

        return found_by(finder, arrivals, for_htas)[: max(1, num_candidates)]
