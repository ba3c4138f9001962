"""Takes the report of the new run out of a comparison, and the outcomes of gates out of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from htareport.compare.gates import gates_sentence
from htareport.compare.topics import GROUP
from htareport.report import Fact, Report

BASE = "base: "  # Before a warning, or a problem, of the base.
WAS, AS_BEFORE, BETWEEN = "was ", "as before", " · "  # Beside a key number, of the base.


def alone(report: Report) -> Report:
    """Return what a comparison says of its new run: without the Compare chapter, the gates, and what is of the base."""
    about = report.meta.get("comparison")
    if not isinstance(about, Mapping):
        return without_gates(report)
    new = about.get("new")
    title = new.get("title") if isinstance(new, Mapping) else None
    meta = {name: value for name, value in report.meta.items() if name not in {"comparison", "gates"}}
    problems = meta.get("problems")
    if isinstance(problems, (list, tuple)):
        meta["problems"] = [problem for problem in problems if not str(problem).startswith(BASE)]
    sections = (section for section in report.sections if section.group != GROUP)
    return Report(
        title if isinstance(title, str) else report.title,
        meta=meta,
        warnings=tuple(warning for warning in report.warnings if not warning.startswith(BASE)),
        sections=tuple(replace(section, facts=tuple(map(_fact, section.facts))) for section in sections),
    )


def _fact(fact: Fact) -> Fact:
    first, _, own_detail = fact.detail.partition(BETWEEN)
    return replace(fact, detail=own_detail) if first.startswith(WAS) or first == AS_BEFORE else fact


def without_gates(report: Report) -> Report:
    """Return a report as it was before gates were judged."""
    gates = report.meta.get("gates")
    if not gates:
        return report
    meta = {name: value for name, value in report.meta.items() if name != "gates"}
    return replace(
        report,
        verdict=report.verdict.removeprefix(gates_sentence(gates)).lstrip(),
        meta=meta,
        sections=tuple(section for section in report.sections if (section.name, section.group) != ("gates", GROUP)),
    )
