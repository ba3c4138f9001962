"""The page shows nothing that says nothing, and names what it leaves out."""

import importlib
import json
import re

import pandas as pd
import pytest
from render.test_html import Page, block

from htareport.render.environment import headline
from htareport.render.html.page import html
from htareport.render.html.sections import page_sections
from htareport.render.markdown import markdown
from htareport.report import Chart, Column, Mark, Report, Section, Status, Table, TableSpec, Unit, key

html_module = importlib.import_module("htareport.render.html.page")
WAIT = Column("wait", "Wait", Unit.NANOSECONDS)
SPEC = TableSpec("t", "By rank", (key("rank", "Rank"), Column("host", "Host"), WAIT))
LATE = pd.DataFrame({"rank": [0, 1], "host": ["", " "], "wait": [0, 7]})


def table(name, title, frame, *, detail=False):
    return Table(TableSpec(name, title, SPEC.columns, is_detail=detail), frame)


def section(*tables, charts=()):
    return Section("s", "Ranks compared", "Ranks", charts=charts, tables=tables)


def page(*tables, charts=()):
    return html(Report("r", sections=(section(*tables, charts=charts),)))


def bars(count, name="b", start="kernel"):
    frame = pd.DataFrame({"what": [f"{start} {i}" for i in range(count)], "time": range(1, count + 1)})
    return Chart(name, f"Chart {name}", Mark.BAR, frame, "time", "what", y_unit=Unit.TEXT)


def test_tables_that_say_nothing_are_named_in_one_line():
    zeros = pd.DataFrame({"rank": [0, 1], "host": ["", ""], "wait": [0, None]})
    text = page(
        table("a", "Waits", LATE), table("b", "Clocks", LATE.head(0)), table("c", "Gaps", zeros),
        table("d", "Streams", LATE.head(0)), table("e", "Looked up", LATE.head(0), detail=True),
    )  # fmt: skip
    assert '<p class="note">Left out: Clocks (no rows); Streams (no rows); Gaps (only zeros).</p>' in text
    assert re.findall(r"<h4>(.*?)</h4>", text) == ["Waits"]
    assert "Looked up" not in text
    assert "did not fit" not in text


def test_a_list_without_measures_is_shown():
    spec = TableSpec("t", "Names", (key("name", "Name", Unit.NAME),))
    assert "<h4>Names</h4>" in page(Table(spec, pd.DataFrame({"name": ["a"]})))


def test_columns_without_values_are_named_and_left_out():
    text = page(table("t", "Waits", LATE))
    assert [re.sub("<.*?>", "", cell) for cell in re.findall("<th .*?</th>", text)] == ["Rank", "Wait"]
    assert "Without a value in any row: Host." in text
    assert json.loads(block(Page(text), "table-s-t-data")) == [[0, 0], [1, 7]]


def test_markdown_leaves_the_same_out():
    zeros = pd.DataFrame({"rank": [0], "host": [""], "wait": [0]})
    text = markdown(Report("r", sections=(section(table("z", "Gaps", zeros), table("t", "Waits", LATE)),)))
    assert "| Rank | Wait |" in text
    assert "| 1 | 7" in text


@pytest.mark.parametrize(
    ("hosts", "choices"), [(["a", "b", ""], ["a", "b"]), (["a", "", None], []), (["a", "b", "c"], ["a", "b", "c"])]
)
def test_blank_cells_are_no_choice(hosts, choices):
    """One choice only, beside blanks, is none, and neither are values of which each is there but once."""
    frame = pd.DataFrame({"rank": range(12), "host": hosts * 4, "wait": range(12)})
    assert re.findall("<option>(.*?)</option>", page(table("t", "Waits", frame))) == choices
    once = frame.assign(host=[*hosts, *[""] * 9])
    assert "<option>" not in page(table("t", "Waits", once))


def test_the_search_says_what_it_finds_rows_by():
    frame = pd.DataFrame({"rank": range(11), "host": [f"host {i}" for i in range(11)], "wait": range(11)})
    assert 'placeholder="host"' in page(table("t", "Waits", frame))
    assert 'placeholder="rank"' in page(table("t", "Waits", frame.assign(host="")))
    spec = TableSpec("t", "T", (key("at", "At", Unit.NANOSECONDS), WAIT))
    assert "<label>Find" not in page(Table(spec, frame.assign(at=range(11))))


