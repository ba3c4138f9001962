"""The command line, run in this process in an empty folder."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from htareport.cli import main


@dataclass(frozen=True)
class Ran:
    """What a command came to."""

    status: int
    out: str
    err: str


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = main([str(each) for each in arguments])
        return Ran(status, *capsys.readouterr())

    return run
