"""Ranks read by other machines: the same bytes, and what is lost costs a retry, then its rank."""

from __future__ import annotations

import os
import signal
import socket
import threading
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from builder import TraceBuilder

from htareport import analyze
from htareport.analyses import Analysis, Group
from htareport.analyses.time.temporal_breakdown import TemporalBreakdown
from htareport.cli.config import report_options
from htareport.errors import UsageError
from htareport.run import clusters, runner
from htareport.run.executors import over_ranks

NEEDS_DASK = "dask[distributed] is not installed"


@pytest.fixture
def folder(tmp_path):
    for rank in range(4):
        trace = TraceBuilder(rank, world_size=4).kernel("gemm", 100, 300 + rank, launch=(20, 5))
        trace.write(tmp_path / "run" / f"rank{rank}.json")
    return tmp_path / "run"


class KilledWorker(Exception):  # noqa: N818  dask's name
    """What dask raises for a task whose workers keep dying."""


class Failing(Executor):
    """Runs tasks here, but rank 1 ends as it is told to."""

    def __init__(self, error):
        self.error = error

    def submit(self, task, rank, *rest):  # noqa: D102
        future: Future = Future()
        if rank != 1:
            future.set_result(task(rank, *rest))
        elif isinstance(self.error, CancelledError):
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_exception(self.error)
        return future


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KilledWorker("on tcp://10.0.0.7"), "the workers that read it were killed again and again"),
        (CancelledError(), "the cluster was lost before it was read"),
        (ImportError("No module named 'upath'"), "its worker failed: No module named 'upath'"),
    ],
)
def test_a_worker_that_fails_costs_its_rank(folder, error, told):
    report = analyze(folder, analyses=[TemporalBreakdown()], executor=Failing(error))
    assert [told in each and "rank 1 is missing" in each for each in report.meta["problems"]] == [True]
    assert "10.0.0.7" not in report.to_json().decode()
    assert report["temporal_breakdown"].table()["rank"].tolist() == [0, 2, 3]


def test_a_rank_that_was_blamed_with_others_is_read_alone(folder):
    """A task whose workers died of others' tasks is tried once more, when those are over."""

    class Blaming(Failing):
        tried = 0

        def submit(self, task, rank, *rest):
            self.tried += rank == 1
            if rank != 1 or self.tried < 2:
                return super().submit(task, rank, *rest)
            future: Future = Future()
            future.set_result(task(rank, *rest))
            return future

    executor = Blaming(KilledWorker())
    report = analyze(folder, analyses=[TemporalBreakdown()], executor=executor)
    assert (report.meta["problems"], executor.tried) == ([], 2)
    assert report.to_json() == analyze(folder, analyses=[TemporalBreakdown()]).to_json()


