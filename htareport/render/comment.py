"""The comment on a pull request: the headline number, key numbers, findings, and folded details.

Text from the traces is inert: names are in code spans, and elsewhere nothing mentions people, issues or links.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlsplit

from markupsafe import Markup

from htareport.errors import UsageError
from htareport.render import about, highlights, kernel_names
from htareport.render.charts import ticks as fmt
from htareport.render.environment import environment
from htareport.render.findings import findings, saving
from htareport.render.html.page import cards
from htareport.render.markdown import LIMIT, code, marked, table_text, words
from htareport.report import Report, Unit

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MENTIONS = re.compile(
    r"(@|#|!|%|~|\$|&|\bGH-|:(?=\\?/))(?=[\w\\/\"])"
)  # People, issues, merge requests, labels, links.
_ENVIRONMENT_TERMS = {
    "Folder", "Ranks read", "World size", "Devices", "Steps", "Window", "Versions", "Recorded with",
    "Start of the trace",
}  # fmt: skip
_MAX_WARNINGS = 5
_MAX_GATES = 20
_MAX_FINDINGS = 3
_MAX_TEXT, _MAX_VERDICT = 400, 1_200
_URL_SAFE = "/:?#@!$&'*+,=%~-._"


def marker(name: str = "report") -> str:
    """Return the hidden line that identifies a comment. UsageError for a name that is no id."""
    if not _ID.fullmatch(name) or "--" in name:  # Two hyphens would end the hidden line on some sites.
        raise UsageError(f"--id {name}: is no id of letters, digits, dots, underscores and single hyphens")
    return f"<!-- htareport:{name} -->"


def comment(report: Report, *, name: str = "report", artifact_url: str = "") -> str:
    """Return the comment as Markdown, of no more than 60,000 characters.

    `name` distinguishes several comments on one pull request. UsageError for an invalid `name` or `artifact_url`.
    """
    label, number = highlights.headline(report)
    text = ""
    for max_rows in (10, 5, 0):
        text = environment().get_template("comment.md.j2").render(
            marker=Markup(marker(name)), label=label, number=_safe(number), title=_name(highlights.title(report)),  # noqa: S704
            verdict=_safe(report.verdict, _MAX_VERDICT), change=_safe(highlights.change(report)),
            warnings=[_safe(warning) for warning in report.warnings[:_MAX_WARNINGS]],
            more_warnings=max(0, len(report.warnings) - _MAX_WARNINGS),
            gates=[tuple(map(_safe, gate)) for gate in highlights.gates(report)[:_MAX_GATES]],
            crossed=Markup(", ").join(_safe(gate) for gate, state, _ in highlights.gates(report) if state == "crossed"),
            numbers=[tuple(map(_safe, row)) for row in highlights.numbers(report)],
            cards=[(_safe(f.label), _safe(highlights.value(f)), _safe(f.detail)) for f in cards(report.sections)],
            findings=[(_safe(f.severity.capitalize()), _marked(f.title), _safe(saving(f)), _marked(f.advice))
                      for f in findings(report.sections)[:_MAX_FINDINGS]],
            more_findings=max(0, len(findings(report.sections)) - _MAX_FINDINGS),
            kernels=_grid(highlights.kernels(report, max_rows)) if max_rows else None,
            ranks=_grid(highlights.worst_ranks(report, max_rows)) if max_rows else None,
            entries=[(_safe(entry.term), _safe(entry.text)) for entry in about.entries(report)
                     if max_rows and entry.term in _ENVIRONMENT_TERMS],
            link=Markup(_link(artifact_url)) if artifact_url else "", version=_safe(about.version(report)),  # noqa: S704
        )  # fmt: skip
        if len(text) <= LIMIT:
            break
    return text.encode("utf-8", "replace").decode()


def _link(url: str) -> str:
    """Return a URL with everything escaped that Markdown could read."""
    url_parts = urlsplit(url)
    if url_parts.scheme not in {"http", "https"} or not url_parts.netloc or not url.isprintable() or " " in url:
        raise UsageError(f"--artifact-url {url}: is no http(s) URL")
    return quote(url, safe=_URL_SAFE)


def _grid(grid: highlights.Grid | None) -> tuple[str, Markup] | None:
    """Return title and Markdown of a table."""
    if grid is None:
        return None
    units = [column.unit for column in grid.columns]
    rows = (list(map(_cell, row, units)) for row in grid.rows)
    count = f" ({len(grid.rows)} of {grid.total:,})" if grid.total > len(grid.rows) else ""
    return grid.title + count, Markup(table_text(grid.columns, rows, calm))  # noqa: S704  escaped


def _cell(cell: Any, unit: Unit) -> str:
    text = fmt.text(cell, unit)
    return (
        code(kernel_names.cut(text, highlights.MAX_NAME)) if unit.is_text and not fmt.is_missing(cell) else calm(text)
    )


def calm(text: str, max_length: int = _MAX_TEXT) -> str:
    """Return text that mentions nobody: an invisible space follows each sign that could."""
    return _MENTIONS.sub("\\1&#8203;", words(kernel_names.cut(text, max_length)))


def _safe(text: str, max_length: int = _MAX_TEXT) -> Markup:
    return Markup(calm(text, max_length))  # noqa: S704  escaped for Markdown; HTML's escapes would show there


def _marked(text: str) -> Markup:
    return Markup(marked(kernel_names.cut(text, _MAX_TEXT), calm))  # noqa: S704  ditto


def _name(text: str) -> Markup:
    return Markup(code(text))  # noqa: S704  ditto
