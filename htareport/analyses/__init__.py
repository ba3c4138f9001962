"""Analyses: one file per section of the report, in the folder of its chapter. To add one, add a file.

Architecture invariants: an analysis imports neither plotly nor jinja2, reads no file and prints nothing; `map` runs in
a worker, which is the only place that holds events, and returns frames far smaller than the trace.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from htareport.algorithms.frames import Frames
from htareport.job.job import Job
from htareport.plugins.discovery import classes_from_entry_points, classes_in, module_names
from htareport.plugins.options import Configurable, Range
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.report.charts import Chart
from htareport.report.model import Fact
from htareport.report.tables import TableSpec

__all__ = ["Analysis", "Capability", "Frames", "Group", "Job", "Range", "Rank", "analysis_classes", "discover"]

ENTRY_POINT_GROUP = "htareport.analyses"

_log = logging.getLogger(__name__)


class Group(StrEnum):
    """Report chapters, in reading order."""

    TIME = "Time"
    RANKS = "Ranks"
    KERNELS = "Kernels"
    COMMUNICATION = "Communication"
    MEMORY = "Memory"
    HOST = "Host"
    QUALITY = "Data quality"


class Analysis(Configurable, ABC):
    """Turns ranks into tables, charts and key numbers in two steps, so that only small frames leave a worker.

    The module's name is the analysis's name everywhere: on the command line, in the JSON, for its test and its
    template. The docstring is its help, in the report and for `htareport explain`; it has the headings *How it is
    computed* and *What to do*. A subclass with thresholds is a frozen dataclass with one field for each, which
    `--set NAME.FIELD=VALUE` replaces; `Annotated[int, Range(minimum=1)]` says which values it takes (any finite number
    otherwise). `order` places it within its group.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    group: ClassVar[Group]
    order: ClassVar[int] = 50
    requires: ClassVar[frozenset[Capability]] = frozenset()
    nothing: ClassVar[str] = "no rank has anything for it"  # The reason where no rank has frames.
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
    def map(self, rank: Rank) -> Frames:
        """Summarise one rank; without frames it has nothing for this analysis."""

    def without(self, rank: Rank) -> Frames | None:
        """Return the frames of a rank that lacks what is required where other ranks have it; None if it has no rows."""
        del rank
        return None

    def combine(self, frames: Frames, job: Job) -> Frames:
        """Join the ranks. Each frame holds every rank's rows, one rank after the other, with a `rank` column."""
        del job
        return frames

    def facts(self, frames: Frames) -> Iterable[Fact]:
        """Return key numbers of the combined frames, for the overview."""
        del frames
        return ()

    def charts(self, frames: Frames) -> Iterable[Chart]:
        """Return charts of the combined frames, the most important first."""
        del frames
        return ()

    def notes(self, frames: Frames) -> Iterable[str]:
        """Return sentences on how to read the numbers: what the window leaves out, which tables were cut."""
        del frames
        return ()


def analysis_classes() -> dict[str, type[Analysis]]:
    """Return the analyses of this package and of installed plug-ins by name, in report order."""
    own = list(classes_in(__name__, Analysis))  # type: ignore[type-abstract]  # Only concrete ones are found.
    classes = own.copy()
    own_names = {analysis.name for analysis in own if analysis.__module__ in module_names(__name__)}
    for analysis in classes_from_entry_points(ENTRY_POINT_GROUP, "analysis"):
        if analysis.name in own_names:
            _log.warning("the analysis %s of %s is left out: that name is taken", analysis.name, analysis.__module__)
        else:
            classes.append(analysis)
    order = list(Group)
    classes.sort(key=lambda analysis: (order.index(analysis.group), analysis.order, analysis.name))
    return {analysis.name: analysis for analysis in classes}


def discover() -> list[Analysis]:
    """Return all analyses with their default thresholds, in report order."""
    return [analysis() for analysis in analysis_classes().values()]