def test_workers_get_paths_that_hold_elsewhere(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    files = {0: Path("run/rank0.json"), 1: (Path("run/rank1.json"), folder / "rank2.json")}
    with ThreadPoolExecutor(1) as pool:
        seen = dict(over_ranks(lambda rank, paths: (rank, paths), files, pool, lambda *_: None))
    assert seen == {0: folder / "rank0.json", 1: (folder / "rank1.json", folder / "rank2.json")}


def test_a_worker_of_another_version(folder):
    work = runner.Work([TemporalBreakdown()], version="0.0.1")
    told = runner.summarize(0, folder / "rank0.json", work).load_error
    assert told.endswith(", not 0.0.1")
    for found, has in (("0.0.1", "has htareport 0.0.1"), ("", "has no htareport")):
        with pytest.raises(UsageError, match=f"the worker at tcp://a:1 {has}"):
            clusters._check_versions({"tcp://a:1": found})


def test_the_name_of_a_cluster():
    for text, address in (("dask://", ""), ("dask://host:8786", "host:8786"), ("dask://[::1]:8786/", "[::1]:8786")):
        assert report_options({"executor": text}).executor == address
    for text in ("dask", "dask://host", "ray://host:1", "dask://host:1/x", ""):
        with pytest.raises(UsageError, match="--executor"):
            report_options({"executor": text})


def test_no_dask(cli, folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    ran = cli("report", "run", "--executor", "dask://")
    assert ran.status == 2
    assert "pip install 'htareport[dask]'" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_no_cluster(cli, folder, monkeypatch):
    pytest.importorskip("distributed", reason=NEEDS_DASK)
    monkeypatch.setattr(clusters, "ANSWER_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ran = cli("validate", "run", "--executor", f"dask://127.0.0.1:{port}")
    assert ran.status == 2
    assert ran.err == f"error: --executor dask://127.0.0.1:{port}: no dask scheduler answers within 0.3 s\n"
    ran = cli("report", "run", "--executor", f"dask://127.0.0.1:{port}", "-j", "2")
    assert ran.status == 2
    assert "-j" in ran.err


class Deadly(Analysis):
    """Kills its process: on rank 1 the first time, on rank 2 each time."""

    title, group = "Deadly", Group.KERNELS
    marks = ""

    def map(self, trace):  # noqa: D102
        mark = Path(os.environ["HTAREPORT_TEST_MARKS"]) / str(trace.rank)
        if trace.rank == 2 or (trace.rank == 1 and not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), 9)
        return {}


@pytest.mark.slow
def test_workers_that_are_killed(folder, tmp_path, monkeypatch):
    """The first costs nothing, those killed again and again their rank only."""
    pytest.importorskip("distributed", reason=NEEDS_DASK)
    monkeypatch.setenv("HTAREPORT_TEST_MARKS", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    deadly = __import__("test_clusters").Deadly()
    with clusters.dask_executor("", 2) as executor:
        report = analyze(folder, analyses=[TemporalBreakdown(), deadly], executor=executor)
        assert report["temporal_breakdown"].table()["rank"].tolist() == [0, 1, 3]
        assert "killed again and again" in report.meta["problems"][0]
        (folder / "rank2.json").unlink()
        again = analyze(folder, analyses=[TemporalBreakdown()], executor=executor).to_json()
    assert again == analyze(folder, analyses=[TemporalBreakdown()]).to_json()
    assert threading.active_count() < 50


@pytest.mark.slow
def test_every_command_reads_with_a_cluster(cli, folder):
    pytest.importorskip("distributed", reason=NEEDS_DASK)
    here, there = ("-j", "1"), ("--executor", "dask://", "-j", "1")
    for command in (
        ("report", "run", "-o", "{}.json"),
        ("diff", "run", "run", "-o", "{}.json"),
        ("counters", "run", "-o", "{}"),
    ):
        for name, how in (("a", here), ("b", there)):
            assert cli(*(each.format(name) for each in command), *how, "-q").status == 0
        files = sorted(folder.parent.glob("a*/*")) or [folder.parent / "a.json"]
        for file in files:
            other = folder.parent / str(file.relative_to(folder.parent)).replace("a", "b", 1)
            assert file.read_bytes() == other.read_bytes()
    assert cli("validate", "run", *here).out == cli("validate", "run", *there).out


def test_a_cluster_of_this_machine(cli, folder):
    pytest.importorskip("distributed", reason=NEEDS_DASK)
    ran = cli("report", "run", "-o", "r.json", "--only", "temporal_breakdown", "--executor", "dask://", "-j", "1")
    assert ran.status == 0, ran.err
    assert (folder.parent / "r.json").read_bytes() == analyze(folder, analyses=[TemporalBreakdown()]).to_json()


def test_ctrl_c_while_a_cluster_starts():
    """It is closed at once, while dask's log is still silenced, and not by dask at the end of the program."""
    done = []

    class Cluster:
        def __init__(self, **_):
            signal.raise_signal(signal.SIGINT)

        def __enter__(self):
            done.append("entered")

        def __exit__(self, *_):
            done.append("closed")

    with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
        clusters._start_local_cluster(SimpleNamespace(LocalCluster=Cluster), 1, stack)
    assert done == ["entered", "closed"]
