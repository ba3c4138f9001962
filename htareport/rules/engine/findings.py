"""What the parent does for rules: make findings of what was found on all ranks, and put the most worthwhile first."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from htareport.algorithms.frame_packing import join
from htareport.job.facts import JobFacts
from htareport.job.replay import JobChange
from htareport.report import Section, Status, Unit
from htareport.report.findings import Finding, SavingKind, Severity, Span
from htareport.report.number_lists import listed
from htareport.report.units import text
from htareport.rules.engine import gates
from htareport.rules.engine.attribution import PieceTable, given, length
from htareport.rules.engine.base import LOW, AnyRule, Family
from htareport.rules.engine.checked import TOO_LITTLE, checked
from htareport.rules.engine.evaluate import RankEvidence
from htareport.rules.engine.evidence import Evidence, JobEvidence, Shared
from htareport.rules.engine.ordering import ordered
from htareport.rules.engine.savings import Savings, savings_of, with_saving

NAME, TITLE, GROUP = "findings", "Findings", "Findings"
HELP = """\
What costs time, why, and what to try, most worthwhile first; and what was looked for and not found.

## How it is computed
Each rule looks at every rank. What the step gains by a finding is computed by a replay of the job: what the host \
launches in order, what runs on which stream, what waits for what, and collectives that begin when the last rank \
arrives. The replay without a change gives back the recorded step. A finding is a change of it (work that is gone, \
shorter or not waited for), and its saving is the difference of the two. Findings are ordered by that. One that \
explains the same time as another is shown in its card. High: from 5 % of the step on, medium: from 2 %, low: from \
0.5 %; less is not shown. Savings are means over the steps that were replayed.

Where the trace does not tell what takes the place of work that goes, as how fast another kernel would be, the saving \
is an estimate. Where the job cannot be replayed, because steps, ranks or launches are missing, it is a ceiling: the \
time that the cause takes. The finding says which of these it is. Advice about idle time is held back where the trace \
does not show the device's work as it was.

## What to do
Start at the top, change one thing, and compare: `htareport diff before/ after/`.
"""


class _Common(NamedTuple):
    """What the evidence of all rules has in common."""

    step_ns: float
    facts: JobFacts
    shared: Shared


def job_facts(ranks: Sequence[RankEvidence]) -> JobFacts:
    """The facts of the job that these ranks are."""
    collectives = {rank.rank: rank.collectives for rank in ranks if rank.collectives}
    return JobFacts(collectives, has_steps=any(rank.steps for rank in ranks))


def tell(ranks: Sequence[RankEvidence], rules: Sequence[AnyRule], zero_ns: int) -> Section:
    """Make the section of findings; spans get the report's zero."""
    section, step_ns = Section(NAME, TITLE, GROUP, HELP), _step_time(ranks)
    shared = _Common(step_ns, job_facts(ranks), Shared())
    if not any(rank.checked for rank in ranks):
        return replace(section, status=Status.NOT_APPLICABLE, reason="no rule could look at any rank")
    every = _divided(ranks, rules, shared)
    unreliable = gates.unreliable(every, rules)
    ranks = [gates.without_idle(each, rules) if each.rank in unreliable else each for each in every]
    found = {rule.code: each for rule in rules if (each := _found(rule, ranks, shared))}
    outcomes = dict.fromkeys((code for each in every for code in each.found if code not in found), "held back")
    told, notes = _told(found, rules, outcomes)
    evidence = {code: (_rule(rules, code), found[code]) for code in told}
    savings = savings_of(told, evidence, ranks)
    told = _worth_telling({c: with_saving(each, *evidence[c], savings) for c, each in told.items()}, evidence, outcomes)
    findings, explained = _placed(told, found, rules, ranks, savings)
    outcomes |= dict.fromkeys(explained, TOO_LITTLE)
    findings = [replace(finding, spans=tuple(_moved(span, zero_ns) for span in finding.spans)) for finding in findings]
    notes.extend(_failures(every))
    if unreliable:
        where = "" if len(unreliable) == len(ranks) else f" of rank{'s' * (len(unreliable) > 1)} {listed(unreliable)}"
        notes.append(f"Findings about idle time{where} are held back: see the findings about the trace's quality.")
    if together := _together(findings, savings, ranks, step_ns):
        notes.append(together)
    table = checked(rules, every, outcomes)
    return replace(section, findings=tuple(findings), notes=tuple(notes), tables=(table,))


