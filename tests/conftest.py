"""What all tests share: settings, a cache that is nobody's, one pool of processes, the command line in this process."""

from __future__ import annotations

import gc
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from htareport.cli import main
from htareport.plugins import discovery
from htareport.run.executors import make_executor

# The same examples in every run, and no limit in seconds: on a busy machine any example may take long.
settings.register_profile(
    "suite", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")
gc.disable()  # Imports and tests that are collected make hundreds of thousands of objects, and no garbage.


def pytest_collection_finish():
    """What stands by now stays: the collector need not look at it again and again, a tenth of the time otherwise."""
    gc.freeze()
    gc.enable()


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


@pytest.fixture(autouse=True, scope="session")
def _installed_once():
    """Look for plug-ins once, and not for every report: what is installed stays as it is while tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "entry_points", cache(discovery.entry_points))
        yield


@pytest.fixture(scope="session")
def two_processes():
    """A pool of two, started once."""
    with make_executor(2) as pool:
        yield pool


class _Lent(Executor):
    """A pool that stands for one that is made and ended: what is done with it ends, its processes stay."""

    def __init__(self, pool):
        self._pool = pool

    def submit(self, *arguments, **options):
        return self._pool.submit(*arguments, **options)


@pytest.fixture
def lent_processes(two_processes, monkeypatch):
    """Two jobs are done by the pool of all tests, since starting processes takes a second; return the jobs asked for.

    That a pool starts and ends is shown where that is the question: of executors, the runner and closed streams.
    """
    asked = []

    def lent(jobs):
        asked.append(jobs)
        return _Lent(two_processes) if jobs > 1 else None

    for user in ("cli.opening", "hta.loading"):
        monkeypatch.setattr(f"htareport.{user}.make_executor", lent)
    return asked


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = main([str(each) for each in arguments])
        return Ran(status, *capsys.readouterr())

    return run
