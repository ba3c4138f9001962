"""The order of findings: by what the step gains, each one that explains the same time as another nested under it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from htareport.job.replay import JobChange
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.attribution import PieceTable
from htareport.rules.engine.base import AnyRule, Family
from htareport.rules.engine.savings import Savings

_SAME_TIME = 0.25  # Of its gain: a finding that adds less to another explains the same time.
_LEADING_SHARE = 0.25  # Of its gain, with which a general finding is put in order: specific ones come first.
_ENABLING_SHARE = 0.8  # The same for one that only says what let idle time arise.
_MAX_COMPARED = 14  # Findings that are compared with each other by replays.


@dataclass(frozen=True)
class Order:
    """Codes of findings in order, and of those that explain the same time as another, that one.

    `explained` are general ones of which specific ones leave too little; they are not told.
    """

    codes: tuple[str, ...]
    leader: Mapping[str, str]
    explained: frozenset[str]


def ordered(
    findings: Mapping[str, Finding], rules: Mapping[str, AnyRule], savings: Savings, claims: PieceTable
) -> Order:
    """Put findings in order: the recording, then what gains most; `claims` are the pieces of time of each rule."""
    quality = [code for code in findings if rules[code].family is Family.QUALITY]
    grave = [code for code in quality if findings[code].severity is not Severity.LOW]
    followers = {code: rules[code].follows for code in findings if rules[code].follows in findings}
    rest = [code for code in findings if code not in quality and code not in followers]
    rest.sort(key=lambda code: _rank(findings[code], rules[code]))
    leaders, leader, explained = list[str](), dict[str, str](), set[str]()
    for code, added in _added_gains([code for code in rest if not rules[code].is_general], savings, claims):
        above = next((each for each in leaders if _explains(each, code, added, findings[code], rules, claims)), None)
        if above is None:
            leaders.append(code)
        else:
            leader[code] = above
    for code in (code for code in rest if rules[code].is_general):
        specific = [other for other in findings if other in claims.claims and not rules[other].is_general]
        if findings[code].saving_ns and _is_explained(code, specific, savings, claims):
            explained.add(code)
        else:
            leaders.append(code)
    top = sorted(leaders, key=lambda code: _rank(findings[code], rules[code]))
    leader |= {code: leader.get(above, above) for code, above in followers.items() if above not in explained}
    nested = sorted(leader, key=lambda code: (top.index(leader[code]), code not in followers))
    low = [code for code in quality if code not in grave]
    explained |= followers.keys() - leader.keys()
    return Order((*grave, *top, *low, *nested), leader, frozenset(explained))


def _rank(finding: Finding, rule: AnyRule) -> tuple[bool, float]:
    """By what a finding is put in order: remarks last, then by gain."""
    gain = float(finding.saving_ns or 0)
    weight = _LEADING_SHARE if rule.is_general else _ENABLING_SHARE if rule.enables else 1.0
    is_remark = not finding.saving_ns and finding.severity is Severity.LOW
    stands_by_itself = not finding.saving_ns and not is_remark  # What is wrong, whatever it costs.
    return is_remark, float("-inf") if stands_by_itself else -gain * weight


def _added_gains(codes: Sequence[str], savings: Savings, claims: PieceTable) -> list[tuple[str, Mapping[str, float]]]:
    """Each code with the share of its gain that it adds to each code before it, where replays tell."""
    compared = [code for code in codes if code in savings.changes][:_MAX_COMPARED]
    pairs = [(other, code) for place, code in enumerate(compared) for other in compared[:place]]
    gains = savings.together([_both(savings, claims, other, code) for other, code in pairs])
    added: dict[str, dict[str, float]] = {code: {} for code in codes}
    for (other, code), gain in zip(pairs, gains, strict=False):
        own = max(savings.by_code[code], 1.0)
        added[code][other] = (gain - savings.by_code[other]) / own
    return list(added.items())


def _both(savings: Savings, claims: PieceTable, other: str, code: str) -> JobChange:
    """Both changes; time that both rules claim goes once."""
    shared = claims.overlap(code, other)
    change = savings.changes[code]
    once = replace(change, codes={each: share * (1 - shared) for each, share in change.codes.items()})
    return savings.changes[other].and_also(once)


def _explains(  # noqa: PLR0913, PLR0917  what it is decided by
    other: str,
    code: str,
    added: Mapping[str, float],
    finding: Finding,
    rules: Mapping[str, AnyRule],
    claims: PieceTable,
) -> bool:
    """Whether one finding explains the time of another, which comes after it. A symptom does not explain a cause."""
    if not finding.saving_ns or (rules[other].enables and not rules[code].enables):
        return False
    if other in added:
        return added[other] < _SAME_TIME
    return claims.overlap(code, other) > 1 - _SAME_TIME


def _is_explained(code: str, specific: Sequence[str], savings: Savings, claims: PieceTable) -> bool:
    """Whether specific findings leave too little of what a general one gains."""
    changes = [savings.changes[other] for other in specific if other in savings.changes]
    if code in savings.changes and changes:
        every = functools.reduce(JobChange.and_also, changes)
        own = savings.changes[code]
        without, together = savings.together([every, every.and_also(own)])
        return together - without < _SAME_TIME * savings.by_code[code]
    return claims.further(code, specific) < _SAME_TIME * claims.most(claims.claims[code]) if specific else False