def test_charts_of_one_mark_or_none_are_left_to_their_table():
    one, none = bars(1, "one"), bars(0, "none")
    assert re.findall('<figure .*?id="fig-s-(.*?)"', page(table("t", "T", LATE), charts=(bars(2), one, none))) == ["b"]
    assert "Left out: Chart none (no data)." in page(table("t", "T", LATE), charts=(one, none))
    assert 'id="fig-s-one"' in page(charts=(one,))
    assert 'id="fig-s-one"' in page(table("t", "T", LATE, detail=True), charts=(one,))


FEW, MANY, LONG = bars(4), bars(8), bars(4, name="l", start="autograd::engine::evaluate_function: Backward")


@pytest.mark.parametrize(
    ("charts", "wide"),
    [
        ((FEW, FEW), [False, False]),
        ((FEW, FEW, FEW), [False, False, False]),  # The last one stands alone, as wide as the others.
        ((FEW,), [False]),
        ((MANY,), [True]),
        ((LONG, FEW, MANY), [True, False, False]),
        ((LONG, MANY), [True, True]),
    ],
)
def test_width_of_charts(charts, wide):
    made = page_sections(Report("r", sections=(section(charts=charts),)))
    assert [figure.is_wide for figure in made[0].figures] == wide


def test_sections_that_do_not_apply_stand_by_reason():
    sections = [
        Section(name, f"Section {name}", "Time", status=Status.NOT_APPLICABLE, reason=reason)
        for name, reason in (("a", "no GPU"), ("b", "no steps"), ("c", "no GPU"), ("d", ""))
    ]
    text = html(Report("r", sections=tuple(sections)))
    assert re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", text) == [
        ('<span id="section-a">Section a</span>, <span id="section-c">Section c</span>', "no GPU"),
        ('<span id="section-b">Section b</span>', "no steps"),
        ('<span id="section-d">Section d</span>', "it does not apply to this run"),
    ]


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ("16.0 ms per step, 5 % idle. 45 % lies outside.", ("16.0 ms per step, 5 % idle.", "45 % lies outside.")),
        ("225 ms, no steps. aten::mm takes 68 %. B.", ("225 ms, no steps.", "aten::mm takes 68 %. B.")),
        ("8 % slower (vs. main, e.g. run 7).", ("8 % slower (vs. main, e.g. run 7).", "")),
        ("", ("", "")),
    ],
)
def test_the_first_sentence_is_the_headline(verdict, told):
    assert headline(verdict) == told


def test_the_head_says_nothing_twice():
    """The folder that is the title is no chip; options are folded up, with what belongs to one analysis in a line."""
    meta = {"source": "run7", "options": {"cost": {"gpu_hour": 0.0}, "timeline": {"steps": "median"}}}
    assert "<li>run7</li>" not in html(Report("run7", meta=meta))
    text = html(Report("r", meta=meta))
    assert "<li>run7</li>" in text
    folded = text[text.index("<summary>Options") :]
    assert "<dt>timeline</dt><dd>steps: median</dd>" in folded


def test_definitions_that_do_not_fit_are_counted(monkeypatch):
    monkeypatch.setattr(html_module, "_MAX_DEFINITIONS", 400)
    columns = (key("rank", "Rank"), *(Column(f"c{i}", f"C{i}", help="What it means. " * 10) for i in range(2)))
    frame = pd.DataFrame({"rank": [0], "c0": ["a"], "c1": ["b"]})
    sections = [Section(f"s{i}", "S", "G", tables=(Table(TableSpec("t", "T", columns), frame),)) for i in range(3)]
    text = html(Report("r", sections=tuple(sections)))
    assert "4 more definitions did not fit into this file" in text
    monkeypatch.setattr(html_module, "_MAX_DEFINITIONS", 10_000)
    assert "more definition" not in html(Report("r", sections=tuple(sections)))
