"""Findings in every format: their order, what they could save, where to look, what was fine; and nothing acts."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd
import pytest
from render.sample import HOSTILE, sample
from render.test_html import OWN_TAGS, Page

from htareport.render import findings as told
from htareport.render.comment import comment
from htareport.render.html.page import html
from htareport.render.mail import html as mail
from htareport.render.mail import plain
from htareport.render.markdown import markdown
from htareport.render.notebook import notebook_html, section_html
from htareport.render.pdf import summary_html
from htareport.report import Column, Report, Section, Status, Table, TableSpec, key
from htareport.report.findings import Finding, Severity, Span

LOADER = Finding(
    "H14", Severity.HIGH, "The GPU waits 491\u202fms for `__next__`", "It runs `a|b` 491\u202fms.",
    "Load in *workers*: `num_workers=4`.", 491_158_452, "high", (0, 1, 2, 3, 7), (), 245_579_226, 491_158_452,
    "Loading is hidden.", "*Data loading* is gone.", "DataLoader(\n    num_workers=8,\n)", "temporal_breakdown",
    (Span(0, 965_478_759, 1_091_127_031, "next", 6), Span(3, 0, 1_000)), "Host and idle time", 0.4058,
)  # fmt: skip
SYNC = Finding("H4", Severity.LOW, "Calls wait", saving_ns=302_132_767, low_ns=151_066_384, further_ns=6_860_731,
               section="nowhere", share=0.0062)  # fmt: skip
NOTE = Finding("Q1", Severity.LOW, "Only 1 step")
CHECKED = [
    ("H14", "The loader", "Host", "found"), ("H1", "The host is late", "Host", "fine"),
    ("H2", "Small kernels", "Host", "fine"), ("N1", "Exposed", "Communication", "fine"),
    ("H3", "Graphs", "Host", "too little by itself"), ("M1", "Full", "Memory", "not checked: no memory events"),
    ("M3", "Holes", "Memory", "not checked: no memory events"), ("H9", "Allocations", "Host", "held back"),
]  # fmt: skip
NAMES = ("code", "title", "family", "state")
NOTES = ("All findings together could save at most 498\u202fms per step (41.1\u202f%).",)


def section(*findings: Finding, notes: tuple[str, ...] = NOTES, help_: str = "What costs time.") -> Section:
    spec = TableSpec("checked", "What was looked for", (key("code", "Rule"), *(Column(n, n) for n in NAMES[1:])),
                     is_detail=True)  # fmt: skip
    table = Table(spec, pd.DataFrame(CHECKED, columns=list(NAMES)))
    return Section("findings", "Findings", "Findings", help_, notes=notes, findings=findings, tables=(table,))


def report(*findings: Finding, before: tuple[Section, ...] = ()) -> Report:
    """The sample, whose own findings give way to these."""
    given = sample()
    rest = tuple(replace(each, findings=()) for each in given.sections)
    return replace(given, sections=(*before, section(*findings), *rest))


ALL = (LOADER, SYNC, NOTE)


@pytest.fixture(scope="module")
def page():
    return html(report(*ALL))


def test_savings_in_words():
    """Of a step, or of all that was recorded; with its share in whole percents, below one with a decimal."""
    assert told.saving(LOADER) == "up to 491\u202fms per step, 41\u202f%"
    assert told.saving(SYNC) == "up to 302\u202fms per step, 0.6\u202f%"
    assert told.saving(replace(LOADER, share=None, is_per_step=False)) == "up to 491\u202fms in all"
    assert told.saving(NOTE) == ""
    assert told.between(LOADER) == "246\u202fms to 491\u202fms per step (up to 41\u202f%)."
    assert told.between(SYNC).endswith(" Beyond what is above: up to 6.86\u202fms.")
    assert told.between(replace(SYNC, further_ns=0)).endswith(" Beyond what is above: nothing.")
    assert told.between(replace(SYNC, low_ns=None, share=None, further_ns=None)) == "up to 302\u202fms per step."


def test_the_step_without_it_in_words():
    """What becomes of it where that is known; else that the saving is a ceiling, and why."""
    known = replace(LOADER, step_ns=1_200_000_000, without_ns=1_050_000_000)
    assert told.saving(known) == "up to 491\u202fms per step, 41\u202f%; mean step 1.20\u202fs → 1.05\u202fs"
    assert told.after(known).startswith(
        "Mean step 1.20\u202fs → 1.05\u202fs if all of this, and nothing else, were gone."
    )
    assert told.after(known).endswith(" were gone.")  # Nobody else is there.
    assert " were gone. Ranks still wait for each other, " in told.after(replace(known, is_across_ranks=True))
    none = replace(known, without_ns=1_200_000_000)
    assert told.saving(none).endswith("; mean step stays 1.20\u202fs")
    assert "were gone: other ranks, or collectives, are waited for as long" in told.after(none)
    ceiling = replace(LOADER, step_ns=1_200_000_000, ceiling="there is only one rank to go by")
    assert told.saving(ceiling) == told.saving(LOADER)
    assert told.after(ceiling) == "A ceiling, as there is only one rank to go by."
    assert told.after(LOADER) == told.after(NOTE) == ""
    shown = html(report(known, replace(ceiling, code="H1")))
    assert "<dt>Without it</dt><dd>Mean step 1.20" in shown
    assert "(up to 41\u202f%). A ceiling, as there is only one rank to go by. Loading is hidden.</dd>" in shown
    for text in (markdown(report(known)), summary_html(report(known), [], "A4", None)):
        assert "step 1.20\u202fs → 1.05\u202fs" in text


def test_places_in_words():
    assert told.where(LOADER) == "ranks 0 to 3, 7"
    assert told.where(replace(LOADER, ranks=(5,), steps=(2, 4))) == "rank 5, steps 2, 4"
    assert told.where(replace(LOADER, ranks=(7,), title="Rank 7 is late")) == ""
    assert told.where(replace(LOADER, ranks=(7,), title="Rank 70 is late")) == "rank 7"
    assert told.where(replace(LOADER, ranks=tuple(range(0, 60, 2)))).endswith("30 ranks (0, 2, 4, 6, 8, …)")
    assert [told.span_text(span) for span in LOADER.spans] == [
        "rank 0, step 6, at 965\u202fms for 126\u202fms: next", "rank 3, at 0\u202fns for 1.00\u202fµs",
    ]  # fmt: skip
    assert told.hint(LOADER.spans) == "In Perfetto, search for `ProfilerStep#6`, then for the name."
    assert told.hint(LOADER.spans[1:]) == told.hint(()) == ""


def test_what_was_looked_for():
    found = told.checked(section())
    assert found.fine == (
        ("Host", ("The host is late (H1)", "Small kernels (H2)")), ("Communication", ("Exposed (N1)",)),
    )  # fmt: skip
    assert found.small == ("Graphs (H3)",)
    assert found.unknown == (
        ("Not checked: no memory events", ("Full (M1)", "Holes (M3)")), ("Held back", ("Allocations (H9)",)),
    )  # fmt: skip
    assert found.words == "3 checked and fine, 1 too small to matter, 3 not known"
    assert told.checked(replace(section(), tables=())) is None


def test_cards_stand_under_the_overview_in_the_order_of_the_report(page):
    """Not by saving, which the report has ordered by what each adds; only the first is open."""
    order = [page.index(f'id="{name}"') for name in ("overview", "findings", "f-H14", "f-H4", "f-Q1", "chapter-time")]
    assert order == sorted(order)
    assert re.findall(r'<details class="finding (\w+)" id="([\w-]+)"( open)?', page) == [
        ("high", "f-H14", " open"), ("low", "f-H4", ""), ("low", "f-Q1", ""),
    ]  # fmt: skip
    assert '<a href="#findings">Findings <span class="badge">3</span></a>' in page


def test_a_card_has_everything(page):
    card = page[page.index('id="f-H14"') : page.index('id="f-H4"')]
    text = " ".join(re.sub(r"<[^>]*>", "", card).split()).replace("\u202f", " ")
    for words in (
        "The GPU waits 491 ms for __next__ ranks 0 to 3, 7", "up to 491 ms per step, 41 %", "It runs a|b 491 ms.",
        "Try: Load in workers: num_workers=4.", "DataLoader( num_workers=8, )", "Loading is hidden.",
        "Data loading is gone.", "rank 0, step 6, at 965 ms for 126 ms: next", "H14, high confidence",
    ):  # fmt: skip
        assert words in text
    assert '<a href="#section-temporal_breakdown">Time breakdown</a>' in card
    assert "<code>DataLoader(\n    num_workers=8,\n)</code>" in card
    assert "Where to look: times count from the run" in page
    assert NOTES[0] in page
    assert "3 checked and fine, 1 too small to matter, 3 not known" in page


def test_links_lead_somewhere(page):
    ids = set(Page(page).ids)
    block = page[page.index('<section id="findings"') : page.index('id="chapter-time"')]
    assert set(re.findall(r'href="#([^"]*)"', block)) <= ids
    assert "nowhere" not in block


def test_the_section_is_no_chapter_of_its_own(page):
    """Nor are its tables shown again; JSON and CSV have them."""
    assert "chapter-findings" not in page
    assert "section-findings" not in page
    assert "What was looked for" not in page
    assert "## Findings\n" in (text := markdown(report(*ALL)))
    assert text.count("## Findings") == 1
    assert "What was looked for" not in text
    assert "What was looked for" not in notebook_html(report(*ALL))
    assert report(*ALL)["findings"].table("checked")["code"].tolist() == [row[0] for row in CHECKED]


def test_equal_codes_get_ids_of_their_own():
    page = Page(html(report(LOADER, LOADER, replace(LOADER, code='"><b>'), replace(LOADER, code="‽"))))
    assert [name for name in page.ids if name.startswith("f-")] == ["f-H14", "f-H14-2", "f-b", "f-x"]


def test_nothing_found_is_said():
    """Silence would read as not looked for."""
    for text in (html(report()), markdown(report()), summary_html(report(), [], "A4", None)):
        assert "Nothing was found that would save 0.5\u202f% of the time or more." in text
    assert '<a href="#findings">Findings</a>' in html(report())


def test_where_nobody_looked_there_is_no_block():
    given = replace(sample(), sections=tuple(replace(each, findings=()) for each in sample().sections))
    assert 'id="findings"' not in html(given)
    unfit = Section("findings", "Findings", "Findings", status=Status.NOT_APPLICABLE, reason="no rules")
    page = html(replace(given, sections=(unfit, *given.sections)))
    assert '<section id="findings"' not in page
    assert re.search(r'<span id="section-findings">Findings</span></dt><dd>no rules</dd>', page)


def test_of_a_comparison_what_changed_comes_first():
    change = Section("compare", "What changed", "Compare", "Longer.", notes=("By 5 %.",))
    page = html(report(*ALL, before=(change,)))
    assert page.index('id="chapter-compare"') < page.index('id="findings"') < page.index('id="chapter-time"')
    assert page.index('href="#chapter-compare"') < page.index('href="#findings"') < page.index('href="#chapter-time"')


def test_the_pdf_has_five_with_their_advice():
    """Code only of those that save something: how to record is said in the page. A comparison has three."""
    given = report(*ALL, *[LOADER] * 4, NOTE)
    compared = replace(given, meta=dict(given.meta) | {"comparison": {}})
    assert summary_html(compared, [], "A4", None).count('<div class="finding ') == 3
    text = summary_html(given, [], "A4", None)
    assert text.count('<div class="finding ') == 5
    assert "<em>Try:</em> Load in <em>workers</em>: <code>num_workers=4</code>." in text
    assert "<pre>DataLoader(" in text
    assert "3 more findings in the full report." in text
    assert "3 checked and fine" in text
    assert "Findings" not in text[text.index("<h2>About</h2>") :]


def test_markdown_has_code_as_code():
    text = markdown(report(*ALL)).replace("\u202f", " ")
    assert (
        "1. **High**: The GPU waits 491 ms for `__next__` (up to 491 ms per step, 41 %, ranks 0 to 3, 7)\n\n"
        "    It runs `a|b` 491 ms.\n\n"
        "    Try: Load in *workers*: `num_workers=4`.\n\n"
        "    ```python\n    DataLoader(\n        num_workers=8,\n    )\n    ```\n\n"
        "    Could save 246 ms to 491 ms per step (up to 41 %).\n"
    ) in text
    assert "2. **Low**: Calls wait (up to 302 ms per step, 0.6 %)" in text
    assert "All findings together could save at most 498 ms per step (41.1 %)." in text


def test_the_comment_has_three():
    text = comment(report(*ALL, NOTE, NOTE)).replace("\u202f", " ")
    first = "- **High**: The GPU waits 491 ms for `__next__` (up to 491 ms per step, 41 %)."
    assert [line for line in text.splitlines() if line.startswith(("- **", "- and"))] == [
        f"{first} Try: Load in *workers*: `num_workers=4`.",
        "- **Low**: Calls wait (up to 302 ms per step, 0.6 %)",
        "- **Low**: Only 1 step",
        "- and 2 more findings in the full report",
    ]


def test_mail_and_notebook():
    """With code as code in HTML, without marks in plain text; a section alone shows its findings too."""
    assert "<b>High</b>: The GPU waits 491\u202fms for <code>__next__</code>" in mail(report(*ALL), "")
    text = " ".join(plain(report(*ALL)).replace("\xa0", " ").split())
    assert "- High: The GPU waits 491 ms for __next__ (up to 491 ms per step, 41 %)" in text
    assert 'Try: Load in "workers": num_workers=4.' in text
    for cell in (notebook_html(report(*ALL)), section_html(section(*ALL))):
        assert "<pre>DataLoader(" in cell
        assert "up to 491\u202fms per step, 41\u202f%" in cell
        assert cell.count("for <code>__next__</code>") == 1


@pytest.mark.parametrize("evil", [*HOSTILE, f"`{HOSTILE[0]}`", "```\n# x\n```", "]]>`*<b>*`"])
def test_whatever_names_hold_stays_text(evil):
    """In every field of a finding, on the page, in Markdown and in a mail."""
    finding = Finding(evil, Severity.HIGH, evil, evil, evil, 5, evil, (1,), (2,), 1, 2, evil, evil, evil, evil,
                      (Span(0, 0, 5, evil, 3),), evil, 0.5)  # fmt: skip
    given = report(finding, before=()).sections
    hostile = replace(section(finding, notes=(evil,), help_=f"{evil}\n\n## {evil}"))
    made = replace(sample(), sections=(hostile, given[1]))  # And the first chapter, before which no name may act.
    text = html(made)
    page = Page(text)
    assert page.tags <= OWN_TAGS | {"em", "pre", "strong", "ul"}
    assert not page.open
    assert not re.search("[\u202e\u2066]", text[: text.index('<section id="chapter-time"')])
    text = markdown(made)
    assert not re.search(r"(?<!\\)<(?:script|img|span|a|b)\b", _outside_code(text))
    for rendered in (mail(made, ""), notebook_html(made), section_html(hostile)):
        tags = set(re.findall(r"<([a-z]+)[\s>]", rendered))
        assert not tags & {"script", "a", "iframe", "object"}
        assert "onerror=" not in re.sub(r"&[^;]*;[^<]*", "", rendered)


def _outside_code(text: str) -> str:
    """Markdown without its fenced blocks and code spans."""
    without = re.sub(r"^ *(`{3,}).*?^ *\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(?<!\\)(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", without)


def test_reports_from_before_findings_said_so_much_are_read():
    """Fields that are missing have their defaults."""
    old = Report("r", sections=(Section("findings", "F", "F", findings=(NOTE,)),))
    data = old.to_json().decode()
    for name in ("family", "share", "is_per_step", "spans", "snippet"):
        data = re.sub(rf',"{name}":(?:\[\]|[\w."]+)', "", data)
    assert '"share"' not in data
    assert Report.from_json(data) == old
