"""Compares two reports in one: the new run's full report, with what changed against the base before it.

Architecture invariant: a comparison reads two reports and nothing else, so two saved reports give what their traces
would. Swapping the runs turns the sign of every change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from htareport.compare import changes, runs, sections, tables, topics
from htareport.compare.causes import causes
from htareport.compare.environment import Difference, differences
from htareport.compare.finding_gates import judge_finding
from htareport.compare.gates import Gate, State, Verdict, gates_sentence, judge
from htareport.compare.matching import match
from htareport.compare.metrics import Metric, metrics
from htareport.compare.sides import Side, Sides, sides
from htareport.compare.step_change import Change, change_of, sentence
from htareport.compare.waterfall import Waterfall, waterfall
from htareport.compare.words import listed, shortened
from htareport.report import Better, Fact, Report, Section, Unit
from htareport.report.units import text

__all__ = ["compare", "judged"]


def compare(base: Report, new: Report, *, title: str = "") -> Report:
    """Return the new run's report with the Compare chapter before it, and its key numbers beside the base's.

    Of a report that is itself a comparison its new run counts.
    """
    base, new = runs.alone(base), runs.alone(new)
    both = sides(base, new)
    matched = match(both[0].kernels, both[1].kernels)
    rows = changes.of_kernels(matched)
    change, other = change_of(*both), differences(*both, matched)
    numbers = metrics(both[0]), metrics(both[1])
    step_parts = waterfall(*both)
    sentences = [_like_for_like(other), sentence(change), *causes(change, step_parts, both, rows, numbers)]
    compare_sections = (
        _overview(both, change, other, numbers, step_parts),
        sections.kernels_section(both, matched, rows),
        sections.names_section(*both),
        sections.communication_section(*both),
        sections.ranks_section(*both),
    )
    return Report(
        title or _title(base, new),
        " ".join(filter(None, sentences)),
        _meta(base, new, change),
        (*(f"{runs.BASE}{warning}" for warning in base.warnings), *new.warnings),
        (*compare_sections, *(_with_base(section, *numbers) for section in new.sections)),
    )


def judged(
    report: Report, gates: Sequence[Gate], base: Report | None = None, *, fail_on_inconclusive: bool = False
) -> tuple[Report, tuple[Verdict, ...]]:
    """Judge gates on a report (of `compare`, where there is a base), and write their outcomes into it.

    They replace the outcomes of gates that a saved report holds.
    """
    failing = {State.CROSSED} | ({State.INCONCLUSIVE} if fail_on_inconclusive else set())
    if not gates:
        return report, ()
    report = runs.without_gates(report)
    if base:
        before, new = map(metrics, sides(runs.alone(base), report))
    else:
        before, new = None, metrics(Side(report))
    judgements = (judge_finding(gate, report) if gate.finding else judge(gate, new, before) for gate in gates)
    verdicts = tuple(replace(verdict, fails=verdict.state in failing) for verdict in judgements)
    section = replace(topics.section("gates"), tables=(tables.gates_table(verdicts),))
    plain = [verdict.to_json() for verdict in verdicts]
    return replace(
        report,
        verdict=" ".join(filter(None, (gates_sentence(plain), report.verdict))),
        meta=dict(report.meta) | {"gates": plain},
        sections=(section, *report.sections),
    ), verdicts


def _title(base: Report, new: Report) -> str:
    before, after = (shortened(report.title, _MAX_TITLE) for report in (base, new))
    return f"{after} against {before}" if new.title != base.title else f"{after}: new against base"


_MAX_DIFFERENCES, _MAX_VALUE = 3, 50  # In a sentence, and characters of a value.
_MAX_TITLE = 100  # Characters, of either run.
_NO_DIFFERENCE = "Devices, versions, shapes and profiler options are the same, as far as the traces tell."


def _like_for_like(other: Sequence[Difference]) -> str:
    matters = [
        f"{difference.what} ({shortened(difference.base, _MAX_VALUE)} → {shortened(difference.new, _MAX_VALUE)})"
        for difference in other
        if difference.matters
    ]
    return f"Not like for like: other {listed(matters, _MAX_DIFFERENCES)}." if matters else ""


def _overview(
    both: Sides, change: Change, other: Sequence[Difference],
    numbers: tuple[dict[str, Metric], dict[str, Metric]], step_parts: Waterfall,
) -> Section:  # fmt: skip
    facts: tuple[Fact, ...] = ()
    if math.isfinite(change.ratio):
        before, after = (text(time, Unit.NANOSECONDS) for time in (change.base, change.new))
        detail = f"{before} → {after}, {change.outcome}"
        words = "Median over the steps, new / base - 1. Without steps: of everything recorded."
        facts = (Fact("change", f"change of the {change.what}", change.ratio - 1, Unit.RATIO_CHANGE, detail, words,
                      Better.LOWER, order=-1),)  # fmt: skip
    has_parts = len(step_parts.rows) > 0
    charts = [tables.waterfall_chart(step_parts, change.what)] if has_parts else []
    times = [side.step_times.tolist() for side in both]
    if all(len(time) > 1 for time in times):
        charts.append(tables.steps_chart(times))
    return replace(
        topics.section("compare"), facts=facts, charts=tuple(charts),
        notes=() if other else (_NO_DIFFERENCE,),
        tables=(
            *([tables.environment_table(other)] if other else []),
            tables.metrics_table(*numbers),
            *([tables.waterfall_table(step_parts)] if has_parts else []),
        ),
    )  # fmt: skip


def _with_base(section: Section, base: dict[str, Metric], new: dict[str, Metric]) -> Section:
    """Return a section whose key numbers also say what they were in the base."""
    by_fact = {fact: (base[name], new[name]) for name in new.keys() & base.keys() for fact in _facts_of(name)}
    facts = []
    for fact in section.facts:
        was = _was(*by_fact[fact.name]) if fact.name in by_fact else ""
        facts.append(replace(fact, detail=runs.BETWEEN.join(filter(None, (was, fact.detail)))))
    return replace(section, facts=tuple(facts))


def _was(base: Metric, new: Metric) -> str:
    before = text(base.value, base.unit)
    is_same = before == text(new.value, new.unit)
    return runs.AS_BEFORE if is_same else f"{runs.WAS}{before}, {tables.change_text(base, new)}"


def _facts_of(metric: str) -> tuple[str, ...]:
    """Return the names of the key numbers that show a metric."""
    renamed = {"memory_peak": "peak_memory", "span": "device_span"}
    return (renamed.get(metric, metric), f"{metric.removesuffix('_pct')}_share")


def _meta(base: Report, new: Report, change: Change) -> dict[str, Any]:
    """Return the meta data of the new run, with the problems of both runs and the outcome of the comparison."""
    names = ("start", "num_ranks", "world_size", "devices", "software", "steps", "window", "version", "source")
    base_meta = {name: base.meta[name] for name in names if name in base.meta}
    comparison = {
        "base": {"title": base.title, **base_meta},
        "new": {"title": new.title},
        "what": change.what,
        "outcome": str(change.outcome),
        "base_ns": change.base if math.isfinite(change.base) else None,
        "new_ns": change.new if math.isfinite(change.new) else None,
        "low": change.interval.low if change.interval else None,
        "high": change.interval.high if change.interval else None,
        "p": change.p,
        "steps": list(change.steps),
    }
    problems = [f"{runs.BASE}{problem}" for problem in base.meta.get("problems", ())]
    return dict(new.meta) | {"comparison": comparison, "problems": [*problems, *new.meta.get("problems", ())]}
