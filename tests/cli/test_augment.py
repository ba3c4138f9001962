"""`htareport counters` and `htareport critical-path`."""

from __future__ import annotations

import json

import pytest
from builder import TraceBuilder

from htareport.cli import export
from htareport.export import files as augment_files


@pytest.fixture
def files(tmp_path):
    """Two ranks with two steps; rank 1 has an annotation of its own."""
    for rank in range(2):
        trace = TraceBuilder(rank, 2)
        for step in (1, 2):
            at = 100 * step
            trace.step(step, at, 100).cpu_op("aten::mm", at, 20).kernel("gemm", at + 30, 40, launch=(at + 5, 2))
        if rank:
            trace.annotation("forward", 100, 50)
        trace.write(tmp_path / "t" / f"rank{rank}.json")
    return tmp_path / "t"


def events_of(path) -> list:
    return json.loads(path.read_text())["traceEvents"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_counters(cli, files, tmp_path, lent_processes, jobs):
    ran = cli("counters", "t", "-o", "out", "-j", jobs)
    assert (ran.status, ran.err, lent_processes) == (0, "", [jobs])
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines] == ["out/rank0_with_counters.json", "out/rank1_with_counters.json"]
    assert [event["ph"] for event in events_of(tmp_path / "out" / "rank1_with_counters.json")].count("C") == 4
    again = cli("report", "out", "--only", "queue_length", "-o", "again.json", "-q")
    assert (again.status, again.err) == (0, "")
    assert cli("counters", "t", "-o", "out2", "--ranks", "1", "-q").out == ""
    assert [path.name for path in (tmp_path / "out2").iterdir()] == ["rank1_with_counters.json"]


def test_path_of_each_rank(cli, files, tmp_path):
    """By default of the step of median length."""
    ran = cli("critical-path", "t", "-o", "out", "--all-edges")
    assert (ran.status, ran.err) == (0, "")
    events = events_of(tmp_path / "out" / "overlaid_critical_path_rank0.json")
    assert {event["name"] for event in events if event.get("args", {}).get("critical") == 1} == {
        "aten::mm",
        "cudaLaunchKernel",
    }
    assert "s" in {event["ph"] for event in events}


@pytest.mark.parametrize(("options", "ts"), [
    (["--rank", "1", "--step", "2"], {200}), (["--rank", "1", "--annotation", "forward"], {100}),
    (["--ranks", "1", "--annotation", "ProfilerStep", "--instance", "1"], {200}),
])  # fmt: skip
def test_windows(cli, files, tmp_path, options, ts):
    """A step, an annotation, one of its instances."""
    ran = cli("critical-path", "t", "-o", "out", "--only-critical", *options)
    assert ran.status == 0
    (path,) = (tmp_path / "out").iterdir()
    rows = [event for event in events_of(path) if event["ph"] == "X"]
    assert {event["ts"] for event in rows if event["name"] == "aten::mm"} == ts


@pytest.mark.parametrize("command", ["counters", "critical-path"])
def test_never_into_the_traces(cli, files, command):
    """Under any name; exit 2, nothing written."""
    for folder in ("t", "t/.", str(files), "./t/../t"):
        ran = cli(command, "t", "-o", folder)
        assert ran.status == 2
        assert "the folder of the traces" in ran.err
    assert sorted(path.name for path in files.iterdir()) == ["rank0.json", "rank1.json"]


def test_what_is_not_there(cli, files):
    """On no rank: exit 2; on some: a warning."""
    assert cli("critical-path", "t", "-o", "out", "--step", "9").status == 2
    ran = cli("critical-path", "t", "-o", "out", "--annotation", "forward")
    assert ran.status == 0
    assert ran.err == "warning: rank 0: no copy: no instance 0 of 'forward' (there are 0)\n"
    assert cli("critical-path", "nosuch", "-o", "out").status == 3
    assert cli("critical-path", "t").status == 2
    assert cli("critical-path", "t", "-o", "").status == 2
    for options in (["--instance", "1"], ["--rank", "0", "--ranks", "0"], ["--step", "1", "--annotation", "x"]):
        assert cli("critical-path", "t", "-o", "out", *options).status == 2


