"""What the job needs of one rank's collectives: its calls, its own work between them, and how long compute waits."""

from __future__ import annotations

from dataclasses import dataclass

from htareport.algorithms.frame_packing import Packed, pack
from htareport.rank.cached import cached_until_release
from htareport.rank.collective_calls import call_frames, recorded_times
from htareport.rank.communication import awaited
from htareport.rank.host_rows import per
from htareport.rank.interval_sets import total
from htareport.rank.own_work import OwnWork, own_work
from htareport.rank.pipeline_stage import StageWork, stage_work
from htareport.rank.rank import Rank
from htareport.rows.metadata import world_size_of


@dataclass(frozen=True)
class RankCollectives:
    """A rank's collectives, sent once for all rules and for the replay of the job.

    `frames` are those of `call_frames`, and `times`: the lengths of the steps that have calls. `windows` is how many
    steps of how many devices there are, by which times are divided.
    """

    frames: Packed
    own_work: OwnWork
    windows: int
    awaited_ns: float  # How long compute waits for communication, per step and device.
    world_size: int
    stage: StageWork | None = None  # Of a pipeline.


@cached_until_release
def collectives_of(rank: Rank) -> RankCollectives:
    """Return what the job needs of a rank's collectives."""
    frames = call_frames(rank)
    windows = per(rank)
    return RankCollectives(
        frames=pack(frames | {"times": recorded_times(rank, frames["calls"])}),
        own_work=own_work(rank),
        windows=windows,
        awaited_ns=total(awaited(rank)) / windows,
        world_size=world_size_of(rank.captures[0].meta) or 1,
        stage=stage_work(rank),
    )
