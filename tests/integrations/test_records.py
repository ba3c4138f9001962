"""Whom the report waits for, whose files it takes, and whom it names as missing."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from builder import TraceBuilder

from htareport.integrations import records
from htareport.integrations.records import Record, finished, gather, process_start_ns, this_host
from htareport.trace import Trace

OWN = Record(rank=0, world_size=2, host="a/pid:[1]", pid=10, job="j", number=1, started_ns=10**18, files=("rank0.gz",))
OTHER = replace(OWN, rank=1, host="b/pid:[1]", pid=20, files=("rank1.gz",), done=True)


class Clock:
    """Time that passes only by sleeping; `at` has what happens when."""

    def __init__(self, **at):
        self.time, self.at = 0.0, at

    def now(self):
        """The time."""
        return self.time

    def sleep(self, seconds):
        """Pass time, in which things happen."""
        self.time += seconds
        for name in [name for name in self.at if float(name.removeprefix("s")) <= self.time]:
            self.at.pop(name)()


@pytest.fixture
def traces(tmp_path):
    (tmp_path / "rank0.gz").touch()
    (tmp_path / "rank1.gz").touch()
    OWN.write(tmp_path)
    return tmp_path


def collected(traces, clock=None, own=OWN, ranks=(0, 1), since_ns=0):
    clock = clock or Clock()
    return gather(traces, own, ranks=ranks, since_ns=since_ns, wait_s=60, now=clock.now, sleep=clock.sleep)


def test_nobody_waits_when_all_are_done(traces):
    OTHER.write(traces)
    clock = Clock()
    found = collected(traces, clock)
    assert clock.time == 0
    assert found.files == {0: (traces / "rank0.gz",), 1: (traces / "rank1.gz",)}
    assert found.is_complete


def test_a_rank_that_comes_late_is_in(traces):
    clock = Clock(s5=lambda: OTHER.write(traces))
    found = collected(traces, clock)
    assert 5 <= clock.time < 8
    assert sorted(found.files) == [0, 1]


def test_a_rank_that_is_not_done_is_waited_for_and_its_later_captures_are_in(traces):
    replace(OTHER, done=False).write(traces)
    (traces / "more.gz").touch()
    later = replace(OTHER, files=("rank1.gz", "more.gz"))
    assert collected(traces, Clock(s1=lambda: later.write(traces))).files[1] == (
        traces / "rank1.gz",
        traces / "more.gz",
    )


def test_a_missing_rank_costs_the_limit_and_no_more(traces):
    clock = Clock()
    found = collected(traces, clock)
    assert clock.time == pytest.approx(60)
    assert (sorted(found.files), found.missing, found.unfinished) == ([0], (1,), ())


def test_a_rank_that_goes_on_is_used_as_far_as_it_has_come(traces):
    replace(OTHER, done=False).write(traces)
    found = collected(traces)
    assert (sorted(found.files), found.missing, found.unfinished) == ([0, 1], (), (1,))
    assert not found.is_complete


def test_nobody_waits_for_a_process_of_this_host_that_is_dead(traces):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    own = replace(OWN, host=this_host())
    OWN.remove(traces)
    own.write(traces)
    replace(OTHER, host=this_host(), pid=process.pid, done=False).write(traces)
    clock = Clock()
    found = collected(traces, clock, own)
    assert (clock.time, found.unfinished) == (0, (1,))


def test_a_process_of_this_host_that_lives_is_waited_for(traces):
    replace(OTHER, host=this_host(), pid=os.getppid(), done=False).write(traces)
    clock, own = Clock(), replace(OWN, host=this_host())
    OWN.remove(traces)
    own.write(traces)
    collected(traces, clock, own)
    assert clock.time == pytest.approx(60)


@pytest.mark.parametrize(
    "other", [{"number": 2}, {"job": "k"}, {"world_size": 4}, {"started_ns": 5}], ids=lambda each: next(iter(each))
)
def test_other_runs_are_no_part_of_this_one(traces, other):
    replace(OTHER, **other).write(traces)
    assert collected(traces, since_ns=10**17).missing == (1,)


def test_of_two_processes_of_a_rank_the_last_counts(traces):
    replace(OTHER, started_ns=OTHER.started_ns + 1, pid=99, files=("again.gz",)).write(traces)
    OTHER.write(traces)
    (traces / "again.gz").touch()
    assert collected(traces).files[1] == (traces / "again.gz",)


def test_a_process_alone_takes_its_own_files_only(traces):
    own = replace(OWN, world_size=1)
    own.write(traces)
    replace(own, pid=11, started_ns=own.started_ns + 1, files=("rank1.gz",), done=True).write(traces)
    assert collected(traces, own=own, ranks=(0,)).files == {0: (traces / "rank0.gz",)}


def test_only_the_ranks_that_profile_are_expected(traces):
    clock = Clock()
    assert collected(traces, clock, ranks=(0,)).is_complete
    assert clock.time == 0


def test_a_file_that_is_gone_and_records_that_cannot_be_read_are_no_files(traces):
    OTHER.write(traces)
    (traces / "rank1.gz").unlink()
    for number, text in enumerate(["", "{}", "[]", '{"rank": 1}', "null"]):
        (traces / records.FOLDER / f"{10**18}.{number}.json").write_text(text)
    assert collected(traces).missing == (1,)


def test_names_are_unique_and_give_the_rank_even_if_the_host_has_a_number(tmp_path):
    """Kubernetes calls hosts so. Two captures of one process are one rank."""
    named = [replace(OWN, rank=rank, host="job-worker-3.x_y/pid:[1]") for rank in (5, 7)]
    files = [record.file_name(10**18 + stamp) for record in named for stamp in (0, 1)]
    assert files[0] == "rank5.job-worker-3-x-y.10.1000000000000000000.pt.trace.json.gz"
    for number, name in enumerate(files):
        TraceBuilder(None, base_ns=10**18 + 10**9 * number).cpu_op("aten::mm", 0, 5).write(tmp_path / name, gzip=True)
    found = Trace.open(tmp_path).files
    assert {rank: [path.name for path in paths] for rank, paths in found.items()} == {5: files[:2], 7: files[2:]}


def test_records_are_no_traces(traces):
    TraceBuilder().cpu_op("aten::mm", 0, 5).write(traces / "rank0.json")
    (traces / "rank0.gz").unlink()
    (traces / "rank1.gz").unlink()
    trace = Trace.open(traces)
    assert (trace.left_out, trace.unusable) == ((), ())


def test_a_record_stays_one_file(traces):
    finished(replace(OWN, files=("rank0.gz", "b.gz"))).write(traces)
    assert len(list((traces / records.FOLDER).iterdir())) == 1
    OWN.remove(traces)
    OWN.remove(traces)
    assert not list((traces / records.FOLDER).iterdir())


def test_the_start_of_this_process_is_before_its_modules_were_loaded():
    assert records._LOADED_NS - 3_600 * 10**9 < process_start_ns() <= records._LOADED_NS + 10**7
