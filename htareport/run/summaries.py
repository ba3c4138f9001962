"""The summary that a worker sends of its rank, and the sections of the report that analyses make of all summaries.

Architecture invariant: the frames of all ranks stay packed, and are joined for one analysis at a time.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from htareport._version import __version__
from htareport.algorithms.frame_packing import Packed, join
from htareport.analyses import Analysis, Frames, Job
from htareport.errors import printable
from htareport.rank.summary import RankFacts
from htareport.rank.window import ALL, Window
from htareport.report import Section, Status, Unit
from htareport.report.rank_charts import table_of
from htareport.report.units import text
from htareport.rules import rule_classes
from htareport.rules.engine.base import AnyRule
from htareport.rules.engine.evaluate import RankEvidence
from htareport.run.overview import with_salvage_notes
from htareport.run.summary_codec import classes_of, encode
from htareport.trace import ReadOptions

MAX_STEPS = 2_000_000  # With rows, on all ranks together,
MAX_STEPS_PER_RANK = 1_500  # and on one.
_STEP_FRAMES = {"per_step", "steps"}  # Names of frames with a row for each step.
_SHARED_FACTS = ("devices", "steps", "all_steps", "software", "capture")  # Facts that ranks often have in common.


@dataclass(frozen=True)
class Work:
    """What a worker runs on each rank."""

    analyses: Sequence[Analysis]
    rules: Sequence[AnyRule] = ()
    window: Window = ALL
    options: ReadOptions = field(default_factory=ReadOptions)
    version: str = __version__  # A worker elsewhere may have another.
    ranks: int = 1  # Of the job; they share the budget for rows.


@dataclass
class RankSummary:
    """The results of one rank, which its worker sends."""

    rank: int
    facts: RankFacts | None = None
    frames: dict[str, Packed] = field(default_factory=dict)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)  # By analysis: texts of the missing capabilities.
    errors: dict[str, str] = field(default_factory=dict)  # By analysis: its traceback.
    evidence: RankEvidence | None = None  # Of rules.
    load_error: str = ""
    shares: dict[str, float] = field(
        default_factory=dict
    )  # By analysis, or RULES: the share of rows that the budget left.


@cache
def summary_classes() -> dict[str, type]:
    """Return the classes of all values in summaries, by name."""
    return classes_of(RankSummary, Packed, *(rule.evidence_class() for rule in rule_classes().values()))


def weight(contents: Iterable[Any]) -> int:
    """Return the encoded size of some contents of a summary, in bytes; 0 if they hold a value of another class."""
    try:
        return len(encode(list(contents), summary_classes()))
    except TypeError:
        return 0


def sorted_summaries(rank_summaries: Iterable[RankSummary]) -> list[RankSummary]:
    """Return summaries in order of rank; equal values of several ranks become one object."""
    summaries, texts, values = list[RankSummary](), dict[bytes, bytes](), dict[bytes, Any]()

    def once(value: Any) -> Any:
        return values.setdefault(msgspec.msgpack.encode(value), value)

    for summary in rank_summaries:
        if (facts := summary.facts) is not None:
            summary.facts = replace(facts, **{name: once(getattr(facts, name)) for name in _SHARED_FACTS})
        for name, packed in summary.frames.items():
            summary.frames[name] = replace(packed, texts=texts.setdefault(packed.texts, packed.texts))
        summary.missing = once(summary.missing)
        if (evidence := summary.evidence) is not None:
            evidence.checked, evidence.lacking = once(evidence.checked), once(evidence.lacking)
        summaries.append(summary)
    return sorted(summaries, key=lambda summary: summary.rank)


def thinned(summary: RankSummary, frames: Frames, ranks: int) -> Frames:
    """Return a rank's frames with rows of every nth step only, where all steps of a job of so many ranks are too many.

    All ranks with as many steps have rows of the same ones, so that they can be compared.
    """
    stride = step_stride(len(summary.facts.steps), ranks) if summary.facts else 1
    if stride == 1:
        return frames
    return {name: _every_nth_step(stride, frame) if name in _STEP_FRAMES else frame for name, frame in frames.items()}


def _every_nth_step(stride: int, frame: pd.DataFrame) -> pd.DataFrame:
    if "step" not in frame or frame["step"].dtype.kind not in "if":
        return frame
    is_kept = frame["step"] % stride == 0
    return frame[is_kept] if is_kept.any() else frame


def step_stride(steps: int, ranks: int) -> int:
    """Return n if every nth step gets rows: a power of two, so that ranks have rows of the same steps."""
    stride = 1
    while steps > max(1, min(MAX_STEPS_PER_RANK, MAX_STEPS // max(ranks, 1))) * stride:
        stride *= 2
    return stride


def thinned_warnings(facts: Sequence[RankFacts], ranks: int) -> Iterator[str]:
    """Warn if only some steps have rows."""
    max_steps = max((len(fact.steps) for fact in facts), default=0)
    if (stride := step_stride(max_steps, ranks)) > 1:
        extent = f"{ranks:,} ranks with up to {max_steps:,} steps each" if ranks > 1 else f"{max_steps:,} steps"
        yield f"{extent}: step times and their parts are told of one step in {stride}"


def section_of(analysis: Analysis, summaries: Sequence[RankSummary], job: Job) -> tuple[Section, str]:
    """Return an analysis's section and its problem, empty if nothing failed. Removes its frames from summaries."""
    name = analysis.name
    section = Section(name, analysis.title, str(analysis.group), analysis.help())
    with_frames = [s for s in summaries if name in s.frames]
    errors = {s.rank: s.errors[name] for s in summaries if name in s.errors}
    missing = {s.rank: s.missing[name] for s in summaries if name in s.missing}
    if all(s.rank in missing for s in summaries) or not with_frames:
        if errors:
            return _failed(section, next(iter(errors.values())))
        reasons = Counter(reason for texts in missing.values() for reason in texts)
        reason = "; ".join(reasons) or analysis.nothing
        return replace(section, status=Status.NOT_APPLICABLE, reason=reason), ""
    try:
        combined = analysis.combine(join((s.rank, s.frames.pop(name)) for s in with_frames), job)
        notes, problem = list(analysis.notes(combined)), ""
        if errors:
            notes.append(f"Failed on {_ranks(list(errors))}: {_last_line(next(iter(errors.values())))}")
            problem = f"section {name}: {notes[-1]}"
        notes += budget_notes(with_frames, name)
        if missing:
            notes.append(f"Without {_ranks(list(missing))}: {'; '.join(next(iter(missing.values())))}")
        results = replace(
            section,
            notes=tuple(notes),
            facts=tuple(analysis.facts(combined)),
            charts=tuple(chart for chart in analysis.charts(combined) if len(chart.frame)),
            tables=tuple(
                table_of(spec, combined[spec.name], len(job.ranks), analysis.worst.get(spec.name, ""))
                for spec in analysis.tables
            ),
        )
    except Exception:  # noqa: BLE001  an analysis that fails costs only its section
        return _failed(section, traceback.format_exc(limit=-3))
    return with_salvage_notes(results, salvaged(with_frames)), problem


