"""What a rule is. To add one, add a class to a file in the folder of its family; nothing else changes.

A rule looks at each rank in a worker, where the events are, and tells in the parent, once every rank was looked at.
What it claims is a set of intervals, or a change of the rank or job; the replay says what the step gains by that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from htareport.job.replay import JobChange
from htareport.plugins.options import Configurable, Range
from htareport.plugins.prose import section, words_for
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.evidence import E, Evidence, JobEvidence

HIGH, MEDIUM, LOW = 0.05, 0.02, 0.005  # Shares of step time from which a saving is of that severity.


class Family(StrEnum):
    """What a rule is about, in the order in which rules are listed."""

    QUALITY = "Trace quality"
    HOST = "Host and idle time"
    COMPUTE = "Compute"
    COMMUNICATION = "Communication"
    MEMORY = "Memory"
    INFERENCE = "Inference"


class Rule(Configurable, ABC, Generic[E]):
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
    is_estimate: ClassVar[bool | None] = None  # Of its saving; None: of all rules about kernels, and no others.
    low_share: ClassVar[float] = 0.5  # Of the saving: what is left of it if the advice works halfway.
    confidence: ClassVar[str] = "medium"
    reattributes_from: ClassVar[str] = (
        ""  # Code of the rule of whose time a part is this one's. Its own: of what it claims.
    )
    follows: ClassVar[str] = ""  # Code of the rule right behind which this one is told, since it says why.

    @classmethod
    def settings_name(cls) -> str:
        return cls.code

    @classmethod
    def ranges(cls) -> dict[str, Range]:
        """Return name and range of each threshold that is a number."""
        numbers = [name for name, default in cls.options().items() if type(default) in (int, float)]
        return dict.fromkeys(numbers, Range(above=0)) | super().ranges()

    @classmethod
    def evidence_class(cls) -> type[Evidence]:
        """Return what `look` returns: the class that its definition names, as in `class X(Rule[XEvidence])`."""
        bases = (base for kind in cls.__mro__ for base in getattr(kind, "__orig_bases__", ()))
        named = (argument for base in bases for argument in get_args(base))
        return next((each for each in named if isinstance(each, type) and issubclass(each, Evidence)), Evidence)

    @property
    def only_estimates(self) -> bool:
        """Whether its saving is an estimate: the trace does not tell what takes the place of what goes."""
        return self.family is Family.COMPUTE if self.is_estimate is None else self.is_estimate

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        """Return what a rank lacks for it, as words; that it can look where there is nothing."""
        lacking = self.requires - rank.capabilities
        return tuple(each.value for each in Capability if each in lacking)

    def own_events(self, rank: Rank) -> NDArray[np.bool_] | None:
        """Return which device events it tells the cause of, so that more general rules leave them to it."""
        del rank
        return None

    @abstractmethod
    def look(self, rank: Rank) -> E | None:
        """Return what there is on one rank; None where the condition is not met."""

    @abstractmethod
    def tell(self, job: JobEvidence[E]) -> Finding | None:
        """Say it; None where all ranks together show that there is nothing. `finding` fills in what follows."""

    def reattributed_ns(self, job: JobEvidence[E]) -> Mapping[int, float]:
        """Return what of the time of `reattributes_from` is this rule's, by rank in ns per step.

        For what only all ranks together show, so that no rank can claim it. It was measured on the rank.
        """
        del job
        return {}

    def change(self, job: JobEvidence[E]) -> JobChange | None:
        """Return what becomes of the job if the advice works, so that it can be replayed.

        For what no rank can say by itself; None where the claims or edits of the ranks say it.
        """
        del job
        return None

    def finding(  # noqa: PLR0913  what a finding says, each part by name
        self,
        job: JobEvidence[E],
        title: str,
        *,
        evidence: str = "",
        values: Mapping[str, str] | None = None,
        cases: Sequence[str] = (),
        low_share: float | None = None,
        **fields: Any,
    ) -> Finding:
        """Make a finding: savings, severity, ranks and spans from the claim; advice from the docstring.

        `values` are filled into what the docstring says, thresholds too; of what it lists by case, `cases` are taken.
        `fields` are further fields of the finding, in place of what would follow.
        """
        saving = round(job.max_saving_ns) or None
        ranks = tuple(sorted(job.by_rank)) if len(job.by_rank) < job.num_ranks else ()
        filled = {name: str(value) for name, value in self.chosen_options().items()} | dict(values or {})
        derived: dict[str, Any] = {
            "severity": severity_of(job.saving_share),
            "advice": words_for(section(self.prose(), "What to do"), filled, cases),
            "verify": words_for(section(self.prose(), "How to verify"), filled, cases),
            "saving_ns": saving,
            "low_ns": round((self.low_share if low_share is None else low_share) * saving) if saving else None,
            "confidence": self.confidence,
            "ranks": ranks,
            "section": self.section,
            "spans": job.worst.spans,
            "family": str(self.family),
            "share": job.saving_share if saving else None,
            "is_per_step": job.has_steps,
        }
        return Finding(code=self.code, title=title, evidence=evidence, **(derived | fields))


AnyRule: TypeAlias = Rule[Any]


def severity_of(share: float) -> Severity:
    """Severity of a saving that is this share of step time."""
    return Severity.HIGH if share >= HIGH else Severity.MEDIUM if share >= MEDIUM else Severity.LOW


def least_of(*severities: Severity) -> Severity:
    """The least grave of them."""
    return min(severities, key=list(Severity).index)
