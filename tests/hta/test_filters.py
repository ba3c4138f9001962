"""Filters of frames, by hand-made rows."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.hta.common import links, trace_df
from htareport.hta.common.trace import Trace
from htareport.hta.common.trace_filter import (
    CompositeFilter,
    CPUOperatorFilter,
    Filter,
    FirstIterationFilter,
    GPUKernelFilter,
    IterationFilter,
    IterationIndexFilter,
    MemCopyEventFilter,
    NameFilter,
    NameIdColumnFilter,
    NameStringColumnFilter,
    QueryFilter,
    RankFilter,
    TimeRangeFilter,
    ZeroDurationFilter,
)
from htareport.hta.common.trace_stack_filter import (
    AfterOperatorFilter,
    BeforeOperatorFilter,
    CombinedOperatorFilter,
    OperatorFilter,
    OperatorFilterMethod,
    UnderOperatorFilter,
)
from htareport.hta.configs.parser_config import AVAILABLE_ARGS, ParserConfig


@pytest.fixture
def df(run):
    return Trace(trace_dir=run).get_trace(0)


def names(rows) -> list:
    return rows["name"].tolist()


def test_steps(df):
    """By number, by place, the first; all rows of a frame without steps."""
    assert IterationFilter(5)(df)["index"].tolist() == list(range(9, 18))
    assert len(IterationFilter([4, 5])(df)) == 18
    assert IterationIndexFilter(-1)(df).equals(IterationFilter(5)(df))
    assert IterationIndexFilter([0, 7])(df).equals(FirstIterationFilter()(df))
    assert len(FirstIterationFilter()(df.assign(iteration=-1))) == 18


def test_rows_by_their_values(df):
    assert RankFilter(1)(df) is df
    assert RankFilter([1, 2])(df.assign(rank=3)).empty
    assert names(TimeRangeFilter((10, 40))(df)) == ["aten::linear", "aten::mm", "cudaLaunchKernel", "cudaMemcpyAsync"]
    assert len(QueryFilter("dur > 20")(df)) == 6
    assert len(ZeroDurationFilter(df)) == 18
    assert names(MemCopyEventFilter("Memcpy HtoD (Pinned -> Device)")(df)) == names(
        MemCopyEventFilter("Memcpy HtoD")(df)
    )
    assert len(MemCopyEventFilter("Memcpy HtoD")(df)) == 2


def test_names(df):
    """A regular expression at the start of the name, or of another column."""
    assert len(NameFilter("aten::(mm|linear)")(df)) == 4
    assert NameFilter("mm")(df).empty
    short = df.assign(s_name="x")
    assert len(NameFilter("x")(short)) == len(NameStringColumnFilter("x")(short)) == 18
    assert len(NameIdColumnFilter("aten::mm")(short)) == len(NameFilter("aten::mm", name_column="name")(short)) == 2


def test_host_and_device(df):
    """Waits and annotations are no work of the device."""
    assert len(GPUKernelFilter()(df)) == 4
    assert len(CPUOperatorFilter()(df)) == 14
    first = CompositeFilter([FirstIterationFilter(), GPUKernelFilter()])
    assert names(first(df, None)) == ["void gemm<float>(int)", "Memcpy HtoD (Pinned -> Device)"]


def test_a_filter_of_ones_own(df):
    """As HTA's documentation shows."""

    class Long(Filter):
        def __call__(self, df, symbol_table=None):
            assert symbol_table is None
            return df[df["dur"] > 50]

    assert set(names(CompositeFilter([Long()])(df))) == {"ProfilerStep#4", "ProfilerStep#5"}


@pytest.mark.parametrize(("made", "found"), [
    (UnderOperatorFilter("aten::linear", 0), ["aten::linear", "aten::mm", "cudaLaunchKernel", "cudaMemcpyAsync"]),
    (UnderOperatorFilter("aten::mm", -1), ["aten::mm", "cudaLaunchKernel"]),
    (UnderOperatorFilter("aten::mm", 0, include_gpu_kernels=True),
     ["aten::mm", "cudaLaunchKernel", "void gemm<float>(int)"]),
    (BeforeOperatorFilter("aten::mm", 0), []),
    (AfterOperatorFilter("aten::mm", 0), ["cudaMemcpyAsync", "ProfilerStep#5", "aten::linear", "aten::mm",
                                         "cudaLaunchKernel", "cudaMemcpyAsync"]),
    (BeforeOperatorFilter("ProfilerStep#5", 0),
     ["ProfilerStep#4", "aten::linear", "aten::mm", "cudaLaunchKernel", "cudaMemcpyAsync"]),
    (OperatorFilter("aten::mm", 0, OperatorFilterMethod.Ancestors), ["ProfilerStep#4", "aten::linear", "aten::mm"]),
    (OperatorFilter("aten::mm", 0, OperatorFilterMethod.Stack),
     ["ProfilerStep#4", "aten::linear", "aten::mm", "cudaLaunchKernel"]),
    (UnderOperatorFilter("nothing", 0), []),
    (UnderOperatorFilter("aten::mm", 2), []),
])  # fmt: skip
def test_operators(df, made, found):
    """Rows of the host under, before, after and around one; none if it is not there, with all columns."""
    rows = made(df)
    assert names(rows) == found
    assert list(rows.columns) == list(df.columns)


