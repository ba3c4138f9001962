"""What an analysis is. To add one, put a module with one subclass into this package; nothing else changes.

Architecture invariants: an analysis imports neither plotly nor jinja2, reads no file and prints nothing; `map` runs in
a worker, which is the only place that holds events, and returns frames far smaller than the trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, TypeAlias

import pandas as pd

from htareport.configurable import Configurable, Range
from htareport.report import Chart, Fact, TableSpec
from htareport.trace import Capability, RankTrace

__all__ = ["Analysis", "Frames", "Group", "Job", "Range"]

Frames: TypeAlias = dict[str, pd.DataFrame]


class Group(StrEnum):
    """Report chapters, in reading order."""

    TIME = "Time"
    RANKS = "Ranks"
    KERNELS = "Kernels"
    COMMUNICATION = "Communication"
    MEMORY = "Memory"
    HOST = "Host"
    QUALITY = "Data quality"


@dataclass(frozen=True)
class Job:
    """What is known of the whole run once every rank is mapped.

    `zero_ns` is the zero of all relative times: the earliest start of a complete event over all ranks, in ns since the
    epoch (or since whatever the files count from).
    """

    ranks: tuple[int, ...]
    zero_ns: int
    has_steps: bool
    salvaged: tuple[int, ...] = ()  # Ranks of which only a part is there: none of them is compared with others.


class Analysis(Configurable, ABC):
    """Turns traces into tables, charts and key numbers in two steps, so that only small frames leave a worker.

    The module's name is the analysis's name everywhere: on the command line, in the JSON, for its test and its
    template. The docstring is its help, in the report and for `htareport explain`; it has the headings *How it is
    computed* and *What to do*. A subclass with thresholds is a frozen dataclass with one field for each, which
    `--set NAME.FIELD=VALUE` replaces; `Annotated[int, Range(least=1)]` says which values it takes (any finite number
    otherwise). `order` places it within its group.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    group: ClassVar[Group]
    order: ClassVar[int] = 50
    requires: ClassVar[frozenset[Capability]] = frozenset()
    nothing: ClassVar[str] = "no rank has anything for it"  # Said where no rank has frames.
    tables: ClassVar[tuple[TableSpec, ...]]  # Each shows the combined frame of its name.
    # Of a table, the column by which ranks are worst, if that is not its first time.
    worst: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__module__.rpartition(".")[2]

    @classmethod
    def settings_name(cls) -> str:
        return cls.name

    @abstractmethod
    def map(self, trace: RankTrace) -> Frames:
        """Summarise one rank; without frames it has nothing for this analysis."""

    def without(self, trace: RankTrace) -> Frames | None:
        """Frames of a rank that lacks what is required, among ranks that have it; None: it has no rows."""
        del trace
        return None

    def combine(self, frames: Frames, job: Job) -> Frames:
        """Join the ranks. Each frame holds every rank's rows, one rank after the other, with a `rank` column."""
        del job
        return frames

    def facts(self, frames: Frames) -> Iterable[Fact]:
        """Key numbers of the combined frames, for the overview."""
        del frames
        return ()

    def charts(self, frames: Frames) -> Iterable[Chart]:
        """Pictures of the combined frames, the most telling first."""
        del frames
        return ()

    def notes(self, frames: Frames) -> Iterable[str]:
        """Sentences on how to read this run's numbers: what the window leaves out, what was cut to size."""
        del frames
        return ()
