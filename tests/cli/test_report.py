"""`htareport report`: files out, messages and exit status."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from builder import TraceBuilder

import htareport.cli.opening
import htareport.run.runner
from htareport.analyses.time.temporal_breakdown import TemporalBreakdown
from htareport.errors import MissingLibraryError
from htareport.files.atomic import whole_file
from htareport.files.output import output_formats
from htareport.reading.sources.saved_reports import is_saved_report
from htareport.trace import RankTrace

ONE = ("--only", "temporal_breakdown")
ROOT = Path(__file__).parents[2]


def _saved(path):
    return json.loads(path.read_bytes())


def _sections(path):
    return [section["name"] for section in _saved(path)["sections"]]


def test_default_is_html_here(cli, traces, tmp_path):
    ran = cli("report", traces, *ONE)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[-1].startswith("report.html  ")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")


def test_every_format_named_last_with_its_size(cli, traces, tmp_path):
    names = ["a.html", "b.md", "c.json", "d.json.gz", "e.csv.zip"]
    ran = cli("report", traces, *ONE, *(part for name in names for part in ("-o", name)))
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert all(line.endswith(("B", "KB", "MB")) for line in lines)
    assert json.loads(gzip.decompress((tmp_path / "d.json.gz").read_bytes())) == _saved(tmp_path / "c.json")
    assert zipfile.ZipFile("e.csv.zip").testzip() is None


def test_pdf_names_the_page_beside_it(cli, traces, tmp_path, monkeypatch):
    """Whatever the order of the options; paper as asked for."""
    asked = []
    monkeypatch.setattr("htareport.render.pdf.pdf", lambda _, **options: asked.append(options) or b"%PDF-")
    assert cli("report", traces, *ONE, "-o", "s.pdf", "-o", "r.html", "--paper", "letter").status == 0
    digest = hashlib.sha256((tmp_path / "r.html").read_bytes()).hexdigest()
    assert asked == [{"paper": "Letter", "full_report": ("r.html", digest)}]
    assert cli("report", traces, *ONE, "-o", "alone.pdf").status == 0
    assert asked[1:] == [{"paper": "A4", "full_report": None}]


@pytest.mark.parametrize(("option", "status"), [((), 0), (("--require-pdf",), 5)])
def test_without_pango(cli, traces, tmp_path, monkeypatch, option, status):
    """The page is written all the same, and one line says what to install."""

    def missing(*_: object, **__: object) -> bytes:
        raise MissingLibraryError("PDF needs Pango: apt-get install libpango-1.0-0")

    monkeypatch.setattr("htareport.render.pdf.pdf", missing)
    ran = cli("report", traces, *ONE, "-o", "s.pdf", "-o", "r.html", *option)
    assert ran.status == status
    assert ran.err.splitlines() == ["warning: s.pdf: not written: PDF needs Pango: apt-get install libpango-1.0-0"]
    assert (tmp_path / "r.html").exists()
    assert not (tmp_path / "s.pdf").exists()


def test_cost_and_throughput(cli, traces):
    ran = cli("report", traces, "--gpu-hour", "2.5", "--samples-per-step", "64", "--only", "cost", "-o", "-")
    assert ran.status == 0
    assert "samples per second" in ran.out
    assert "of it not computing" in ran.out


def test_markdown_on_stdout_stands_alone(cli, traces):
    ran = cli("report", traces, *ONE, "-o", "-", "-o", "also.json", "--title", "My run")
    assert ran.status == 0
    assert "My run" in ran.out
    assert "also.json" not in ran.out
    assert "also.json" in ran.err


def test_title_and_only(cli, traces, tmp_path):
    cli("report", traces, "--only", "step_time,temporal_breakdown", "--title", "My run", "-o", "r.json")
    assert _saved(tmp_path / "r.json")["title"] == "My run"
    assert sorted(_sections(tmp_path / "r.json")) == ["step_time", "temporal_breakdown"]


def test_ranks(cli, traces, tmp_path):
    assert cli("report", traces, *ONE, "--ranks", "1", "-o", "r.json").status == 0
    assert _saved(tmp_path / "r.json")["meta"]["ranks"][0]["rank"] == 1


def test_one_process_or_two_same_bytes(cli, traces, tmp_path, lent_processes):
    for jobs in (1, 2):
        assert cli("report", traces, *ONE, "-j", jobs, "-o", f"{jobs}.json").status == 0
    assert lent_processes == [1, 2]
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


def test_quiet_prints_nothing(cli, traces):
    ran = cli("report", traces, *ONE, "-q", "-o", "r.json")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


def test_verbose_logs(cli, traces, caplog):
    ran = cli("report", traces, *ONE, "-v", "-o", "r.json")
    assert ran.status == 0
    assert "2 ranks" in caplog.text


# A saved report


def test_saved_report_renders_again(cli, traces, tmp_path):
    cli("report", traces, *ONE, "-o", "first.json", "-o", "first.md")
    for rank in traces.iterdir():
        rank.unlink()
    ran = cli("report", "first.json", "-o", "again.json.gz", "-o", "again.md")
    assert ran.status == 0
    assert gzip.decompress((tmp_path / "again.json.gz").read_bytes()) == (tmp_path / "first.json").read_bytes()
    assert (tmp_path / "again.md").read_bytes() == (tmp_path / "first.md").read_bytes()
    assert cli("report", "again.json.gz", "-o", "third.json", "--title", "New title").status == 0
    assert _saved(tmp_path / "third.json")["title"] == "New title"


def test_saved_report_has_no_traces_to_choose_from(cli, tmp_path):
    (tmp_path / "report.json").write_text('{"schema_version": 1, "title": "x"}')
    ran = cli("report", "report.json", "--ranks", "0", "--steps", "all", "-o", "x.md")
    assert ran.status == 2
    assert "--ranks, --steps" in ran.err
    assert "saved report" in ran.err


@pytest.mark.parametrize("text", ['{"schema_version": 99}', '{"schema_version": 1, "sections": [{}]}'])
def test_saved_report_of_the_future_or_damaged(cli, tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    ran = cli("report", "report.json", "-o", "x.md")
    assert ran.status == 3
    assert ran.err.startswith("error: report.json: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"schema_version": 1', True),
        (b'\xef\xbb\xbf {\n "meta": {}, "schema_version" : 1', True),
        (gzip.compress(b'{"schema_version": 1}', mtime=0), True),
        (b'{"schemaVersion": 1, "schema_version": 1', False),
        (b'{"traceEvents": [{"schema_version": 1', False),
        (b"[]", False),
        (b"\x1f\x8bbroken", False),
        (b"", False),
    ],
)
def test_saved_reports_are_told_by_content(tmp_path, text, expected):
    (tmp_path / "x").write_bytes(text)
    assert is_saved_report(tmp_path / "x") is expected


def test_trace_named_report_json_is_a_trace(cli, traces, tmp_path):
    (traces / "rank0.json").rename(tmp_path / "report.json")
    assert cli("report", "report.json", *ONE, "-o", "x.json").status == 0


# Wrong usage: 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "temporal_brakdown"], "did you mean temporal_breakdown?"),
        (["--only", "xyz"], "no analysis 'xyz' (there are: "),
        (["--set", "nosuch.x=1"], "no analysis or rule 'nosuch'"),
        (["--set", "temporal_breakdown"], "NAME.option=value"),
        (["--set", "temporal_breakdown.nosuch=1"], "has no option 'nosuch'"),
        (["--ranks", "1-"], "--ranks: '1-' is not a list of ranks such as 0,3-5"),
        (["--ranks", "5-3"], "--ranks: 5-3 counts backwards"),
        (["--ranks", "0-99999999999"], "goes beyond rank"),
        (["--steps", "many"], "many"),
        (["-j", "0"], "--jobs: '0' is not a number of processes"),
        (["--plotlyjs", "nosuch.js"], "no file nosuch.js"),
        (["--config", "nosuch.toml"], "nosuch.toml: No such file"),
        (["-o", "x.docx"], "there are .html "),
        (["--only", ","], "--only: nothing was named"),
        (["--config", ""], "--config: no file was named"),
        (["--plotlyjs", ""], "--plotlyjs: no file"),
        (["--plotlyjs", "x" * 300], "File name too long"),
        (["--set", "kernel_breakdown.num_kernels=-1"], "num_kernels: -1 is outside its range: at least 1"),
        (["--set", "kernel_breakdown.num_kernels=9999999999999999999999"], "is no number to work with"),
        (["--set", "kernel_breakdown.duration_ratio=nan"], "duration_ratio: nan is no number to work with"),
        (["--set", "kernel_breakdown.duration_ratio=0"], "0 is outside its range: above 0, at most 1"),
        (["--set", "kernel_breakdown.duration_ratio=2"], "2 is outside its range: above 0, at most 1"),
        (["--set", "idle_time.consecutive_kernel_delay=-3"], "-3 is outside its range: at least 0"),
        (["--set", "idle_time.consecutive_kernel_delay=inf"], "inf is no number to work with"),
        (["--set", "queue_length.max_queue_length=0"], "outside its range"),
        (["--set", "launch_stats.runtime_cutoff=-1"], "outside its range"),
        (["--set", "kernel_distribution.num_kernels=0"], "outside its range"),
        (["--paper", "B5"], "--paper: 'B5' is no size of paper (there are: A4, Letter)"),
        (["--gpu-hour", "free"], "--gpu-hour: 'free' is not a number above 0"),
        (["--samples-per-step", "0"], "--samples-per-step: '0' is not a number above 0"),
        (["-o", "x"], "the suffix picks the format"),
        (["-o", "folder.md"], "is a folder"),
        (["-o", "traces/rank0.json"], "is one of the trace files"),
        (["--no-such-option"], "unrecognized arguments"),
        (["another"], "unrecognized arguments"),
    ],
)
def test_wrong_usage(cli, traces, tmp_path, options, message):
    (tmp_path / "folder.md").mkdir()
    before = (traces / "rank0.json").read_bytes()
    ran = cli("report", traces, *options)
    assert ran.status == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "report.html").exists()
    assert (traces / "rank0.json").read_bytes() == before


@pytest.mark.parametrize("command", ["report", "validate"])
def test_a_shell_variable_that_was_not_set(cli, traces, command):
    ran = cli(command, "")
    assert ran.status == 2
    assert "the path is empty" in ran.err


# Nothing could be read: 3


@pytest.mark.parametrize("command", ["report", "validate"])
def test_pipes_and_devices(cli, traces, tmp_path, command):
    os.mkfifo(tmp_path / "pipe.json")
    for source in ("pipe.json", os.devnull):
        ran = cli(command, source)
        assert ran.status == 3
        assert ran.err.startswith(f"error: {source}: not a regular file")
        assert len(ran.err.splitlines()) == 1
    os.mkfifo(traces / "pipe.json")
    assert cli("validate", traces).status == 0


def test_nothing_to_read(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    for source in ("nosuch", "empty", "nosuch/*.json"):
        ran = cli("report", source)
        assert ran.status == 3
        assert ran.err.startswith("error: ")
        assert source in ran.err
        assert len(ran.err.splitlines()) == 1


def test_absent_ranks(cli, traces):
    ran = cli("report", traces, "--ranks", "7")
    assert ran.status == 3
    assert len(ran.err.splitlines()) == 1


# Warnings


def test_ranks_and_steps_that_are_not_there_are_named(cli, traces):
    ran = cli("report", traces, *ONE, "--ranks", "0,7-9", "--steps", "1,99", "-o", "r.md")
    assert ran.status == 0
    assert ran.err.splitlines() == [
        "warning: asked for, but not there: ranks 7-9",
        "warning: asked for, but on no rank: step 99",
    ]


def test_ranks_that_were_not_asked_for_are_not_missing(cli, traces):
    assert cli("report", traces, *ONE, "--ranks", "0", "-o", "r.md").err == ""
    (traces / "rank1.json").unlink()
    assert "1 of 2 ranks are here" in cli("report", traces, *ONE, "-o", "r.md").err


def test_a_rank_beyond_the_world(cli, tmp_path):
    for rank in (3, 17):
        TraceBuilder(rank, world_size=2).kernel("k", 0, 5).write(tmp_path / "t" / f"{rank}.json")
    ran = cli("report", "t", *ONE, "-o", "r.md")
    assert ran.status == 0
    assert "ranks 3, 17 cannot be: the files give a world size of 2" in ran.err
    assert "are here" not in ran.err


def test_our_own_reports_among_the_traces_change_nothing(cli, traces, tmp_path):
    """The second run reads what the first has written into the folder."""
    first, second = (
        cli("report", traces, *ONE, "-o", traces / "report.json", "-o", traces / "r.json.gz", "-o", f"{name}.json")
        for name in "ab"
    )
    assert (first.status, second.status, second.err) == (0, 0, "")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    ran = cli("validate", traces / "report.json")
    assert ran.status == 3
    assert "report.json: a saved report, not a trace" in ran.err


def test_others_have_schema_versions_too(cli, traces):
    (traces / "model.json").write_text('{"schema_version": 1, "layers": []}')
    assert "model.json: left out" in cli("report", traces, *ONE, "-o", "r.md").err


def test_very_many_other_files_are_one_warning(cli, traces, tmp_path):
    for number in range(300):
        (traces / f"x{number:03}.json").write_text("{}")
    ran = cli("report", traces, *ONE, "-o", "r.json")
    (line,) = ran.err.splitlines()
    assert line.startswith("warning: 300 files left out: x000.json: JSON without traceEvents; x001.json")
    assert line.endswith("; and 295 more")
    meta = _saved(tmp_path / "r.json")["meta"]
    assert (len(meta["left_out"]), meta["files_left_out"]) == (200, 300)


# Names that are no text


def test_names_that_are_not_utf8(cli, tmp_path):
    """They cost neither a format nor a rank, and are shown escaped everywhere."""
    folder = tmp_path / os.fsdecode(b"fold\xfe")
    TraceBuilder(0).kernel("k", 0, 5).write(folder / os.fsdecode(b"rank0\xff.json"))
    (folder / os.fsdecode(b"rank1\xff.json")).write_text('{"traceEvents": [{')
    (folder / "bad\u202e\x1b[31m\xff\n.json").write_text("{}")
    outputs = [part for suffix in output_formats() for part in ("-o", os.fsdecode(b"r\xff") + suffix)]
    ran = cli("report", folder, *ONE, *outputs)
    assert ran.status == 4
    assert ran.out.splitlines()[0].startswith(r"r\xff.html  ")
    assert r"error: rank1\xff.json: not used" in ran.err
    assert r"warning: bad\u202e\x1b[31mÿ\x0a.json: left out" in ran.err
    saved = _saved(tmp_path / os.fsdecode(b"r\xff.json"))
    assert saved["title"] == r"fold\xfe"
    assert saved["meta"]["files"][0]["name"] == r"rank0\xff.json"
    assert cli("report", os.fsdecode(b"r\xff.json"), "-o", "again.html").status == 4
    assert r"rank0\xff.json" in cli("validate", folder).out
    assert r"nosuch\xff" in cli("report", os.fsdecode(b"nosuch\xff")).err
    assert cli("report", folder, *ONE, "--title", "t\udcff", "-o", "t.json").status == 4
    assert _saved(tmp_path / "t.json")["title"] == r"t\xff"


# Written, but incomplete: 4


def test_a_file_that_is_not_used_is_named_once(cli, traces):
    (traces / "rank0 again.json").write_bytes((traces / "rank0.json").read_bytes())
    ran = cli("report", traces, *ONE, "-o", "r.md")
    assert ran.status == 4
    assert ran.err == "error: rank0.json: not used: overlaps in time with rank0 again.json of the same rank\n"


def test_a_section_that_failed_on_a_rank(cli, traces, tmp_path, monkeypatch):
    """It is a problem because it failed, whatever its notes say."""
    mapped = TemporalBreakdown.map

    def half(self, trace):
        if trace.rank:
            raise ValueError("oops")
        return mapped(self, trace)

    monkeypatch.setattr(TemporalBreakdown, "map", half)
    assert cli("report", traces, *ONE, "-o", "r.json").status == 4
    (problem,) = _saved(tmp_path / "r.json")["meta"]["problems"]
    assert problem.startswith("section temporal_breakdown: Failed on rank 1: ValueError: oops")
    monkeypatch.setattr(TemporalBreakdown, "map", mapped)
    monkeypatch.setattr(TemporalBreakdown, "notes", lambda *_: ["Failed on purpose, to see what happens."])
    assert cli("report", traces, *ONE, "-o", "r.json").status == 0


def test_bad_file_among_good_ones(cli, traces, tmp_path):
    whole = (traces / "rank0.json").read_bytes()
    (traces / "rank2.json").write_bytes(whole[: len(whole) // 2].replace(b'"rank": 0', b'"rank": 2'))
    ran = cli("report", traces, *ONE, "-o", "r.json")
    assert ran.status == 4
    assert ran.err.count("error: ") == 1
    assert "rank2.json" in ran.err
    assert "rank2.json" in json.dumps(_saved(tmp_path / "r.json")["warnings"])
    assert cli("report", traces, *ONE, "-o", "r.json", "--allow-partial").status == 0


def test_json_that_is_no_trace_is_named_and_harmless(cli, traces):
    (traces / "config.json").write_text('{"lr": 0.1}')
    ran = cli("report", traces, *ONE, "-o", "r.json")
    assert ran.status == 0
    assert "warning: " in ran.err
    assert "config.json" in ran.err


def test_many_warnings_are_cut(cli, traces):
    for number in range(15):
        (traces / f"config{number:02}.json").write_text('{"lr": 0.1}')
    ran = cli("report", traces, *ONE, "-o", "r.json")
    assert len(ran.err.splitlines()) <= 11


def test_names_cannot_command_the_terminal(cli, traces):
    (traces / "evil\x1b[31m.json").write_text('{"lr": 0.1}')
    ran = cli("report", traces, *ONE, "-o", "r.json")
    assert "\x1b" not in ran.err + ran.out


# An output failed: 5


def test_no_folder_for_the_output(cli, traces):
    ran = cli("report", traces, "-o", "nosuch/r.html")
    assert ran.status == 5
    assert ran.err == "error: -o nosuch/r.html: there is no folder nosuch\n"


def test_read_only_folder(cli, traces, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path / "locked")  # Root may write anywhere.
    (tmp_path / "locked").mkdir()
    ran = cli("report", traces, "-o", tmp_path / "locked" / "r.html")
    assert ran.status == 5
    assert "no permission" in ran.err


def test_names_that_are_too_long(cli, traces, tmp_path):
    for length in (249, 250, 252):
        assert cli("report", traces, *ONE, "-q", "-o", "x" * length + ".md").status == 0
    for length in (253, 300):
        ran = cli("report", traces, "-o", "x" * length + ".md")
        assert ran.status == 5
        assert ran.err.endswith(".md: File name too long\n")
    assert sorted(len(path.name) for path in tmp_path.iterdir()) == [6, 252, 253, 255]


def test_a_link_is_written_through(cli, traces, tmp_path):
    (tmp_path / "there").mkdir()
    for name in ("old.md", "new.md"):
        (tmp_path / name).symlink_to(tmp_path / "there" / name)
    (tmp_path / "there" / "old.md").write_text("old")
    assert cli("report", traces, *ONE, "-o", "old.md", "-o", "new.md").status == 0
    for name in ("old.md", "new.md"):
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "there" / name).read_text(encoding="utf-8").startswith("# traces")


def test_outputs_that_are_no_files(cli, traces, tmp_path):
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "null.md").symlink_to(os.devnull)
    (tmp_path / "loop.md").symlink_to("loop.md")
    (tmp_path / "lost.md").symlink_to("nosuch/x.md")
    reasons = {"pipe": "is not a regular file", "null": "is not a regular file", "loop": "Too many levels",
               "lost": "there is no folder"}  # fmt: skip
    for name, reason in reasons.items():
        ran = cli("report", traces, "-o", f"{name}.md")
        assert ran.status == 5
        assert ran.err.startswith(f"error: -o {name}.md: {reason}")


def test_full_disk_costs_that_output_only(cli, traces, tmp_path, monkeypatch):
    def full(path):
        if path.name == "a.json":
            raise OSError(28, "No space left on device")
        return whole_file(path)

    monkeypatch.setattr("htareport.files.output.whole_file", full)
    ran = cli("report", traces, *ONE, "-o", "a.json", "-o", "b.json")
    assert ran.status == 5
    assert ran.err == "error: a.json: No space left on device\n"
    assert (tmp_path / "b.json").exists()


def test_a_disk_that_is_full_while_writing(cli, traces, tmp_path):
    """For real: what was there stays as it was, and no half file is left."""
    resource = pytest.importorskip("resource", reason="needs limits of processes")
    (tmp_path / "a.json").write_text("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        ran = cli("report", traces, *ONE, "-o", "a.json", "-o", "b.md")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ran.status == 5
    assert ran.err.startswith("error: a.json: File too large")
    assert ran.out.startswith("b.md  ")
    assert (tmp_path / "a.json").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.md", "traces"]


# Interrupts and faults


def test_interrupted_while_writing(cli, traces, tmp_path, monkeypatch):
    """Between the bytes and the name: neither a half file nor one beside it."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    ran = cli("report", traces, *ONE, "-o", "a.json")
    assert (ran.status, ran.out, ran.err) == (130, "", "interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["traces"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_that_is_gone_when_its_turn_comes(cli, traces, tmp_path, monkeypatch, lent_processes, jobs):
    """Found, but deleted before it is read: it is named, the rest stands."""
    opened = htareport.cli.opening.open_trace

    def found_and_deleted(*arguments):
        trace = opened(*arguments)
        (traces / "rank1.json").unlink()
        return trace

    monkeypatch.setattr(htareport.cli.opening, "open_trace", found_and_deleted)
    ran = cli("report", traces, *ONE, "-o", "a.json", "-j", jobs)
    assert ran.status == 4
    assert "rank1.json: not used: No such file or directory (rank 1 is missing)" in ran.err
    assert _saved(tmp_path / "a.json")["meta"]["num_ranks"] == 1


@pytest.mark.parametrize("command_name", ["report", "validate"])
def test_no_memory_for_a_rank(cli, traces, monkeypatch, command_name):
    """It is named, with what helps; the rest stands."""
    load = RankTrace.load

    def failing(rank, *rest, **options):
        if rank == 1:
            raise MemoryError
        return load(rank, *rest, **options)

    monkeypatch.setattr(RankTrace, "load", failing)
    ran = cli(command_name, traces, *(ONE if command_name == "report" else ()))
    assert ran.status == 4
    assert re.search(r"error: .*rank.?1.*not enough memory for it.*-j", ran.err)


def test_interrupted(cli, traces, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(htareport.run.runner, "analyze", interrupt)
    ran = cli("report", traces)
    assert (ran.status, ran.out, ran.err) == (130, "", "interrupted\n")


def test_a_fault_of_ours_is_one_sentence(cli, traces, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(htareport.run.runner, "analyze", fail)
    ran = cli("report", traces)
    assert ran.status == 70  # Never 1: that says that a gate was crossed.
    assert ran.err.startswith("error: internal error: ZeroDivisionError: oops; please report")
    assert "Traceback" not in ran.err
    assert "Traceback" in cli("report", traces, "-v").err


def _python(*arguments, cwd, **options):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=cwd, env=env, text=True, stderr=subprocess.PIPE, **options
    )


def test_reader_that_has_seen_enough(traces, tmp_path):
    command_line = ["-m", "htareport", "report", str(traces), *ONE, "-o", "-", "-o", "r.json"]
    process = _python(*command_line, cwd=tmp_path, stdout=subprocess.PIPE)
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Broken pipe" not in err
    assert "Traceback" not in err
    assert (tmp_path / "r.json").exists()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_ctrl_c_while_workers_run(traces, tmp_path):
    """The whole group gets the signal, as from a terminal; only the parent says something."""
    for rank in range(2, 30):
        TraceBuilder(rank, 30).kernel("gemm", 0, 10).write(traces / f"rank{rank}.json")
    code = (
        "import sys, htareport.cli.report as r, htareport.run.executors as e; from htareport.cli import main\n"
        "make = e._Pool.submit\n"
        "def submit(self, *a, **k):\n"
        "    future = make(self, *a, **k); print('started', flush=True); return future\n"
        "e._Pool.submit = submit\n"
        "if __name__ == '__main__': sys.exit(main(sys.argv[1:]))\n"
    )
    (tmp_path / "run.py").write_text(code)
    command_line = ["run.py", "report", str(traces), "-j", "2", "-o", "r.json"]
    process = _python(*command_line, cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == "started\n"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted\n")


def test_who_reads_is_asked_for_traces_only(cli, traces):
    """A saved report is not read by processes or a cluster; in a comparison with traces they read these."""
    assert cli("report", traces, "-o", "a.json", *ONE).status == 0
    for asked in (["--executor", "dask://127.0.0.1:1"], ["-j", "2"], ["--ranks", "0"]):
        assert "needs the traces, and a.json is a saved report" in cli("report", "a.json", *asked).err
    assert "needs the traces" in cli("diff", "a.json", "a.json", "-j", "2").err
    assert "needs the traces" not in cli("diff", "a.json", traces, "-j", "1", "-o", "b.json").err
