"""The sentence on top of the report."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.analyses import discover
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rules import rule_classes
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.run.runner import analyze

HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
TOLD = [each for each in discover() if each.name in {"step_time", "temporal_breakdown", "idle_time", "operators"}]


def working(rank: int = 0, own: int = 40, *, steps: bool = True, launch: int = 1) -> TraceBuilder:
    """Return four steps of 100 µs: compute from 10 on, then a collective until 80, then a copy until 90.

    Everything is launched by 95 of the step before unless `launch` puts it within the step.
    """
    trace = TraceBuilder(rank, world_size=2)
    for step in range(4):
        at = 100 * step
        if steps:
            trace.step(step, at, 100)
        trace.kernel("gemm", at + 10, own, launch=(at + launch, 1))
        trace.kernel(NCCL, at + 10 + own, 70 - own, stream=20, launch=(at + launch + 2, 1))
        trace.memcpy("DtoH (Device -> Pinned)", at + 80, 10, launch=(at + launch + 4, 1))
    return trace


class _Says(Rule):
    """A rule that finds what it is told to, and claims all idle time if it saves something."""

    title = "Test"

    def __init__(self, code, title, severity, *, saves=False, family=Family.COMPUTE, section=""):
        self.code, self.said, self.severity, self.saves = code, title, severity, saves
        self.family, self.section = family, section

    def look(self, rank: Rank) -> Evidence | None:
        return Evidence(claim=rank.idle if self.saves else {})

    def tell(self, found: JobEvidence) -> Finding | None:
        return self.finding(found, self.said, severity=self.severity)


@pytest.fixture
def verdict(tmp_path):
    def said(*builders, **options):
        for number, builder in enumerate(builders):
            builder.write(tmp_path / "traces" / f"{number}.json")
        options = {"analyses": TOLD} | options  # And no rules, unless they are given.
        return analyze(tmp_path / "traces", **options).verdict.replace("\u202f", " ")

    return said


def test_steps_and_gpu(verdict):
    """Per step: 40 compute, 30 exposed communication, 10 exposed copies, 20 idle, all of it host wait."""
    said = verdict(working(), analyses=discover())
    assert said == (
        "100 µs per step (median): on average 40 % computing, 30 % exposed communication, 20 % GPU idle, "
        "10 % exposed copies. The host launches late in 100 % of the idle time."
    )


def test_gpu_without_steps(verdict):
    """Shares of the span, from 10 to 390: compute 160 of 380, idle 60 of it; in whole percents they add up to 100."""
    said = verdict(working(steps=False))
    assert said.startswith(
        "380 µs from the first to the last GPU event, without steps: 42 % computing, 32 % exposed communication, "
        "16 % GPU idle, 10 % exposed copies."
    )


def test_host_with_steps(verdict):
    """What a step takes on the host, and the operator that leads."""
    trace = TraceBuilder(0)
    for step in range(3):
        trace.step(step, 200 * step, 200).cpu_op("aten::conv2d", 200 * step, 90).cpu_op(
            "aten::relu", 200 * step + 100, 10
        )
    assert verdict(trace) == (
        "200 µs per step on the host (median). No GPU activity was recorded. "
        "aten::conv2d takes 90 % of the host operators' time."
    )


def test_host_that_waits_for_other_ranks(verdict):
    """Collectives on the host are no kernels; yet the step hangs on them: for 55 of 100 µs."""
    trace = TraceBuilder(0).step(0, 0, 100).cpu_op("aten::conv2d", 0, 50).cpu_op("aten::add_", 90, 10)
    trace.annotation("gloo:all_reduce", 30, 55, tid=9)
    path = [each for each in discover() if each.name == "critical_path"]
    said = verdict(trace, analyses=[*TOLD, *path])
    assert " 55 % of the critical path is communication, waits for other ranks included. " in said


def test_host_without_steps(verdict):
    """How long was recorded instead."""
    assert verdict(TraceBuilder(0).cpu_op("aten::conv2d", 0, 90).cpu_op("aten::relu", 100, 10)) == (
        "110 µs recorded, without steps. No GPU activity was recorded. "
        "aten::conv2d takes 90 % of the host operators' time."
    )


def test_one_late_rank(verdict):
    """Named with what it needs over the median: 60 against 40."""
    ranks = [working(0), working(1), working(9, own=60)]
    said = "The others wait for rank 9, whose own time is longer (+20.0 µs per step over the median)."
    assert verdict(*ranks).endswith(said)


def test_one_slow_rank_that_nobody_waits_for(verdict):
    """Without communication the rank with the longest steps is named."""
    ranks = []
    for rank, length in ((0, 100), (1, 100), (2, 150)):
        trace = TraceBuilder(rank, world_size=3)
        for step in range(4):
            trace.step(step, length * step, length).kernel(
                "gemm", length * step + 10, 50, launch=(length * step + 1, 1)
            )
        ranks.append(trace)
    assert verdict(*ranks).endswith("Rank 2 takes longest (+50.0 µs over the median rank).")


def test_one_slow_step(verdict):
    """Named behind the shares."""
    trace = TraceBuilder(0).step(1, 0, 100).step(2, 100, 300).step(3, 400, 100).step(4, 500, 100)
    said = verdict(trace.kernel("gemm", 0, 600, launch=(0, 1)))
    assert said == (
        "100 µs per step (median): on average 100 % computing. Step 2 is slow (300 µs, +200 µs over the median)."
    )


def test_nothing_wrong(verdict):
    """Ranks alike and a busy GPU: no rank, no cause, and no share that is next to nothing."""
    trace = TraceBuilder(0)
    for step in range(4):
        trace.step(step, 1000 * step, 1000).kernel("gemm", 1000 * step + 1, 998, launch=(1000 * step, 1))
    assert verdict(trace) == "1.00 ms per step (median): on average 100 % computing."


def test_nothing_at_all(verdict):
    """An empty trace is called so."""
    assert verdict(TraceBuilder(0)) == "Nothing was recorded."


def test_work_of_no_length(verdict):
    """There are no shares then, and no colon that leads nowhere."""
    assert verdict(TraceBuilder(0).kernel("empty", 0, 0)) == "0 ns from the first to the last GPU event, without steps."


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("step_time", "100 µs per step (median)."),
        ("kernel_breakdown", "400 µs recorded."),
        (
            "temporal_breakdown",
            "400 µs recorded: 40 % computing, 30 % exposed communication, 20 % GPU idle, 10 % exposed",
        ),
    ],
)
def test_what_was_not_asked_for_is_not_denied(verdict, only, expected):
    """Without the breakdown the sentence neither denies the GPU nor the steps."""
    said = verdict(working(), analyses=[each for each in discover() if each.name == only])
    assert said.startswith(expected)
    assert "No GPU" not in said


@pytest.mark.parametrize(
    ("findings", "first"),
    [
        ([], ""),
        ([("A", LOW, True)], ""),
        ([("A", LOW, True), ("`B` is slow.", MEDIUM, False)], "First: B is slow."),
        ([("A", MEDIUM, False), ("B", MEDIUM, True)], "First: A."),  # The recording is amiss: all else stands on it.
        ([("A", LOW, False), ("B", MEDIUM, True)], "First: B."),
        ([("A", HIGH, False), ("B", HIGH, True)], "First: A."),
    ],
)
def test_what_comes_first(verdict, findings, first):
    """The first that saves something, or is grave, of those that matter; told behind everything else."""
    rules = [_Says(f"Q{i}", *rest, saves=saves, family=Family.QUALITY) for i, (*rest, saves) in enumerate(findings)]
    said = verdict(working(), rules=rules)
    assert said.endswith(first or "of the idle time.")
    assert said.count("First:") == bool(first)


def test_what_saves_something_comes_before_what_only_matters(verdict):
    """The general comes behind all others in the list, but the verdict names what it saves."""
    rules = [_Says("C1", "A", MEDIUM), general := _Says("C2", "B", MEDIUM, saves=True)]
    general.is_general = True
    assert verdict(working(), rules=rules).endswith("First: B.")


def test_nothing_is_said_twice(verdict):
    """That the host is late, where a finding about the host comes first; likewise for a straggler."""
    host = _Says("H9", "The host is slow", HIGH, family=Family.HOST)
    assert "launches late" not in verdict(working(), rules=[host])
    assert "launches late" in verdict(working(), rules=[_Says("C1", "Slow", HIGH)])
    ranks = [working(0), working(1), working(9, own=60)]
    straggler = _Says("N4", "Rank 9 is late", HIGH, family=Family.COMMUNICATION, section="stragglers")
    said = verdict(*ranks, rules=[straggler])
    assert "wait for rank 9" not in said
    assert said.endswith("First: Rank 9 is late.")
    assert rule_classes()["H1"].family == "Host and idle time"  # As the overview calls it.
    assert "stragglers" in {each.name for each in discover()}
