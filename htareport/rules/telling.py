"""What the parent does for rules: make findings of what was found on all ranks, and put the most worthwhile first."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from htareport.findings import Finding, Severity, Span
from htareport.packed import join
from htareport.report import Column, Section, Status, Table, TableSpec, Unit, key
from htareport.rules import gates
from htareport.rules.base import LOW, Evidence, Family, Found, Rule, severity_of
from htareport.rules.looking import RankEvidence
from htareport.rules.rank_moves import scaled
from htareport.rules.what_if import with_step_times
from htareport.trace.window import listed
from htareport.units import text

NAME, TITLE, GROUP = "findings", "Findings", "Findings"
_ALTERNATIVE = 0.2  # Of its saving: a finding of which so little is not covered before is another way to the same time.
_OUTCOMES = (
    "found; too little by itself: below 0.5 % of the step, or explained by other findings; fine: not found; held back: "
    "the trace does not show it as it was; not checked: what the trace lacks for it."
)
HELP = """\
What costs time, why, and what to try, most worthwhile first; and what was looked for and not found.

## How it is computed
Each rule looks at every rank. What it could save is a set of intervals within the steps; the saving is its length per \
step on the rank where that is largest, a ceiling and not a promise. Findings are ordered by what each adds to those \
before it, so that no time counts twice; together they save no more than the union of their intervals. Savings are \
means over the steps, as is the step that they are compared with. High: from 5 % of the step on, medium: from 2 %, \
low: from 0.5 %; less is not shown. Advice about idle time is held back where the trace does not show the device's \
work as it was, and is for information only where the devices are idle for less than 10 % of the time, or where it \
says to launch faster and the host waits longer for room in its queue than the devices for the host.

What becomes of the step is computed across ranks where their collectives are matched. A rank's time between two of \
them gets shorter by what is claimed there, so that it arrives earlier; each collective starts when the last rank \
arrives, and lasts as long as before; a rank that waits for it goes on at its end. So what goes on a rank that is not \
the late one gains nothing. What is hidden under compute is taken to stay hidden, and the result never exceeds the \
saving. Where ranks, steps or collectives are missing, the saving is a ceiling only, and the finding says so.

## What to do
Start at the top, change one thing, and compare: `htareport diff before/ after/`.
"""


def tell(ranks: Sequence[RankEvidence], rules: Sequence[Rule], zero_ns: int) -> Section:
    """Make the section of findings; spans get the report's zero."""
    section, step_ns, shared = Section(NAME, TITLE, GROUP, HELP), _step_time(ranks), dict[str, Any]()
    if not any(each.checked for each in ranks):
        return replace(section, status=Status.NOT_APPLICABLE, reason="no rule could look at any rank")
    every = _divided(ranks, rules, step_ns, shared)
    unreliable = gates.unreliable(every, rules)
    ranks = [gates.without_idle(each, rules) if each.rank in unreliable else each for each in every]
    found = {rule.code: each for rule in rules if (each := _found(rule, ranks, step_ns, shared))}
    findings, notes, covered = list[Finding](), list[str](), list[str]()
    outcomes = dict.fromkeys((code for each in every for code in each.found if code not in found), "held back")
    for code in _in_order(found, rules, ranks):
        rule, each = _rule(rules, code), found[code]
        try:
            finding = rule.tell(each)
        except Exception as error:  # noqa: BLE001  a rule that fails costs only its finding
            notes.append(f"Rule {code} failed: {type(error).__name__}: {error}")
            outcomes[code] = "failed"
            continue
        if finding is None:
            continue
        if rule.family is not Family.QUALITY:
            further = _further(code, covered, ranks)
            if each.most and (each.share < LOW or (rule.is_general and further < _ALTERNATIVE * each.most)):
                outcomes[code] = "too little by itself"
                continue
            finding = _placed(finding, further, each, covered, is_general=rule.is_general)
            if gates.is_informational(rule, each, ranks):
                finding = gates.informational(finding, each, ranks)
            covered.append(code)
        outcomes[code] = "found"
        findings.append(replace(finding, spans=tuple(_moved(span, zero_ns) for span in finding.spans)))
    findings = with_step_times(findings, {code: (_rule(rules, code), each) for code, each in found.items()}, ranks)
    findings.sort(key=lambda each: _rule(rules, each.code).family is Family.QUALITY and each.severity is Severity.LOW)
    notes.extend(_failures(every))
    if unreliable:
        where = "" if len(unreliable) == len(ranks) else f" of rank{'s' * (len(unreliable) > 1)} {listed(unreliable)}"
        notes.append(f"Findings about idle time{where} are held back: see the findings about the trace's quality.")
    if together := _together(covered, ranks, step_ns):
        notes.append(together)
    table = _checked(rules, every, outcomes)
    return replace(section, findings=tuple(findings), notes=tuple(notes), tables=(table,))


