"""Runs: the same whatever runs them, and faults that cost their own part only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pandas as pd
import pytest
from builder import TraceBuilder
from faulty import Faulty

from htareport import analyses
from htareport.analyses.kernels.kernel_breakdown import KernelBreakdown
from htareport.analyses.time.idle_time import IdleTime
from htareport.analyses.time.step_time import StepTime
from htareport.analyses.time.temporal_breakdown import TemporalBreakdown
from htareport.errors import NothingToReadError, UsageError
from htareport.plugins import discovery
from htareport.rank import summary
from htareport.rank.window import Window
from htareport.report import Report, Status
from htareport.run import runner
from htareport.run.executors import make_executor
from htareport.run.runner import analyze
from htareport.trace import Trace

ROOT = Path(__file__).parents[1]
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
STEPPED = (StepTime(), TemporalBreakdown(), KernelBreakdown())


def rank_of(rank: int, world_size: int = 4) -> TraceBuilder:
    """Five steps; the last one's launch has lost its kernel."""
    trace = TraceBuilder(rank, world_size=world_size)
    for step in range(5):
        at = 100 * step
        trace.step(step, at, 100).cpu_op("aten::mm", at + 1, 20)
        trace.kernel("gemm", at + 20, 30 + rank, launch=(at + 5, 2))
        trace.collective(NCCL, "allreduce", at + 45, 30, launch=(at + 10, 2))
    return trace.runtime("cudaLaunchKernel", 430, 5, correlation=999)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ranks 0, 1, 3 and 17."""
    path = tmp_path_factory.mktemp("traces")
    for rank in (0, 1, 3, 17):
        rank_of(rank).write(path / f"rank{rank}.json")
    return path


@pytest.fixture
def copied(folder, tmp_path):
    """A copy of the folder, to spoil."""
    return Path(shutil.copytree(folder, tmp_path / "traces"))


def test_serial_and_processes_and_any_order_give_the_same_bytes(folder, two_processes):
    trace = Trace.open({rank: folder / f"rank{rank}.json" for rank in (3, 17)})
    shuffled = replace(trace, files=dict(sorted(trace.files.items(), key=lambda item: -item[0])))
    assert analyze(shuffled, executor=two_processes).to_json() == analyze(trace).to_json()


def test_very_many_steps_on_very_many_ranks(folder, monkeypatch):
    """Each rank has rows of every other step, the same ones; what is not told by step is whole; a warning says so."""
    by_step = ("step_time", "temporal_breakdown")
    in_all = ("kernel_breakdown", "operators", "stragglers", "collectives")
    chosen = [analyses.analysis_classes()[name]() for name in (*by_step, *in_all)]
    whole = analyze(folder, analyses=chosen)
    monkeypatch.setattr("htareport.run.summaries.MAX_STEPS", 12)
    report = analyze(folder, analyses=chosen)
    assert whole["step_time"].table("per_step").groupby("rank")["step"].agg(list).tolist() == [[0, 1, 2, 3, 4]] * 4
    for section in by_step:
        assert report[section].table("per_step").groupby("rank")["step"].agg(list).tolist() == [[0, 2, 4]] * 4
    for section in in_all:
        assert report[section].table().equals(whole[section].table())
    (warning,) = set(report.warnings) - set(whole.warnings)
    assert warning == "4 ranks with up to 5 steps each: step times and their parts are told of one step in 2"


@pytest.mark.parametrize("pooled", [False, True])
def test_a_bad_file_costs_its_rank(copied, two_processes, pooled):
    """The rest is reported, and the problem names the file and the rank."""
    text = (copied / "rank3.json").read_text()
    (copied / "rank3.json").write_text(text[: len(text) // 2])
    report = analyze(copied, analyses=[TemporalBreakdown()], executor=two_processes if pooled else None)
    assert [each["rank"] for each in report.meta["ranks"]] == [0, 1, 17]
    (problem,) = report.meta["problems"]
    assert "rank3.json" in problem
    assert "rank 3 is missing" in problem
    assert problem in report.warnings
    assert set(report["temporal_breakdown"].table()["rank"]) == {0, 1, 17}


def test_of_very_many_ranks_the_damaged_and_the_first_are_named(monkeypatch):
    """So that the JSON stays small at any number of ranks; the counts are those of all."""
    monkeypatch.setattr(summary, "_MOST_LISTED", 3)
    facts = summary.RankFacts(0, 0, 1, (), {"0": "A"}, (), (), 5, 5, False, None, {}, {})  # noqa: FBT003
    files = {rank: ((f"{rank}.json", 7), (f"{rank}b.json", 8)) for rank in range(6)}
    every = [
        replace(facts, rank=rank, files=files[rank], salvaged=("5b.json: kept 3 events",) if rank == 5 else ())
        for rank in range(6)
    ]
    meta = summary.job_meta(every, [], Window.parse("all"))
    assert [each["rank"] for each in meta["ranks"]] == [0, 1, 5]
    assert [each["name"] for each in meta["files"]] == ["0.json", "0b.json", "5b.json"]
    assert (meta["num_ranks"], meta["num_files"], meta["devices"]) == (6, 12, {"A": 6})
    assert summary.first_of(["a", "b", "c", "d", "e"], "warning") == ["a", "b", "c", "2 more warnings"]


def test_only_bad_files(tmp_path):
    """There is nothing to report; the error names a file and what is wrong."""
    (tmp_path / "rank0.json").write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": ')
    with pytest.raises(NothingToReadError, match=r"rank0\.json"):
        analyze(tmp_path)


def test_an_empty_folder(tmp_path):
    """The error says what was looked for."""
    with pytest.raises(NothingToReadError, match="traceEvents"):
        analyze(tmp_path)


@pytest.mark.parametrize("pooled", [False, True])
def test_an_analysis_that_fails_on_one_rank(folder, two_processes, pooled):
    """Loses that rank's rows, says so, and is a problem of the report."""
    report = analyze(
        folder, analyses=[Faulty("map", (3,)), TemporalBreakdown()], executor=two_processes if pooled else None
    )
    section = report["faulty"]
    assert section.status is Status.OK
    assert section.table()["rank"].tolist() == [0, 1, 17]
    (note,) = section.notes
    assert note.startswith("Failed on rank 3: ValueError: wrong in map (faulty.py, line ")
    assert report.meta["problems"] == [f"section faulty: {note}"]
    assert len(report["temporal_breakdown"].table()) == 4


