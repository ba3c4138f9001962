"""The answer in a few sentences: from the key numbers of the sections, and what to look at first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from htareport.rank.summary import RankFacts
from htareport.report import Fact, Section, Table, Unit
from htareport.report.findings import Finding, Severity
from htareport.report.number_lists import listed
from htareport.report.units import text

_WORTH_SAYING = 0.02  # Less idle time than this needs no cause.
_MOSTLY = 0.5
_HOST, _STRAGGLERS = "Host and idle time", "stragglers"  # Family, and section, of findings that say more than we do.
_QUALITY = "Trace quality"  # Family of findings about the recording.


def verdict(sections: Sequence[Section], ranks: Sequence[RankFacts]) -> str:
    """Say what a step takes, where its time goes, who is slowest and what comes first, as far as the run tells."""
    facts = {fact.name: fact for section in sections for fact in section.facts}
    if not any(rank.num_events for rank in ranks):
        return "Nothing was recorded."
    salvaged = salvaged_sentence([rank.rank for rank in ranks if rank.salvaged])
    has_gpu, shares = any(rank.num_device_events for rank in ranks), _shares(facts)
    which = _which(ranks) if "step_time" in facts else ""
    duration = _duration(facts, ranks, has_gpu=has_gpu) + (f" ({which})" if which else "")
    duration += (": on average " if which else ": ") + shares + "." if shares else "."
    lead = _lead(sections)
    said = [duration, *_cause(facts, lead), *_slowest(facts, lead), *([] if has_gpu else _host_only(facts)), salvaged]
    return " ".join(filter(None, [*said, f"First: {_sentence(lead.title)}" if lead else ""]))


def _lead(sections: Sequence[Section]) -> Finding | None:
    """The finding to begin with: the first that saves something or is grave, of those that matter.

    What is amiss with the recording comes first, as all that follows stands on it.
    """
    every = (finding for section in sections for finding in section.findings)
    matter = [finding for finding in every if finding.severity is not Severity.LOW]
    first = (finding for finding in matter if _leads(finding))
    return next(first, matter[0] if matter else None)


def _leads(finding: Finding) -> bool:
    return bool(finding.saving_ns) or finding.severity is Severity.HIGH or finding.family == _QUALITY


def _sentence(title: str) -> str:
    """A title as a sentence, without marks of code: a verdict is plain text."""
    plain = title.replace("`", "").strip()
    return plain if plain.endswith((".", "!", "?")) else f"{plain}."


def salvaged_sentence(ranks: Sequence[int]) -> str:
    """Say which ranks hold only what could be kept of damaged files; empty if none does."""
    if not ranks:
        return ""
    some = f"Rank {ranks[0]} is" if len(ranks) == 1 else f"Ranks {listed(ranks)} are"
    why = "a file that is damaged or ends early" if len(ranks) == 1 else "files that are damaged or end early"
    return f"{some} salvaged: the numbers hold for what was kept of {why}."


def marked(section: Section, ranks: Sequence[int]) -> Section:
    """Return a section that says, above its numbers and below its tables and charts, which ranks are salvaged."""
    if not (said := salvaged_sentence(ranks)):
        return section
    short = f"Salvaged: rank{'s' if len(ranks) > 1 else ''} {listed(ranks)}."
    return replace(
        section,
        notes=(said, *section.notes),
        charts=tuple(replace(chart, caption=f"{chart.caption} {short}".strip()) for chart in section.charts),
        tables=tuple(
            replace(table, note=f"{table.note} {short}".strip()) if _shows(table, ranks) else table
            for table in section.tables
        ),
    )


def _shows(table: Table, ranks: Sequence[int]) -> bool:
    """Whether some ranks have a part in a table: those in it, or all where it does not tell them apart."""
    frame = table.frame
    return len(frame) > 0 and ("rank" not in frame or bool(frame["rank"].isin(ranks).any()))


def _which(ranks: Sequence[RankFacts]) -> str:
    """Which step time it is, where there are several."""
    several_steps = any(len(rank.steps) > 1 for rank in ranks)
    several_ranks = sum(bool(rank.steps) for rank in ranks) > 1
    return " ".join(["median"] * several_steps + ["of the slowest rank"] * several_ranks)


def _duration(facts: dict[str, Fact], ranks: Sequence[RankFacts], *, has_gpu: bool) -> str:
    if step := facts.get("step_time"):
        return f"{text(step.value, Unit.NANOSECONDS)} per step{'' if has_gpu else ' on the host'}"
    if span := facts.get("device_span"):
        which = " on average" if sum(bool(rank.num_device_events) for rank in ranks) > 1 else ""
        return f"{text(span.value, Unit.NANOSECONDS)}{which} from the first to the last GPU event, without steps"
    recorded = text(max((rank.recorded_ns for rank in ranks), default=0), Unit.NANOSECONDS)
    return f"{recorded} recorded{'' if any(each.all_steps for each in ranks) else ', without steps'}"


def _shares(facts: dict[str, Fact]) -> str:
    """Where the time goes, in whole percents that add up to 100."""
    compute, comm, idle = (facts.get(f"{name}_share") for name in ("compute", "exposed_comm", "idle"))
    if not compute or not idle or compute.value is None or idle.value is None:
        return ""
    exposed = comm.value if comm and comm.value is not None else 0.0
    memory = max(0.0, 1 - compute.value - exposed - idle.value)
    parts = {
        "computing": compute.value,
        "exposed communication": exposed,
        "GPU idle": idle.value,
        "exposed copies": memory,
    }
    whole = _whole_percents(list(parts.values()))
    said = [f"{share}\u202f% {words}" for share, words in zip(whole, parts, strict=True) if share]
    return ", ".join(said)


def _whole_percents(shares: list[float]) -> list[int]:
    """Round so that the sum stays what it is: those that lose most by rounding down are rounded up."""
    down = [math.floor(100 * share) for share in shares]
    missing = round(100 * sum(shares)) - sum(down)
    by_loss = sorted(range(len(shares)), key=lambda i: down[i] - 100 * shares[i])
    return [value + (i in by_loss[:missing]) for i, value in enumerate(down)]


def _cause(facts: dict[str, Fact], lead: Finding | None) -> list[str]:
    """What idle time, if the first finding doesn't say it, and what lies outside the steps come from."""
    said, cause, idle = [], facts.get("host_wait_share"), facts.get("idle_share")
    if lead and lead.family == _HOST:
        cause = None
    if cause and idle and cause.value is not None and (idle.value or 0) >= _WORTH_SAYING and cause.value >= _MOSTLY:
        said.append(f"The host launches late in {_percent(cause.value)} of the idle time.")
    if (outside := facts.get("outside_steps")) and outside.value is not None:
        said.append(f"{_percent(outside.value)} of the GPU's work lies outside the steps: it runs behind the host.")
    return said


