"""Findings in words, as every format shows them: what each could save, where to look, and which rules found nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from htareport.render.charts import ticks as fmt
from htareport.render.html import bounds
from htareport.report import Report, Section, Status, Unit
from htareport.report.findings import Finding, SavingKind, Span
from htareport.report.json_codec import column_values
from htareport.report.number_lists import range_texts

SECTION = "findings"  # Name of the section that is shown as cards, and nowhere else.
_TOO_SMALL = "too little by itself"  # Outcome of a rule whose finding would save too little.
_ID = re.compile(r"[^A-Za-z0-9_]+")
_MAX_ID = 80
_MAX_RANGES, _SHOWN_RANGES = 20, 5  # Of ranks or steps in a sentence; of more only these.
_MAX_PLACES = 5
_PLACES_HELP = (
    "Where to look: times count from the run's first event. Perfetto (ui.perfetto.dev) opens the trace file of each "
    "rank; its ruler counts from the file's first row."
)
_REPLAY_NOTE = " Ranks still wait for each other, transfers last as long, and what compute hides stays hidden."
_MIN_WHOLE_PERCENT = 0.95  # Rounds to 1 %.
_PREFIX = {None: "up to ", SavingKind.CEILING: "up to ", SavingKind.ESTIMATE: "about ", SavingKind.REPLAYED: ""}
_NEW_SHARE = 0.95  # Of a saving: with so much of it not covered before, a finding overlaps with none.


@dataclass(frozen=True, slots=True)
class Card:
    """One finding with its sentences, and those nested under it; `section`: id and title of that with its numbers."""

    id: str
    finding: Finding
    saving: str
    between: str
    after: str
    where: str
    places: tuple[str, ...]
    hint: str
    section: tuple[str, str] | None
    nested: tuple[Card, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """The rules without a finding: `fine` by family, too `small` a saving, and `unknown` by the reason."""

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
class FindingsSummary:
    """The findings of a report: the first as cards, and how many more there are."""

    cards: tuple[Card, ...]
    more: int
    notes: tuple[str, ...]
    checked: Checked | None
    how: str  # Help of the section.

    @property
    def of_places(self) -> str:
        """What the times of places mean; empty without any."""
        return _PLACES_HELP if any(card.places for card in self.cards) else ""


def summary(
    report: Report, max_findings: int, links: Mapping[str, tuple[str, str]] | None = None
) -> FindingsSummary | None:
    """Return the first findings; None where no rules ran.

    `links` has, by name, id and title of the sections that findings can link to.
    """
    section, all_cards = findings_section(report), cards(all_findings(report.sections), links or {})
    if section is None and not all_cards:
        return None
    notes, how = (section.notes, section.help) if section else ((), "")
    shown_cards = tuple(all_cards[:max_findings])
    return FindingsSummary(shown_cards, len(all_cards) - len(shown_cards), notes, checked(section), how)


def num_before(report: Report, section_names: Sequence[str]) -> int:
    """Return how many of these sections come before the findings: in a comparison, the one with the changes."""
    order = [section.name for section in report.sections]
    before = set(order[: order.index(SECTION)]) if SECTION in order else set[str]()
    return sum(name in before for name in section_names)


def findings(sections: Iterable[Section]) -> list[Finding]:
    """Return the findings in the order of the report, the largest saving first; without those nested under others."""
    return [finding for finding in all_findings(sections) if finding.nested_under is None]


def all_findings(sections: Iterable[Section]) -> list[Finding]:
    """Return all findings, those nested under others last."""
    return [finding for section in sections for finding in section.findings]


def findings_section(report: Report) -> Section | None:
    """Return the section of findings, or None where it is missing or failed."""
    return next((s for s in report.sections if s.name == SECTION and s.status is Status.OK), None)


def other_sections(report: Report) -> list[Section]:
    """Return the sections with results, without that of findings."""
    section_of_findings = findings_section(report)
    return [s for s in report.sections if s.status is Status.OK and s is not section_of_findings]


def cards(findings: Sequence[Finding], links: Mapping[str, tuple[str, str]]) -> list[Card]:
    """Return findings as cards, their texts of bounded length, nested ones within others; `links` as in `summary`."""
    id_count = Counter[str]()
    cards, leaders = list[Card](), list[int | None]()
    for finding in map(bounds.finding, findings):
        card_id = f"f-{_ID.sub('-', finding.code)[:_MAX_ID].strip('-') or 'x'}"
        id_count[card_id] += 1
        leaders.append(finding.nested_under)
        cards.append(
            Card(
                card_id if id_count[card_id] == 1 else f"{card_id}-{id_count[card_id]}",
                finding,
                saving(finding),
                between(finding),
                after(finding),
                where(finding),
                tuple(span_text(span) for span in finding.spans[:_MAX_PLACES]),
                hint(finding.spans),
                links.get(finding.section),
            )
        )
    nested = dict[int | None, list[Card]]()
    for card, leader in zip(cards, leaders, strict=True):
        nested.setdefault(leader if leader is not None and leader < len(cards) else None, []).append(card)
    places = {card.id: place for place, card in enumerate(cards)}
    return [replace(card, nested=tuple(nested.get(places[card.id], ()))) for card in nested.get(None, [])]


def saving(finding: Finding) -> str:
    """Return what a finding saves: `491 ms per step, 41 %`; empty where that is not known.

    An estimate begins with `about`, a ceiling with `up to`. The new step time follows where it is known: `; mean step
    1.20 s → 709 ms`.
    """
    if not finding.saving_ns:
        return ""
    amount = f"{_PREFIX[finding.saving_kind]}{_time(finding.saving_ns)}{_base(finding)}"
    return "; ".join(filter(None, (", ".join(filter(None, (amount, _share(finding.share)))), _step(finding))))


def _step(finding: Finding) -> str:
    if finding.step_ns is None or finding.without_ns is None:
        return ""
    now, without_cause = _time(finding.step_ns), _time(finding.without_ns)
    return f"mean step {now} → {without_cause}" if now != without_cause else f"mean step stays {now}"


def after(finding: Finding) -> str:
    """Return the step time without the finding's cause and how it was computed, or why the saving is only a ceiling."""
    if not finding.saving_ns:
        return ""
    if step := _step(finding):
        others_wait = "" if "→" in step else ": other ranks, or collectives, are waited for as long"
        note = _REPLAY_NOTE if finding.is_across_ranks else ""
        return f"{step[:1].upper()}{step[1:]} if all of this, and nothing else, were gone{others_wait}.{note}"
    return f"A ceiling, as {finding.ceiling}." if finding.ceiling else ""


