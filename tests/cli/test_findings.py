"""Findings on the command line: the lines of `htareport report`, choosing them, and their thresholds."""

from __future__ import annotations

import json

import pytest
from builder import TraceBuilder

ONLY = ("--only", "findings,step_time")
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.fixture
def starved(tmp_path):
    """Four steps of 1000 µs, in the first 600 of which the loader runs and the GPU has nothing to do.

    The GPU waits 600 µs in each of the four steps.
    """
    trace = TraceBuilder(0)
    for step in range(4):
        at = 1000 * step
        trace.step(step, at, 1000).annotation(LOADER, at, 600)
        trace.kernel("gemm", at + 620, 380, launch=(at + 605, 5))
    trace.write(tmp_path / "traces" / "rank0.json")
    return tmp_path / "traces"


def report(path):
    return json.loads(path.read_bytes())


def test_the_first_findings_stand_before_the_files(cli, starved):
    """One line each, as in the report; the last line is still the file's."""
    lines = cli("report", starved, "-o", "r.json").out.replace("\u202f", " ").splitlines()
    assert lines[0].startswith("1. high   The GPU waits 600 µs per step for the data loader")
    assert lines[0].endswith("(600 µs per step, 60 %; mean step 1.00 ms → 400 µs)")
    assert [line[:3] for line in lines[:-1]] == ["1. ", "2. ", "3. "][: len(lines) - 1]
    assert lines[-1].startswith("r.json  ")
    assert cli("report", starved, *ONLY, "-o", "r.json", "-q").out == ""
    assert "1. high" not in cli("report", starved, *ONLY, "-o", "-", "-o", "r.json").err


def test_a_saved_report_tells_them_again(cli, starved):
    first = cli("report", starved, *ONLY, "-o", "r.json").out.splitlines()[:-1]
    assert first
    assert cli("report", "r.json", "-o", "s.md").out.splitlines()[:-1] == first


def test_a_comparison_does_not(cli, starved):
    assert len(cli("report", starved, *ONLY, "-o", "r.json").out.splitlines()) > 1
    assert len(cli("diff", "r.json", "r.json", "-o", "d.json").out.splitlines()) == 1


def test_names_are_harmless_on_the_terminal(cli, starved, tmp_path):
    """Escapes and line ends of a title are spelled out."""
    cli("report", starved, *ONLY, "-o", "r.json", "-q")
    saved = report(tmp_path / "r.json")
    saved["sections"][0]["findings"][0]["title"] = "`a\x1b[31m`\nr.html  1 B \u202e"
    (tmp_path / "s.json").write_text(json.dumps(saved))
    ran = cli("report", "s.json", "-o", "t.md")
    assert ran.status == 0
    assert ran.out.splitlines()[0].startswith("1. high   a")
    assert not set("\x1b\u202e") & set(ran.out)
    assert len(ran.out.splitlines()) == len(saved["sections"][0]["findings"][:3]) + 1


def test_only_findings(cli, starved, tmp_path):
    """No other section; the page, the summary and the verdict work without their numbers."""
    ran = cli("report", starved, "--only", "findings", "-o", "r.json", "-o", "r.html", "-o", "r.md")
    assert ran.status == 0
    saved = report(tmp_path / "r.json")
    assert [section["name"] for section in saved["sections"]] == ["findings"]
    assert "First: The GPU waits 600" in saved["verdict"]
    assert 'id="f-H' in (tmp_path / "r.html").read_text(encoding="utf-8")
    cli("report", starved, "--only", "step_time", "-o", "s.json")
    assert [section["name"] for section in report(tmp_path / "s.json")["sections"]] == ["step_time"]
    ran = cli("report", starved, "--only", "finding", "-o", "r.json")
    assert (ran.status, "did you mean findings?" in ran.err) == (2, True)


def test_thresholds(cli, starved, tmp_path):
    """By option and by file; what is not the default stands in the report."""
    titles = "the data loader"
    (tmp_path / "h.toml").write_text("[set.H15]\nleast = 0.9\n[set.H14]\nleast = 0.9\n")
    for options in (["--set", "H15.least=0.9", "--set", "H14.least=0.9"], ["--config", "h.toml"]):
        assert cli("report", starved, "--only", "findings", "-o", "r.json", *options).status == 0
        saved = report(tmp_path / "r.json")
        assert not [each for each in saved["sections"][0]["findings"] if titles in each["title"]]
        assert saved["meta"]["options"] == {"H14": {"least": 0.9}, "H15": {"least": 0.9}}
    ran = cli("report", starved, "--set", "H14.leest=0.9")
    assert (ran.status, "H14 has no option 'leest'" in ran.err) == (2, True)
    ran = cli("report", starved, "--set", "H14.least=much")
    assert (ran.status, "H14.least: 'much' is not a number" in ran.err) == (2, True)


def test_gates(cli, starved, tmp_path):
    """Of a severity or a rule; the base of a comparison may be as bad as it likes."""
    assert cli("report", starved, *ONLY, "-o", "r.json", "--fail-on", "finding: high").status == 1
    assert cli("report", starved, *ONLY, "-o", "s.json", "--fail-on", "finding: M1").status == 0
    TraceBuilder(0).step(0, 0, 100).kernel("gemm", 0, 100, launch=(0, 1)).write(tmp_path / "busy" / "rank0.json")
    assert cli("report", tmp_path / "busy", *ONLY, "-o", "busy.json").status == 0
    assert cli("diff", "r.json", "busy.json", "-o", "d.json", "--fail-on", "finding: high").status == 0
    assert cli("diff", "busy.json", "r.json", "-o", "d.json", "--fail-on", "finding: high").status == 1
