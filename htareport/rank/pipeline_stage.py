"""What a rank does as a stage of a pipeline: its compute, its micro-batches, and how long it waits for other stages."""

from __future__ import annotations

from dataclasses import dataclass

from htareport.rank.cached import cached_until_release
from htareport.rank.communication import awaited, compute, moving, sets_of
from htareport.rank.direct_calls import pipeline_kernels
from htareport.rank.host_rows import per
from htareport.rank.interval_sets import common, total
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE


@dataclass(frozen=True)
class StageWork:
    """A stage of a pipeline of `stages` with so many micro-batches per step; compute in ns per step and device.

    `wait_share` is the share of the step in which compute waits for other stages, bytes that move apart.
    """

    stages: int
    micro_batches: float
    compute_ns: float
    wait_share: float

    @property
    def schedule_share(self) -> float:
        """The share of the step that the schedule leaves idle by itself, with even stages: (p − 1)/(m + p − 1)."""
        return (self.stages - 1) / (self.micro_batches + self.stages - 1)


@cached_until_release
def stage_work(rank: Rank) -> StageWork | None:
    """Return what a rank does as a stage; None where it is none, as far as the trace tells."""
    rows = pipeline_kernels(rank)
    if not len(rows):
        return None
    received = rows[~rows["sends"].to_numpy(dtype=bool) & (rows["step"] != OUTSIDE).to_numpy()]
    if not len(received):
        return None
    waits = common(awaited(rank), sets_of(rank, rows.assign(end=rows["end"] - moving(rows))))
    return StageWork(
        stages=int(received["group_size"].max()),
        micro_batches=float(received["peer"].value_counts().max()) / per(rank),
        compute_ns=total(compute(rank)) / per(rank),
        wait_share=rank.share(waits),
    )
