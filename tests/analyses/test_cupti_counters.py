"""Hardware counters, joined to operators."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.analyses.kernels.cupti_counters import CuptiCounters, counter_rows
from htareport.trace import RankTrace

SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
FFMA, FADD, HMUL = (SASS.format(each) for each in ("ffma", "fadd", "hmul"))
READ = "dram__bytes_read.sum"


def traced() -> TraceBuilder:
    """A fill, then kernels under linear > mm and under add, each launched in its own way."""
    trace = TraceBuilder(0).cpu_op("aten::zeros", 0, 8).runtime("cudaMemsetAsync", 2, 2, 1)
    trace.cpu_op("aten::linear", 10, 30).cpu_op("aten::mm", 15, 20).runtime("cudaLaunchKernel", 20, 5, 2)
    trace.cpu_op("aten::add", 50, 10).runtime("cudaLaunchKernelExC", 52, 5, 3)
    return trace


def with_counters(trace=None) -> TraceBuilder:
    """2 × 1,000,000 + 5 operations and 4,096.5 bytes; 30 + 4 operations."""
    trace = trace or traced()
    trace.profiler_range("gemm", 100, 50, {FFMA: 1_000_000, FADD: 5, READ: 4096.5})
    return trace.profiler_range("add", 150, 50, {FADD: 30, HMUL: 4, READ: 10})


def rows_of(trace, tmp_path):
    return counter_rows(RankTrace.load(0, trace.write(tmp_path / "rank0.json")))


def test_the_nth_range_is_the_nth_kernel_launch(tmp_path):
    """Fills don't count; other launch calls do."""
    rows = rows_of(with_counters(), tmp_path)
    assert rows["op_stack"].tolist() == [["aten::linear", "aten::mm"], ["aten::add"]]
    assert rows["top_level_op"].tolist() == ["aten::linear", "aten::add"]
    assert rows["bottom_level_op"].tolist() == ["aten::mm", "aten::add"]
    assert rows["call"].tolist() == ["cudaLaunchKernel", "cudaLaunchKernelExC"]
    assert rows["flops"].tolist() == [2_000_005, 34]
    assert rows["dram"].tolist() == [4096.5, 10]
    assert rows["intensity"].tolist() == pytest.approx([2_000_005 / 4096.5, 3.4])


def test_correlation_beats_the_order(tmp_path):
    """Where the rows have one."""
    trace = traced().profiler_range("add", 100, 50, {FADD: 30, "correlation": 3})
    rows = rows_of(trace.profiler_range("gemm", 150, 50, {FFMA: 1, "correlation": 2}), tmp_path)
    assert rows["bottom_level_op"].tolist() == ["aten::add", "aten::mm"]
    assert "correlation" not in rows.attrs["counters"]


def test_other_numbers(run):
    """Counters by kernel, without operators, and a sentence."""
    section = run(CuptiCounters(), with_counters().profiler_range("more", 200, 5, {FADD: 1}))
    assert section.table("kernels")["operator"].tolist() == ["", "", ""]
    assert section.table("kernels")["kernel"].tolist() == ["gemm", "add", "more"]
    assert "3 rows of counters, but 2 kernel launches" in section.notes[0]


def test_tables(run):
    """Sums by operator, shares of all, and the counters as they are."""
    section = run(CuptiCounters(), with_counters())
    table = section.table("operators").set_index("operator")
    assert table["flops"].to_dict() == {"aten::linear": 2_000_005, "aten::add": 34}
    assert table["share"].sum() == pytest.approx(1)
    assert table.loc["aten::add", "dram"] == 10
    counters = section.table("counters").set_index("counter")
    assert counters.loc[FFMA].tolist() == [1, 1_000_000, 1_000_000]
    assert counters.loc[READ, ["kernels", "mean", "max"]].tolist() == [2, (4096.5 + 10) / 2, 4096.5]
    assert not section.notes


def test_without_traffic(run):
    """Bytes that were not counted are unknown, not 0."""
    trace = traced().profiler_range("gemm", 100, 5, {FFMA: 1}).profiler_range("add", 120, 5, {FFMA: 1})
    table = run(CuptiCounters(), trace).table()
    assert table["dram"].isna().all()
    assert table["intensity"].isna().all()


def test_no_launch_outside_operators(run):
    """A launch under no operator has an empty one."""
    trace = TraceBuilder(0).runtime("cuLaunchKernel", 0, 5, 1).profiler_range("k", 10, 5, {FADD: 3})
    assert run(CuptiCounters(), trace).table()["operator"].tolist() == [""]


def test_odd_arguments(tmp_path):
    """Text among the counters is left out."""
    trace = TraceBuilder(0).runtime("cudaLaunchKernel", 0, 5, 1)
    rows = rows_of(trace.profiler_range("k", 10, 5, {FADD: 3, "note": "x", "flag": True}), tmp_path)
    assert rows.attrs["counters"] == [FADD]


def test_a_kernel_without_a_name(run):
    """The profiler's word for it says little."""
    trace = TraceBuilder(0).runtime("cuLaunchKernel", 0, 5, 1).profiler_range("__missing__", 10, 5, {FADD: 3})
    assert run(CuptiCounters(), trace).table("kernels")["kernel"].tolist() == [
        "(kernel whose name the profiler did not find)"
    ]


def test_shares_are_of_all_also_where_rows_are_cut(run):
    """Kernels of 1 to 300 operations: the table holds the 250 largest, which are 45,150 - 1,275 of all."""
    trace = TraceBuilder(0)
    for number in range(1, 301):
        trace.runtime("cuLaunchKernel", 10 * number, 5, number)
        trace.profiler_range(f"k{number}", 5000 + 10 * number, 5, {FADD: number})
    section = run(CuptiCounters(), trace)
    table = section.table("kernels")
    assert len(table) == 250
    assert table["share"].sum() == pytest.approx((45_150 - 1_275) / 45_150)
    assert section.notes == ("The table by kernel and operator holds the 250 rows of most operations; there are more.",)


def test_ranks_are_summed(run):
    """Two ranks with the same kernels."""
    table = run(CuptiCounters(), with_counters(), _other_rank()).table().set_index("operator")
    assert table.loc["aten::linear", "kernels"] == 2


def _other_rank():
    trace = TraceBuilder(1)
    trace.cpu_op("aten::linear", 0, 30).runtime("cudaLaunchKernel", 2, 5, 2)
    return trace.profiler_range("gemm", 100, 50, {FFMA: 1_000_000, FADD: 5, READ: 4096.5})
