"""What a step gains by each finding: the replay of the job says it, where there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from htareport.job.replay import JobChange, JobReplay
from htareport.job.replay_join import job_replay
from htareport.report.findings import Finding, SavingKind
from htareport.rules.engine.base import AnyRule, Family, severity_of
from htareport.rules.engine.evaluate import RankEvidence
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence

_TOLERANCE, _TOLERANCE_NS = 0.005, 20_000.0  # A replay that is further off, by share of the job or ns, only estimates.
NO_PLACE = "the trace does not show where in the step the time lies"


@dataclass(frozen=True)
class Savings:
    """What each change gains, ns per step, by code of its finding.

    `replay` is the replay that says it, `why_not` why there is none, as words.
    """

    replay: JobReplay | None
    why_not: str
    changes: Mapping[str, JobChange]
    by_code: Mapping[str, float]

    def together(self, changes: Sequence[JobChange]) -> list[float]:
        """What several changes gain, each by itself; nothing without a replay."""
        return self.replay.savings(changes) if self.replay and changes else []


def savings_of(
    findings: Mapping[str, Finding], evidence: Mapping[str, tuple[AnyRule, JobEvidence[Any]]],
    ranks: Sequence[RankEvidence],
) -> Savings:  # fmt: skip
    """Replay the job with the change of each finding; `evidence` has rule and evidence by code."""
    if not evidence:
        return Savings(None, "", {}, {})
    try:
        facts = next(job.facts for _, job in evidence.values())
        replay = job_replay({rank.rank: rank.replay for rank in ranks}, facts)
        if isinstance(replay, str):
            return Savings(None, replay, {}, {})
        changes = {code: change for code in findings if (change := _change(replay, *evidence[code])) is not None}
        gains = dict(zip(changes, replay.savings(list(changes.values())), strict=True))
    except Exception as error:  # noqa: BLE001  it costs only what a finding gains
        return Savings(None, f"the job could not be replayed: {type(error).__name__}: {error}", {}, {})
    return Savings(replay, "", changes, gains)


def _change(replay: JobReplay, rule: AnyRule, job: JobEvidence[Any]) -> JobChange | None:
    """What becomes of the job if the advice works: what the rule says, else what its ranks have claimed."""
    if rule.family is Family.QUALITY:
        return None
    change = rule.change(job)
    if change is not None:
        return change
    return JobChange(codes={rule.code: 1.0}) if rule.code in replay.codes else None


def with_saving(finding: Finding, rule: AnyRule, job: JobEvidence[Any], savings: Savings) -> Finding:
    """Say what the step gains by a finding, and what it would take then; or why that is not known."""
    if rule.family is Family.QUALITY:
        return finding
    step_ns, gain = round(job.step_ns), savings.by_code.get(finding.code)
    if gain is None or not step_ns:
        if not finding.saving_ns:
            return finding
        return replace(
            finding, saving_kind=SavingKind.CEILING, step_ns=step_ns if finding.is_per_step else None,
            ceiling=savings.why_not or NO_PLACE,
        )  # fmt: skip
    saving = min(max(round(gain), 0), step_ns)
    share = saving / step_ns
    low_share = rule.low_share
    if finding.low_ns is not None and finding.saving_ns:
        low_share = finding.low_ns / finding.saving_ns
    is_exact = not rule.only_estimates and _is_exact(savings.replay, step_ns)
    return replace(
        finding,
        saving_ns=saving,
        saving_kind=SavingKind.REPLAYED if is_exact else SavingKind.ESTIMATE,
        low_ns=round(low_share * saving),
        share=share,
        severity=severity_of(share),
        step_ns=step_ns if finding.is_per_step else None,
        without_ns=step_ns - saving if finding.is_per_step else None,
        assumption=" ".join(filter(None, (finding.assumption, _limited(job, saving)))),
        is_across_ranks=job.num_ranks > 1,
    )


def _limited(job: JobEvidence[Any], saving: int) -> str:
    """A sentence for where the step gains less than half of what device work could take less."""
    worst = job.worst
    if not isinstance(worst, WorkEvidence) or 2 * saving >= worst.requested_ns:
        return ""
    return (
        f"The work itself could take {job.time(worst.requested_ns)} less, but the step would not be shorter by that: "
        "other work runs at the same time, or the CPU launches what follows too late."
    )


def _is_exact(replay: JobReplay | None, step_ns: int) -> bool:
    return replay is not None and replay.error_ns <= max(_TOLERANCE * step_ns * replay.num_steps, _TOLERANCE_NS)
