"""What rules see: the evidence of one rank, made in a worker, and that of all ranks, from which findings are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

import pandas as pd

from htareport.algorithms.intervals import Intervals
from htareport.job.facts import JobFacts
from htareport.rank.interval_sets import Lane
from htareport.rank.replay.edits import RankEdit
from htareport.report.findings import Span
from htareport.report.tables import Unit
from htareport.report.units import text as text_of

Claim: TypeAlias = Mapping[Lane, Intervals]  # What could be saved, by device and capture, in ns.


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a rule saw on one rank: the time that it claims, and places to look at.

    A rule that says more than that has a subclass with one field for each number that its sentences need. The fields
    travel from workers and are kept in the cache: numbers, texts, tuples, dicts, arrays, dataclasses of these.
    """

    claim: Claim = field(default_factory=dict)
    edit: RankEdit | None = None  # What becomes of the rank if the advice works, where that is not just the claim gone.
    spans: tuple[Span, ...] = ()
    queue_wait_ns: float = 0.0  # How long the host waits per step because it is far ahead of the device.
    is_unreliable: bool = False  # Whether the trace does not show the device's work as it was.


@dataclass(frozen=True, kw_only=True)
class WorkEvidence(Evidence):
    """Evidence of device work that could be shorter; the step gains less where other work runs beside it."""

    requested_ns: float  # Per step and device.


@dataclass
class Shared:
    """What rules leave for those that are asked after them, where findings are made."""

    slow_groups: pd.DataFrame | None = None  # Process groups that move bytes more slowly than their peers,
    slow_group_ns: dict[int, float] = field(default_factory=dict)  # and what that costs, ns per step by rank.
    cpu_time_ratio: dict[int, float] = field(default_factory=dict)  # Of ranks whose operators take more CPU time.


E = TypeVar("E", bound=Evidence)


@dataclass(frozen=True)
class JobEvidence(Generic[E]):
    """What a rule saw on all ranks, where findings are made.

    `saving_by_rank` is the length of its claim in ns per step (mean over devices and steps), `step_ns` the job's mean
    step time (of everything recorded without steps). `infers` is whether the job only infers, as far as operators tell.
    """

    by_rank: Mapping[int, E]
    saving_by_rank: Mapping[int, float]
    step_ns: float
    num_ranks: int
    has_steps: bool
    facts: JobFacts
    shared: Shared
    infers: bool = False

    @property
    def worst_rank(self) -> int:
        """The rank with the largest saving, the lowest of several."""
        return min(self.by_rank, key=lambda rank: (-self.saving_by_rank.get(rank, 0.0), rank))

    @property
    def worst(self) -> E:
        """The evidence of that rank."""
        return self.by_rank[self.worst_rank]

    @property
    def max_saving_ns(self) -> float:
        """The largest saving of any rank, ns per step."""
        return max(self.saving_by_rank.values(), default=0.0)

    @property
    def max_saving(self) -> str:
        """That as text."""
        return self.time(self.max_saving_ns)

    @property
    def saving_share(self) -> float:
        """That as a share of step time."""
        return min(1.0, self.max_saving_ns / self.step_ns) if self.step_ns else 0.0

    @property
    def purpose(self) -> str:
        """What the job does, as a case of advice."""
        return "inference" if self.infers else "training"

    def time(self, ns: float) -> str:
        """A time as text."""
        return text_of(ns, Unit.NANOSECONDS)

    def percent(self, share: float) -> str:
        """A share as text."""
        return text_of(share, Unit.RATIO)

    @property
    def per_step(self) -> str:
        """What savings are per, as words."""
        return "per step" if self.has_steps else "in all that was recorded"

    @property
    def window(self) -> str:
        """What shares are of, as words."""
        return "the step" if self.has_steps else "what was recorded"
