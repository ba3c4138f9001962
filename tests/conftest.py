"""The command line, run in this process in an empty folder, and a cache that is nobody's."""

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


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Keep tests, and what they start, out of the user's folder of caches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTAREPORT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = main([str(each) for each in arguments])
        return Ran(status, *capsys.readouterr())

    return run