def budget_notes(summaries: Sequence[RankSummary], name: str) -> list[str]:
    """Return a note if some ranks sent only a share of their rows, to stay within the budget."""
    shares = {summary.rank: summary.shares[name] for summary in summaries if name in summary.shares}
    if not shares:
        return []
    smallest = text(min(shares.values()), Unit.RATIO)
    return [
        (
            f"{_ranks(list(shares)).capitalize()} recorded so much that there is room for only some of the rows here "
            f"({smallest} or more): the largest, or evenly chosen ones."
        )
    ]


def salvaged(summaries: Sequence[RankSummary]) -> list[int]:
    """Return the ranks whose damaged files were read in part."""
    return [summary.rank for summary in summaries if summary.facts and summary.facts.salvaged]


def _failed(section: Section, error: str) -> tuple[Section, str]:
    failed = replace(section, status=Status.FAILED, reason=_last_line(error))
    return failed, f"section {failed.name} failed: {failed.reason}"


def _last_line(text: str) -> str:
    """The exception and where it was raised, without the traceback."""
    lines = [line.strip() for line in text.strip().splitlines()]
    frame = next((line for line in reversed(lines) if line.startswith("File ")), "")
    where = (
        f" ({Path(frame.split(chr(34))[1]).name}, {frame.rpartition(', in ')[0].rpartition(', ')[2]})" if frame else ""
    )
    return printable(lines[-1] + where)


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")  # noqa: PLR2004
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