def _worth_telling(
    told: Mapping[str, Finding], evidence: Mapping[str, tuple[AnyRule, JobEvidence[Any]]], outcomes: dict[str, str]
) -> dict[str, Finding]:
    """Findings without those by which the step gains too little."""
    kept = dict[str, Finding]()
    for code, finding in told.items():
        has_gain = finding.saving_kind in {SavingKind.REPLAYED, SavingKind.ESTIMATE} and evidence[code][1].step_ns
        if has_gain and (finding.saving_ns or 0) < LOW * evidence[code][1].step_ns:
            outcomes[code] = TOO_LITTLE
        else:
            kept[code] = finding
    for code in [code for code in kept if not kept[code].saving_ns]:
        if outcomes.get(evidence[code][0].follows) == TOO_LITTLE:
            outcomes[code] = TOO_LITTLE
            del kept[code]  # It only says why of a finding by which the step gains too little.
    return kept


def _told(
    found: Mapping[str, JobEvidence[Any]], rules: Sequence[AnyRule], outcomes: dict[str, str]
) -> tuple[dict[str, Finding], list[str]]:
    """What each rule says of what it found, if that is not too little by itself; and which rules failed."""
    told, notes = dict[str, Finding](), list[str]()
    for code, each in found.items():
        rule = _rule(rules, code)
        try:
            finding = rule.tell(each)
        except Exception as error:  # noqa: BLE001  a rule that fails costs only its finding
            notes.append(f"Rule {code} failed: {type(error).__name__}: {error}")
            outcomes[code] = "failed"
            continue
        if finding is None:
            continue
        if rule.family is not Family.QUALITY and each.max_saving_ns and each.saving_share < LOW:
            outcomes[code] = TOO_LITTLE
            continue
        told[code], outcomes[code] = finding, "found"
    return told, notes


def _placed(
    told: Mapping[str, Finding],
    found: Mapping[str, JobEvidence[Any]],
    rules: Sequence[AnyRule],
    ranks: Sequence[RankEvidence],
    savings: Savings,
) -> tuple[list[Finding], frozenset[str]]:
    """Findings in order, nested last, each with what of its saving is not covered before; and what they explain."""
    by_code = {rule.code: rule for rule in rules}
    claims = PieceTable.of([rank.pieces for rank in ranks], list(told))
    order = ordered(told, by_code, savings, claims)
    findings, covered = list[Finding](), list[str]()
    for code in order.codes:
        rule, finding = by_code[code], told[code]
        if rule.family is not Family.QUALITY:
            if finding.saving_ns:
                further = claims.further(code, covered) if code in claims.claims else 0.0
                finding = replace(finding, further_ns=min(round(further), finding.saving_ns))
            if finding.saving_kind is SavingKind.CEILING and gates.is_informational(rule, found[code], ranks):
                finding = gates.informational(finding, found[code], ranks)
            covered.append(code)
        if code in order.leader:
            place = order.codes.index(order.leader[code])
            finding = replace(finding, nested_under=place, severity=Severity.LOW)
        findings.append(finding)
    return findings, order.explained


def _rule(rules: Sequence[AnyRule], code: str) -> AnyRule:
    return next(rule for rule in rules if rule.code == code)