@pytest.mark.parametrize("place", ["map", "combine", "charts", "facts", "notes"])
def test_an_analysis_that_fails(folder, place):
    """Is a failed section with what was raised and where; the others are whole."""
    report = analyze(folder, analyses=[Faulty(place), TemporalBreakdown()])
    section = report["faulty"]
    assert section.status is Status.FAILED
    assert section.reason.startswith(f"ValueError: wrong in {place} (faulty.py, line ")
    assert not section.tables
    assert report.meta["problems"] == [f"section faulty failed: {section.reason}"]
    assert report["temporal_breakdown"].status is Status.OK


def test_texts_are_the_same_with_and_without_pyarrow(folder, monkeypatch):
    """While a report is made pandas stores them as Python's; what the caller has chosen holds again afterwards."""
    seen, chosen = [], pd.get_option("mode.string_storage")
    mapped = TemporalBreakdown.map
    monkeypatch.setattr(
        TemporalBreakdown,
        "map",
        lambda self, trace: seen.append(pd.get_option("mode.string_storage")) or mapped(self, trace),
    )
    analyze(folder, analyses=[TemporalBreakdown()])
    assert set(seen) == {"python"}
    assert pd.get_option("mode.string_storage") == chosen


def test_an_analysis_without_its_table(folder):
    """Fails likewise."""
    assert analyze(folder, analyses=[Faulty("table")])["faulty"].status is Status.FAILED


@pytest.mark.parametrize("pooled", [False, True])
def test_an_analysis_that_returns_no_frames(folder, two_processes, pooled):
    """Costs its part, and not the rank for the others."""
    chosen = [Faulty("type", (1,)), TemporalBreakdown()]
    report = analyze(folder, analyses=chosen, executor=two_processes if pooled else None)
    assert report["faulty"].table()["rank"].tolist() == [0, 3, 17]
    assert len(report["temporal_breakdown"].table()) == 4


def test_a_killed_worker_costs_its_rank(folder, two_processes):
    """Those that were being read meanwhile are read again; another pool's workers stay as they are."""
    seen, others = [], {two_processes.submit(os.getpid).result()}
    files = {rank: folder / f"rank{rank}.json" for rank in (0, 1)}
    with make_executor(2) as pool:
        report = analyze(
            files,
            analyses=[Faulty("exit", (1,)), TemporalBreakdown()],
            executor=pool,
            progress=lambda done, total, label: seen.append((done, total, label)),
        )
        assert report["temporal_breakdown"].table()["rank"].tolist() == [0]
        (problem,) = report.meta["problems"]
        assert "rank1.json" in problem
        assert "killed" in problem
        again = analyze({3: files[0]}, analyses=[TemporalBreakdown()], executor=pool)  # The pool is broken by now.
        assert again["temporal_breakdown"].table()["rank"].tolist() == [3]
    assert [done for done, _, _ in seen] == [1, 2]
    assert len(others | {two_processes.submit(os.getpid).result() for _ in range(3)}) <= 2


