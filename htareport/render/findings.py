"""Findings as every format tells them: in the report's order, what each could save, where to look, what was fine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from htareport.render.charts import ticks as fmt
from htareport.render.html import bounds
from htareport.report import Report, Section, Status, Unit
from htareport.report.findings import Finding, Span
from htareport.report.json_codec import column_values

SECTION = "findings"  # Name of the section that is shown as cards, and nowhere else.
_TOO_LITTLE = "too little by itself"  # Outcome of a rule that found something which is not worth a finding.
_ID = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST_ID = 80
_MOST_NUMBERS, _FIRST_NUMBERS = 20, 5  # Ranks or steps, or runs of them, in a sentence; of more only these.
_MOST_PLACES = 5
_PLACES = (
    "Where to look: times count from the run's first event. Perfetto (ui.perfetto.dev) opens the trace file of each "
    "rank; its ruler counts from the file's first row."
)
_COMPUTED = " Ranks still wait for each other, transfers last as long, and what compute hides stays hidden."
_ONE = 0.95  # Per cent that reads as one.
_FEW = 2  # Numbers in a row that are told one by one.
_COVERED = 0.95  # Of a saving: a finding that adds so much to those before it overlaps with none of them.


@dataclass(frozen=True, slots=True)
class Card:
    """One finding with what is told of it in words; `section` is id and title of the section with its numbers."""

    id: str
    finding: Finding
    saving: str
    between: str
    after: str
    where: str
    places: tuple[str, ...]
    hint: str
    section: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Checked:
    """What was looked for and is no finding: `fine` by family, too `small`, and `unknown` by why it is."""

    fine: tuple[tuple[str, tuple[str, ...]], ...]
    small: tuple[str, ...]
    unknown: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def words(self) -> str:
        """How many there are of each; empty where there are none."""
        fine, unknown = (sum(len(titles) for _, titles in groups) for groups in (self.fine, self.unknown))
        counts = {"checked and fine": fine, "too small to matter": len(self.small), "not known": unknown}
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


@dataclass(frozen=True, slots=True)
class Told:
    """What a report says of findings: the first as cards, and how many more there are."""

    cards: tuple[Card, ...]
    more: int
    notes: tuple[str, ...]
    checked: Checked | None
    how: str  # Help of the section.

    @property
    def of_places(self) -> str:
        """What times of places mean; empty without any."""
        return _PLACES if any(card.places for card in self.cards) else ""


def told(report: Report, most: int, links: Mapping[str, tuple[str, str]] | None = None) -> Told | None:
    """Return at most so many findings; None of a report for which none were looked for.

    `links` has id and title, by name, of the sections that there are to link to.
    """
    section, every = section_of(report), findings(report.sections)
    if section is None and not every:
        return None
    notes, how = (section.notes, section.help) if section else ((), "")
    shown = tuple(cards(every[:most], links or {}))
    return Told(shown, len(every) - len(shown), notes, checked(section), how)


def num_before(report: Report, shown: Sequence[str]) -> int:
    """Return how many of some sections, by name, come before the findings: of a comparison, what changed."""
    order = [section.name for section in report.sections]
    before = set(order[: order.index(SECTION)]) if SECTION in order else set[str]()
    return sum(name in before for name in shown)


def findings(sections: Iterable[Section]) -> list[Finding]:
    """Return all findings, in the order of the report: what is most worthwhile first."""
    return [finding for section in sections for finding in section.findings]


def section_of(report: Report) -> Section | None:
    """Return the section of findings, if the report has one that could be made."""
    return next((s for s in report.sections if s.name == SECTION and s.status is Status.OK), None)


def cards(given: Sequence[Finding], links: Mapping[str, tuple[str, str]]) -> list[Card]:
    """Return findings as cards, their texts of bounded length; `links` as in `told`."""
    ids = Counter[str]()
    cards = list[Card]()
    for finding in map(bounds.finding, given):
        name = f"f-{_ID.sub('-', finding.code)[:_LONGEST_ID].strip('-') or 'x'}"
        ids[name] += 1
        cards.append(
            Card(
                name if ids[name] == 1 else f"{name}-{ids[name]}",
                finding,
                saving(finding),
                between(finding),
                after(finding),
                where(finding),
                tuple(place(span) for span in finding.spans[:_MOST_PLACES]),
                hint(finding.spans),
                links.get(finding.section),
            )
        )
    return cards


def saving(finding: Finding) -> str:
    """Return what a finding would save, and of what, if it says so: `up to 491 ms per step, 41 %`.

    Where it is known, what becomes of the step follows: `; step 1.20 s → 709 ms`.
    """
    if not finding.saving_ns:
        return ""
    most = ", ".join(filter(None, (f"up to {_time(finding.saving_ns)}{_per(finding)}", _share(finding.share))))
    return "; ".join(filter(None, (most, _step(finding))))


def _step(finding: Finding) -> str:
    if finding.step_ns is None or finding.without_ns is None:
        return ""
    before, after = _time(finding.step_ns), _time(finding.without_ns)
    return f"mean step {before} → {after}" if before != after else f"mean step stays {before}"


def after(finding: Finding) -> str:
    """Return what the step would be without it, and how that is known; else that the saving is a ceiling, and why."""
    if not finding.saving_ns:
        return ""
    if words := _step(finding):
        stays = "" if "→" in words else ": other ranks, or collectives, are waited for as long"
        how = _COMPUTED if finding.is_across_ranks else ""
        return f"{words[:1].upper()}{words[1:]} if all of this, and nothing else, were gone{stays}.{how}"
    return f"A ceiling, as {finding.ceiling}." if finding.ceiling else ""


def between(finding: Finding) -> str:
    """Return between what a saving lies, and what of it no finding before has: a sentence or two."""
    if not finding.saving_ns:
        return ""
    low, share = finding.low_ns, _share(finding.share)
    times = f"{_time(low)} to {_time(finding.saving_ns)}" if low and low < finding.saving_ns else ""
    said = f"{times or f'up to {_time(finding.saving_ns)}'}{_per(finding)}{f' (up to {share})' if share else ''}."
    further = finding.further_ns
    if further is None or further >= _COVERED * finding.saving_ns:
        return said
    return f"{said} Beyond what is above: {f'up to {_time(further)}' if further else 'nothing'}."


def _per(finding: Finding) -> str:
    return " per step" if finding.is_per_step else " in all"


def _time(ns: float) -> str:
    return fmt.text(ns, Unit.NANOSECONDS)


def _share(share: float | None) -> str:
    """In whole percents; below one with a decimal."""
    if not share:
        return ""
    percent = 100 * share
    return f"{percent:.{0 if percent >= _ONE else 1}f}{fmt.NNBSP}%"


def where(finding: Finding) -> str:
    """Return on which ranks and in which steps, if not on all and not in the title anyway."""
    said = filter(None, (_numbered("rank", finding.ranks), _numbered("step", finding.steps)))
    return ", ".join(each for each in said if not re.search(rf"\b{re.escape(each)}\b", finding.title, re.IGNORECASE))


def _numbered(what: str, numbers: Collection[int]) -> str:
    """Return `rank 3` or `ranks 0 to 6, 9`; of very many runs how many numbers they are, and the first."""
    runs = list[list[int]]()
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = list[str]()
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > _FEW else [str(number) for number in run]
    if not parts:
        return ""
    count = len(set(numbers))
    if len(parts) > _MOST_NUMBERS:
        return f"{count:,} {what}s ({', '.join(parts[:_FIRST_NUMBERS])}, …)"
    return f"{what}{'s' if count > 1 else ''} {', '.join(parts)}"


def place(span: Span) -> str:
    """Return where to look: `rank 0, step 6, at 965 ms for 126 ms: name`."""
    step = "" if span.step is None else f", step {span.step}"
    at = f"rank {span.rank}{step}, at {_time(span.start)} for {_time(span.end - span.start)}"
    return f"{at}: {span.name}" if span.name else at


def hint(spans: Sequence[Span]) -> str:
    """Return what to search for in a viewer of traces to find the places; empty where nothing is known."""
    step = next((f"`ProfilerStep#{span.step}`" for span in spans if span.step is not None), "")
    name = "the name" if any(span.name for span in spans) else ""
    return f"In Perfetto, search for {', then for '.join(filter(None, (step, name)))}." if step or name else ""


def checked(section: Section | None) -> Checked | None:
    """Return what was looked for and not found; None where the section does not tell."""
    table = next((t for t in section.tables if t.spec.name == "checked"), None) if section else None
    columns = ("code", "title", "family", "state")
    if table is None or not set(columns) <= set(table.frame.columns):
        return None
    fine, small, unknown = dict[str, list[str]](), list[str](), dict[str, list[str]]()
    for code, title, family, state in zip(*(map(str, column_values(table.frame[c])) for c in columns), strict=True):
        rule = f"{title} ({code})"
        if state == "fine":
            fine.setdefault(family, []).append(rule)
        elif state == _TOO_LITTLE:
            small.append(rule)
        elif state != "found":
            unknown.setdefault(state[:1].upper() + state[1:], []).append(rule)
    return Checked(_frozen(fine), tuple(small), _frozen(unknown))


def _frozen(groups: Mapping[str, Sequence[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((name, tuple(titles)) for name, titles in groups.items())
