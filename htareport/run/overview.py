"""The verdict: a few sentences on step time, where it goes, the slowest rank and the first finding to work on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from htareport.rank.summary import RankFacts
from htareport.report import Fact, Section, Table, Unit
from htareport.report.findings import Finding, Severity
from htareport.report.number_lists import listed
from htareport.report.units import text

_MIN_SHARE = 0.02  # Smaller shares of time are not mentioned.
_MAJORITY = 0.5
# A leading finding of this family, or of this section, says more than the sentence here, which is left out then.
_HOST_FAMILY, _STRAGGLERS_SECTION = "Host and idle time", "stragglers"
_QUALITY_FAMILY = "Trace quality"


def verdict(sections: Sequence[Section], ranks: Sequence[RankFacts]) -> str:
    """Return the verdict: step time, where it goes, the slowest rank and the first finding, as far as known."""
    facts = {fact.name: fact for section in sections for fact in section.facts}
    if not any(rank.num_events for rank in ranks):
        return "Nothing was recorded."
    salvaged = salvage_note([rank.rank for rank in ranks if rank.salvaged])
    has_gpu, shares = any(rank.num_device_events for rank in ranks), _shares(facts)
    label = _step_time_label(ranks) if "step_time" in facts else ""
    duration = _duration(facts, ranks, has_gpu=has_gpu) + (f" ({label})" if label else "")
    duration += (": on average " if label else ": ") + shares + "." if shares else "."
    lead = _lead(sections)
    lines = [duration, *_cause(facts, lead), *_slowest(facts, lead), *([] if has_gpu else _host_only(facts)), salvaged]
    return " ".join(filter(None, [*lines, f"First: {_sentence(lead.title)}" if lead else ""]))


def _lead(sections: Sequence[Section]) -> Finding | None:
    """The finding that the verdict names: the first of medium or high severity that leads, else the first.

    Findings lead that save time, are of high severity or are about the quality of the trace.
    """
    findings = (finding for section in sections for finding in section.findings)
    important = [finding for finding in findings if finding.severity is not Severity.LOW]
    leading = (finding for finding in important if _is_leading(finding))
    return next(leading, important[0] if important else None)


def _is_leading(finding: Finding) -> bool:
    return bool(finding.saving_ns) or finding.severity is Severity.HIGH or finding.family == _QUALITY_FAMILY


def _sentence(title: str) -> str:
    """A title as a sentence of plain text, without backticks."""
    plain = title.replace("`", "").strip()
    return plain if plain.endswith((".", "!", "?")) else f"{plain}."


def salvage_note(ranks: Sequence[int]) -> str:
    """Return a sentence that names the ranks read from damaged files; empty if there are none."""
    if not ranks:
        return ""
    subject = f"Rank {ranks[0]} is" if len(ranks) == 1 else f"Ranks {listed(ranks)} are"
    files = "a file that is damaged or ends early" if len(ranks) == 1 else "files that are damaged or end early"
    return f"{subject} salvaged: the numbers hold for what was kept of {files}."


def with_salvage_notes(section: Section, ranks: Sequence[int]) -> Section:
    """Return the section with a note, and remarks at its tables and charts, on which ranks are salvaged."""
    if not (note := salvage_note(ranks)):
        return section
    short_note = f"Salvaged: rank{'s' if len(ranks) > 1 else ''} {listed(ranks)}."
    return replace(
        section,
        notes=(note, *section.notes),
        charts=tuple(replace(chart, caption=f"{chart.caption} {short_note}".strip()) for chart in section.charts),
        tables=tuple(
            replace(table, note=f"{table.note} {short_note}".strip()) if _has_rows_of(table, ranks) else table
            for table in section.tables
        ),
    )


def _has_rows_of(table: Table, ranks: Sequence[int]) -> bool:
    """Whether a table has rows of some ranks; one without a rank column has rows of all."""
    frame = table.frame
    return len(frame) > 0 and ("rank" not in frame or bool(frame["rank"].isin(ranks).any()))


def _step_time_label(ranks: Sequence[RankFacts]) -> str:
    """Which step time is meant, if there are several steps or ranks."""
    several_steps = any(len(rank.steps) > 1 for rank in ranks)
    several_ranks = sum(bool(rank.steps) for rank in ranks) > 1
    return " ".join(["median"] * several_steps + ["of the slowest rank"] * several_ranks)


def _duration(facts: dict[str, Fact], ranks: Sequence[RankFacts], *, has_gpu: bool) -> str:
    if step := facts.get("step_time"):
        return f"{text(step.value, Unit.NANOSECONDS)} per step{'' if has_gpu else ' on the host'}"
    if span := facts.get("device_span"):
        average = " on average" if sum(bool(rank.num_device_events) for rank in ranks) > 1 else ""
        return f"{text(span.value, Unit.NANOSECONDS)}{average} from the first to the last GPU event, without steps"
    recorded = text(max((rank.recorded_ns for rank in ranks), default=0), Unit.NANOSECONDS)
    return f"{recorded} recorded{'' if any(rank.all_steps for rank in ranks) else ', without steps'}"


def _shares(facts: dict[str, Fact]) -> str:
    """Shares of compute, exposed communication, idle time and exposed copies, in whole percents that add up to 100."""
    compute, comm, idle = (facts.get(f"{name}_share") for name in ("compute", "exposed_comm", "idle"))
    if not compute or not idle or compute.value is None or idle.value is None:
        return ""
    exposed = comm.value if comm and comm.value is not None else 0.0
    memory = max(0.0, 1 - compute.value - exposed - idle.value)
    shares = {
        "computing": compute.value,
        "exposed communication": exposed,
        "GPU idle": idle.value,
        "exposed copies": memory,
    }
    percents = _whole_percents(list(shares.values()))
    texts = [f"{share}\u202f% {label}" for share, label in zip(percents, shares, strict=True) if share]
    return ", ".join(texts)


def _whole_percents(shares: list[float]) -> list[int]:
    """Round to whole percents that keep the sum: those that lose most by rounding down are rounded up."""
    floors = [math.floor(100 * share) for share in shares]
    shortfall = round(100 * sum(shares)) - sum(floors)
    by_loss = sorted(range(len(shares)), key=lambda i: floors[i] - 100 * shares[i])
    return [floor + (i in by_loss[:shortfall]) for i, floor in enumerate(floors)]


def _cause(facts: dict[str, Fact], lead: Finding | None) -> list[str]:
    """Why the GPU is idle, unless the leading finding says it, and how much work runs outside the steps."""
    lines, cause, idle = [], facts.get("host_wait_share"), facts.get("idle_share")
    if lead and lead.family == _HOST_FAMILY:
        cause = None
    if cause and idle and cause.value is not None and (idle.value or 0) >= _MIN_SHARE and cause.value >= _MAJORITY:
        lines.append(f"The host launches late in {_percent(cause.value)} of the idle time.")
    if (outside := facts.get("outside_steps")) and outside.value is not None:
        lines.append(f"{_percent(outside.value)} of the GPU's work lies outside the steps: it runs behind the host.")
    return lines


def _percent(share: float) -> str:
    """Whole percents; tables have the decimals."""
    return f"{100 * share:.0f}\u202f%"


def _slowest(facts: dict[str, Fact], lead: Finding | None) -> list[str]:
    lines = []
    if (late := facts.get("late_rank")) and late.value is not None:
        lines.append(f"The others wait for rank {int(late.value)}, whose own time is longer ({late.detail}).")
    if (slow := facts.get("slowest_rank")) and slow.value is not None:
        lines.append(f"Rank {int(slow.value)} takes longest ({slow.detail}).")
    lines = [] if lead and lead.section == _STRAGGLERS_SECTION else lines[:1]
    if (step := facts.get("slow_step")) and step.value is not None:
        lines.append(f"Step {int(step.value)} is slow ({step.detail}).")
    return lines


def _host_only(facts: dict[str, Fact]) -> list[str]:
    top = facts.get("top_operator_share")
    lines = ["No GPU activity was recorded."]
    if (comm := facts.get("critical_path_comm_share")) and comm.value is not None and comm.value >= _MIN_SHARE:
        lines.append(f"{_percent(comm.value)} of the critical path is communication, waits for other ranks included.")
    if top and top.value is not None:
        lines.append(f"{top.detail} takes {_percent(top.value)} of the host operators' time.")
    return lines
