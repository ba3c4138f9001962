"""What the parent does for rules: make findings of what was found on all ranks, and put the most worthwhile first."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from htareport.algorithms.frame_packing import join
from htareport.job.facts import JobFacts
from htareport.report import Section, Status, Unit
from htareport.report.findings import Finding, Severity, Span
from htareport.report.number_lists import listed
from htareport.report.units import text
from htareport.rules.engine import gates
from htareport.rules.engine.attribution import PieceTable, by_cause, given, length
from htareport.rules.engine.base import LOW, AnyRule, Family, least_of, severity_of
from htareport.rules.engine.checked import TOO_LITTLE, checked
from htareport.rules.engine.collective_schedule import scaled
from htareport.rules.engine.evaluate import RankEvidence
from htareport.rules.engine.evidence import Evidence, JobEvidence, Shared
from htareport.rules.engine.what_if import with_step_times

NAME, TITLE, GROUP = "findings", "Findings", "Findings"
_ALTERNATIVE = 0.2  # Of its saving: a finding of which so little is not covered before is another way to the same time.
HELP = """\
What costs time, why, and what to try, most worthwhile first; and what was looked for and not found.

## How it is computed
Each rule looks at every rank. What it could save is a set of intervals within the steps; the saving is its length per \
step on the rank where that is largest, a ceiling and not a promise. Findings are ordered by what each adds to those \
before it, so that no time counts twice; together they save no more than the union of their intervals. What only lets \
idle time arise, as a call that waits for the device does, comes behind what fills that time. Savings are means over \
the steps, as is the step that they are compared with. High: from 5 % of the step on, medium: from 2 %, \
low: from 0.5 %; less is not shown. Where it is known what becomes of the step, that counts, in the order and in how \
grave a finding is. Advice about idle time is held back where the trace does not show the device's work as it was, and \
is for information only where the devices are idle for less than 10 % of the time, or where it says to launch faster \
and the host waits longer for room in its queue than the devices for the host.

What becomes of the step is computed across ranks where their collectives are matched. A rank's time between two of \
them gets shorter by what is claimed there, so that it arrives earlier; each collective starts when the last rank \
arrives, and lasts as long as before; a rank that waits for it goes on at its end. So what goes on a rank that is not \
the late one gains nothing. Advice to balance ranks is followed through the same way: those that come late to \
collectives then come with the mean of all, or compute for the mean, and transfers of slow groups take as long as \
elsewhere. What is hidden under compute is taken to stay hidden, and the result never exceeds the saving; a job's only \
rank gains all of it. Where ranks, steps or collectives are missing, the saving is a ceiling only, and the finding \
says so.

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
    evidence = {code: (_rule(rules, code), each) for code, each in found.items()}
    told = {
        with_step_time.code: with_step_time for with_step_time in with_step_times(list(told.values()), evidence, ranks)
    }
    findings = _placed(told, found, rules, ranks, outcomes)
    findings = [replace(finding, spans=tuple(_moved(span, zero_ns) for span in finding.spans)) for finding in findings]
    findings.sort(key=lambda each: _rule(rules, each.code).family is Family.QUALITY and each.severity is Severity.LOW)
    notes.extend(_failures(every))
    if unreliable:
        where = "" if len(unreliable) == len(ranks) else f" of rank{'s' * (len(unreliable) > 1)} {listed(unreliable)}"
        notes.append(f"Findings about idle time{where} are held back: see the findings about the trace's quality.")
    covered = [finding.code for finding in findings if _rule(rules, finding.code).family is not Family.QUALITY]
    if together := _together(covered, ranks, step_ns):
        notes.append(together)
    table = checked(rules, every, outcomes)
    return replace(section, findings=tuple(findings), notes=tuple(notes), tables=(table,))


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
    outcomes: dict[str, str],
) -> list[Finding]:
    """Findings in order, each with what of its saving is not covered before."""
    enabling, causes = _sides(told, rules)
    claims, owners = (
        PieceTable.of(pieces, list(told))
        for pieces in (
            [rank.pieces for rank in ranks],
            [by_cause(rank.pieces, enabling, causes) for rank in ranks],
        )
    )
    findings, covered, ways = list[Finding](), list[str](), dict[str, list[str]]()
    for code in _in_order(told, found, rules, ranks, owners):
        rule, each, finding = _rule(rules, code), found[code], told[code]
        if rule.family is not Family.QUALITY:
            further = owners.further(code, covered)
            if each.max_saving_ns and rule.is_general and further < _ALTERNATIVE * each.max_saving_ns:
                outcomes[code] = TOO_LITTLE
                continue
            above = claims.above(code, covered)
            where = f"by “{told[above].title}” above" if above else "by findings above" if covered else ""
            finding = _with_place(finding, further, each, where, is_general=rule.is_general)
            if above and further < _ALTERNATIVE * each.max_saving_ns:
                ways.setdefault(above, []).append(f"“{finding.title}”")
            if gates.is_informational(rule, each, ranks):
                finding = gates.informational(finding, each, ranks)
            covered.append(code)
        findings.append(_as_grave(finding, rule, findings))
    return [_with_ways(finding, ways.get(finding.code, ())) for finding in findings]


def _sides(told: Mapping[str, Finding], rules: Sequence[AnyRule]) -> tuple[list[str], list[str]]:
    """Which of the findings only say what let idle time arise, and which say what fills it."""
    every = [rule for rule in rules if rule.code in told and rule.family is not Family.QUALITY and not rule.is_general]
    return [rule.code for rule in every if rule.enables], [rule.code for rule in every if not rule.enables]


