"""When findings are held back or are for information only: what the trace does not show, and what would gain nothing.

Advice about idle time needs a trace that shows the device's work as it was. Advice about the host needs devices that
wait for it: not for those that are busy nearly all the time, nor, where it only says to be faster, for a host that
waits for the device for longer than the device for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from htareport.report import Unit
from htareport.report.findings import Finding, Severity
from htareport.report.units import text
from htareport.rules.engine.attribution import without
from htareport.rules.engine.base import AnyRule, Family
from htareport.rules.engine.evaluate import RankEvidence
from htareport.rules.engine.evidence import JobEvidence

_BUSY = 0.1  # Idle for less of the time than this: advice about the host is for information only.


def unreliable(ranks: Sequence[RankEvidence], rules: Sequence[AnyRule]) -> list[int]:
    """Ranks whose trace does not show the device's work as it was."""
    quality = [rule.code for rule in rules if rule.family is Family.QUALITY]
    return [
        rank.rank for rank in ranks if any(rank.found[code].is_unreliable for code in quality if code in rank.found)
    ]


def without_idle(rank: RankEvidence, rules: Sequence[AnyRule]) -> RankEvidence:
    """What is left of a rank's evidence without what is about idle time."""
    held = {rule.code for rule in rules if rule.about_idle}
    kept = {code: each for code, each in rank.found.items() if code not in held}
    return replace(rank, found=kept, pieces=without(rank.pieces, held))


def is_informational(rule: AnyRule, job: JobEvidence[Any], ranks: Sequence[RankEvidence]) -> bool:
    """Whether it is about the host of devices that are busy nearly all the time, or of a host that is ahead."""
    if rule.family is not Family.HOST or not rule.about_idle:
        return False
    concerned = _concerned(job, ranks)
    return all(each.idle < _BUSY for each in concerned) or (rule.is_general and _are_ahead(job, concerned))


def informational(finding: Finding, job: JobEvidence[Any], ranks: Sequence[RankEvidence]) -> Finding:
    """Say why it is for information only."""
    concerned = _concerned(job, ranks)
    idle, ahead = max(each.idle for each in concerned), min(map(_ahead, concerned))
    queue = f"the host waits {text(ahead, Unit.NANOSECONDS)} {job.per_step} for room in its queue"
    if idle < _BUSY:
        words = f"the device is idle for only {text(idle, Unit.RATIO)} of the time{f', and {queue}' if ahead else ''}."
    else:
        words = (
            f"{queue}, longer than the device waits for it. It is fast enough; look at what makes it stop, such as "
            "synchronisation and input."
        )
    evidence = " ".join(filter(None, (finding.evidence, f"For information: {words}")))
    return replace(finding, severity=Severity.LOW, evidence=evidence)


def _concerned(job: JobEvidence[Any], ranks: Sequence[RankEvidence]) -> list[RankEvidence]:
    return [rank for rank in ranks if rank.rank in job.by_rank]


def _are_ahead(job: JobEvidence[Any], ranks: Sequence[RankEvidence]) -> bool:
    """Whether each host waits for its device for longer than the device waits for it."""
    return all(_ahead(rank) > job.saving_by_rank.get(rank.rank, 0.0) for rank in ranks)


def _ahead(rank: RankEvidence) -> float:
    return max((each.queue_wait_ns for each in rank.found.values()), default=0.0)
