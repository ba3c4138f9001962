"""Kernels by operator, on paper values. Times in the tables are ns."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.analyses.kernels.operator_kernels import OperatorKernels
from htareport.report import Status
from htareport.run.runner import analyze

BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"


def table(section, name, keys):
    """Rows of a table by key, and the columns that follow."""
    rows = section.table(name).set_index(keys)
    assert rows.index.is_unique
    return rows


def linear(rank=0, tid=None):
    """aten::linear at 10 calls aten::addmm at 20, which launches two kernels; linear itself then launches a third."""
    trace = TraceBuilder(rank)
    trace.cpu_op("aten::linear", 10, 80, tid, **{"Input Dims": [[4, 8], [16, 8], []]})
    trace.cpu_op("aten::addmm", 20, 40, tid, **{"Input Dims": [[16], [4, 8]]})
    trace.kernel("splitk", 100, 5, launch=(25, 3)).kernel("gemm", 110, 50, launch=(30, 3))
    return trace.kernel("bias", 170, 7, launch=(70, 4))


def test_kernels_belong_to_the_innermost_operator(run):
    """Of the thread that launches, with the delays before and behind the start of the launch."""
    section = run(OperatorKernels(), linear())
    operators = table(section, "operators", "operator")
    addmm, outer = operators.loc["aten::addmm"], operators.loc["aten::linear"]
    assert addmm[["device", "calls", "launches", "kernels"]].tolist() == [55_000, 1, 2, 2]
    assert addmm["op_delay_mean"] == (5_000 + 10_000) / 2
    assert addmm["launch_delay_mean"] == (75_000 + 80_000) / 2
    assert outer[["device", "calls", "launches", "kernels"]].tolist() == [7_000, 1, 1, 1]
    assert outer[["op_delay_mean", "launch_delay_mean"]].tolist() == [60_000, 100_000]
    assert operators["share"].tolist() == pytest.approx([55 / 62, 7 / 62])
    assert table(section, "kernels", ["operator", "kernel"])["sum"].to_dict() == {
        ("aten::addmm", "gemm"): 50_000,
        ("aten::linear", "bias"): 7_000,
        ("aten::addmm", "splitk"): 5_000,
    }


def test_sequences_by_shape(run):
    """The kernels launched directly in order of launch, with the delays of the first; scalars have no shape."""
    rows = table(run(OperatorKernels(), linear(), linear(1)), "sequences", ["operator", "shapes", "sequence"])
    columns = ["count", "op_delay_mean", "launch_delay_mean", "device"]
    assert rows.loc[("aten::addmm", "16, 4×8", "splitk → gemm"), columns].tolist() == [2, 5_000, 75_000, 110_000]
    assert rows.loc[("aten::linear", "4×8, 16×8", "bias"), columns].tolist() == [2, 60_000, 100_000, 14_000]
    assert len(rows) == 2


def test_launches_of_other_threads_belong_to_no_operator(run):
    """An operator that runs at the same time on another thread is not around them."""
    trace = linear(tid=7)
    trace.cpu_op("aten::mul", 0, 5).kernel("mul", 180, 10, launch=(1, 2))
    section = run(OperatorKernels(), trace)
    assert section.table("operators")["operator"].tolist() == ["aten::mul"]
    assert "86.1\u202f% of the device time was launched outside operators" in section.notes[0]


def test_a_graph_is_one_launch_of_many_kernels(run):
    trace = TraceBuilder(0).cpu_op("run_graph", 0, 20).graph_launch(5, 10, [("a", 30, 5), ("b", 36, 5), ("b", 42, 5)])
    section = run(OperatorKernels(), trace)
    row = section.table("operators").iloc[0]
    assert row[["device", "calls", "launches", "kernels"]].tolist() == [15_000, 1, 1, 3]
    assert row[["op_delay_mean", "launch_delay_mean"]].tolist() == [5_000, 25_000]
    assert section.table("sequences")["sequence"].tolist() == ["a → b ×2"]


def training():
    """Forward on thread 1000 with sequence numbers, backward on thread 2; Kineto's own thread number is 1."""
    numbers = {"Sequence number": 41, "Fwd thread id": 0}
    trace = TraceBuilder(0).cpu_op("aten::linear", 0, 40, **numbers).cpu_op("aten::addmm", 10, 20, **numbers)
    trace.kernel("gemm", 30, 10, launch=(15, 2))
    numbers = {"Sequence number": 41, "Fwd thread id": 1}
    trace.cpu_op(BACKWARD, 50, 40, 2, **numbers).cpu_op("AddmmBackward0", 55, 30, 2, **numbers)
    for start, launch in ((80, 60), (95, 70)):
        trace.kernel("gemm_grad", start, 12)
        trace.runtime("cudaLaunchKernel", launch, 2, trace.events[-1]["args"]["correlation"], tid=2)
    return trace


