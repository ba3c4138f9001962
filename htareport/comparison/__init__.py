"""Two reports → one: the new run's full report, with what changed against the base before it.

Architecture invariant: a comparison reads two reports and nothing else, so two saved reports give what their traces
would. Swapping the runs turns the sign of every change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from htareport.comparison import changes, sections, tables, topics
from htareport.comparison.causes import causes
from htareport.comparison.environment import Difference, differences
from htareport.comparison.gates import Gate, State, Verdict, judge
from htareport.comparison.matching import match
from htareport.comparison.metrics import Metric, metrics
from htareport.comparison.sides import Side
from htareport.comparison.step_change import Change, change_of, sentence
from htareport.comparison.waterfall import waterfall
from htareport.report import Better, Fact, Report, Section, Unit
from htareport.units import text

__all__ = ["compare", "judged"]


def compare(base: Report, new: Report, *, title: str = "") -> Report:
    """Return the new run's report with the Compare chapter before it, and its key numbers beside the base's."""
    sides = Side(base), Side(new)
    matched = match(sides[0].kernels, sides[1].kernels)
    rows = changes.of_kernels(matched)
    change, other = change_of(*sides), differences(*sides, matched)
    numbers = metrics(sides[0]), metrics(sides[1])
    falls = waterfall(*sides)
    said = [_like_for_like(other), sentence(change), *causes(change, falls, sides, rows, numbers)]
    compared = (
        _overview(sides, change, other, numbers, falls),
        sections.kernels_section(matched, rows),
        sections.names_section(*sides),
        sections.communication_section(*sides),
        sections.ranks_section(*sides),
    )
    meta = dict(new.meta) | {"comparison": _about(base, new, change)}
    kept = tuple(_with_base(section, *numbers) for section in new.sections)
    return Report(
        title or f"{new.title} against {base.title}",
        " ".join(part for part in said if part),
        meta,
        (*(f"base: {warning}" for warning in base.warnings), *new.warnings),
        (*compared, *kept),
    )


def judged(
    report: Report, gates: Sequence[Gate], base: Report | None = None, *, fail_on_inconclusive: bool = False
) -> tuple[Report, tuple[Verdict, ...]]:
    """Judge gates on a report (one made by `compare`, where there is a base), and write what came out into it."""
    failing = {State.CROSSED} | ({State.INCONCLUSIVE} if fail_on_inconclusive else set())
    if not gates:
        return report, ()
    new, before = metrics(Side(report)), metrics(Side(base)) if base else None
    change = change_of(Side(base), Side(report)) if base else None
    found = (judge(gate, new, before, change) for gate in gates)
    verdicts = tuple(replace(each, fails=each.state in failing) for each in found)
    section = replace(topics.section("gates"), tables=(tables.gates_table(verdicts),))
    bad = [verdict for verdict in verdicts if verdict.state is not State.PASSED]
    told = " ".join(f"Gate {verdict.state}: {verdict.gate} ({verdict.reason})." for verdict in bad)
    return replace(
        report,
        verdict=" ".join(part for part in (told, report.verdict) if part),
        meta=dict(report.meta) | {"gates": [verdict.to_json() for verdict in verdicts]},
        sections=(section, *report.sections),
    ), verdicts


_ALIKE = "Devices, versions, shapes and profiler options are the same, as far as the traces tell."


def _like_for_like(found: Sequence[Difference]) -> str:
    matters = [f"{each.what} ({each.base} → {each.new})" for each in found if each.matters]
    more = f" and {len(matters) - 3} more" if len(matters) > 3 else ""  # noqa: PLR2004  a sentence's worth
    return f"Not like for like: other {', '.join(matters[:3])}{more}." if matters else ""


def _overview(
    sides: tuple[Side, Side], change: Change, other: Sequence[Difference],
    numbers: tuple[dict[str, Metric], dict[str, Metric]], falls: Any,
) -> Section:  # fmt: skip
    facts: tuple[Fact, ...] = ()
    if math.isfinite(change.ratio):
        told = f"{text(change.base, Unit.NANOSECONDS)} → {text(change.new, Unit.NANOSECONDS)}"
        detail = f"{told}, {change.outcome}"
        words = "Median over the steps, new / base - 1. Without steps: of everything recorded."
        facts = (Fact("change", f"change of the {change.what}", change.ratio - 1, Unit.RATIO, detail, words,
                      Better.LOWER, order=-1),)  # fmt: skip
    charts = [tables.waterfall_chart(falls, change.what)] if len(falls) else []
    times = [side.step_times.tolist() for side in sides]
    if all(len(each) > 1 for each in times):
        charts.append(tables.steps_chart(times))
    return replace(
        topics.section("compare"), facts=facts, charts=tuple(charts),
        notes=() if other else (_ALIKE,),
        tables=(
            *([tables.environment_table(other)] if other else []),
            tables.metrics_table(*numbers),
            *([tables.waterfall_table(falls)] if len(falls) else []),
        ),
    )  # fmt: skip


def _with_base(section: Section, base: dict[str, Metric], new: dict[str, Metric]) -> Section:
    """Say beside each key number what it was."""
    by_fact = {fact: (base[name], new[name]) for name in new.keys() & base.keys() for fact in _facts_of(name)}
    facts = []
    for fact in section.facts:
        pair = by_fact.get(fact.name)
        was = _was(*pair) if pair else ""
        facts.append(replace(fact, detail=" · ".join(part for part in (was, fact.detail) if part)))
    return replace(section, facts=tuple(facts))


def _was(base: Metric, new: Metric) -> str:
    before = text(base.value, base.unit)
    return "as before" if before == text(new.value, new.unit) else f"was {before}, {tables.change_text(base, new)}"


def _facts_of(metric: str) -> tuple[str, ...]:
    """Names of the key numbers that a metric is."""
    renamed = {"memory_peak": "peak_memory", "span": "device_span"}
    return (renamed.get(metric, metric), f"{metric.removesuffix('_pct')}_share")


def _about(base: Report, new: Report, change: Change) -> dict[str, Any]:
    """What others need to know of a comparison, as plain values."""
    kept = ("start", "num_ranks", "world_size", "devices", "software", "steps", "window", "version", "source")
    known = {name: base.meta[name] for name in kept if name in base.meta}
    return {
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
