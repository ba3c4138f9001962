"""The Markdown summary for pull requests and job pages. Names stand in code spans, where nothing in them can act."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from htareport.render import about, empty_columns, findings, kernel_names, prose
from htareport.render.charts import ticks as fmt
from htareport.render.environment import environment
from htareport.render.html.page import cards
from htareport.report import Report, Section, Status, Table, Unit
from htareport.report.json_codec import column_values

LIMIT = 60_000  # Characters; comments on pull requests end at 65,536.
_ROWS = (10, 5, 3, 0)
_LONGEST_CELL = 80
_MOST_COLUMNS = 8
_MOST_WARNINGS = 20
_MOST_FINDINGS = 20
_LONGEST_TEXT = 1500
_INDENT = "    "  # Of what belongs to an item of a numbered list.
_MARKS = {"strong": "**", "em": "*"}
_BREAKS = str.maketrans("\t\n\r", "   ")
_ACTIVE = re.compile(r"([\\`*_\[\]<>#|~$&@]|:(?=\S)|(?<=www)\.)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding, as Markdown: its title, what it could save and where, and what is said below that."""

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

    It has no more than LIMIT characters: tables get shorter, then sections at the end are left out, and it says so.
    """
    for rows in _ROWS:
        if len(text := _render(report, rows, None)) <= LIMIT:
            return text
    sections = _good(report)
    for count in range(len(sections), -1, -1):
        if len(text := _render(report, 0, count)) <= LIMIT:
            return text
    return text[: LIMIT - 1] + "…"


def _render(report: Report, rows: int, most: int | None) -> str:
    good, told = _good(report), findings.summary(report, _MOST_FINDINGS)
    shown = good[:most]
    blocks = [Block(words(section.title), _table(section, rows)) for section in shown]
    return environment().get_template("report.md.j2").render(
        title=_safe(report.title), verdict=_safe(report.verdict), chips=[_safe(chip) for chip in about.chips(report)],
        window=_safe(about.window(report)), version=_safe(about.version(report)),
        warnings=[_safe(warning) for warning in report.warnings[:_MOST_WARNINGS]],
        more_warnings=max(0, len(report.warnings) - _MOST_WARNINGS),
        cards=[(_safe(f.label), _safe(fmt.text(f.value, f.unit)), _safe(f.detail)) for f in cards(report.sections)],
        told=told, findings=[_advice(card, whole=rows > 0) for card in told.cards] if told else [],
        notes=[Markup(_cut(note)) for note in told.notes] if told else [],  # noqa: S704
        sections=[(Markup(block.title), Markup(block.table)) for block in blocks],  # noqa: S704
        before=findings.num_before(report, [section.name for section in shown]),
        missing=_reasons(report, Status.NOT_APPLICABLE), failed=_reasons(report, Status.FAILED),
        left_out=len(good) - len(shown),
    )  # fmt: skip


def _good(report: Report) -> list[Section]:
    """The sections that could be made, but for the findings, which stand before them."""
    advice = findings.findings_section(report)
    return [section for section in report.sections if section.status is Status.OK and section is not advice]


def _advice(card: findings.Card, *, whole: bool) -> Advice:
    finding, below = card.finding, list[str]()
    if whole:
        below += [_cut(finding.evidence), f"Try: {_cut(finding.advice)}" if finding.advice else ""]
        below += [block(kernel_names.cut(finding.snippet, _LONGEST_TEXT)) if finding.snippet else ""]
        below += [" ".join(filter(None, (f"Could save {card.between}" if card.between else "", card.after)))]
    told = ", ".join(filter(None, (card.saving, card.where)))
    lines = tuple(Markup(text.replace("\n", f"\n{_INDENT}")) for text in below if text)  # noqa: S704
    return Advice(finding.severity.capitalize(), Markup(_cut(finding.title)), Markup(told), lines)  # noqa: S704


def _cut(text: str) -> str:
    return marked(kernel_names.cut(text, _LONGEST_TEXT))


def _reasons(report: Report, status: Status) -> list[tuple[Markup, Markup]]:
    return [(_safe(s.title), _safe(kernel_names.cut(s.reason, 400))) for s in report.sections if s.status is status]


def _table(section: Section, rows: int) -> str:
    table = next(filter(empty_columns.is_shown, section.tables), None)
    if table is None or not rows:
        return ""
    values = {column.name: column_values(table.frame[column.name].head(rows)) for column in table.spec.columns}
    columns = [column for column in table.spec.columns if empty_columns.has_value(values[column.name])][:_MOST_COLUMNS]
    head = " | ".join(words(column.label) for column in columns)
    rule = " | ".join("---" if column.unit.is_text else "--:" for column in columns)
    cells = [_cells(values[column.name], column.unit) for column in columns]
    body = (" | ".join(row) for row in zip(*cells, strict=True))
    return "\n".join(f"| {line} |" for line in (head, rule, *body)) + _more(table, rows)


def _more(table: Table, rows: int) -> str:
    left = len(table.frame) - rows
    return f"\n\n{left:,} more row{'' if left == 1 else 's'} in the full report." if left > 0 else ""


def _cells(values: list[Any], unit: Unit) -> list[str]:
    """Return a column's cells, names that are short for the same told apart."""
    texts = [fmt.text(value, unit) for value in values]
    if unit is Unit.NAME:
        labels = kernel_names.labels(
            (t for t, v in zip(texts, values, strict=True) if not fmt.is_missing(v)), _LONGEST_CELL
        )
        return [code(labels.get(text, text)) for text in texts]
    return [code(kernel_names.cut(text, _LONGEST_CELL)) if unit is Unit.TEXT else words(text) for text in texts]


def code(text: str, *, in_table: bool = True) -> str:
    """Return text as inert inline code, also inside a table: fenced by more backticks than it holds in a row."""
    text = kernel_names.visible(text).translate(_BREAKS)
    text = text.replace("|", "\\|") if in_table else text
    if not text.strip():
        return "` `"
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def block(text: str) -> str:
    """Return lines of code as a fenced block, in which nothing acts."""
    text = kernel_names.visible(text).replace("\r", "␍").strip("\n")
    fence = "`" * max(3, max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{fence}python\n{text}\n{fence}"


def marked(text: str, plain: Callable[[str], str] | None = None) -> str:
    """Return a text of ours on one line with its code as code; `plain` (`words`) makes everything else inert."""
    parts = list[str]()
    for kind, said in prose.pieces(" ".join(text.split())):
        inert = code(said, in_table=False) if kind == "code" else (plain or words)(said)
        around = _MARKS.get(kind, "")
        parts.append(
            f"{said[: said[:1] == ' ']}{around}{inert}{around}{' ' if said.strip() and said[-1] == ' ' else ''}"
        )
    return "".join(parts)


def words(text: str) -> str:
    """Return text as plain words: everything that Markdown or HTML could take for markup is escaped."""
    return _ACTIVE.sub(r"\\\1", kernel_names.visible(text).translate(_BREAKS).strip())


def _safe(text: str) -> Markup:
    return Markup(words(text))  # noqa: S704  escaped for Markdown; HTML's escapes would show there