def _in_order(found: dict[str, Found], rules: Sequence[Rule], ranks: Sequence[RankEvidence]) -> list[str]:
    """Codes as they are told: quality, then what is most worthwhile, what is general, and what is for information."""
    quality = [code for code in found if _rule(rules, code).family is Family.QUALITY]
    general = [code for code in found if _rule(rules, code).is_general]
    ordered = _ordered([code for code in found if code not in (*quality, *general)], ranks)
    informs = {code for code in found if gates.is_informational(_rule(rules, code), found[code], ranks)}
    order = sorted([*ordered, *general], key=informs.__contains__)
    return [*quality, *_with_followers(order, rules)]


def _rule(rules: Sequence[Rule], code: str) -> Rule:
    return next(rule for rule in rules if rule.code == code)


def _divided(
    ranks: Sequence[RankEvidence], rules: Sequence[Rule], step_ns: float, shared: dict[str, Any]
) -> Sequence[RankEvidence]:
    """Give rules what they take of the time of others."""
    for rule in rules:
        found = _found(rule, ranks, step_ns, shared) if rule.takes_from else None
        if found is None:
            continue
        try:
            taken = rule.takes(found)
        except Exception:  # noqa: BLE001  a rule that fails costs only its finding
            failure = {rule.code: traceback.format_exc(limit=-3)}
            ranks = [replace(each, errors=each.errors | failure, found=_without(each, rule.code)) for each in ranks]
            continue
        limited = rule.takes_from == rule.code
        ranks = [
            _with_given(each, rule, taken.get(each.rank, 0.0)) if limited or taken.get(each.rank) else each
            for each in ranks
        ]
    return ranks


def _with_given(rank: RankEvidence, rule: Rule, amount: float) -> RankEvidence:
    """A rank of which a rule gets so much; of what it claims itself the rest is nobody's."""
    pieces = _given(rank.pieces, rule, amount)
    if rule.takes_from != rule.code:
        return replace(rank, pieces=pieces)
    whole = _length(rank, [rule.code])
    moves = rank.moves if isinstance(rank.moves, str) else scaled(rank.moves, rule.code, amount / whole if whole else 0)
    return replace(rank, pieces=pieces, moves=moves)


def _without(rank: RankEvidence, code: str) -> dict[str, Evidence]:
    return {each: evidence for each, evidence in rank.found.items() if each != code}


def _given(pieces: dict[tuple[str, ...], float], rule: Rule, amount: float) -> dict[tuple[str, ...], float]:
    """Pieces of which a rule gets so much of another's time: an equal share of each, since it is not known where."""
    giver = rule.takes_from
    whole = sum(ns for piece, ns in pieces.items() if giver in piece)
    share = min(1.0, amount / whole) if whole else 0.0
    made = dict[tuple[str, ...], float]()
    for piece, ns in pieces.items():
        given = ns * share if giver in piece else 0.0
        taken = (*(code for code in piece if code != giver), rule.code)
        rest = piece if giver != rule.code else tuple(code for code in piece if code != giver)
        for each, length in ((rest, ns - given), (taken, given)):
            if each and length:
                made[each] = made.get(each, 0.0) + length
    return made


def _with_followers(order: Sequence[str], rules: Sequence[Rule]) -> list[str]:
    """Codes in order, but each rule that follows another right behind that, where it is there."""
    behind = {code: leader for code in order if (leader := _rule(rules, code).follows) in order}
    return [
        each
        for code in order
        if code not in behind
        for each in (code, *(follower for follower, leader in behind.items() if leader == code))
    ]