def between(finding: Finding) -> str:
    """Return the range of a saving, and how much of it the findings before do not cover: a sentence or two."""
    if not finding.saving_ns:
        return ""
    low, share, prefix = finding.low_ns, _share(finding.share), _PREFIX[finding.saving_kind]
    is_range = finding.saving_kind is not SavingKind.REPLAYED and low and low < finding.saving_ns
    times = f"{_time(low)} to {_time(finding.saving_ns)}" if is_range and low else ""
    amount = times or f"{prefix}{_time(finding.saving_ns)}"
    sentence = f"{amount}{_base(finding)}{f' ({prefix}{share})' if share else ''}."
    if finding.saving_kind is not SavingKind.CEILING and finding.saving_kind is not None:
        return sentence
    not_covered = finding.further_ns
    if not_covered is None or not_covered >= _NEW_SHARE * finding.saving_ns:
        return sentence
    return f"{sentence} Beyond what is above: {f'up to {_time(not_covered)}' if not_covered else 'nothing'}."


def _base(finding: Finding) -> str:
    return " per step" if finding.is_per_step else " in all"


def _time(time_ns: float) -> str:
    return fmt.text(time_ns, Unit.NANOSECONDS)


def _share(share: float | None) -> str:
    """Return a share in whole percent, below one with a decimal."""
    if not share:
        return ""
    percent = 100 * share
    return f"{percent:.{0 if percent >= _MIN_WHOLE_PERCENT else 1}f}{fmt.NNBSP}%"


def where(finding: Finding) -> str:
    """Return on which ranks and in which steps, unless on all or named in the title."""
    phrases = filter(None, (_numbered("rank", finding.ranks), _numbered("step", finding.steps)))
    return ", ".join(
        phrase for phrase in phrases if not re.search(rf"\b{re.escape(phrase)}\b", finding.title, re.IGNORECASE)
    )


def _numbered(noun: str, numbers: Collection[int]) -> str:
    """Return `rank 3` or `ranks 0 to 6, 9`; of very many ranges how many numbers they have, and the first."""
    distinct = set(numbers)
    texts = range_texts(distinct, " to ")
    if len(texts) > _MAX_RANGES:
        return f"{len(distinct):,} {noun}s ({', '.join(texts[:_SHOWN_RANGES])}, …)"
    return f"{noun}{'s' if len(distinct) > 1 else ''} {', '.join(texts)}" if texts else ""


def span_text(span: Span) -> str:
    """Return where to look in the trace: `rank 0, step 6, at 965 ms for 126 ms: name`."""
    step = "" if span.step is None else f", step {span.step}"
    text = f"rank {span.rank}{step}, at {_time(span.start)} for {_time(span.end - span.start)}"
    return f"{text}: {span.name}" if span.name else text


def hint(spans: Sequence[Span]) -> str:
    """Return what to search for in a trace viewer to find the places; empty where nothing is known."""
    step = next((f"`ProfilerStep#{span.step}`" for span in spans if span.step is not None), "")
    name = "the name" if any(span.name for span in spans) else ""
    return f"In Perfetto, search for {', then for '.join(filter(None, (step, name)))}." if step or name else ""


def checked(section: Section | None) -> Checked | None:
    """Return the rules without a finding; None where the section has no table of them."""
    tables = section.tables if section else ()
    table = next((table for table in tables if table.spec.name == "checked"), None)
    columns = ("code", "title", "family", "state")
    if table is None or not set(columns) <= set(table.frame.columns):
        return None
    fine, too_small, unknown = dict[str, list[str]](), list[str](), dict[str, list[str]]()
    cells = (map(str, column_values(table.frame[column])) for column in columns)
    for code, title, family, state in zip(*cells, strict=True):
        rule = f"{title} ({code})"
        if state == "fine":
            fine.setdefault(family, []).append(rule)
        elif state == _TOO_SMALL:
            too_small.append(rule)
        elif state != "found":
            unknown.setdefault(state[:1].upper() + state[1:], []).append(rule)
    return Checked(_as_tuples(fine), tuple(too_small), _as_tuples(unknown))


def _as_tuples(groups: Mapping[str, Sequence[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((name, tuple(titles)) for name, titles in groups.items())
