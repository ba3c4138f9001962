"""The suffix picks the format; a file appears whole or not at all."""

import csv
import io
import os
import re
import subprocess
import sys
import zipfile

import pandas as pd
import pytest
from render.sample import HOSTILE, sample

from htareport.errors import OutputError, UsageError
from htareport.files.output import output_formats, write
from htareport.render.csv import csv_text, neutral
from htareport.render.markdown import LIMIT, code, markdown, words
from htareport.render.notebook import notebook_html, section_html
from htareport.report import Column, Report, Section, Table, TableSpec, Unit, key


@pytest.mark.parametrize("suffix", list(output_formats()))
def test_every_suffix_twice_the_same(suffix, tmp_path, monkeypatch):
    """That the PDF is the same is tested where it is made; here a stand-in takes its place."""
    monkeypatch.setattr("htareport.render.pdf.pdf", lambda _report, **_: b"%PDF-")
    first, second = (write(sample(), tmp_path / f"{name}{suffix}") for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {first.name, second.name}


def test_json_comes_back_equal(tmp_path):
    for suffix in (".json", ".json.gz"):
        report = Report.load(write(sample(), tmp_path / f"r{suffix}"))
        assert report.to_json() == sample().to_json()
    assert write(report, tmp_path / "r.html").read_bytes() == write(sample(), tmp_path / "s.html").read_bytes()


def test_unknown_suffix_names_the_known(tmp_path):
    with pytest.raises(UsageError, match=r"\.csv\.zip"):
        write(sample(), tmp_path / "report.docx")


def test_where_nothing_can_be_written(tmp_path):
    with pytest.raises(OutputError, match=r"no/report\.json"):
        write(sample(), tmp_path / "no" / "report.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        write(sample(), tmp_path / "folder.json")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.json"]


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OutputError, match=r"r\.json: No space left"):
        write(sample(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_permissions_are_those_of_any_file(tmp_path):
    path = write(sample(), tmp_path / "r.json")
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_import_is_cheap():
    code_ = "import sys, htareport.render; print(sorted({'jinja2', 'plotly', 'pandas'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code_], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_csv_zip_has_every_table(tmp_path):
    with zipfile.ZipFile(write(sample(), tmp_path / "r.csv.zip")) as archive:
        assert archive.namelist() == [
            "temporal_breakdown.per_rank.csv", "comm_overlap.comm_overlap.csv", "kernel_breakdown.kernels.csv",
        ]  # fmt: skip
        text = archive.read("kernel_breakdown.kernels.csv").decode()
    assert text.startswith("\ufeffKernel,Kind,Total (ns),Share (ratio),Calls,")
    rows = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    frame = sample()["kernel_breakdown"].table()
    assert [int(row[2]) for row in rows[1:]] == frame["sum"].tolist()
    assert [row[0].lstrip("'") for row in rows[1:]] == frame["name"].tolist()


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1+cmd", "@SUM(A1)", "\t=1", "\r=1", HOSTILE[4]])
def test_formulas_are_neutral(cell):
    assert neutral(cell) == f"'{cell}"


def test_numbers_and_gaps_stay():
    assert neutral(-5) == -5
    assert neutral(float("nan")) == ""
    spec = TableSpec("t", "T", (key("n", "=N", Unit.NAME), Column("v", "V", Unit.BYTES)))
    assert (
        csv_text(Table(spec, pd.DataFrame({"n": ['a"b,c\n'], "v": [-1.5]}))) == '\'=N,V (bytes)\r\n"a""b,c\n",-1.5\r\n'
    )


def test_markdown_says_the_essentials():
    text = markdown(sample())
    assert text.startswith("# llama-7b")
    for part in ("231 ms per step", "| Step time | **264\u202fms** |", "Hardware counters", "## Kernel breakdown",
                 "390 more rows", "clock offset"):  # fmt: skip
        assert part in text
    assert len(text) <= LIMIT


def test_markdown_never_outgrows_a_comment():
    columns = tuple(Column(f"c{i}", "Column " * 5, Unit.COUNT) for i in range(8))
    frame = pd.DataFrame({column.name: range(20) for column in columns})
    sections = tuple(
        Section(f"s{i}", f"Section {i}", "Time", tables=(Table(TableSpec("t", "T", columns), frame),))
        for i in range(100)
    )
    text = markdown(Report("t", "v" * 200, {}, ("warning " * 50,) * 50, sections))
    assert len(text) <= LIMIT
    assert len(markdown(Report("t" * 100_000))) <= LIMIT


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_inert_in_markdown(name):
    span = code(name)
    fence = re.match(r"`+", span)[0]
    inner = span[len(fence) : -len(fence)]
    assert fence not in inner
    assert not re.search(r"(?<!\\)\|", inner)
    assert not re.search("[\u0000-\u001f\u202e\u2066]", span)
    assert not re.search(r"(?<!\\)[<@#`\[]", words(name))
    assert not re.search(r"(?<!\\)://", words(name))


def test_markdown_shows_what_does_not_show():
    assert code("a\u202eb\x1b") == "`a⟨U+202E⟩b␛`"
    assert words("a\u202eb\nc") == "a⟨U+202E⟩b c"
    spec = TableSpec("t", "T", (key("name", "Kernel", Unit.NAME),))
    names = ["", "void k<float, 1>(int)", "void k<float, 2>(int)"]
    table = Table(spec, pd.DataFrame({"name": names}))
    text = markdown(Report("r", sections=(Section("s", "S", "K", tables=(table,)),)))
    assert "| `(no name)` |\n| `k fp32 · 1` |\n| `k fp32 · 2` |" in text
    lines = csv_text(table).split("\r\n")
    assert lines[1:4] == ['""', '"void k<float, 1>(int)"', '"void k<float, 2>(int)"']


def test_notebook_has_no_scripts():
    text = notebook_html(sample())
    assert "<script" not in text
    assert "231 ms per step" in text
    assert "264\u202fms" in text
    assert text.count("<svg") == 14
    assert HOSTILE[1] not in text
    assert "400 rows" in section_html(sample()["kernel_breakdown"])