@pytest.mark.parametrize("pooled", [False, True])
def test_progress(folder, two_processes, pooled):
    """Is told after each rank."""
    seen = []
    analyze(
        folder,
        analyses=[TemporalBreakdown()],
        executor=two_processes if pooled else None,
        progress=lambda *each: seen.append(each),
    )
    assert [each[:2] for each in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert sorted(each[2] for each in seen) == ["rank 0", "rank 1", "rank 17", "rank 3"]


@pytest.mark.parametrize(
    ("steps", "expected"), [("all", [0, 1, 2, 3, 4]), ("3", [3]), ("3-4", [3, 4]), ("0,3-3", [0, 3]), ("3,99", [3])]
)
def test_steps(folder, steps, expected):
    """Only the chosen steps are in the tables, and the report says what is left out."""
    report = analyze(folder, steps=steps, analyses=STEPPED)
    assert report["step_time"].table("steps")["step"].tolist() == expected
    assert report["temporal_breakdown"].table("steps")["step"].tolist() == expected
    assert ("left out" in report.meta["window"]) == (steps != "all")
    assert report["kernel_breakdown"].table("kernels")["count"].tolist() == [4 * len(expected)] * 2


def test_complete_steps(folder):
    """Without the last one, whose launch at the end has lost its kernel."""
    report = analyze(folder, steps="complete", analyses=STEPPED)
    assert report["step_time"].table("steps")["step"].tolist() == [0, 1, 2, 3]
    assert report["kernel_breakdown"].table("kernels")["count"].tolist() == [16, 16]


def test_unknown_steps(folder):
    """The message says which there are."""
    with pytest.raises(UsageError, match="0 to 4"):
        analyze(folder, steps="7-9", analyses=STEPPED)


def test_steps_of_traces_without_any(tmp_path):
    """The message says that there are none."""
    TraceBuilder(0).kernel("a", 0, 5).write(tmp_path / "a.json")
    with pytest.raises(UsageError, match="no ProfilerStep# rows"):
        analyze(tmp_path, steps="1", analyses=STEPPED)


@pytest.mark.parametrize("steps", ["", "x", "3-", "-3", "4-2", "1;2"])
def test_steps_that_make_no_sense(folder, steps):
    """Are refused."""
    with pytest.raises(UsageError, match="--steps"):
        analyze(folder, steps=steps)


def test_sources(folder):
    """A folder, an opened trace, a glob, a list and a mapping of files."""
    chosen = [TemporalBreakdown()]
    expected = analyze(folder, analyses=chosen)["temporal_breakdown"].table()
    files = {rank: folder / f"rank{rank}.json" for rank in (0, 1, 3, 17)}
    for source in (str(folder), Trace.open(folder), str(folder / "*.json"), list(files.values()), files):
        assert analyze(source, analyses=chosen)["temporal_breakdown"].table().equals(expected)
    renumbered = analyze({7: files[0], 5: files[17]}, analyses=chosen)["temporal_breakdown"].table()
    assert renumbered["rank"].tolist() == [5, 7]


def test_meta(folder):
    """Source, ranks, window, options and zero."""
    report = analyze(folder, title="My run", analyses=[IdleTime(), TemporalBreakdown()])
    assert report.title == "My run"
    assert report.meta["num_ranks"] == 4
    assert report.meta["steps"] == {"count": 5, "first": 0, "last": 4}
    assert report.meta["options"]["idle_time"] == {"consecutive_kernel_delay": 30.0}
    assert report.meta["problems"] == []
    assert analyze(folder, analyses=[TemporalBreakdown()]).title == folder.name


def test_nothing_of_the_machine_is_in_the_report(folder):
    """Neither folders nor the number of this process."""
    data = analyze(folder, analyses=[TemporalBreakdown(), Faulty("map", (3,))]).to_json()
    assert str(folder.parent).encode() not in data
    assert str(ROOT).encode() not in data


def test_plug_ins(folder, monkeypatch, caplog):
    """Come by entry points, into their chapter; one that does not load costs the others nothing."""
    here = [
        EntryPoint("faulty", "faulty:Faulty", analyses.ENTRY_POINT_GROUP),
        EntryPoint("gone", "no_such_module:Gone", analyses.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(discovery, "entry_points", lambda group: here if group == analyses.ENTRY_POINT_GROUP else [])
    report = analyze(folder / "rank3.json")
    assert report["faulty"].table()["count"].tolist() == [10]
    assert report["operators"].status is Status.OK
    assert "gone" in caplog.text


def test_one_more_file_is_all_it_takes(folder, tmp_path):
    """A module in htareport/analyses/ is found, run and shown in every format."""
    for name in ("htareport", "templates"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    module = (ROOT / "tests" / "faulty.py").read_text()
    module = module.replace('title: ClassVar[str] = "Faulty"', 'title: ClassVar[str] = "Events of the device"')
    (tmp_path / "htareport" / "analyses" / "event_count.py").write_text(module)
    outputs = [tmp_path / name for name in ("r.html", "r.md", "r.json")]
    only = ["--only", "event_count,temporal_breakdown"]  # As all are, by default.
    command = [sys.executable, "-m", "htareport", "report", str(folder / "rank3.json"), "-q", *only]
    command += [part for output in outputs for part in ("-o", str(output))]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert Report.load(outputs[2])["event_count"].table()["count"].tolist() == [10]
    for output in outputs[:2]:
        assert "Events of the device" in output.read_text("utf-8")
    assert '<section class="part" id="section-event' in outputs[0].read_text("utf-8")


def test_summaries_never_raise(tmp_path):
    """Whatever is wrong with a file is text."""
    summary = runner.summarize(3, tmp_path / "nothing.json", runner.Work([], [], runner.ALL))
    assert summary.rank == 3
    assert summary.facts is None
    assert summary.load_error