def test_between_operators(df):
    """In the first step, under a root, after one and before another; by depth of the stack."""
    found = CombinedOperatorFilter("ProfilerStep#4", "aten::mm", "nothing")(df)
    assert names(found) == ["cudaMemcpyAsync"]
    found = CombinedOperatorFilter("ProfilerStep#4", "", "cudaMemcpyAsync", include_gpu_kernels=True)(df)
    assert names(found) == ["aten::mm", "cudaLaunchKernel", "void gemm<float>(int)"]
    deep = CombinedOperatorFilter("ProfilerStep#4", "", "", stack_depths=[1])
    assert names(deep(df.assign(depth=df["name"].str.startswith("aten").astype(int)))) == ["aten::linear", "aten::mm"]


def test_look_ups(df):
    assert trace_df.get_iterations(df) == [4, 5]
    assert trace_df.get_iterations(df[["ts"]]) == []
    found, row = trace_df.find_op_occurrence(df, "aten::mm", -1, "name")
    assert (found, row["ts"]) == (True, 112)
    assert trace_df.find_op_occurrence(df, "aten::mm", 2, "name")[0] is False
    by_id = trace_df.find_events_by_name_patterns_using_symbol_table(df, ["^aten::m", "gemm"], None)
    by_name = trace_df.find_events_by_name_patterns_using_decoded_names(df, ["^aten::m", "gemm"], "name")
    assert by_id.tolist() == by_name.tolist() == [2, 4, 11, 13]


# --- links ----------------------------------------------------------------------------------


def test_links_of_a_frame_alone(df):
    """As those that the trace gives: launches, first work of a launch, steps of either."""
    bare = df.drop(columns=["index_correlation", "iteration"])
    made = links.add_iteration(links.transform_correlation_to_index(bare.copy()))
    assert made["index_correlation"].tolist() == df["index_correlation"].tolist()
    assert made["iteration"].tolist() == df["iteration"].tolist()
    assert links.get_cpu_gpu_correlation(df).to_dict("list") == {
        "gpu_index": [4, 6, 13, 15],
        "cpu_index": [3, 5, 12, 14],
    }


def test_links_of_a_graph_launch():
    """The launch leads to the first of its kernels, every kernel to the launch; 0 and -1 are no ids."""
    df = pd.DataFrame(
        {
            "index": [0, 1, 2, 3, 4], "name": ["cudaGraphLaunch", "a", "b", "c", "op"], "cat": "kernel",
            "stream": [-1, 7, 7, 7, -1], "ts": [0.0, 9.0, 5.0, 1.0, 0.0], "correlation": [3, 3, 3, 0, -1],
        }
    )  # fmt: skip
    assert links.transform_correlation_to_index(df)["index_correlation"].tolist() == [2, 0, 0, -1, -1]


def test_forward_and_backward(tmp_path):
    """By sequence number; of several operators of a number the last is undone, the outermost undoes it."""
    trace = TraceBuilder(0)
    trace.cpu_op("aten::linear", 0, 10, **{"Sequence number": 5}).cpu_op("aten::addmm", 2, 5, **{"Sequence number": 5})
    back = {"Sequence number": 5, "Fwd thread id": 1}
    trace.cpu_op("autograd::engine::evaluate_function: AddmmBackward0", 50, 20, tid=9, **back)
    trace.cpu_op("AddmmBackward0", 52, 10, tid=9, **back).cpu_op("other", 80, 1)
    trace.write(tmp_path / "rank0.json")
    config = ParserConfig([AVAILABLE_ARGS["cpu_op::sequence_number"], AVAILABLE_ARGS["cpu_op::fwd_thread"]])
    df = Trace(trace_dir=tmp_path, parser_config=config).get_trace(0)
    links.add_fwd_bwd_links(df)
    assert df["fwdbwd"].tolist() == [-1, 0, 1, -1, -1]
    assert df["fwdbwd_index"].tolist() == [-1, 2, 1, -1, -1]
    with pytest.raises(ValueError, match="lacks the columns"):
        links.add_fwd_bwd_links(df[["index"]].copy())
