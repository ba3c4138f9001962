"""Gates on findings: `finding: high` is crossed by findings of at least that severity, `finding: H14` by that one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from htareport.compare.gates import Gate, State, Verdict
from htareport.compare.words import shortened
from htareport.errors import UsageError
from htareport.report import Report, Section, Status
from htareport.report.findings import Finding, Severity

_SECTION, _TABLE = "findings", "checked"
_UNKNOWN = ("not checked", "held back", "failed")  # Outcomes that leave it open whether there is such a finding.
_MOST, _LONGEST = 3, 160  # Findings in a sentence, and characters of the title of one.
_SEVERITIES = list(Severity)


def check_finding(gate: Gate, codes: Iterable[str]) -> None:
    """Refuse a gate on a finding that no rule makes. UsageError, naming what there is."""
    known = {name.casefold(): name for name in (*_SEVERITIES, *codes)}
    if gate.finding.casefold() not in known:
        close = get_close_matches(gate.finding.casefold(), known, 1)
        hint = f": did you mean {known[close[0]]}?" if close else ""
        there = ", ".join(known.values())
        raise UsageError(f"--fail-on {gate.written!r}: no severity or rule {gate.finding!r}{hint} (there are: {there})")


def judge_finding(gate: Gate, report: Report) -> Verdict:
    """Judge a gate by a report's findings. UsageError where no rule that was asked makes such a finding."""
    every = [finding for section in report.sections for finding in section.findings]
    section = next((section for section in report.sections if section.name == _SECTION), None)
    states = _states(section)
    check_finding(gate, (*states, *(finding.code for finding in every)) if states else (gate.finding,))
    wanted = gate.finding.casefold()
    is_severity = wanted in _SEVERITIES
    bad = [finding for finding in every if _is_meant(finding, wanted, is_severity=is_severity)]
    if bad:
        return _verdict(gate, State.CROSSED, _told(bad), bad)
    if section is None or section.status is not Status.OK:
        reason = section.reason if section and section.reason else "no findings were looked for"
        return _verdict(gate, State.INCONCLUSIVE, reason)
    state = next((state for code, state in states.items() if code.casefold() == wanted), "fine")
    if is_severity or not state.startswith(_UNKNOWN):
        return _verdict(gate, State.PASSED, "no such finding")
    return _verdict(gate, State.INCONCLUSIVE, state)


def _is_meant(finding: Finding, wanted: str, *, is_severity: bool) -> bool:
    if is_severity:
        return _SEVERITIES.index(finding.severity) >= _SEVERITIES.index(Severity(wanted))
    return finding.code.casefold() == wanted


def _states(section: Section | None) -> Mapping[str, str]:
    """How looking for each rule's finding came out, by code; empty where that is not told."""
    tables = section.tables if section else ()
    frame = next((table.frame for table in tables if table.spec.name == _TABLE), None)
    if frame is None or not {"code", "state"} <= set(frame.columns):
        return {}
    return dict(zip(map(str, frame["code"]), map(str, frame["state"]), strict=True))


def _told(bad: Sequence[Finding]) -> str:
    more = [f"and {len(bad) - _MOST} more"] if len(bad) > _MOST else []
    return "; ".join([*(f"{each.code}: {shortened(each.title, _LONGEST)}" for each in bad[:_MOST]), *more])


def _verdict(gate: Gate, state: State, reason: str, bad: Sequence[Finding] = ()) -> Verdict:
    shown = ", ".join([*(each.code for each in bad[:_MOST]), *(["…"] if len(bad) > _MOST else [])])
    value = None if state is State.INCONCLUSIVE else float(len(bad))
    return Verdict(gate.written, gate.metric, state, value, "count", reason, shown, new=value)
