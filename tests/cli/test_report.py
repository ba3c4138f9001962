"""`htareport report`: files out, messages and exit status."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from builder import TraceBuilder

import htareport.runner
from htareport import render
from htareport.cli import report as command

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


def test_one_process_or_two_same_bytes(cli, traces, tmp_path):
    for jobs in (1, 2):
        assert cli("report", traces, *ONE, "-j", jobs, "-o", f"{jobs}.json").status == 0
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
        (gzip.compress(b'{"schema_version": 1}'), True),
        (b'{"schemaVersion": 1, "schema_version": 1', False),
        (b'{"traceEvents": [{"schema_version": 1', False),
        (b"[]", False),
        (b"\x1f\x8bbroken", False),
        (b"", False),
    ],
)
def test_saved_reports_are_told_by_content(tmp_path, text, expected):
    (tmp_path / "x").write_bytes(text)
    assert command.is_saved_report(tmp_path / "x") is expected


def test_trace_named_report_json_is_a_trace(cli, traces, tmp_path):
    (traces / "rank0.json").rename(tmp_path / "report.json")
    assert cli("report", "report.json", *ONE, "-o", "x.json").status == 0


# Wrong usage: 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "temporal_brakdown"], "did you mean temporal_breakdown?"),
        (["--only", "xyz"], "no analysis 'xyz' (there are: "),
        (["--set", "nosuch.x=1"], "no analysis 'nosuch'"),
        (["--set", "temporal_breakdown"], "NAME.option=value"),
        (["--set", "temporal_breakdown.nosuch=1"], "has no option 'nosuch'"),
        (["--ranks", "1-"], "--ranks: '1-' is not a list of ranks such as 0,3-5"),
        (["--ranks", "5-3"], "--ranks: 5-3 counts backwards"),
        (["--ranks", "0-99999999999"], "goes beyond rank"),
        (["--steps", "many"], "many"),
        (["-j", "0"], "--jobs: '0' is not a number of processes"),
        (["--plotlyjs", "nosuch.js"], "no file nosuch.js"),
        (["--config", "nosuch.toml"], "nosuch.toml: No such file"),
        (["-o", "x.pdf"], "there are .html .md .json .json.gz .csv.zip"),
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


# Nothing could be read: 3


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


# Written, but incomplete: 4


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


def test_full_disk_costs_that_output_only(cli, traces, tmp_path, monkeypatch):
    replace = render._replace

    def full(path, data):
        if path.name == "a.json":
            raise OSError(28, "No space left on device")
        replace(path, data)

    monkeypatch.setattr(render, "_replace", full)
    ran = cli("report", traces, *ONE, "-o", "a.json", "-o", "b.json")
    assert ran.status == 5
    assert ran.err == "error: a.json: No space left on device\n"
    assert (tmp_path / "b.json").exists()


# Interrupts and faults


def test_interrupted(cli, traces, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(htareport.runner, "analyze", interrupt)
    ran = cli("report", traces)
    assert (ran.status, ran.out, ran.err) == (130, "", "interrupted\n")


def test_a_fault_of_ours_is_one_sentence(cli, traces, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(htareport.runner, "analyze", fail)
    ran = cli("report", traces)
    assert ran.status == 1
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
        "import sys, htareport.cli.report as r, htareport.executors as e; from htareport.cli import main\n"
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
