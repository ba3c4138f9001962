"""No report makes a page larger than its limit, and what is left out is counted."""

import base64
import json
import random
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from render.sample import REAL, sample
from render.test_html import Page, block

from htareport.errors import OutputError
from htareport.render.html import fit
from htareport.render.html.page import LIMIT, html
from htareport.report import Chart, Column, Mark, Report, Section, Status, Table, TableSpec, Unit, key
from htareport.report.findings import Finding, Severity

CHARTS = [chart for section in sample().sections for chart in section.charts]


def table(name, rows, columns, names=None, *, detail=False):
    """A table of many different numbers."""
    numbers = np.random.default_rng(rows).integers(0, 10**9, (rows, columns))
    frame = pd.DataFrame(numbers, columns=[f"c{i}" for i in range(columns)])
    frame.insert(0, "name", names or [f"kernel {i}" for i in range(rows)])
    measures = (Column(f"c{i}", f"Column {i}", Unit.NANOSECONDS, f"What column {i} means.") for i in range(columns))
    return Table(TableSpec(name, name, (key("name", "Kernel", Unit.NAME), *measures), is_detail=detail), frame)


def sections(count, **parts):
    """Sections of one kind, with the given charts or tables in each."""
    return tuple(Section(f"s{i}", f"Section {i}", "Kernels", **parts) for i in range(count))


def long_names(count, size):
    """Names that cannot be compressed."""
    source = random.Random(1)  # noqa: S311  not for secrets
    return [base64.b64encode(source.randbytes(size * 3 // 4)).decode() for _ in range(count)]


def many_long_names(count=20):
    names = long_names(200, 12_000)
    return Report(
        "r", sections=sections(count, tables=(table("a", 200, 6, names), table("b", 200, 3, names, detail=True)))
    )


def many_charts():
    return Report("r", sections=sections(20, charts=tuple(CHARTS)))


def many_warnings():
    return replace(sample(), warnings=tuple(f"Rank {i}: {'something ' * 30}" for i in range(100_000)))


def many_ranks():
    tables = (table("a", 1024, 12), table("b", 4096, 8, detail=True))
    return Report("r", sections=sections(17, tables=tables))


def many_columns(count=17):
    return Report("r", sections=sections(count, tables=(table("a", 500, 300),)))


def many_sections():
    return Report("r", sections=sections(1000, tables=(table("a", 100, 5),), charts=(CHARTS[0],), help="word " * 500))


def many_words():
    meta = {
        "files": [{"name": "f" * 5000, "note": "n" * 5000}] * 10_000,
        "left_out": [{"name": f"{i}.json", "reason": "r" * 3000} for i in range(10_000)],
        "x" * 10_000: "y" * 10**6, "source": "s" * 10**5, "window": "w" * 10**5,
    }  # fmt: skip
    finding = Finding("c" * 10**4, Severity.HIGH, "f" * 10**4, "e" * 10**5, "a" * 10**5)
    more = tuple(
        Section(f"s{i}", "T" * 10**5, "G" * 10**5, "h" * 10**6, Status.FAILED, "r" * 10**6, ("n" * 10**5,) * 100,
                findings=(finding,) * 30) for i in range(40)
    )  # fmt: skip
    return Report("t" * 10**6, "v" * 10**6, meta, ("w" * 10**5,) * 50, more)


def huge_chart():
    shares = np.random.default_rng(1).random(32_000) * 1e9
    frame = pd.DataFrame({"x": np.repeat(range(8_000), 4), "y": shares, "part": list("abcd") * 8_000})
    chart = Chart("c", "Too many columns", Mark.STACKED_BAR, frame, "x", "y", "part")
    return replace(sample(), sections=(*sample().sections, Section("h", "Huge", "Ranks", charts=(chart,))))


@cache
def page(make):
    """The page of a report that is made by a function."""
    return html(make())


_LONGEST = (many_long_names, many_ranks, many_columns, many_sections)
HOSTILE = (
    many_charts,
    many_warnings,
    many_words,
    huge_chart,
    *(pytest.param(each, marks=pytest.mark.slow) for each in _LONGEST),
)


@pytest.mark.parametrize("report", HOSTILE)
def test_no_report_is_larger_than_the_limit(report):
    text = page(report)
    assert len(text.encode()) <= LIMIT
    assert not Page(text).open


def test_ordinary_reports_lose_nothing():
    assert "did not fit" not in html(sample(1024))


def test_what_is_left_out_is_said():
    text = page(many_charts)
    drawn = text.count("<figure")
    left = sum(int(n) for n in re.findall(r"(\d+) charts? did not fit", text))
    assert drawn > 50
    assert left > 0
    assert drawn + left == 20 * len(CHARTS)
    assert "100,000" not in page(many_warnings)
    assert "99,895 more warnings in the JSON." in page(many_warnings)
    assert "1 chart did not fit" in page(huge_chart)
    assert "241 columns more did not fit" in html(many_columns(1))
    words = page(many_words)
    assert "9,800 more files" in words
    assert "1,150 more findings" in words


def test_rows_as_data_go_after_rows_as_markup():
    text = html(many_long_names(4))
    rows = json.loads(block(Page(text), "table-s0-a-data"))
    left = int(re.search(r"(\d+) rows? more did not fit", text)[1])
    assert len(rows) + left == 200
    assert "[cut: 12,000 characters, checksum" in text
    full = [row[0][0] for row in rows]
    assert len(set(full)) == len(full)


def test_what_cannot_fit_is_an_error():
    def render(_):
        return b"x" * 100

    with pytest.raises(OutputError, match="does not fit into 99 bytes"):
        fit.Fitter(99, [], {}, render, lambda _: 0).page()


def test_a_name_stands_in_full_once():
    names = [f"{REAL[0]}{i}" for i in range(5)]
    first = Section("a", "A", "Kernels", tables=(table("other", 5, 1, names),))
    spec = TableSpec("gaps", "Gaps", (key("at", "At"), Column("before", "Before", Unit.NAME)))
    gaps = Table(spec, pd.DataFrame({"at": range(5), "before": names}))
    text = html(Report("r", sections=(replace(first, name="z", tables=(gaps,)), first)))
    page = Page(text)
    assert text.count("<code>void at::native") == 5
    links = re.findall(r'<td class="k"><a href="#(kernel-\w+)">', text)
    assert len(links) == 5
    assert set(links) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert text.index('<a href="#kernel') < text.index("<code>void at::native")  # The table about kernels has them.
