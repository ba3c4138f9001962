"""How many processes, and that they end with their parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from htareport.run import executors

ROOT = Path(__file__).parents[2]
MB = 1_000_000


@pytest.fixture
def machine(monkeypatch):
    def have(cores, memory):
        monkeypatch.setattr(executors, "usable_cores", lambda: cores)
        monkeypatch.setattr(executors, "free_memory", lambda: memory)

    return have


@pytest.mark.parametrize(
    ("cores", "memory", "sizes", "jobs"),
    [
        (8, None, [executors.SMALL_INPUT] * 3, 3),  # Bound by ranks.
        (2, None, [executors.SMALL_INPUT] * 3, 2),  # By cores.
        (8, 2000 * MB, [1000 * MB] * 8, 3),  # By memory: 650 MB each.
        (8, 100 * MB, [1000 * MB] * 8, 1),  # One at least.
        (8, None, [MB] * 8, 1),  # Too small to share,
        (8, None, [MB] * 80, 8),  # but not so many.
        (8, None, [], 1),
    ],
)
def test_default_jobs(machine, cores, memory, sizes, jobs):
    machine(cores, memory)
    assert executors.default_jobs(sizes) == jobs


def test_raw_sizes(tmp_path):
    (tmp_path / "a.json").write_bytes(b"x" * 10)
    (tmp_path / "b.json.gz").write_bytes(b"x" * 10)
    (tmp_path / "c.zip").write_bytes(b"x" * 20)
    ranks = [
        (tmp_path / "a.json", tmp_path / "b.json.gz"),
        tmp_path / "nosuch.json",
        tmp_path / "c.zip" / "1.json",
        tmp_path / "c.zip" / "2.json",
    ]
    ten = 10 * executors.COMPRESSION_RATIO
    assert executors.raw_sizes(ranks) == [10 + ten, 0, ten, ten]


def test_a_size_that_cannot_be_told_costs_no_report(tmp_path, monkeypatch):
    """A file that was deleted meanwhile, a store that does not answer: it will be said of the rank."""

    def fails(path):
        raise FileNotFoundError(path)

    (tmp_path / "a.json").touch()
    monkeypatch.setattr(executors, "size_of", fails)
    assert executors.raw_sizes([tmp_path / "a.json"]) == [0]


def test_container_limits(tmp_path, monkeypatch):
    """Limits hold for the groups below, too; a page cache that can go counts as free."""
    inner = tmp_path / "job" / "step"
    inner.mkdir(parents=True)
    (inner.parent / "memory.max").write_text("1000")
    (inner.parent / "memory.current").write_text("700")
    (inner.parent / "memory.stat").write_text("anon 600\ninactive_file 50\n")
    (inner / "memory.max").write_text("max")
    (inner / "cpu.max").write_text("150000 100000")
    monkeypatch.setattr(executors, "_CGROUPS", tmp_path)
    monkeypatch.setattr(executors, "_own_cgroups", lambda: [inner, inner.parent, tmp_path])
    assert executors.free_memory() == 350
    assert executors.usable_cores() == 1


def test_this_machine():
    assert executors.usable_cores() >= 1
    assert executors.free_memory() is None or executors.free_memory() > 0


def test_one_process_is_this_one():
    assert executors.make_executor(1) is None


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
def test_workers_end_with_a_killed_parent(tmp_path):
    code = """
import os, time
from htareport.run.executors import make_executor
if __name__ == "__main__":
    with make_executor(2) as pool:
        print(*{future.result() for future in [pool.submit(os.getpid) for _ in range(8)]}, flush=True)
        pool.submit(time.sleep, 60)
        time.sleep(60)
"""
    (tmp_path / "run.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "run.py"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path, env=env
    )
    workers = process.stdout.readline().split()
    assert workers
    process.kill()
    process.communicate()
    end = time.monotonic() + 10
    while any(_runs(worker) for worker in workers) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(_runs(worker) for worker in workers)


def _runs(pid):
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
