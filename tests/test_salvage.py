"""Damaged files that are salvaged on request: marked wherever their numbers stand, in every format."""

from __future__ import annotations

import shutil
import subprocess
import warnings

import pytest
from builder import TraceBuilder

from htareport import TraceAnalysis, analyze
from htareport.analyses.time.step_time import StepTime
from htareport.analyses.time.temporal_breakdown import TemporalBreakdown
from htareport.errors import NothingToReadError
from htareport.files.output import encoded, write
from htareport.render.comment import comment
from htareport.report import Report

SAID = "Rank 1 is salvaged: the numbers hold for what was kept of a file that is damaged or ends early."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rank 1 ends within its third kernel: two kernels of 10 µs with 5 µs between them are complete."""
    tmp_path = tmp_path_factory.mktemp("salvage")
    for rank in range(2):
        made = TraceBuilder(rank, world_size=2).step(0, 0, 100)
        for number in range(5):
            made.kernel("gemm", 10 + 15 * number, 10, launch=(1 + number, 1))
        path = made.write(tmp_path / "traces" / f"rank{rank}.json")
    text = path.read_text()
    cut = text.index("gemm", text.index("gemm", text.index("gemm") + 1) + 1)
    path.write_text(text[: cut + 2])
    return tmp_path / "traces"


@pytest.fixture(scope="module")
def report(folder):
    return analyze(folder, salvage=True)


def test_only_on_request(folder):
    """Otherwise the file is not used, and named with the place and what would help."""
    report = analyze(folder)
    assert report["temporal_breakdown"].table()["rank"].tolist() == [0]
    (problem,) = report.meta["problems"]
    assert problem.startswith("rank1.json: not used: the file ends early, at byte ")
    assert problem.endswith("; --salvage (salvage=True) keeps what is complete (rank 1 is missing)")
    with pytest.raises(
        NothingToReadError, match=r"rank1\.json: not used: the file ends early, at byte \d+ \(line \d+\)"
    ):
        analyze(folder / "rank1.json")


def test_numbers_are_those_of_what_was_kept(report):
    """Two kernels: 20 µs busy within 25 µs."""
    table = report["temporal_breakdown"].table().set_index("rank")
    assert table.loc[1, ["span", "busy", "idle", "num_device_events"]].tolist() == [25_000, 20_000, 5_000, 2]
    assert table.loc[0, ["span", "busy", "num_device_events"]].tolist() == [70_000, 50_000, 5]


def test_it_is_marked(report):
    """In the verdict, the warnings, the metadata, and at each section, table and chart that it has a part in."""
    assert report.verdict.endswith(SAID)
    assert report.warnings[0].startswith("rank 1 is salvaged: rank1.json: the file ends early, at byte ")
    assert sum("salvaged" in warning for warning in report.warnings) == 1
    assert [bool(rank.get("salvaged")) for rank in report.meta["ranks"]] == [False, True]
    assert [file.get("note", "") for file in report.meta["files"]] == ["", "salvaged"]
    assert report.meta["problems"] == []
    for section in report.sections:
        if section.tables:
            assert section.notes[0] == SAID, section.name
            assert all(chart.caption.endswith(" Salvaged: rank 1.") for chart in section.charts)
    for table in report["temporal_breakdown"].tables:
        assert table.note.endswith("Salvaged: rank 1."), table.spec.name
    assert report["trace_quality"].table("salvaged")["events"].tolist() == [6]


@pytest.mark.parametrize("suffix", [".html", ".md", ".eml", ".json"])
def test_every_format_says_so(report, suffix):
    """Whatever else is left out for space."""
    data = encoded(report, suffix).decode().replace("=\n", "").replace("\n", " ")
    assert "Rank 1 is salvaged" in data.replace("\\", "")


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="needs pdftotext (poppler-utils)")
def test_the_pdf_says_so(report, tmp_path):
    """On its first page."""
    pytest.importorskip("weasyprint", exc_type=(ImportError, OSError), reason="WeasyPrint or Pango is not here")
    path = write(report, tmp_path / "a.pdf")
    command = [str(shutil.which("pdftotext")), "-l", "1", str(path), "-"]
    text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert "Rank 1 is salvaged" in " ".join(text.split())


def test_the_comment_says_so(report):
    assert "Rank 1 is salvaged" in comment(report).replace("\\", "")


def test_it_stays_in_a_saved_report(report):
    assert Report.from_json(report.to_json()).verdict == report.verdict


def test_processes_find_the_same(folder, report, two_processes):
    assert analyze(folder, salvage=True, executor=two_processes).to_json() == report.to_json()


def test_hta(folder):
    """TraceAnalysis: without, the rank is missing; with, it is there and warned of."""
    with pytest.warns(UserWarning, match=r"rank1\.json: not used: the file ends early"):
        assert TraceAnalysis(trace_dir=folder).get_temporal_breakdown()["rank"].tolist() == [0]
    with pytest.warns(UserWarning, match=r"rank 1 is salvaged: rank1\.json: "):
        analysis = TraceAnalysis(trace_dir=folder, salvage=True)
    table = analysis.get_temporal_breakdown().set_index("rank")
    assert table.loc[1, "kernel_time(us)"] == 25.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TraceAnalysis(trace_files={0: str(folder / "rank0.json")}, salvage=True)


def test_the_command_line(cli, folder):
    """Exit 0 with a warning, 4 without the option, 3 where nothing is left."""
    ran = cli("report", folder, "--salvage", "-o", "a.json", "--only", "temporal_breakdown")
    assert ran.status == 0
    assert ran.err.startswith("warning: rank 1 is salvaged: rank1.json: the file ends early, at byte ")
    assert cli("report", folder, "-o", "a.json", "--only", "temporal_breakdown").status == 4
    assert cli("report", folder / "rank1.json", "-o", "b.json").status == 3
    assert cli("report", folder / "rank1.json", "-o", "b.json", "--salvage").status == 0
    ran = cli("validate", folder, "--salvage")
    assert ran.status == 0
    assert "rank 1 is salvaged" in ran.err
    assert cli("validate", folder).status == 4


def test_a_rank_that_is_cut_is_not_blamed(tmp_path):
    """What is there of it takes most time of its own; nobody waits for it, and the verdict names another."""
    for rank in range(3):
        trace = TraceBuilder(rank, 3)
        for step in range(8):
            at, own = 1000 * step, 600 if rank == 2 else 500
            trace.step(step, at, 1000).kernel("gemm", at, own, launch=(at, 1))
            if rank or step < 4:
                trace.collective("ncclDevKernel_AllReduce", "allreduce", at + own, 900 - own, launch=(at + 2, 1))
        trace.write(tmp_path / f"{rank}.json")
    (tmp_path / "0.json").write_bytes((tmp_path / "0.json").read_bytes()[:-200])
    report = analyze(tmp_path, analyses=[TemporalBreakdown(), StepTime()], salvage=True)
    assert [each["rank"] for each in report.meta["ranks"]] == [0, 1, 2]
    assert report["temporal_breakdown"].fact("late_rank").value == 2
    assert "rank 0," not in report.verdict
