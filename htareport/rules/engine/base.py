"""What a rule is. To add one, write a class in a module of this package; nothing else changes.

A rule looks at each rank in a worker, where the events are, and tells in the parent, once every rank was looked at.
What it could save is a set of intervals, so that findings about the same time are never added up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.intervals import Intervals
from htareport.plugins.options import Configurable, Range
from htareport.rank.capability import Capability
from htareport.rank.interval_sets import Lane
from htareport.rank.rank import Rank
from htareport.report import Unit
from htareport.report.findings import Finding, Severity, Span
from htareport.report.units import text as text_of

Claim: TypeAlias = Mapping[Lane, Intervals]  # What could be saved, by device and capture, in ns.

SLOW_CPUS = "slow CPUs"  # Shared: ranks whose operators take more of the CPU than those of others, by rank.
AHEAD = "ahead"  # Among a rule's numbers: how long the host waits because it is far ahead of the device, ns per step.

HIGH, MEDIUM, LOW = 0.05, 0.02, 0.005  # Shares of step time from which a saving is of that severity.


class Family(StrEnum):
    """What a rule is about, in the order in which rules are listed."""

    QUALITY = "Trace quality"
    HOST = "Host and idle time"
    COMPUTE = "Compute"
    COMMUNICATION = "Communication"
    MEMORY = "Memory"
    INFERENCE = "Inference"


@dataclass(frozen=True)
class Evidence:
    """What a rule found on one rank: what could be saved, numbers for its sentences, and where to look."""

    claim: Claim = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Found:
    """What a rule found on all ranks, in the parent.

    `saving` is the length of its claim in ns per step by rank (mean over devices and steps), `step_ns` the job's mean
    step time (of everything recorded without steps). `worst` is the rank where the saving is largest. `shared` is what
    rules work out once for each other, by name. `infers` is whether the job only infers, as far as operators tell.
    """

    ranks: Mapping[int, Evidence]
    saving: Mapping[int, float]
    step_ns: float
    num_ranks: int
    has_steps: bool
    shared: dict[str, Any] = field(default_factory=dict[str, Any])
    infers: bool = False

    @property
    def worst(self) -> int:
        """The rank with the largest saving, the lowest of several."""
        return min(self.ranks, key=lambda rank: (-self.saving.get(rank, 0.0), rank))

    @property
    def numbers(self) -> Mapping[str, Any]:
        """The numbers of the worst rank."""
        return self.ranks[self.worst].numbers

    @property
    def most(self) -> float:
        """The largest saving of any rank, ns per step."""
        return max(self.saving.values(), default=0.0)

    @property
    def share(self) -> float:
        """That as a share of step time."""
        return min(1.0, self.most / self.step_ns) if self.step_ns else 0.0

    def time(self, ns: float) -> str:
        """A time as text."""
        return text_of(ns, Unit.NANOSECONDS)

    def percent(self, share: float) -> str:
        """A share as text."""
        return text_of(share, Unit.RATIO)

    @property
    def per(self) -> str:
        """What savings are per, as words."""
        return "per step" if self.has_steps else "in all that was recorded"


@dataclass(frozen=True)
class Change:
    """What becomes of a job if advice works, where no claim of a rank says it.

    `late` are ranks' collectives, as a mask over all calls that were matched, to which they come no later than the
    others: `to_mean` than the mean of all these, else than the latest other rank. `shorter` is by how much the
    transfer of a collective takes less, ns by place of any of its calls. `compute` is what share of a rank's compute
    goes, by rank; below zero: comes in addition.
    """

    late: NDArray[np.bool_] | None = None
    to_mean: bool = False
    shorter: Mapping[int, float] = field(default_factory=dict[int, float])
    compute: Mapping[int, float] = field(default_factory=dict[int, float])


class Rule(Configurable, ABC):
    """A condition over a rank's events, what meeting it could save, and what to do.

    The docstring is its help, with the headings *When it speaks*, *What it could save*, *What to do* and *How to
    verify*. Thresholds are the fields of a frozen dataclass; `--set CODE.FIELD=VALUE` replaces them. All are above 0,
    unless one is annotated with another range, so that whatever is found is something: a time, a share, a number of
    calls.
    """

    code: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[Family]
    requires: ClassVar[frozenset[Capability]] = frozenset()
    section: ClassVar[str] = ""  # Where the report has the numbers.
    is_general: ClassVar[bool] = False  # Speaks only of what no other finding explains.
    about_idle: ClassVar[bool] = False  # Silent where the trace does not show the device's work as it was.
    enables: ClassVar[bool] = False  # Says what let idle time arise, not what fills it: who says that comes first.
    low_share: ClassVar[float] = 0.5  # Of the saving: what is left of it if the advice works halfway.
    confidence: ClassVar[str] = "medium"
    takes_from: ClassVar[str] = ""  # Code of the rule of whose time a part is this one's. Its own: of what it claims.
    follows: ClassVar[str] = ""  # Code of the rule right behind which this one is told, since it says why.

    @classmethod
    def settings_name(cls) -> str:
        return cls.code

    @classmethod
    def ranges(cls) -> dict[str, Range]:
        """Return name and range of each threshold that is a number."""
        numbers = [name for name, default in cls.options().items() if type(default) in (int, float)]
        return dict.fromkeys(numbers, Range(above=0)) | super().ranges()

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        """Return what a rank lacks for it, as words; that it can look where there is nothing."""
        lacking = self.requires - rank.capabilities
        return tuple(each.value for each in Capability if each in lacking)

    def own_events(self, rank: Rank) -> NDArray[np.bool_] | None:
        """Return which device events it tells the cause of, so that more general rules leave them to it."""
        del rank
        return None

    @abstractmethod
    def look(self, rank: Rank) -> Evidence | None:
        """Return what there is on one rank; None where the condition is not met."""

    @abstractmethod
    def tell(self, found: Found) -> Finding | None:
        """Say it; None where all ranks together show that there is nothing. `finding` fills in what follows."""

    def takes(self, found: Found) -> Mapping[int, float]:
        """Return what of the time of `takes_from` is this rule's, by rank in ns per step.

        For what only all ranks together show, so that no rank can claim it. It was measured on the rank.
        """
        del found
        return {}

    def change(self, found: Found) -> Change | None:
        """Return what becomes of the job if the advice works, from which the step's time then is worked out.

        For what no rank can claim by itself; None where claims say it, or it cannot be said.
        """
        del found
        return None

    def finding(self, found: Found, title: str, **said: Any) -> Finding:
        """Make a finding with severity, savings, ranks and spans from the claim; `said` are further fields."""
        saving = round(found.most) or None
        ranks = tuple(sorted(found.ranks)) if len(found.ranks) < found.num_ranks else ()
        values: dict[str, Any] = {
            "severity": severity_of(found.share),
            "saving_ns": saving,
            "low_ns": round(self.low_share * saving) if saving else None,
            "confidence": self.confidence,
            "ranks": ranks,
            "section": self.section,
            "spans": found.ranks[found.worst].spans,
            "family": str(self.family),
            "share": found.share if saving else None,
            "is_per_step": found.has_steps,
        }
        return Finding(code=self.code, title=title, **(values | said))


def severity_of(share: float) -> Severity:
    """Severity of a saving that is this share of step time."""
    return Severity.HIGH if share >= HIGH else Severity.MEDIUM if share >= MEDIUM else Severity.LOW


def least_of(*severities: Severity) -> Severity:
    """The least grave of them."""
    return min(severities, key=list(Severity).index)
