"""The command line as a whole: help, version, and what is printed where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from htareport import __version__
from htareport.cli import console

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
    command = [sys.executable, "-m", "htareport", "explain", "nosuch"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: no analysis 'nosuch'")


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
    assert console.ranks([0, 3, 4, 5, 9]) == "0,3-5,9"
