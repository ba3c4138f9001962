"""What an analysis is. To add one, put a module with one subclass into this package; nothing else changes.

Architecture invariants: an analysis imports neither plotly nor jinja2, reads no file and prints nothing; `map` runs in
a worker, which is the only place that holds events, and returns frames far smaller than the trace.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self, TypeAlias, cast, get_args, get_origin, get_type_hints

import pandas as pd

from htareport.errors import UsageError
from htareport.report import Chart, Fact, TableSpec
from htareport.trace import Capability, RankTrace

Frames: TypeAlias = dict[str, pd.DataFrame]

_MOST = 2**62  # Of an option: beyond, arithmetic overflows.


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


@dataclass(frozen=True)
class Range:
    """Which numbers an option takes: `num_kernels: Annotated[int, Range(least=1)] = 10`."""

    least: float | None = None
    most: float | None = None
    above: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
        )

    def __str__(self) -> str:
        bounds = {"above": self.above, "at least": self.least, "at most": self.most}
        return ", ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None)


class Analysis(ABC):
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

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__module__.rpartition(".")[2]

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

    @classmethod
    def help(cls) -> str:
        """Return the docstring, dedented."""
        return inspect.cleandoc(cls.__doc__ or "")

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return name and default of each threshold."""
        return {item.name: item.default for item in fields(cls)} if is_dataclass(cls) else {}

    def chosen_options(self) -> dict[str, Any]:
        """Return name and value of each threshold of this instance."""
        return {name: getattr(self, name) for name in self.options()}

    @classmethod
    def ranges(cls) -> dict[str, Range]:
        """Return name and range of each threshold that has one."""
        hints = get_type_hints(cls, include_extras=True)
        return {name: found for name in cls.options() if (found := _range_of(hints[name])) is not None}

    @classmethod
    def configured(cls, settings: Mapping[str, str]) -> Self:
        """Make an instance with some thresholds given as text. UsageError on unknown names and wrong values."""
        known, hints, values = cls.options(), get_type_hints(cls), dict[str, Any]()
        ranges = cls.ranges()
        for name, text in settings.items():
            if name not in known:
                there = ", ".join(known) or "none"
                raise UsageError(f"{cls.name} has no option {name!r} (it has: {there})")
            try:
                values[name] = _parsed(text, hints[name])
                if name in ranges and values[name] not in ranges[name]:
                    raise ValueError(f"{text} is outside its range: {ranges[name]}")  # noqa: TRY301
            except ValueError as error:
                raise UsageError(f"{cls.name}.{name}: {error}") from error
        return cast("type[Any]", cls)(**values) if values else cls()


def _parsed(text: str, hint: Any) -> Any:
    if hint is bool:
        if text.lower() not in {"true", "false", "yes", "no", "1", "0"}:
            raise ValueError(f"{text!r} is neither true nor false")
        return text.lower() in {"true", "yes", "1"}
    if hint in (int, float):
        try:
            value = hint(text)
        except ValueError:
            raise ValueError(f"{text!r} is not {'a whole number' if hint is int else 'a number'}") from None
        if abs(value) > _MOST or not math.isfinite(value):
            raise ValueError(f"{text} is no number to work with")
        return value
    return text


def _range_of(hint: Any) -> Range | None:
    found = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((each for each in found if isinstance(each, Range)), None)
