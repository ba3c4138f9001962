"""The Markdown summary for pull requests and job pages. Names are in code spans, where no markup in them acts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from htareport.render import about, empty_columns, findings, kernel_names, prose
from htareport.render.charts import ticks as fmt
from htareport.render.environment import environment
from htareport.render.html.page import cards
from htareport.report import Column, Report, Section, Status, Table, Unit

LIMIT = 60_000  # Characters; comments on pull requests end at 65,536.
_ROWS = (10, 5, 3, 0)
_MAX_CELL = 80
_MAX_COLUMNS = 8
_MAX_WARNINGS = 20
_MAX_FINDINGS = 20
_MAX_TEXT = 1500
_INDENT = "    "  # Of what belongs to an item of a numbered list.
_MARKS = {"strong": "**", "em": "*"}
_LINE_BREAKS = str.maketrans("\t\n\r", "   ")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~$&@]|:(?=\S)|(?<=www)\.)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding as Markdown: its title, what it could save and where, and the paragraphs below that."""

    severity: str
    title: Markup
    saving: Markup
    below: tuple[Markup, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One section's title and the head of its first table, as Markdown."""

    title: str
    table: str


def markdown(report: Report) -> str:
    """Return the summary: verdict, warnings, key numbers, the head of each section's first table.

    It has no more than LIMIT characters: tables get shorter, then the last sections are left out and counted.
    """
    for max_rows in _ROWS:
        if len(text := _render(report, max_rows, None)) <= LIMIT:
            return text
    sections = findings.other_sections(report)
    for count in range(len(sections), -1, -1):
        if len(text := _render(report, 0, count)) <= LIMIT:
            return text
    return text[: LIMIT - 1] + "…"


def _render(report: Report, max_rows: int, max_sections: int | None) -> str:
    sections, summary = findings.other_sections(report), findings.summary(report, _MAX_FINDINGS)
    shown_sections = sections[:max_sections]
    blocks = [Block(words(section.title), _table(section, max_rows)) for section in shown_sections]
    return environment().get_template("report.md.j2").render(
        title=_safe(report.title), verdict=_safe(report.verdict), chips=[_safe(chip) for chip in about.chips(report)],
        window=_safe(about.window(report)), version=_safe(about.version(report)),
        warnings=[_safe(warning) for warning in report.warnings[:_MAX_WARNINGS]],
        more_warnings=max(0, len(report.warnings) - _MAX_WARNINGS),
        cards=[(_safe(f.label), _safe(fmt.text(f.value, f.unit)), _safe(f.detail)) for f in cards(report.sections)],
        told=summary, findings=[_advice(card, has_details=max_rows > 0) for card in summary.cards] if summary else [],
        notes=[Markup(_cut(note)) for note in summary.notes] if summary else [],  # noqa: S704
        sections=[(Markup(block.title), Markup(block.table)) for block in blocks],  # noqa: S704
        before=findings.num_before(report, [section.name for section in shown_sections]),
        missing=_reasons(report, Status.NOT_APPLICABLE), failed=_reasons(report, Status.FAILED),
        left_out=len(sections) - len(shown_sections),
    )  # fmt: skip


def _advice(card: findings.Card, *, has_details: bool) -> Advice:
    finding, below = card.finding, list[str]()
    if has_details:
        below += [_cut(finding.evidence), f"Try: {_cut(finding.advice)}" if finding.advice else ""]
        below += [block(kernel_names.cut(finding.snippet, _MAX_TEXT)) if finding.snippet else ""]
        below += [" ".join(filter(None, (f"Could save {card.between}" if card.between else "", card.after)))]
    saving_and_place = ", ".join(filter(None, (card.saving, card.where)))
    lines = tuple(Markup(text.replace("\n", f"\n{_INDENT}")) for text in below if text)  # noqa: S704
    return Advice(finding.severity.capitalize(), Markup(_cut(finding.title)), Markup(saving_and_place), lines)  # noqa: S704


def _cut(text: str) -> str:
    return marked(kernel_names.cut(text, _MAX_TEXT))


def _reasons(report: Report, status: Status) -> list[tuple[Markup, Markup]]:
    return [(_safe(s.title), _safe(kernel_names.cut(s.reason, 400))) for s in report.sections if s.status is status]


def _table(section: Section, max_rows: int) -> str:
    table = next(filter(empty_columns.is_shown, section.tables), None)
    if table is None or not max_rows:
        return ""
    columns = empty_columns.filled_columns(table, max_rows, _MAX_COLUMNS)
    cells = [_cells(values, column.unit) for column, values in columns]
    return table_text([column for column, _ in columns], zip(*cells, strict=True)) + _more(table, max_rows)


def table_text(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], plain: Callable[[str], str] | None = None
) -> str:
    """Return a table with the labels of columns as heading, made inert by `plain` (`words`); cells stay as they are."""
    labels = [(plain or words)(column.label) for column in columns]
    rule = ["---" if column.unit.is_text else "--:" for column in columns]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (labels, rule, *rows))


def _more(table: Table, max_rows: int) -> str:
    num_left = len(table.frame) - max_rows
    return f"\n\n{num_left:,} more row{'' if num_left == 1 else 's'} in the full report." if num_left > 0 else ""


def _cells(values: list[Any], unit: Unit) -> list[str]:
    """Return a column's cells; names with equal short forms say in what they differ."""
    texts = [fmt.text(value, unit) for value in values]
    if unit is Unit.NAME:
        labels = kernel_names.labels(
            (shown for shown, value in zip(texts, values, strict=True) if not fmt.is_missing(value)), _MAX_CELL
        )
        return [code(labels.get(text, text)) for text in texts]
    return [code(kernel_names.cut(text, _MAX_CELL)) if unit is Unit.TEXT else words(text) for text in texts]


def code(text: str, *, in_table: bool = True) -> str:
    """Return text as inert inline code, also inside a table: fenced by more backticks than it holds in a row."""
    text = kernel_names.visible(text).translate(_LINE_BREAKS)
    text = text.replace("|", "\\|") if in_table else text
    if not text.strip():
        return "` `"
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def block(text: str) -> str:
    """Return lines of code as a fenced block, in which no markup acts."""
    text = kernel_names.visible(text).replace("\r", "␍").strip("\n")
    fence = "`" * max(3, max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{fence}python\n{text}\n{fence}"


def marked(text: str, plain: Callable[[str], str] | None = None) -> str:
    """Return one of our own texts on one line with its code as code; `plain` (`words`) makes everything else inert."""
    texts = list[str]()
    for kind, span in prose.marked_spans(" ".join(text.split())):
        inert = code(span, in_table=False) if kind == "code" else (plain or words)(span)
        marks = _MARKS.get(kind, "")
        texts.append(f"{span[: span[:1] == ' ']}{marks}{inert}{marks}{' ' if span.strip() and span[-1] == ' ' else ''}")
    return "".join(texts)


def words(text: str) -> str:
    """Return text with everything escaped that Markdown or HTML could take for markup."""
    return _SPECIAL.sub(r"\\\1", kernel_names.visible(text).translate(_LINE_BREAKS).strip())


def _safe(text: str) -> Markup:
    return Markup(words(text))  # noqa: S704  escaped for Markdown; HTML's escapes would show there
