"""Two reports → one: the new run's full report, with what changed against the base before it.

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
from htareport.compare.gates import Gate, State, Verdict, judge, told
from htareport.compare.matching import match
from htareport.compare.metrics import Metric, metrics
from htareport.compare.sides import Side, sides
from htareport.compare.step_change import Change, change_of, sentence
from htareport.compare.waterfall import Waterfall, waterfall
from htareport.compare.words import shortened
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
    falls = waterfall(*both)
    said = [_like_for_like(other), sentence(change), *causes(change, falls, both, rows, numbers)]
    compared = (
        _overview(both, change, other, numbers, falls),
        sections.kernels_section(both, matched, rows),
        sections.names_section(*both),
        sections.communication_section(*both),
        sections.ranks_section(*both),
    )
    kept = tuple(_with_base(section, *numbers) for section in new.sections)
    return Report(
        title or _title(base, new),
        " ".join(part for part in said if part),
        _meta(base, new, change),
        (*(f"{runs.BASE}{warning}" for warning in base.warnings), *new.warnings),
        (*compared, *kept),
    )


def judged(
    report: Report, gates: Sequence[Gate], base: Report | None = None, *, fail_on_inconclusive: bool = False
) -> tuple[Report, tuple[Verdict, ...]]:
    """Judge gates on a report (one made by `compare`, where there is a base), and write what came out into it.

    Gates that were judged before, and stand in a saved report, make room for these.
    """
    failing = {State.CROSSED} | ({State.INCONCLUSIVE} if fail_on_inconclusive else set())
    if not gates:
        return report, ()
    report = runs.without_gates(report)
    if base:
        before, new = map(metrics, sides(runs.alone(base), report))
    else:
        before, new = None, metrics(Side(report))
    found = (judge_finding(gate, report) if gate.finding else judge(gate, new, before) for gate in gates)
    verdicts = tuple(replace(each, fails=each.state in failing) for each in found)
    section = replace(topics.section("gates"), tables=(tables.gates_table(verdicts),))
    plain = [verdict.to_json() for verdict in verdicts]
    return replace(
        report,
        verdict=" ".join(part for part in (told(plain), report.verdict) if part),
        meta=dict(report.meta) | {"gates": plain},
        sections=(section, *report.sections),
    ), verdicts


def _title(base: Report, new: Report) -> str:
    before, after = (shortened(each.title, _LONGEST_TITLE) for each in (base, new))
    return f"{after} against {before}" if new.title != base.title else f"{after}: new against base"


_MOST_TOLD, _LONGEST = 3, 50  # What differs in a sentence, and characters of a value.
_LONGEST_TITLE = 100  # Of either run.
_ALIKE = "Devices, versions, shapes and profiler options are the same, as far as the traces tell."


def _like_for_like(found: Sequence[Difference]) -> str:
    matters = [
        f"{each.what} ({shortened(each.base, _LONGEST)} → {shortened(each.new, _LONGEST)})"
        for each in found
        if each.matters
    ]
    more = f" and {len(matters) - _MOST_TOLD} more" if len(matters) > _MOST_TOLD else ""
    return f"Not like for like: other {', '.join(matters[:_MOST_TOLD])}{more}." if matters else ""


def _overview(
    both: tuple[Side, Side], change: Change, other: Sequence[Difference],
    numbers: tuple[dict[str, Metric], dict[str, Metric]], falls: Waterfall,
) -> Section:  # fmt: skip
    facts: tuple[Fact, ...] = ()
    if math.isfinite(change.ratio):
        told = f"{text(change.base, Unit.NANOSECONDS)} → {text(change.new, Unit.NANOSECONDS)}"
        detail = f"{told}, {change.outcome}"
        words = "Median over the steps, new / base - 1. Without steps: of everything recorded."
        facts = (Fact("change", f"change of the {change.what}", change.ratio - 1, Unit.RATIO_CHANGE, detail, words,
                      Better.LOWER, order=-1),)  # fmt: skip
    charts = [tables.waterfall_chart(falls, change.what)] if len(falls.rows) else []
    times = [side.step_times.tolist() for side in both]
    if all(len(time) > 1 for time in times):
        charts.append(tables.steps_chart(times))
    return replace(
        topics.section("compare"), facts=facts, charts=tuple(charts),
        notes=() if other else (_ALIKE,),
        tables=(
            *([tables.environment_table(other)] if other else []),
            tables.metrics_table(*numbers),
            *([tables.waterfall_table(falls)] if len(falls.rows) else []),
        ),
    )  # fmt: skip


def _with_base(section: Section, base: dict[str, Metric], new: dict[str, Metric]) -> Section:
    """Say beside each key number what it was."""
    by_fact = {fact: (base[name], new[name]) for name in new.keys() & base.keys() for fact in _facts_of(name)}
    facts = []
    for fact in section.facts:
        pair = by_fact.get(fact.name)
        was = _was(*pair) if pair else ""
        facts.append(replace(fact, detail=runs.BETWEEN.join(part for part in (was, fact.detail) if part)))
    return replace(section, facts=tuple(facts))


def _was(base: Metric, new: Metric) -> str:
    before = text(base.value, base.unit)
    is_same = before == text(new.value, new.unit)
    return runs.AS_BEFORE if is_same else f"{runs.WAS}{before}, {tables.change_text(base, new)}"


def _facts_of(metric: str) -> tuple[str, ...]:
    """Names of the key numbers that a metric is."""
    renamed = {"memory_peak": "peak_memory", "span": "device_span"}
    return (renamed.get(metric, metric), f"{metric.removesuffix('_pct')}_share")


def _meta(base: Report, new: Report, change: Change) -> dict[str, Any]:
    """What is known of the new run, the problems of both, and what others need to know of the comparison."""
    kept = ("start", "num_ranks", "world_size", "devices", "software", "steps", "window", "version", "source")
    known = {name: base.meta[name] for name in kept if name in base.meta}
    about = {
        "base": {"title": base.title, **known},
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
    problems = [f"{runs.BASE}{each}" for each in base.meta.get("problems", ())]
    return dict(new.meta) | {"comparison": about, "problems": [*problems, *new.meta.get("problems", ())]}
