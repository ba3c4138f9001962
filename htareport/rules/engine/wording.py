"""Sentences and words that several rules share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from htareport.rank.host_rows import short
from htareport.report.tables import Unit
from htareport.report.units import text
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence

W = TypeVar("W", bound=WorkEvidence)


def listed(names: Iterable[tuple[str, float]], job: JobEvidence[Any], per: float) -> str:
    """Names with the idle time that they fill, per step."""
    return ", ".join(f"`{short(name)}` {job.time(time / per)}" for name, time in names)


def held_up(job: JobEvidence[W]) -> str:
    """A sentence for where less than half of what was asked for is gained."""
    wanted = job.worst.requested_ns
    if job.max_saving_ns >= wanted / 2:
        return ""
    return (
        f" The work itself could take {job.time(wanted)} less, but the step would not be shorter by that: other work "
        "runs at the same time, or the host launches what follows too late."
    )


def sized(size: float) -> str:
    """A size as text."""
    return text(size, Unit.BYTES)