def _found(rule: Rule, ranks: Sequence[RankEvidence], step_ns: float, shared: dict[str, Any]) -> Found | None:
    evidence: dict[int, Evidence] = {each.rank: each.found[rule.code] for each in ranks if rule.code in each.found}
    if not evidence:
        return None
    saving = {each.rank: _length(each, [rule.code]) for each in ranks if rule.code in each.found}
    return Found(evidence, saving, step_ns, len(ranks), any(each.steps for each in ranks), shared)


def _length(rank: RankEvidence, codes: Sequence[str], without: Sequence[str] = ()) -> float:
    """Time per step that any of these rules claims and none of the others."""
    wanted, others = set(codes), set(without)
    return sum(ns for piece, ns in rank.pieces.items() if wanted & set(piece) and not others & set(piece))


def _step_time(ranks: Sequence[RankEvidence]) -> float:
    """Mean over the steps of the slowest rank's time, as savings are means; without steps what devices recorded."""
    steps = join((rank.rank, rank.steps) for rank in ranks if rank.steps)
    if steps:
        return float(steps["steps"].groupby("number")["length"].max().mean())
    return max((rank.whole for rank in ranks), default=0.0)


def _ordered(codes: list[str], ranks: Sequence[RankEvidence]) -> list[str]:
    """Put first what claims most on all ranks together, then what adds most to that, and so on."""
    pieces = Counter[tuple[str, ...]]()
    for rank in ranks:
        pieces.update(rank.pieces)
    order, left = list[str](), list(codes)
    while left:
        own = {code: sum(ns for piece, ns in pieces.items() if code in piece) for code in left}
        free = {code: sum(ns for piece, ns in pieces.items() if code in piece and not set(order) & set(piece))
                for code in left}  # fmt: skip
        best = max(left, key=lambda code: (free[code], own[code], -codes.index(code)))
        order.append(best)
        left.remove(best)
    return order


def _further(code: str, before: Sequence[str], ranks: Sequence[RankEvidence]) -> float:
    return max((_length(rank, [code], before) for rank in ranks), default=0.0)


def _placed(finding: Finding, further: float, found: Found, covered: Sequence[str], *, is_general: bool) -> Finding:
    """Say what of the saving is not covered by findings before; where it is little, that this is another way there.

    What is general is as severe as what it adds.
    """
    finding = replace(finding, further_ns=round(further) if finding.saving_ns else None)
    if is_general and found.step_ns:
        finding = replace(finding, severity=severity_of(further / found.step_ns))
    if not found.most or further >= _ALTERNATIVE * found.most or not covered:
        return finding
    words = "Nearly all of this time is covered by findings above: this is another way to it, not a further saving."
    severity = Severity.LOW
    return replace(finding, severity=severity, assumption=" ".join(filter(None, (finding.assumption, words))))


def _together(codes: Sequence[str], ranks: Sequence[RankEvidence], step_ns: float) -> str:
    most = max((_length(rank, codes) for rank in ranks), default=0.0)
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


def _checked(rules: Sequence[Rule], ranks: Sequence[RankEvidence], outcomes: dict[str, str]) -> Table:
    """What was looked for, and how that came out."""
    spec = TableSpec(
        "checked",
        "What was looked for",
        (
            key("code", "Rule", Unit.TEXT, "htareport explain CODE tells its condition."),
            Column("title", "What", Unit.TEXT, "What the rule looks for."),
            Column("family", "About", Unit.TEXT, "Its family."),
            Column("state", "Outcome", Unit.TEXT, _OUTCOMES),
        ),
        is_detail=True,
    )
    states = [outcomes.get(rule.code) or _state(rule.code, ranks) for rule in rules]
    rows = [(rule.code, rule.title, str(rule.family), state) for rule, state in zip(rules, states, strict=True)]
    return Table(spec, pd.DataFrame(rows, columns=["code", "title", "family", "state"]))


def _state(code: str, ranks: Sequence[RankEvidence]) -> str:
    """The outcome of a rule of which nothing is told."""
    if any(code in rank.errors for rank in ranks):
        return "failed"
    if any(code in rank.checked for rank in ranks):
        return "fine"
    lacking = next((rank.lacking[code] for rank in ranks if code in rank.lacking), ())
    return f"not checked: {'; '.join(lacking)}" if lacking else "not checked"
