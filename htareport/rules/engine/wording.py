"""Sentences and words that several rules share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from htareport.rank.host_rows import short
from htareport.report.tables import Unit
from htareport.report.units import text
from htareport.rules.engine.evidence import JobEvidence


def listed(names: Iterable[tuple[str, float]], job: JobEvidence[Any], per: float) -> str:
    """Names with the idle time that they fill, per step."""
    return ", ".join(f"`{short(name)}` {job.time(time / per)}" for name, time in names)


def sized(size: float) -> str:
    """A size as text."""
    return text(size, Unit.BYTES)