def test_nothing_to_add(cli, tmp_path):
    """Is said, and no failure."""
    TraceBuilder(0).cpu_op("a", 0, 5).write(tmp_path / "t" / "rank0.json")
    ran = cli("counters", "t", "-o", "out")
    assert (ran.status, ran.out) == (0, "")
    assert "rank 0: no copy: it has neither launches" in ran.err


def test_files_that_cannot_be_used(cli, files):
    """Exit 4, or 0 where that is fine; without any usable file 3."""
    whole = (files / "rank1.json").read_text()
    (files / "rank1.json").write_text(whole[:-200])
    assert cli("counters", "t", "-o", "out").status == 4
    ran = cli("counters", "t", "-o", "out", "--allow-partial")
    assert ran.status == 0
    assert "rank1.json" in ran.err
    (files / "rank0.json").write_text(whole[:-200])
    assert cli("counters", "t", "-o", "out").status == 3


def test_a_file_that_is_gone_before_it_is_copied(cli, files, monkeypatch):
    original = augment_files.CopyFolder.path_for

    def gone(self, source, **parts):
        if source.name == "rank0.json":
            source.unlink()
        return original(self, source, **parts)

    monkeypatch.setattr(augment_files.CopyFolder, "path_for", gone)
    ran = cli("counters", "t", "-o", "out", "-j", 1)
    assert ran.status == 4
    assert ran.err == "error: rank 0: No such file or directory\n"
    assert "out/rank1_with_counters.json" in ran.out


def test_a_folder_that_cannot_be_written(cli, files, tmp_path):
    (tmp_path / "file").write_text("")
    ran = cli("counters", "t", "-o", "file/below")
    assert ran.status == 5
    assert "file/below" in ran.err


def test_a_worker_that_is_killed(cli, files, monkeypatch):
    """Costs its rank, where the executor gives it up as dask does."""
    from concurrent.futures import Future

    class KilledWorker(Exception):  # noqa: N818  dask's name
        pass

    class Killed:
        def submit(self, task, rank, *rest):
            future: Future = Future()
            future.set_exception(KilledWorker("on some host")) if rank else future.set_result(task(rank, *rest))
            return future

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    monkeypatch.setattr("htareport.cli.opening.make_executor", lambda _: Killed())
    ran = cli("counters", "t", "-o", "out", "-j", "2")
    assert ran.status == 4
    assert "rank 1: the workers that read it were killed again and again" in ran.err
    assert "some host" not in ran.err


def test_help_has_examples(cli):
    for command, text in (("counters", export.COUNTERS_EPILOG), ("critical-path", export.PATH_EPILOG)):
        ran = cli(command, "--help")
        assert ran.status == 0
        assert text.splitlines()[1] in ran.out


def test_a_salvaged_file(cli, files, tmp_path):
    """Its complete events are copied, and the copy tells what it is of."""
    whole = (files / "rank1.json").read_text()
    (files / "rank1.json").write_text(whole[:-400])
    ran = cli("counters", "t", "-o", "out", "--salvage")
    assert ran.status == 0
    assert "warning: rank 1 is salvaged: rank1.json: the file ends early" in ran.err
    events = events_of(tmp_path / "out" / "rank1_with_counters.json")
    assert {event["name"] for event in events} >= {"gemm", "Queue Length"}
    again = cli("report", "out", "--only", "queue_length", "-o", "again.json", "-q")
    assert again.status == 0
    assert "rank1_with_counters.json: a copy of what was salvaged of a file: the file ends early" in again.err


def test_secrets_in_metadata(cli, tmp_path):
    """Are redacted, unless they are to be kept; events keep their names."""
    trace = TraceBuilder(0, hostname="gpu-node-17.cluster.example.org").kernel("gemm", 5, 4, launch=(0, 1))
    trace.write(tmp_path / "t" / "rank0.json")
    copies = {}
    for name, options in (("a", []), ("b", ["--no-redact"])):
        assert cli("counters", "t", "-o", name, *options).status == 0
        copies[name] = (tmp_path / name / "rank0_with_counters.json").read_text()
    assert "gpu-node-17" not in copies["a"]
    assert "gpu-node-17" in copies["b"]
