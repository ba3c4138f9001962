"""The facts of a job that need all of its ranks, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import Any, TypeVar, cast

import pandas as pd

from htareport.algorithms.frame_packing import join
from htareport.algorithms.frames import Frames
from htareport.job.arrival_skew import ArrivalSkew, arrival_skew
from htareport.job.matching import Matching, matching
from htareport.job.pipeline import Pipeline
from htareport.job.slow_devices import SlowDevice, slow_devices
from htareport.job.transfers import transfer_table
from htareport.rank.collectives import RankCollectives

Result = TypeVar("Result")


class JobFacts:
    """What the collectives of all ranks say together. `collectives` lacks ranks that recorded none."""

    def __init__(self, collectives: Mapping[int, RankCollectives], *, has_steps: bool) -> None:
        self.collectives, self.has_steps = collectives, has_steps
        self._cache = dict[Hashable, Any]()

    def cached(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Return what was computed under a key before; else compute it."""
        if key not in self._cache:
            self._cache[key] = compute()
        return cast("Result", self._cache[key])

    @cached_property
    def _frames(self) -> Frames:
        return join((rank, calls.frames) for rank, calls in self.collectives.items())

    @cached_property
    def matching(self) -> Matching:
        """The collectives of all ranks, matched and on one clock."""
        return matching(self._frames)

    @cached_property
    def arrival_skew(self) -> ArrivalSkew:
        """Who waits for whom in collectives."""
        return arrival_skew(self.matching, self._frames["times"], self.collectives, has_steps=self.has_steps)

    @cached_property
    def slow_devices(self) -> dict[int, SlowDevice]:
        """Ranks whose device is slower than those of the others."""
        return slow_devices({rank: calls.own_work.equal_work for rank, calls in self.collectives.items()})

    @cached_property
    def pipeline(self) -> Pipeline | None:
        """The stages of a pipeline, if ranks are such."""
        stages = {rank: calls.stage for rank, calls in self.collectives.items() if calls.stage}
        return Pipeline(stages) if len(stages) > 1 else None

    @property
    def stragglers(self) -> list[int]:
        """The ranks that the others wait for, most late first; none without collectives."""
        return self.arrival_skew.stragglers if self.collectives else []

    @cached_property
    def transfers(self) -> pd.DataFrame:
        """Matched collectives of which all ranks are recorded: see `transfer_table`."""
        return transfer_table(self.matching, has_steps=self.has_steps)

    @cached_property
    def world_size(self) -> int:
        """How many ranks the job has, as far as its traces tell."""
        return max((calls.world_size for calls in self.collectives.values()), default=1)

    def transfer_wait_ns(self, rank: int) -> float:
        """For how long compute on a rank waits for bytes that move, not for other ranks, ns per step."""
        skew = self.arrival_skew
        return self.collectives[rank].awaited_ns - skew.straggling_ns[rank] - skew.waiting_ns[rank]