def _divided(ranks: Sequence[RankEvidence], rules: Sequence[AnyRule], shared: _Common) -> Sequence[RankEvidence]:
    """Give rules what they take of the time of others."""
    for rule in rules:
        found = _found(rule, ranks, shared) if rule.reattributes_from else None
        if found is None:
            continue
        try:
            taken = rule.reattributed_ns(found)
        except Exception:  # noqa: BLE001  a rule that fails costs only its finding
            failure = {rule.code: traceback.format_exc(limit=-3)}
            ranks = [replace(rank, errors=rank.errors | failure, found=_without(rank, rule.code)) for rank in ranks]
            continue
        limited = rule.reattributes_from == rule.code
        ranks = [
            _with_given(rank, rule, taken.get(rank.rank, 0.0)) if limited or taken.get(rank.rank) else rank
            for rank in ranks
        ]
    return ranks


def _with_given(rank: RankEvidence, rule: AnyRule, amount: float) -> RankEvidence:
    """A rank of which a rule gets so much; of what it claims itself the rest is nobody's."""
    return replace(rank, pieces=given(rank.pieces, rule.reattributes_from, rule.code, amount))


def _without(rank: RankEvidence, code: str) -> dict[str, Evidence]:
    return {each: evidence for each, evidence in rank.found.items() if each != code}


def _found(rule: AnyRule, ranks: Sequence[RankEvidence], shared: _Common) -> JobEvidence[Any] | None:
    evidence: dict[int, Evidence] = {rank.rank: rank.found[rule.code] for rank in ranks if rule.code in rank.found}
    if rule.family is Family.COMPUTE and rule.only_estimates:  # What a slow device takes longer is no kernel's fault.
        evidence = {rank: each for rank, each in evidence.items() if rank not in shared.facts.slow_devices}
    if not evidence:
        return None
    saving = {rank.rank: length(rank.pieces, [rule.code]) for rank in ranks if rank.rank in evidence}
    has_steps, infers = any(rank.steps for rank in ranks), all(rank.infers for rank in ranks)
    return JobEvidence(evidence, saving, shared.step_ns, len(ranks), has_steps, shared.facts, shared.shared, infers)


def _step_time(ranks: Sequence[RankEvidence]) -> float:
    """Mean over the steps of the slowest rank's time, as savings are means; without steps what devices recorded."""
    steps = join((rank.rank, rank.steps) for rank in ranks if rank.steps)
    if steps:
        return float(steps["steps"].groupby("number")["length"].max().mean())
    return max((rank.whole for rank in ranks), default=0.0)


def _together(findings: Sequence[Finding], savings: Savings, ranks: Sequence[RankEvidence], step_ns: float) -> str:
    """What all findings save together, as a sentence; empty where there is nothing."""
    has_steps = any(rank.steps for rank in ranks)
    where = "per step" if has_steps else "in all"
    changes = [savings.changes[finding.code] for finding in findings if finding.code in savings.changes]
    if changes and step_ns:
        gain = min(max(savings.together([functools.reduce(JobChange.and_also, changes)])[0], 0.0), step_ns)
        share = text(gain / step_ns, Unit.RATIO)
        return f"All findings together save about {text(gain, Unit.NANOSECONDS)} {where} ({share})." if gain else ""
    codes = [finding.code for finding in findings if finding.saving_ns]
    most = max((length(rank.pieces, codes) for rank in ranks), default=0.0)
    if not step_ns or not most:
        return ""
    share, saving = text(min(1.0, most / step_ns), Unit.RATIO), text(most, Unit.NANOSECONDS)
    if has_steps:
        return f"All findings together could save at most {saving} per step ({share})."
    return f"All findings together could save at most {saving} in all ({share} of the time that devices recorded)."


def _failures(ranks: Sequence[RankEvidence]) -> list[str]:
    first = dict[str, str]()
    for rank in ranks:
        for code, error in rank.errors.items():
            first.setdefault(code, error.strip().splitlines()[-1])
    return [f"Rule {code} failed: {error}" for code, error in first.items()]


def _moved(span: Span, zero_ns: int) -> Span:
    return replace(span, start=span.start - zero_ns, end=span.end - zero_ns)
