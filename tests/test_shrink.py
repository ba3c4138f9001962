"""What a rank sends is little, whatever it ran."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.algorithms.frame_packing import pack
from htareport.analyses import discover
from htareport.rank.budget import at_most, room_for
from htareport.rules import discover as discover_rules
from htareport.run import runner, shrink, summaries
from htareport.run.shrink import shrink_to_budget
from htareport.run.summaries import RankSummary, Work
from htareport.trace import Trace

LIMIT = 60_000
STEPS, KERNELS = 30, 600
WORK = Work(discover(), discover_rules())


def test_room_is_a_share_within_and_never_gone():
    with room_for(0.25):
        assert [at_most(100), at_most(100, 40), at_most(7), at_most(1), at_most(100, 0)] == [25, 10, 1, 1, 1]
    assert at_most(100, 40) == 100


def _numbers(rows: int, seed: int = 0) -> pd.DataFrame:
    return pd.DataFrame({"value": np.random.default_rng(seed).integers(0, 2**60, rows)})


def test_the_largest_shrink_and_what_fits_stays(monkeypatch):
    """Of 10, 1 and 1 thousand numbers the first come down to some fourteen thousand bytes; nobody asks the others."""
    monkeypatch.setattr(shrink, "MAX_BYTES", 30_000)
    sizes = {"large": 10_000, "small": 1_000, "other": 1_001}
    summary = RankSummary(0, frames={name: pack({"x": _numbers(rows)}) for name, rows in sizes.items()})
    asked = []

    def remeasure(name: str, share: float) -> None:
        asked.append(name)
        summary.frames[name] = pack({"x": _numbers(int(sizes[name] * share))})

    shrink_to_budget(summary, remeasure)
    assert asked == ["large"]
    assert list(summary.shares) == ["large"]
    assert summary.frames["small"].frames()["x"].equals(_numbers(1_000))
    assert 25_000 < len(pickle.dumps(summary)) < 31_000


def test_what_is_sent_once_for_several_stays_so(monkeypatch):
    """Both are made again together, or each would be sent."""
    monkeypatch.setattr(shrink, "MAX_BYTES", 30_000)
    summary = RankSummary(0, frames={name: pack({name: _numbers(5_000)}) for name in "ab"})

    def remeasure(name: str, share: float) -> None:
        summary.frames[name] = pack({name: _numbers(int(5_000 * share))})

    shrink_to_budget(summary, remeasure)
    assert summary.shares["a"] == summary.shares["b"] > 0.6


def test_what_cannot_shrink_is_asked_a_few_times_only(monkeypatch):
    monkeypatch.setattr(shrink, "MAX_BYTES", 1_000)
    summary, asked = RankSummary(0, frames={"a": pack({"x": _numbers(5_000)})}), []
    shrink_to_budget(summary, lambda part, share: asked.append((part, share)))
    assert len(asked) <= 6
    assert len(summary.frames["a"].frames()["x"]) == 5_000


def test_what_cannot_shrink_leaves_the_others_half_the_room(monkeypatch):
    """A plug-in's 80 kB cost the 16 kB of the others a half at most, not all: they get 5 of 10 kB."""
    monkeypatch.setattr(shrink, "MAX_BYTES", 10_000)
    summary = RankSummary(
        0, frames={name: pack({"x": _numbers(rows)}) for name, rows in (("its", 10_000), ("a", 2_000))}
    )

    def remeasure(name: str, share: float) -> None:
        if name == "a":
            summary.frames[name] = pack({"x": _numbers(int(2_000 * share))})

    shrink_to_budget(summary, remeasure)
    assert list(summary.shares) == ["a"]  # Of the other no rows are missing, and nothing says so.
    assert 0.2 < summary.shares["a"] < 0.4
    assert len(summary.frames["its"].frames()["x"]) == 10_000


@pytest.fixture
def many(tmp_path):
    """A rank with long names of kernels, operators and annotations, each once, and many sizes of collectives."""
    chance = random.Random(1)  # noqa: S311
    trace = TraceBuilder(0, 2)
    for number in range(KERNELS):
        name = "".join(chance.choices("abcdefgh<>,:", k=150))
        at = 100 * number
        trace.cpu_op(f"aten::{name[:50]}", at, 9, **{"Input Dims": [[chance.randint(1, 9999)]]})
        trace.kernel(name, at + 20, chance.randint(1, 60), launch=(at + 1, 5)).annotation(name[:20], at, 50)
        trace.collective(
            "ncclKernel", chance.choice(("allreduce", "all_to_all")), at + 30, chance.randint(1, 60),
            nelems=chance.randint(1, 10**6), group_name=str(number % 300), launch=(at + 8, 1),
        )  # fmt: skip
    for step in range(STEPS):
        trace.step(step, 100 * KERNELS // STEPS * step, 100 * KERNELS // STEPS)
    return trace.write(tmp_path / "rank0.json")


def _summary(path) -> RankSummary:
    summary = runner.summarize(0, path, WORK)
    assert not summary.errors
    assert not summary.evidence.errors
    return summary


def test_a_rank_that_ran_very_many_things_sends_little_of_them(many, monkeypatch):
    """Sums are still of everything, and what lacks rows says so."""
    monkeypatch.setattr(shrink, "MAX_BYTES", 10**9)
    whole = _summary(many)
    assert len(pickle.dumps(whole)) > 1.5 * LIMIT
    assert not whole.shares
    monkeypatch.setattr(shrink, "MAX_BYTES", LIMIT)
    less = _summary(many)
    assert len(pickle.dumps(less)) < 1.05 * LIMIT + len(pickle.dumps(less.facts))
    for one, frame in ((one, one.frames["kernel_breakdown"].frames()["kernels"]) for one in (whole, less)):
        assert frame["count"].sum() == 2 * KERNELS, one.shares
    sums = [one.frames["kernel_breakdown"].frames()["kernels"]["sum"].sum() for one in (whole, less)]
    assert sums[0] == sums[1]
    counts = [one.frames["collectives"].frames()["kinds"]["calls"].sum() for one in (whole, less)]
    assert counts == [KERNELS] * 2
    report = runner.combined(Trace.open(many), WORK, [less])
    said = {
        section.name for section in report.sections for note in section.notes if "there is room for only some" in note
    }
    assert {"step_work", "kernel_breakdown"} <= said <= {*less.shares, "findings"}


def test_of_very_many_steps_rows_are_few_and_statistics_are_of_all(tmp_path, monkeypatch):
    """Of steps of 10, 11, …, 29 µs every fourth has rows."""
    monkeypatch.setattr(summaries, "MAX_STEPS_PER_RANK", 5)
    trace = TraceBuilder(0).kernel("k", 0, 5)
    at = 0
    for step in range(20):
        trace.step(step, at, 10 + step)
        at += 10 + step
    report = runner.analyze(trace.write(tmp_path / "rank0.json"))
    [summary] = report["step_time"].table("summary").to_dict("records")
    assert (summary["steps"], summary["min"], summary["max"], summary["median"]) == (20, 10_000, 29_000, 19_500)
    assert report["step_time"].table("ranks")["slowest_step"].tolist() == [19]
    assert report["step_time"].table("per_step")["step"].tolist() == [0, 4, 8, 12, 16]
    assert "20 steps: step times and their parts are told of one step in 4" in report.warnings