def test_backward_work_belongs_to_the_forward_operator(run):
    """By sequence number; aten::addmm holds no more than aten::linear around it, which is listed."""
    section = run(OperatorKernels(), training())
    rows = table(section, "backward", "operator")
    assert rows.index.tolist() == ["aten::linear"]
    assert rows.iloc[0][["calls", "forward", "backward", "ratio"]].tolist() == [1, 10_000, 24_000, 2.4]
    assert section.table("operators").set_index("operator").loc["AddmmBackward0", "kernels"] == 2


def test_a_window_leaves_other_steps_out(tmp_path):
    trace = TraceBuilder(0)
    for step in range(2):
        at = 1000 * step
        trace.step(step, at, 1000).cpu_op("aten::mul", at + 10, 20)
        trace.kernel("mul", at + 100, 10 + step, launch=(at + 15, 2))
    trace.write(tmp_path / "0.json")
    section = analyze(tmp_path, analyses=[OperatorKernels()], steps="1")["operator_kernels"]
    assert section.table("operators")[["device", "calls"]].to_numpy().tolist() == [[11_000, 1]]


def test_without_operators_there_is_nothing_to_say(run):
    assert run(OperatorKernels(), TraceBuilder(0).kernel("k", 5, 5, launch=(1, 1))).status is Status.NOT_APPLICABLE


def test_ten_thousand_levels(run):
    """A stack as deep as recursion makes it."""
    trace = TraceBuilder(0)
    for level in range(10_000):
        trace.cpu_op("f", level, 30_000 - 2 * level)
    trace.kernel("k", 40_000, 3, launch=(10_000, 1))
    section = run(OperatorKernels(), trace)
    assert section.table("operators")["op_delay_mean"].tolist() == [1_000]


def of_many_shapes(rank, shapes):
    """One call for each shape, whose kernel takes 5 µs."""
    trace = TraceBuilder(rank, 2)
    for number in shapes:
        at = 100 * number
        trace.cpu_op("aten::mul", at, 20, **{"Input Dims": [[number]]}).kernel("mul", at + 30, 5, launch=(at + 5, 2))
    return trace


def test_what_is_cut_is_told(run):
    """Of one rank the table lacks rows; of several, one that lacks rows on a rank lacks their time too."""
    section = run(OperatorKernels(), of_many_shapes(0, range(1, 152)))
    assert len(section.table("sequences")) == 150
    [note] = section.notes
    assert note == (
        "The table by operator, input shapes and kernels holds the 150 rows of most device time; there are more."
    )
    section = run(OperatorKernels(), of_many_shapes(0, range(1, 152)), of_many_shapes(1, [99]))
    assert section.table("operators")["calls"].tolist() == [152]
    assert section.table("sequences")["count"].sum() == 151
    [note] = section.notes
    assert note == (
        "The table by operator, input shapes and kernels adds up, of each rank, the 150 rows of most device time; "
        "1 of 2 ranks have more, and what they leave out is missing from the sums."
    )


def test_two_ranks_together_may_have_too_many_rows(run):
    """100 shapes each, all different: no rank is cut, but the table is."""
    section = run(OperatorKernels(), of_many_shapes(0, range(1, 101)), of_many_shapes(1, range(101, 201)))
    assert len(section.table("sequences")) == 150
    [note] = section.notes
    assert note.endswith("holds the 150 rows of most device time; there are more.")


def test_backward_rows_that_are_cut_are_told(run):
    """101 operators with backward work, of which the table holds 100."""
    trace = TraceBuilder(0)
    for number in range(101):
        at = 100 * number
        trace.cpu_op(f"f{number}", at, 10, **{"Sequence number": number, "Fwd thread id": 0})
        trace.cpu_op(f"F{number}Backward0", 20_000 + at, 20, 2, **{"Sequence number": number, "Fwd thread id": 1})
        trace.kernel("grad", 20_050 + at, 5)
        trace.runtime("cudaLaunchKernel", 20_005 + at, 2, trace.events[-1]["args"]["correlation"], tid=2)
    section = run(OperatorKernels(), trace)
    assert len(section.table("backward")) == 100
    assert section.notes == (
        "The table of forward and backward holds the 100 rows of most device time; there are more.",
    )
