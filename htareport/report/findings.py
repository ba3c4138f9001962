"""Findings: the advice of a report with its evidence, what it could save, what to try and how to verify it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters, in rising order."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class SavingKind(StrEnum):
    """How a saving was found."""

    REPLAYED = "replayed"  # The step was replayed without the cause.
    CEILING = "ceiling"  # The time that the cause takes: the step gains no more than that.
    ESTIMATE = "estimate"  # Replayed, with durations that no trace tells.


@dataclass(frozen=True, slots=True)
class Span:
    """A place to look at in the trace: ns since the run's first event."""

    rank: int
    start: int
    end: int
    name: str = ""
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of advice; its `code` is stable.

    Savings are in ns per step (of everything recorded, where there are no steps); `saving_kind` says what they are.
    """

    code: str
    severity: Severity
    title: str
    evidence: str = ""
    advice: str = ""
    saving_ns: int | None = None
    confidence: str = ""
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    low_ns: int | None = None  # Lower bound of the saving, if the advice works.
    further_ns: int | None = None  # The part of the saving that no finding before this one covers.
    assumption: str = ""
    verify: str = ""
    snippet: str = ""
    section: str = ""  # Name of the section that has the numbers.
    spans: tuple[Span, ...] = ()
    family: str = ""  # What it is about: trace quality, host, compute, …
    share: int | float | None = None  # The saving as a share of the step time (of everything recorded without steps).
    is_per_step: bool = True  # Whether savings are per step; else in everything recorded.
    step_ns: int | None = None  # The job's step time; None without steps.
    without_ns: int | None = None  # The step time without the cause, while ranks still wait for each other, if known.
    ceiling: str = ""  # Why that is not known, so that the saving is a ceiling only.
    saving_kind: SavingKind | None = None  # None without a saving.
    nested_under: int | None = None  # Place in the list of the finding whose time this one explains as well.
    is_across_ranks: bool = False  # Whether `without_ns` includes that ranks still wait for each other.