def _percent(share: float) -> str:
    """Whole percents: a sentence wants no decimals, and the table has them."""
    return f"{100 * share:.0f}\u202f%"


def _slowest(facts: dict[str, Fact], lead: Finding | None) -> list[str]:
    said = []
    if (late := facts.get("late_rank")) and late.value is not None:
        said.append(f"The others wait for rank {int(late.value)}, whose own time is longer ({late.detail}).")
    if (slow := facts.get("slowest_rank")) and slow.value is not None:
        said.append(f"Rank {int(slow.value)} takes longest ({slow.detail}).")
    said = [] if lead and lead.section == _STRAGGLERS else said[:1]
    if (step := facts.get("slow_step")) and step.value is not None:
        said.append(f"Step {int(step.value)} is slow ({step.detail}).")
    return said


def _host_only(facts: dict[str, Fact]) -> list[str]:
    top = facts.get("top_operator_share")
    said = ["No GPU activity was recorded."]
    if (comm := facts.get("critical_path_comm_share")) and comm.value is not None and comm.value >= _WORTH_SAYING:
        said.append(f"{_percent(comm.value)} of the critical path is communication, waits for other ranks included.")
    if top and top.value is not None:
        said.append(f"{top.detail} takes {_percent(top.value)} of the host operators' time.")
    return said
