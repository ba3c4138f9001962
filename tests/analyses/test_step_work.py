"""What one step runs: paper values per step and rank."""

import math

import pytest
from builder import TraceBuilder

from htareport.analyses.host.operators import Operators
from htareport.analyses.kernels.step_work import SMALL_KERNELS, StepWork
from htareport.analyses.time.idle_time import IdleTime
from htareport.report import Status
from htareport.run.runner import analyze


def trace(rank, *, scale=1):
    """Two steps of 100 µs. In each: a linear layer's kernel of 10 µs and a copy; in the second a lone kernel more."""
    made = TraceBuilder(rank, world_size=2)
    for number, start in enumerate((0, 100)):
        made.step(number, start, 100)
        made.cpu_op("aten::linear", start + 5, 20).cpu_op("aten::addmm", start + 6, 15, **{"Input Dims": [[4, 8], [8]]})
        made.kernel("gemm", start + 30, 10 * scale, launch=(start + 8, 3))
        made.memcpy("HtoD (Pinned -> Device)", start + 60, 4, bytes=1000, launch=(start + 40, 2))
    made.kernel("lone", 180, 6, launch=(150, 2))
    return made.kernel("outside", 300, 50, launch=(250, 2))  # After the last step.


@pytest.fixture
def section(tmp_path):
    for rank, scale in ((0, 1), (1, 2)):
        trace(rank, scale=scale).write(tmp_path / f"{rank}.json")
    return analyze(tmp_path, analyses=[StepWork()])["step_work"]


def test_per_step_and_rank(section):
    """Over two ranks and two steps: gemm once in each, of 10 or 20 µs; the lone kernel in half of the steps."""
    rows = section.table("kernels").set_index("kernel")
    gemm, lone = rows.loc["gemm"], rows.loc["lone"]
    assert (gemm["path"], gemm["shapes"], gemm["kind"]) == ("aten::linear > aten::addmm", "4×8, 8", "compute")
    assert (gemm["count"], gemm["time"]) == (1, 15_000)
    assert (lone["path"], lone["count"], lone["time"]) == ("", 0.5, 3_000)
    assert "outside" not in rows.index
    kinds = section.table("kinds").set_index("kind")
    assert kinds.loc["compute", ["count", "time", "mean"]].tolist() == [1.5, 18_000, 12_000]
    assert kinds.loc["memory", ["count", "time"]].tolist() == [1, 4_000]
    assert section.table("basis").iloc[0].tolist() == [2, 4]


def test_a_rank_without_steps(tmp_path):
    """What it does in all is no part of the steps of the other."""
    trace(0).write(tmp_path / "0.json")
    TraceBuilder(1, world_size=2).kernel("gemm", 0, 900).memcpy("HtoD", 1000, 9, bytes=1).write(tmp_path / "1.json")
    section = analyze(tmp_path, analyses=[StepWork()])["step_work"]
    assert section.table("kernels").set_index("kernel").loc["gemm", ["count", "time"]].tolist() == [1, 10_000]
    assert section.table("basis").iloc[0].tolist() == [1, 2]


def test_copies(section):
    row = section.table("copies").iloc[0]
    assert (row["kind"], row["count"], row["time"], row["bytes"]) == ("Memcpy HtoD", 1, 4_000, 1_000)


def test_collectives(run):
    made = TraceBuilder(0, world_size=2).step(0, 0, 100).step(1, 100, 100)
    for start in (10, 110, 120):
        made.collective("nccl", "allreduce", start, 5, nelems=256, launch=(start - 5, 2))
    row = run(StepWork(), made).table("collectives").iloc[0]
    assert (row["collective"], row["process_group"], row["group_size"]) == ("all_reduce", "default_pg", 2)
    assert (row["count"], row["time"], row["bytes"]) == (1.5, 7_500, 1_536)


def test_without_steps_everything_per_rank(run):
    section = run(StepWork(), TraceBuilder().kernel("k", 0, 10).kernel("k", 20, 30))
    row = section.table("kernels").iloc[0]
    assert (row["count"], row["time"]) == (2, 40_000)
    assert section.notes == ("Without steps: everything recorded, per rank.",)
    assert math.isnan(section.table("basis")["steps"].iloc[0])


def test_without_device_work(run):
    assert run(StepWork(), TraceBuilder().cpu_op("aten::mm", 0, 10)).status is Status.NOT_APPLICABLE


def test_steps_are_no_part_of_paths(run):
    """In traces of before 2022 steps are operators, with a number each."""
    made = TraceBuilder()
    for number, start in enumerate((0, 100)):
        made.cpu_op(f"ProfilerStep#{number}", start, 100).cpu_op("aten::mm", start + 10, 20)
        made.kernel("k", start + 30, 10, launch=(start + 12, 2))
    rows = run(StepWork(), made).table("kernels")
    assert rows[["path", "count"]].to_numpy().tolist() == [["aten::mm", 1]]


def test_deep_and_repeated_paths(run):
    """One row per path, and the operators in it in order; what is launched beside it has its own."""
    made = TraceBuilder()
    for start in (0, 100):
        for depth in range(40):
            made.cpu_op(f"op{depth}", start + depth, 90 - 2 * depth)
        made.kernel("k", start + 60, 5, launch=(start + 42, 2))
    made.cpu_op("op1", 200, 20).kernel("k", 230, 5, launch=(205, 2))
    rows = run(StepWork(), made).table("kernels").set_index("path")["count"].to_dict()
    assert rows == {" > ".join(f"op{depth}" for depth in range(40)): 2, "op1": 1}


def test_the_many_small_ones_are_one_row(run):
    made = TraceBuilder()
    for number in range(2_005):
        made.kernel(f"k{number:04}", 20 * number, 10 if number < 1_999 else 1)
    rows = run(StepWork(), made).table("kernels").set_index("kernel")
    assert len(rows) == 2_001
    assert rows.loc[SMALL_KERNELS, ["count", "time"]].tolist() == [5, 5_000]


def test_operators_per_step(run):
    """The self time of those that start in steps, by steps; the third call is outside of all."""
    made = TraceBuilder().step(0, 0, 100).step(1, 100, 100)
    made.cpu_op("a", 10, 20).cpu_op("b", 12, 5).cpu_op("a", 110, 30).cpu_op("a", 250, 40)
    rows = run(Operators(), made).table().set_index("name")
    assert rows.loc["a", ["count", "step_count", "step_self"]].tolist() == [3, 1, 22_500]
    assert rows.loc["b", ["count", "step_count", "step_self"]].tolist() == [1, 0.5, 2_500]


def test_idle_time_of_steps_by_cause(run):
    """By cause of the gap, clipped to the step; before the first event by its launch, behind the last one unknown.

    Step 0 (0-100): until 20 the host is late, 30-40 the next kernel was launched in time and soon comes, 50-100 late.
    Step 1 (100-200): late until 130, 150-190 launched in time, but long, 195-200 behind the last.
    """
    made = TraceBuilder().step(0, 0, 100).step(1, 100, 100)
    made.kernel("a", 20, 10, launch=(5, 2)).kernel("b", 40, 10, launch=(8, 2)).kernel("c", 130, 20, launch=(120, 2))
    made.kernel("d", 190, 5, launch=(122, 2))
    rows = run(IdleTime(), made).table("steps").set_index("step")
    assert rows.loc[0].tolist() == [70_000, 10_000, 0]
    assert rows.loc[1].tolist() == [30_000, 0, 45_000]
