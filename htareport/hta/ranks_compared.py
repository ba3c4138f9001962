"""Comparisons of ranks, under HTA's names."""

from __future__ import annotations

from htareport.analyses.arrivals import IdentifyStragglers, significant
from htareport.analyses.stragglers import Stragglers
from htareport.hta.ranks import LoadedRanks


class RanksCompared(LoadedRanks):
    """What ranks do to each other."""

    def get_potential_stragglers(
        self,
        profiler_steps: list[int] | None = None,
        num_candidates: int = 2,
        visualize: bool = False,
        straggler_identification_impl: IdentifyStragglers | None = None,
    ) -> list[int]:
        """Ranks that are late to collectives by more than chance, most late first, at most `num_candidates`.

        An empty list says that nobody is. `straggler_identification_impl` names the stragglers in its own way, from the
        frame that `htareport.analyses.arrivals.IdentifyStragglers` describes. ValueError if a step isn't there.
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
        identify = straggler_identification_impl or significant
        return [int(rank) for rank in identify(arrivals)][: max(1, num_candidates)]
