"""The summary as PDF: pages, text, size, and what happens without Pango."""

from __future__ import annotations

import builtins
import logging
import re
import shutil
import subprocess
from dataclasses import replace

import pandas as pd
import pytest
from render.sample import sample

from htareport.errors import MissingLibraryError
from htareport.files.output import write
from htareport.render import pdf as pdf_module
from htareport.render.highlights import title
from htareport.report import Column, Report, Section, Status, Table, TableSpec, Unit, key

SMALL = Report("small", "A verdict.")

pytest.importorskip("weasyprint", exc_type=(ImportError, OSError), reason="WeasyPrint or Pango is not here")


WRONG = []


@pytest.fixture(scope="module")
def made():
    """The bytes; what WeasyPrint logs meanwhile goes to WRONG."""
    handler = logging.Handler(logging.ERROR)
    handler.emit = WRONG.append
    logging.getLogger("weasyprint").addHandler(handler)
    data = pdf_module.pdf(sample(), full_report=("report.html", "0123456789abcdef" * 4))
    logging.getLogger("weasyprint").removeHandler(handler)
    return data


def told(tool: str, data: bytes, path, *options: str) -> str:
    found = shutil.which(tool)
    if not found:
        pytest.skip(f"{tool} (poppler-utils) is not here")
    path.write_bytes(data)
    command = [found, *options, str(path), *(["-"] if tool == "pdftotext" else [])]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def text_of(data: bytes, path) -> str:
    return told("pdftotext", data, path, "-layout")


def test_text_can_be_selected(made, tmp_path):
    """Verdict, key numbers, names and the hash of the full report."""
    report, text = sample(), text_of(made, tmp_path / "a.pdf")
    flat = " ".join(text.split())
    assert " ".join(report.verdict.split()).replace("\u202f", " ") in flat.replace("\u202f", " ")
    assert "report.html" in flat
    assert "0123456789abcdef" in flat


def test_size_and_pages(made, tmp_path):
    """At most four pages and 300 KB."""
    assert made.startswith(b"%PDF-")
    assert len(made) < 300_000
    pages = re.search(r"Pages: +(\d+)", told("pdfinfo", made, tmp_path / "a.pdf"))
    assert int(pages[1]) <= pdf_module.MAX_PAGES


def test_tagged_with_title(made, tmp_path):
    """As PDF/UA asks."""
    info = told("pdfinfo", made, tmp_path / "a.pdf")
    assert re.search(r"Tagged: +yes", info)
    assert re.search(r"Title: +llama", info)


def test_equal_reports_give_equal_bytes(made):
    """No clock and no random ids."""
    assert pdf_module.pdf(sample(), full_report=("report.html", "0123456789abcdef" * 4)) == made


def test_nothing_is_drawn_wrong(made):
    """WeasyPrint only logs what it cannot draw."""
    assert WRONG == []


def test_hostile_title_stays_text(tmp_path):
    """In the footer it is a CSS string, from which nothing gets out."""
    hostile = '"; } body { display: none } </style><script>x</script> \\" \n ünï'
    data = pdf_module.pdf(replace(SMALL, title=hostile))
    assert "About" in text_of(data, tmp_path / "a.pdf")


def test_endless_title_is_cut():
    """Laid out in whole it would take minutes; the page, the footer and the document's title all have it short."""
    report = replace(sample(), title="t" * 20_000)
    text = pdf_module.summary_html(report, [], "A4", None)
    assert "t" * 250 not in text
    assert text.count(title(report)) == 2  # and in the footer, where what is not ASCII is escaped
    assert text.count(title(report).partition("…")[0]) == 3


@pytest.mark.parametrize("paper", list(pdf_module.PAPERS))
def test_paper(paper, tmp_path):
    """A4 or Letter, in points."""
    info = told("pdfinfo", pdf_module.pdf(SMALL, paper=paper), tmp_path / "a.pdf")
    assert re.search({"A4": r"Page size: +595", "Letter": r"Page size: +612"}[paper], info)


@pytest.mark.parametrize("lines", [1, 5])
def test_no_title_stands_at_the_end_of_a_page(lines, tmp_path):
    """Of a table, which would begin on the next one."""
    one = next(section for section in sample().sections if section.charts and section.tables)
    sections = [replace(one, name=f"s{n}", title=f"Section {n}", group=f"chapter {n}") for n in range(9)]
    report = Report("r", "A verdict.", warnings=tuple(map(str, range(lines))), sections=tuple(sections))
    titles = {block.title for block in pdf_module.selected_blocks(report, 1000) if block.title}
    pages = text_of(pdf_module.pdf(report), tmp_path / "a.pdf").split("\f")[:-1]
    ends = [[line.strip() for line in page.splitlines() if line.strip()][-2:] for page in pages]
    assert titles
    assert len(pages) > 1
    assert not [end for end in ends if titles & set(end)]


def test_no_more_than_fits():
    """With little room the first sections of the chapters stay, and the rest is named."""
    report = sample()
    some, all_of_it = pdf_module.selected_blocks(report, 300), pdf_module.selected_blocks(report, 1_000_000)
    assert 0 < len(some) < len(all_of_it)
    assert "In the full report only" in pdf_module.summary_html(report, some, "A4", None)


def test_names_are_told_apart():
    """Rows of a table that begin alike, and no columns or tables without content."""
    gemm = "sm90_xmma_gemm_bf16bf16_bf16f32_tn_n_tilesize{}_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas"
    names = [gemm.format(tile) for tile in ("128x256x64", "64x64x64")]
    columns = (key("name", "Kernel", Unit.NAME), Column("host", "Host"), Column("time", "Time", Unit.NANOSECONDS))
    frame = pd.DataFrame({"name": names, "host": "", "time": [2, 1]})
    tables = [Table(TableSpec(title, title, columns), one) for title, one in
              (("zeros", frame.assign(time=0)), ("times", frame))]  # fmt: skip
    report = Report("r", sections=(Section("s", "S", "Kernels", tables=tuple(tables)),))
    text = pdf_module.summary_html(report, pdf_module.selected_blocks(report, 300), "A4", None)
    assert "tilesize128x256x64</td>" in text
    assert "tilesize64x64x64</td>" in text
    assert "zeros" not in text
    assert "Host" not in text


def test_sections_that_are_missing_for_one_reason_are_told_once():
    gone = [Section(n, f"Section {n}", "Time", status=Status.NOT_APPLICABLE, reason="no GPU: look") for n in "ab"]
    text = pdf_module.summary_html(Report("r", sections=tuple(gone)), [], "A4", None)
    assert "<strong>Section a, Section b</strong>: not in this report, no GPU: look" in text


def test_without_pango(monkeypatch, tmp_path):
    """One line that names what to install; no half-written file."""
    real = builtins.__import__

    def refuse(name, *rest, **more):
        if name == "weasyprint":
            raise OSError("cannot load library 'libgobject-2.0-0'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingLibraryError, match=r"apt-get install libpango-1\.0-0"):
        write(sample(), tmp_path / "a.pdf")
    assert list(tmp_path.iterdir()) == []
