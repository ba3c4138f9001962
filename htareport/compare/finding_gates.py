"""Judges gates on findings: `finding: high` is crossed by those of at least that severity, `finding: H14` by that."""

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
_MAX_FINDINGS, _MAX_TITLE = 3, 160  # In a sentence, and characters of one.
_SEVERITIES = list(Severity)


def check_finding(gate: Gate, codes: Iterable[str]) -> None:
    """Refuse a gate on a finding that no rule makes. UsageError, naming severities and rules."""
    names = {name.casefold(): name for name in (*_SEVERITIES, *codes)}
    if gate.finding.casefold() not in names:
        similar = get_close_matches(gate.finding.casefold(), names, 1)
        hint = f": did you mean {names[similar[0]]}?" if similar else ""
        raise UsageError(
            f"--fail-on {gate.written!r}: no severity or rule {gate.finding!r}{hint} "
            f"(there are: {', '.join(names.values())})"
        )


def judge_finding(gate: Gate, report: Report) -> Verdict:
    """Judge a gate by a report's findings. UsageError where no rule that was run makes such a finding."""
    findings = [finding for section in report.sections for finding in section.findings]
    section = next((section for section in report.sections if section.name == _SECTION), None)
    states = _states(section)
    check_finding(gate, (*states, *(finding.code for finding in findings)) if states else (gate.finding,))
    name = gate.finding.casefold()
    is_severity = name in _SEVERITIES
    bad = [finding for finding in findings if _is_meant(finding, name, is_severity=is_severity)]
    if bad:
        return _verdict(gate, State.CROSSED, _sentence(bad), bad)
    if section is None or section.status is not Status.OK:
        reason = section.reason if section and section.reason else "no findings were looked for"
        return _verdict(gate, State.INCONCLUSIVE, reason)
    state = next((state for code, state in states.items() if code.casefold() == name), "fine")
    if is_severity or not state.startswith(_UNKNOWN):
        return _verdict(gate, State.PASSED, "no such finding")
    return _verdict(gate, State.INCONCLUSIVE, state)


def _is_meant(finding: Finding, name: str, *, is_severity: bool) -> bool:
    if is_severity:
        return _SEVERITIES.index(finding.severity) >= _SEVERITIES.index(Severity(name))
    return finding.code.casefold() == name


def _states(section: Section | None) -> Mapping[str, str]:
    """Return the outcome of each rule by code; empty where the report does not tell."""
    tables = section.tables if section else ()
    frame = next((table.frame for table in tables if table.spec.name == _TABLE), None)
    if frame is None or not {"code", "state"} <= set(frame.columns):
        return {}
    return dict(zip(map(str, frame["code"]), map(str, frame["state"]), strict=True))


def _sentence(bad: Sequence[Finding]) -> str:
    titles = [f"{finding.code}: {shortened(finding.title, _MAX_TITLE)}" for finding in bad[:_MAX_FINDINGS]]
    return "; ".join([*titles, *([f"and {len(bad) - _MAX_FINDINGS} more"] if len(bad) > _MAX_FINDINGS else [])])


def _verdict(gate: Gate, state: State, reason: str, bad: Sequence[Finding] = ()) -> Verdict:
    codes = [finding.code for finding in bad[:_MAX_FINDINGS]]
    shown = ", ".join([*codes, *(["…"] if len(bad) > _MAX_FINDINGS else [])])
    value = None if state is State.INCONCLUSIVE else float(len(bad))
    return Verdict(gate.written, gate.metric, state, value, "count", reason, shown, new=value)