def _in_order(
    told: Mapping[str, Finding],
    found: Mapping[str, JobEvidence[Any]],
    rules: Sequence[AnyRule],
    ranks: Sequence[RankEvidence],
    owners: PieceTable,
) -> list[str]:
    """Codes as they are told: quality, then what is most worthwhile, what is general, and what is for information.

    Nothing counts for more than what the step gains by it. What saves nothing and is no more than a remark comes last.
    """
    quality = [code for code in told if _rule(rules, code).family is Family.QUALITY]
    general = [code for code in told if _rule(rules, code).is_general]
    gains = {code: gain for code, each in told.items() if (gain := _gain(each)) is not None}
    ordered = owners.ordered([code for code in told if code not in (*quality, *general)], gains)
    informs = {code for code in told if gates.is_informational(_rule(rules, code), found[code], ranks)}
    remarks = {code for code, each in told.items() if not each.saving_ns and each.severity is Severity.LOW}
    every = [*ordered, *owners.ordered(general, gains)]
    order = sorted(every, key=lambda code: (code in informs, code in remarks))
    return [*quality, *_with_followers(order, rules)]


def _as_grave(finding: Finding, rule: AnyRule, before: Sequence[Finding]) -> Finding:
    """What only says why of another finding is no graver than that."""
    leader = next((each for each in before if each.code == rule.follows), None)
    if leader is None or finding.saving_ns:
        return finding
    return replace(finding, severity=least_of(finding.severity, leader.severity))


def _gain(finding: Finding) -> float | None:
    """By how much the step would be shorter without it, ns; None where that is not known."""
    step, without = finding.step_ns, finding.without_ns
    return None if step is None or without is None else float(step - without)


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
    pieces = given(rank.pieces, rule.reattributes_from, rule.code, amount)
    if rule.reattributes_from != rule.code:
        return replace(rank, pieces=pieces)
    whole = length(rank.pieces, [rule.code])
    moves = (
        rank.schedule
        if isinstance(rank.schedule, str)
        else scaled(rank.schedule, rule.code, amount / whole if whole else 0)
    )
    return replace(rank, pieces=pieces, schedule=moves)


def _without(rank: RankEvidence, code: str) -> dict[str, Evidence]:
    return {each: evidence for each, evidence in rank.found.items() if each != code}


def _with_followers(order: Sequence[str], rules: Sequence[AnyRule]) -> list[str]:
    """Codes in order, but each rule that follows another right behind that, where it is there."""
    behind = {code: leader for code in order if (leader := _rule(rules, code).follows) in order}
    return [
        each
        for code in order
        if code not in behind
        for each in (code, *(follower for follower, leader in behind.items() if leader == code))
    ]


def _found(rule: AnyRule, ranks: Sequence[RankEvidence], shared: _Common) -> JobEvidence[Any] | None:
    evidence: dict[int, Evidence] = {rank.rank: rank.found[rule.code] for rank in ranks if rule.code in rank.found}
    if not evidence:
        return None
    saving = {rank.rank: length(rank.pieces, [rule.code]) for rank in ranks if rule.code in rank.found}
    has_steps, infers = any(rank.steps for rank in ranks), all(rank.infers for rank in ranks)
    return JobEvidence(evidence, saving, shared.step_ns, len(ranks), has_steps, shared.facts, shared.shared, infers)


def _step_time(ranks: Sequence[RankEvidence]) -> float:
    """Mean over the steps of the slowest rank's time, as savings are means; without steps what devices recorded."""
    steps = join((rank.rank, rank.steps) for rank in ranks if rank.steps)
    if steps:
        return float(steps["steps"].groupby("number")["length"].max().mean())
    return max((rank.whole for rank in ranks), default=0.0)


def _with_place(finding: Finding, further: float, job: JobEvidence[Any], where: str, *, is_general: bool) -> Finding:
    """Say what of the saving is not covered by findings before; where it is little, that this is another way there.

    What is general is as severe as what it adds. `where` says by what it is covered, and is empty for the first.
    """
    finding = replace(finding, further_ns=round(further) if finding.saving_ns else None)
    if is_general and job.step_ns:
        finding = replace(finding, severity=least_of(finding.severity, severity_of(further / job.step_ns)))
    if not job.max_saving_ns or further >= _ALTERNATIVE * job.max_saving_ns or not where:
        return finding
    words = f"Nearly all of this time is covered {where}: this is another way to it, not a further saving."
    assumption = " ".join(filter(None, (finding.assumption, words)))
    return replace(finding, severity=Severity.LOW, assumption=assumption)


def _with_ways(finding: Finding, ways: Sequence[str]) -> Finding:
    """Name the findings below that are other ways to some of its time."""
    if not ways:
        return finding
    words = f"Another way to some of this time, further down: {', '.join(ways)}."
    return replace(finding, advice=" ".join(filter(None, (finding.advice, words))))


def _together(codes: Sequence[str], ranks: Sequence[RankEvidence], step_ns: float) -> str:
    most = max((length(rank.pieces, codes) for rank in ranks), default=0.0)
    if not step_ns or not most:
        return ""
    share, saving = text(min(1.0, most / step_ns), Unit.RATIO), text(most, Unit.NANOSECONDS)
    if any(rank.steps for rank in ranks):
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
