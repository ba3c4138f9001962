"""The stages of a pipeline together: which are longer than the others, and what the schedule costs by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from htareport.rank.pipeline_stage import StageWork

_LONG = 1.1  # Times the mean of the others: a stage that computes so much longer is the one that they wait for.


@dataclass(frozen=True)
class Pipeline:
    """The stages of a job by rank. Ranks of equal rank in several pipelines are stages of their own."""

    stages: Mapping[int, StageWork]

    @property
    def bubble_share(self) -> float:
        """The share of the step in which stages wait for others, in the mean."""
        return sum(stage.wait_share for stage in self.stages.values()) / len(self.stages)

    def long_stages(self) -> dict[int, float]:
        """Ranks whose compute takes longer than that of the other stages, with how many times the mean of these."""
        whole, count = sum(stage.compute_ns for stage in self.stages.values()), len(self.stages)
        ratios = {
            rank: stage.compute_ns * (count - 1) / max(whole - stage.compute_ns, 1.0)
            for rank, stage in self.stages.items()
            if count > 1
        }
        return {rank: ratio for rank, ratio in ratios.items() if ratio >= _LONG}
