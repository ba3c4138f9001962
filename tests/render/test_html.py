"""The page: complete in itself, allowed by its own policy, small, the same every time, and deaf to hostile names."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from render.sample import HOSTILE, REAL, sample

from htareport.errors import UsageError
from htareport.render.html import plotly_bundle, tables
from htareport.render.html.base91 import DIGITS, encode
from htareport.render.html.page import LIMIT, html
from htareport.report import Column, Fact, Report, Section, Table, TableSpec, Unit, key

VOID = {"meta", "br", "link", "img", "input", "hr"}
OWN_TAGS = {
    "html", "head", "meta", "title", "script", "style", "body", "a", "div", "nav", "ol", "ul", "li", "button", "main",
    "header", "h1", "h2", "h3", "h4", "p", "aside", "details", "summary", "span", "b", "section", "dl", "dt", "dd",
    "table", "thead", "tbody", "tr", "th", "td", "label", "input", "select", "option", "code", "strong", "figure",
    "figcaption", "svg", "desc", "g", "rect", "path", "text",
}  # fmt: skip


class Page(HTMLParser):
    """The elements of a page, and its tags in balance."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.open, self.ids, self.blocks = set(), [], [], []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Note what opens."""
        self.tags.add(tag)
        attributes = dict(attrs)
        assert not any(name.startswith("on") for name in attributes)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        for link in ("href", "src"):
            assert attributes.get(link, "#").startswith("#")
        if tag not in VOID and tag not in {"path", "rect"}:
            self.open.append(tag)
        if tag in {"script", "style"}:
            self.blocks.append((tag, attributes, ""))

    def handle_endtag(self, tag):
        """See that it was open."""
        if tag in {"path", "rect"}:
            return
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Keep scripts and styles."""
        if self.open and self.open[-1] in {"script", "style"}:
            tag, attributes, text = self.blocks[-1]
            self.blocks[-1] = (tag, attributes, text + data)


@pytest.fixture(scope="module")
def text():
    return html(sample())


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def block(page: Page, name: str) -> bytes:
    return gzip.decompress(decode91(next(text for _, a, text in page.blocks if a.get("id") == name)))


def decode91(text: str) -> bytes:
    pairs = (text[i : i + 2] for i in range(0, len(text), 2))
    words = [(DIGITS.index(p[0]) * 91 + DIGITS.index(p[1]), 13) if len(p) == 2 else (DIGITS.index(p), 6) for p in pairs]
    bits = "".join(f"{word:0{width}b}" for word, width in words)
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits) // 8 * 8, 8))


@pytest.mark.parametrize("size", range(30))
def test_base_91_loses_nothing(size):
    """Whatever is left for the last group."""
    data = bytes(range(250, 250 - size, -1))
    assert decode91(encode(data)) == data
    assert decode91(encode(b"\xff" * size)) == b"\xff" * size
    assert not set('<"\\') & set(DIGITS)
    assert len(DIGITS) == 91


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_tags_are_ours_and_balanced(page):
    assert not page.open
    assert page.tags <= OWN_TAGS


def test_ids_are_unique_and_deep_links_exist(page):
    assert len(page.ids) == len(set(page.ids))
    for name in ("overview", "findings", "section-temporal_breakdown", "fig-temporal_breakdown-per_step", "about",
                 tables.anchor(REAL[0])):  # fmt: skip
        assert name in page.ids


def test_policy_allows_exactly_what_is_there(page):
    scripts = [text for tag, attributes, text in page.blocks if tag == "script" and "type" not in attributes]
    styles = [text for tag, _, text in page.blocks if tag == "style"]
    plotly = block(page, "plotly-data").decode()
    allowed = re.search(r"script-src ([^;]*);", page.policy)[1].split()
    assert allowed == [hash_of(script) for script in [*scripts, plotly]]
    assert {hash_of(style) for style in styles} == set(re.search(r"style-src ([^;]*);", page.policy)[1].split())
    assert "default-src 'none'" in page.policy
    assert "unsafe-eval" not in page.policy
    assert "unsafe-inline" not in page.policy.replace("style-src-attr 'unsafe-inline'", "")


def test_one_copy_of_plotly_that_shares_nothing(text):
    assert text.count('id="plotly-data"') == 1
    assert "showSendToCloud: false" in text
    assert "plotlyServerURL: ''" in text


def test_no_address_outside_of_names(text):
    plain = html(sample(hostile=False))
    assert "http:" not in plain
    assert "https:" not in plain
    assert "src=" not in plain.replace("script-src", "")
    assert "//" not in re.sub(r"<script.*?</script>", "", plain, flags=re.DOTALL)


def test_hostile_names_are_text(text, page):
    for name in HOSTILE[:4]:
        assert name not in text
    figures = json.loads(block(page, "figures-data"))["figures"]
    assert not re.search(r"<(?!br>|extra>|/extra>)[a-z/]", json.dumps(figures))


def test_hostile_text_in_every_field_stays_text():
    evil = HOSTILE[0] + HOSTILE[3] + '" onload="x'
    report = sample()
    sections = tuple(
        replace(s, title=evil, reason=evil, notes=(evil,), help=f"{evil}\n\n## {evil}\n\n- `{evil}`",
                charts=tuple(replace(c, title=evil, caption=evil, x_label=evil, y_label=evil) for c in s.charts),
                facts=tuple(replace(f, label=evil, detail=evil, help=evil) for f in s.facts),
                findings=tuple(replace(f, title=evil, evidence=evil, advice=evil, code=evil) for f in s.findings),
                tables=tuple(Table(replace(t.spec, title=evil, help=evil, columns=tuple(
                    replace(c, label=evil, help=evil) for c in t.spec.columns)), t.frame, evil) for t in s.tables))
        for s in report.sections
    )  # fmt: skip
    meta = dict.fromkeys(report.meta, evil) | {evil: evil, "files": [{"name": evil, "note": evil}]}
    made = Page(html(Report(evil, evil, meta, (evil,) * 7, sections)))
    assert made.tags <= OWN_TAGS
    assert not made.open


def test_same_bytes_every_time(text):
    assert html(sample()) == text


@pytest.mark.parametrize("ranks", [1, 64, 1024])
def test_size(ranks):
    assert len(html(sample(ranks)).encode()) <= LIMIT


def test_too_many_rows_are_left_out_and_said_so():
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"rank": range(60_000), "time": random.integers(0, 2**40, 60_000)})
    spec = TableSpec("t", "Times", (key("rank", "Rank"), Column("time", "Time", Unit.NANOSECONDS)))
    report = sample()
    big = replace(report, sections=(*report.sections, Section("big", "Big", "Ranks", tables=(Table(spec, frame),))))
    text = html(big)
    assert len(text.encode()) <= LIMIT
    left = int(re.search(r"([\d,]+) rows more did not fit", text)[1].replace(",", ""))
    rows = json.loads(block(Page(text), "table-big-t-data"))
    assert len(rows) + left == 60_000
    assert len(rows) > 10_000


def test_data_has_every_row_with_raw_numbers(page):
    frame = sample()["kernel_breakdown"].table("kernels")
    rows = json.loads(block(page, "table-kernel_breakdown-kernels-data"))
    assert [row[2] for row in rows] == frame["sum"].tolist()
    names = [row[0][0] if isinstance(row[0], list) else row[0] for row in rows]
    assert names[:10] == frame["name"].tolist()[:10]
    assert rows[1][7] is None


def test_long_names_are_cut_and_marked():
    name = "k" * 100_000
    spec = TableSpec("t", "T", (key("name", "Kernel", Unit.NAME),))
    table = Table(spec, pd.DataFrame({"name": [name, "b"]}))
    text = html(Report("r", sections=(Section("s", "S", "Kernels", tables=(table,)),)))
    assert "[cut: 100,000 characters" in text
    assert "k" * 8193 not in text


@pd.option_context("mode.string_storage", "python")  # Half a surrogate pair is no text to pyarrow.
def test_blank_and_hidden_characters_show():
    names = ["", "  ", "a\u202eb", "k\x1b\n1", "x\ud800"]
    spec = TableSpec("t", "T", (key("name", "Kernel", Unit.NAME), Column("host", "Host")))
    table = Table(spec, pd.DataFrame({"name": names, "host": ["h\u2067", *"abcd"]}))
    text = html(
        Report("r\u202e", "v\u2066", {"source": "\u202e"}, ("w\u202e",), (Section("s", "S", "K", tables=(table,)),))
    )
    page = Page(text)
    assert not re.search(r"<summary>\s*</summary>", text)
    assert '<td class="k">(no name) #1</td>' in text
    assert "<summary>a⟨U+202E⟩b</summary><code>a\u202eb</code>" in text
    assert "<summary>k␛␊1</summary><code>k&#27;\n1</code>" in text
    assert "<summary>h⟨U+2067⟩</summary><code>h\u2067</code>" in text
    assert not re.search("[\u202e\u2066-\u2069\x1b]", re.sub(r"<code>.*?</code>", "", text, flags=re.DOTALL))
    rows = json.loads(block(page, "table-s-t-data"))
    assert [row[0][0] for row in rows[:4]] == ["", "  ", "a\u202eb", "k\x1b\n1"]
    assert rows[4][0] == "x\ufffd"


def test_headings_break_once_at_most(text):
    labels = [re.sub("<.*?>", "", cell) for cell in re.findall(r"<th .*?</th>", text)]
    assert max(label.count(" ") for label in labels) == 1
    assert "Exposed communication" in labels


def test_first_fifty_rows_stand_in_the_page(text):
    part = text[text.index('id="table-kernel_breakdown-kernels"') :]
    body = part[part.index("<tbody>") : part.index("</tbody>")]
    assert body.count("<tr") == 50


def test_reasons_and_failures_are_shown(text):
    assert "the traces hold no CUPTI counters" in text
    assert "This section could not be made." in text
    assert "ValueError: &lt;b&gt;bad&lt;/b&gt;" in text


def test_details_are_folded_and_empty_ones_left_out():
    spec = TableSpec("t", "Looked up", (key("rank", "Rank"),), is_detail=True)
    full = Section("s", "S", "Ranks", tables=(Table(spec, pd.DataFrame({"rank": [0, 1, 2]})),))
    assert '<details class="detail" id="details-table-s-t">' in html(Report("r", sections=(full,)))
    empty = replace(full, tables=(Table(spec, pd.DataFrame({"rank": []})),))
    assert "Looked up" not in html(Report("r", sections=(empty,)))


def test_cards_stand_in_their_order():
    facts = tuple(Fact(str(i), f"fact {i}", i, Unit.COUNT, order=100 - i) for i in range(12))
    shown = re.findall(
        r'class="label">fact (\d+)', html(Report("r", sections=(Section("s", "S", "Time", facts=facts),)))
    )
    assert shown == ["11", "10", "9", "8", "7", "6", "5", "4"]


def test_a_card_says_what_its_number_names(text):
    """Rank 2 is a rank, not two of something."""
    assert re.search(r'<b>rank 2</b>\s*<span class="label">Slowest rank</span>', text)


def test_help_becomes_html(text):
    assert "<h4>How it is computed</h4>" in text
    assert "<li><strong>compute</strong>: kernels that are neither communication nor memory</li>" in text
    assert "<code>bucket_cap_mb</code>" in text


def test_reports_with_next_to_nothing():
    for report in (Report("empty"), Report("t", "v", {"num_ranks": 1}, ("w",), (Section("s", "S", "Time"),))):
        made = Page(html(report))
        assert not made.open


def test_odd_meta_is_no_error():
    odd = {"ranks": None, "devices": [1], "steps": 3, "files": ["x"], "left_out": {}, "software": "x", "num_ranks": "8"}
    assert Page(html(Report("t", meta=odd)))


def test_another_bundle(tmp_path):
    path = tmp_path / "small.js"
    path.write_bytes(b"/** plotly.js (small) v9.9.9 */\r\nwindow.Plotly = {};")
    made = html(sample(), plotlyjs=path)
    assert "plotly.js 9.9.9" in made
    assert len(made) < 500_000
    with pytest.raises(UsageError, match=r"missing\.js"):
        html(sample(), plotlyjs=tmp_path / "missing.js")
    path.write_text("// A library that draws like Plotly.\nlet plots = Plotly == 3;")
    with pytest.raises(UsageError, match=r"small\.js: is no plotly\.js"):
        plotly_bundle.prepare(path)


def test_bundle_is_packed_once():
    plotly_bundle.prepare()
    assert plotly_bundle.load() is plotly_bundle.load()
