"""The command line as a whole: help, version, and what is printed where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from htareport import __version__
from htareport.cli import console
from htareport.errors import UsageError, printable
from htareport.report.number_lists import listed

ROOT = Path(__file__).parents[2]


def test_no_command_prints_help(cli):
    ran = cli()
    assert (ran.status, ran.out) == (2, "")
    assert "examples:" in ran.err


@pytest.mark.parametrize("arguments", [["--help"], ["report", "-h"], ["explain", "-h"], ["validate", "-h"]])
def test_help_fits_a_terminal(cli, arguments):
    ran = cli(*arguments)
    assert (ran.status, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 120


def test_version(cli):
    assert cli("--version").out == f"htareport {__version__}\n"


def test_options_are_not_abbreviated(cli):
    assert cli("report", "x", "--tit", "y").status == 2


def test_as_a_module():
    command = [sys.executable, "-m", "htareport", "report", "--bogus"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 2
    assert ran.stderr.startswith("usage: htareport report ")


def test_progress_only_where_somebody_looks(monkeypatch):
    with console.progress("x", quiet=False) as moved:
        assert moved is None
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    with console.progress("x", quiet=True) as moved:
        assert moved is None
    with console.progress("x", quiet=False) as moved:
        moved(1, 2, "rank [0]")


def test_sizes():
    sizes = [console.size(number) for number in (0, 999, 1000, 2_100_000, 3_000_000_000)]
    assert sizes == ["0 B", "999 B", "1.0 KB", "2.1 MB", "3.0 GB"]


def test_ranks():
    assert listed([0, 3, 5, 4, 9, 10]) == "0, 3-5, 9, 10"
    assert listed(range(0, 100, 2), max_ranges=2) == "0, 2 and 48 more"


def test_an_unknown_option_shows_the_usage_of_its_command(cli):
    ran = cli("report", "x", "--bogus", "\udcff\x1b[31m\u202e")
    assert ran.status == 2
    assert ran.err.startswith("usage: htareport report ")
    assert r"unrecognized arguments: --bogus \xff\x1b[31m\u202e" in ran.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rank0 ü日本🚀.json", "rank0 ü日本🚀.json"),
        ("a\u200db\u00a0c", "a\u200db\u00a0c"),
        ("a\udcffb", r"a\xffb"),
        ("\ud800", r"\ud800"),
        ("a\nb\x1b[31m\x9b", r"a\x0ab\x1b[31m\x9b"),
        ("\u202eevil\u2066\ufeff\U000e0041", r"\u202eevil\u2066\ufeff\U000e0041"),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown
    assert str(UsageError(text)) == shown


# Standard streams that are not there, or full. What ends a program takes one of its own; what a command does until
# then does not, and most of the second that one takes would be imports.

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def _shell(command, folder):
    """Run a shell command in which $H is htareport."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "H": f"{sys.executable} -m htareport"}
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, cwd=folder, env=env)


@pytest.mark.parametrize(
    "closed", ["-j 2 <&- >&- 2>&-", *(pytest.param(one, marks=pytest.mark.slow) for one in (">&-", "2>&-"))]
)
def test_closed_streams_as_under_cron(traces, tmp_path, closed):
    ran = _shell(f"$H report traces --only step_time -o r.md {closed}", tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / "r.md").read_text(encoding="utf-8").startswith("# traces")


def test_markdown_on_closed_standard_output_is_refused_at_once(traces, tmp_path):
    ran = _shell("$H report traces -o - >&-", tmp_path)
    assert (ran.returncode, ran.stderr) == (5, "error: -o -: there is no standard output\n")


NO_SPACE = "error: standard output: No space left on device\n"


@needs_full
@pytest.mark.parametrize("command", ["report traces --only step_time -o -", "--help", "--version"])
def test_full_standard_output_of_a_program(traces, tmp_path, command):
    ran = _shell(f"$H {command} >/dev/full", tmp_path)
    assert (ran.returncode, ran.stderr) == (5, NO_SPACE)


@needs_full
@pytest.mark.parametrize("command", ["report traces --only step_time -o r.md", "explain", "validate traces"])
def test_full_standard_output(cli, traces, monkeypatch, command):
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        ran = cli(*command.split())
    assert (ran.status, ran.err) == (5, NO_SPACE)


@needs_full
def test_full_standard_error_changes_no_status_of_a_program(tmp_path):
    assert _shell("$H report --bogus 2>/dev/full", tmp_path).returncode == 2


@needs_full
@pytest.mark.parametrize(("command", "status"), [("explain", 0), ("report nosuch", 3)])
def test_full_standard_error_changes_no_status(cli, monkeypatch, command, status):
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert cli(*command.split()).status == status


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("../traces", 5),
        pytest.param("../traces --only step_time -o ../r.md", 0, marks=pytest.mark.slow),
        pytest.param(". -o ../r.md", 3, marks=pytest.mark.slow),
    ],
)
def test_a_program_in_a_folder_that_was_deleted(traces, tmp_path, arguments, status):
    arguments = arguments.replace("..", str(tmp_path))
    ran = _shell(f"mkdir gone && cd gone && rmdir ../gone && $H report {arguments}", tmp_path)
    assert ran.returncode == status
    assert "internal" not in ran.stderr


def test_the_folder_we_are_in_was_deleted(cli, traces, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for source, options, status in ((traces, ("--only", "step_time"), 0), (".", (), 3)):
        ran = cli("report", source, *options, "-o", tmp_path / "r.md")
        assert ran.status == status
        assert "internal" not in ran.err
