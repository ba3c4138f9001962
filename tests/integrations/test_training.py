"""Real trainings with PyTorch leave their report, whatever becomes of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from htareport.report import Report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "train_and_report.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(command, folder, **environment):
    """Run a training in a folder; a process that outlives it and holds its output is waited for."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.run(
        [str(each) for each in command], cwd=folder, capture_output=True, text=True, check=False, timeout=120,
        env={**inherited, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


def train(way, folder, *launcher, **environment):
    return run([*(launcher or [sys.executable]), HERE / "training.py", way, "reports"], folder, **environment)


def report_of(folder, limit_s=20.0):
    """Wait for the report: a process that is killed does not wait for it."""
    path, end = folder / "reports" / "report.json", time.monotonic() + limit_s
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.1)
    return Report.load(path)


def ranks(report):
    return [each["rank"] for each in report.meta["ranks"]]


def over(process):
    """When the training itself was over, on the last rank."""
    return max(map(float, re.findall(r"over (\d+\.\d+)", process.stdout)))  # Ranks may write into one line.


@pytest.mark.parametrize("way", ["handler", "one_line"])
def test_two_ranks_leave_one_report_within_ten_seconds(tmp_path, way):
    process = train(way, tmp_path, *TORCHRUN)
    assert process.returncode == 0, process.stderr
    report = report_of(tmp_path)
    assert ranks(report) == [0, 1]
    assert report.meta["world_size"] == 2
    assert report.meta["steps"]["count"] == 2
    assert not [warning for warning in report.warnings if "rank" in warning]
    assert (tmp_path / "reports/report.html").stat().st_mtime - over(process) < 10
    assert not list((tmp_path / "reports/traces/.ranks").iterdir())


def test_a_rank_that_is_killed_is_named_and_the_exit_code_is_what_it_was(tmp_path):
    plain, process = train("plain", tmp_path, *TORCHRUN), train("killed", tmp_path, *TORCHRUN)
    assert process.returncode == plain.returncode != 0
    report = report_of(tmp_path)
    assert ranks(report) == [0]
    assert report.warnings[0].startswith("rank 1 left no trace within 3 s after training")
    assert "rank 1 left no trace" in process.stderr


def test_alone(tmp_path):
    process = train("handler", tmp_path)
    assert process.returncode == 0, process.stderr
    assert (ranks(report_of(tmp_path)), report_of(tmp_path).warnings) == ([0], ())
    assert (tmp_path / "reports/report.html").exists()


def test_several_cycles_are_one_report(tmp_path):
    process = train("cycles", tmp_path)
    assert process.returncode == 0, process.stderr
    report = report_of(tmp_path)
    assert (ranks(report), len(report.meta["files"]), report.meta["steps"]["count"]) == ([0], 2, 4)


def test_a_training_that_raises_has_its_report_and_its_error(tmp_path):
    process = train("exception", tmp_path)
    assert process.returncode == 1
    assert process.stderr.rstrip().endswith("RuntimeError: diverged")
    assert ranks(report_of(tmp_path)) == [0]


def test_a_training_that_is_terminated_has_its_report(tmp_path):
    assert train("terminated", tmp_path).returncode == -15
    assert ranks(report_of(tmp_path)) == [0]


def test_workers_of_a_data_loader_have_no_part_in_it(tmp_path):
    process = train("workers", tmp_path)
    assert process.returncode == 0, process.stderr
    assert len(list((tmp_path / "reports/traces").glob("*.gz"))) == 1
    assert ranks(report_of(tmp_path)) == [0]


def test_a_rank_other_than_0_never_waits(tmp_path):
    """It is known by its environment only, and rank 0 does not exist."""
    process = train("uninitialised", tmp_path, RANK="1", WORLD_SIZE="2", WAIT_S="100")
    ended = time.time()
    assert process.returncode == 0, process.stderr
    assert ended - over(process) < 50
    assert [each.name.split(".")[0] for each in (tmp_path / "reports/traces").glob("*.gz")] == ["rank1"]
    assert not (tmp_path / "reports/report.json").exists()


@pytest.mark.parametrize("launcher", [[sys.executable], TORCHRUN], ids=["alone", "torchrun"])
def test_the_example(tmp_path, launcher):
    process = run([*launcher, EXAMPLE, "reports"], tmp_path)
    assert process.returncode == 0, process.stderr
    assert "loss" in process.stdout
    assert "A tiny training" in (tmp_path / "reports/report.html").read_text("utf-8")


@pytest.mark.parametrize("fail", [False, True], ids=["ends", "raises"])
@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_callbacks(tmp_path, name, fail):
    """With the real framework; what was recorded before an exception is in the report."""
    for each in {"lightning": ["lightning"], "transformers": ["transformers", "accelerate"]}[name]:
        if find_spec(each) is None:
            pytest.skip(f"{each} is not installed")
    process = run([sys.executable, HERE / "callbacks.py", name, "reports", *["raise"] * fail], tmp_path)
    assert process.returncode == int(fail), process.stderr
    report = report_of(tmp_path)
    assert (report.title, ranks(report)) == ("By callback", [0])
    assert report.meta["steps"]["first"] == 2
    assert "diverged" in process.stderr or not fail
