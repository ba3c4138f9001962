"""What workers found on each rank, and the sections that analyses make of that.

Architecture invariant: whoever combines ranks keeps their frames packed, and joins those of one analysis at a time.
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

MOST_STEPS = 2_000_000  # On all ranks together, of which there are rows,
MOST_STEPS_OF_A_RANK = 1_500  # and on each.
_BY_STEP = {"per_step", "steps"}  # The frames that have them.
_COMMON = ("devices", "steps", "all_steps", "software", "capture")  # Facts that ranks often have in common.


@dataclass(frozen=True)
class Work:
    """What is to be done with each rank."""

    analyses: Sequence[Analysis]
    rules: Sequence[AnyRule] = ()
    window: Window = ALL
    options: ReadOptions = field(default_factory=ReadOptions)
    version: str = __version__  # A worker elsewhere may have another.
    ranks: int = 1  # Of the job, that share the room for rows.


@dataclass
class RankSummary:
    """What a worker sends back of one rank."""

    rank: int
    facts: RankFacts | None = None
    frames: dict[str, Packed] = field(default_factory=dict)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)  # Analysis: texts of the capabilities it lacks.
    errors: dict[str, str] = field(default_factory=dict)  # Analysis: what it raised.
    evidence: RankEvidence | None = None  # What rules found.
    load_error: str = ""
    shares: dict[str, float] = field(default_factory=dict)  # Analysis, or rules: of the rows that it would have.


@cache
def summary_classes() -> dict[str, type]:
    """All that summaries are made of, by name."""
    return classes_of(RankSummary, Packed, *(rule.evidence_class() for rule in rule_classes().values()))


def weight(parts: Iterable[Any]) -> int:
    """Bytes that parts of a summary take together; those of other classes count nothing."""
    try:
        return len(encode(list(parts), summary_classes()))
    except TypeError:
        return 0


def sorted_summaries(found: Iterable[RankSummary]) -> list[RankSummary]:
    """Return summaries in order of rank; what ranks have in common is kept once."""
    summaries, texts, values = list[RankSummary](), dict[bytes, bytes](), dict[bytes, Any]()

    def once(value: Any) -> Any:
        return values.setdefault(msgspec.msgpack.encode(value), value)

    for summary in found:
        if (facts := summary.facts) is not None:
            summary.facts = replace(facts, **{name: once(getattr(facts, name)) for name in _COMMON})
        for name, packed in summary.frames.items():
            summary.frames[name] = replace(packed, texts=texts.setdefault(packed.texts, packed.texts))
        summary.missing = once(summary.missing)
        if (seen := summary.evidence) is not None:
            seen.checked, seen.lacking = once(seen.checked), once(seen.lacking)
        summaries.append(summary)
    return sorted(summaries, key=lambda summary: summary.rank)


def thinned(summary: RankSummary, frames: Frames, ranks: int) -> Frames:
    """Return a rank's frames with rows for so many steps as there is room for in a job of so many ranks.

    These are the same for all that a rank sends, and for all ranks with as many steps, since they are compared.
    """
    every = stride(len(summary.facts.steps), ranks) if summary.facts else 1
    return (
        frames
        if every == 1
        else {name: _of_every(every, frame) if name in _BY_STEP else frame for name, frame in frames.items()}
    )


def _of_every(every: int, frame: pd.DataFrame) -> pd.DataFrame:
    if "step" not in frame or frame["step"].dtype.kind not in "if":
        return frame
    kept = frame["step"] % every == 0
    return frame[kept] if kept.any() else frame


def stride(steps: int, ranks: int) -> int:
    """Return every how many steps a rank has rows: a power of two, so that all ranks have the same ones."""
    every = 1
    while steps > max(1, min(MOST_STEPS_OF_A_RANK, MOST_STEPS // max(ranks, 1))) * every:
        every *= 2
    return every


def thinned_warnings(facts: Sequence[RankFacts], ranks: int) -> Iterator[str]:
    """Say it where what is told per step is told of some steps only."""
    most = max((len(fact.steps) for fact in facts), default=0)
    if (every := stride(most, ranks)) > 1:
        there = f"{ranks:,} ranks with up to {most:,} steps each" if ranks > 1 else f"{most:,} steps"
        yield f"{there}: step times and their parts are told of one step in {every}"


def section_of(analysis: Analysis, summaries: Sequence[RankSummary], job: Job) -> tuple[Section, str]:
    """Return the section of an analysis and what failed in it, empty if nothing did. It takes the ranks' frames."""
    name = analysis.name
    section = Section(name, analysis.title, str(analysis.group), analysis.help())
    having = [s for s in summaries if name in s.frames]
    errors = {s.rank: s.errors[name] for s in summaries if name in s.errors}
    lacking = {s.rank: s.missing[name] for s in summaries if name in s.missing}
    if all(s.rank in lacking for s in summaries) or not having:
        if errors:
            return _failed(section, next(iter(errors.values())))
        reasons = Counter(reason for texts in lacking.values() for reason in texts)
        reason = "; ".join(reasons) or analysis.nothing
        return replace(section, status=Status.NOT_APPLICABLE, reason=reason), ""
    try:
        combined = analysis.combine(join((s.rank, s.frames.pop(name)) for s in having), job)
        notes, problem = list(analysis.notes(combined)), ""
        if errors:
            notes.append(f"Failed on {_ranks(list(errors))}: {_last_line(next(iter(errors.values())))}")
            problem = f"section {name}: {notes[-1]}"
        notes += room_notes(having, name)
        if lacking:
            notes.append(f"Without {_ranks(list(lacking))}: {'; '.join(next(iter(lacking.values())))}")
        done = replace(
            section,
            notes=tuple(notes),
            facts=tuple(analysis.facts(combined)),
            charts=tuple(chart for chart in analysis.charts(combined) if len(chart.frame)),
            tables=tuple(
                table_of(spec, combined[spec.name], len(job.ranks), analysis.worst.get(spec.name, ""))
                for spec in analysis.tables
            ),
        )
    except Exception:  # noqa: BLE001  as above
        return _failed(section, traceback.format_exc(limit=-3))
    return with_salvage_notes(done, salvaged(having)), problem


def room_notes(summaries: Sequence[RankSummary], name: str) -> list[str]:
    """Say it where ranks have fewer rows than they would have, since all together would be too much to send."""
    cut = {summary.rank: summary.shares[name] for summary in summaries if name in summary.shares}
    if not cut:
        return []
    part = text(min(cut.values()), Unit.RATIO)
    return [
        (
            f"{_ranks(list(cut)).capitalize()} recorded so much that there is room for only some of the rows here "
            f"({part} or more): the largest, or evenly chosen ones."
        )
    ]


def salvaged(summaries: Sequence[RankSummary]) -> list[int]:
    """Ranks of whose files only a part could be read."""
    return [summary.rank for summary in summaries if summary.facts and summary.facts.salvaged]


def _failed(section: Section, error: str) -> tuple[Section, str]:
    failed = replace(section, status=Status.FAILED, reason=_last_line(error))
    return failed, f"section {failed.name} failed: {failed.reason}"


def _last_line(text: str) -> str:
    """What was raised and where, without the traceback."""
    lines = [line.strip() for line in text.strip().splitlines()]
    place = next((line for line in reversed(lines) if line.startswith("File ")), "")
    where = (
        f" ({Path(place.split(chr(34))[1]).name}, {place.rpartition(', in ')[0].rpartition(', ')[2]})" if place else ""
    )
    return printable(lines[-1] + where)


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")  # noqa: PLR2004
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
