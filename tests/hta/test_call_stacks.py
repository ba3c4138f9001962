"""Call stacks of frames, by hand-made rows."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.hta.common import call_stack, trace_call_stack
from htareport.hta.common.stacks import STACK_COLUMNS
from htareport.hta.common.trace import Trace
from htareport.hta.common.trace_call_graph import CallGraph
from htareport.hta.common.types import DeviceType

LINEAR, MM, LAUNCH, GEMM, COPY_CALL, COPY = 1, 2, 3, 4, 5, 6


@pytest.fixture
def trace(run):
    return Trace(trace_dir=run)


def columns(df, index) -> dict:
    return df.loc[index, list(STACK_COLUMNS)].to_dict()


def test_columns(trace):
    """Written into the frame: gemm and copy run from 50 to 76 under the linear."""
    CallGraph(trace, [0])
    df = trace.get_trace(0)
    assert columns(df, LINEAR) == {
        "parent": 0, "depth": 1, "height": 3, "num_kernels": 2, "kernel_dur_sum": 24, "kernel_span": 26,
        "first_kernel_start": 50, "last_kernel_end": 76,
    }  # fmt: skip
    assert columns(df, GEMM) == {
        "parent": LAUNCH, "depth": 4, "height": 0, "num_kernels": 0, "kernel_dur_sum": 0, "kernel_span": 0,
        "first_kernel_start": -1, "last_kernel_end": -1,
    }  # fmt: skip
    assert df["parent"].tolist()[:7] == [-1, 0, 1, 2, 3, 1, 5]
    assert df["height"].tolist()[:7] == [4, 3, 2, 1, 0, 1, 0]
    assert df.loc[[7, 8], "parent"].tolist() == [-1, -1], "annotations and waits of the device are in no stack"


def test_all_ranks_by_default(trace):
    graph = CallGraph(trace)
    assert graph.ranks == [0, 3]
    assert graph.mapping["rank"].tolist() == [0, 3]
    assert graph.mapping["label"].tolist() == ["main", "main"]


def test_without_depth(trace, monkeypatch):
    monkeypatch.setenv("HTA_DISABLE_CG_DEPTH", "1")
    CallGraph(trace, [0])
    assert "depth" not in trace.get_trace(0)
    assert "height" in trace.get_trace(0)
    call_stack.CallGraph(trace, [3])
    assert "depth" not in trace.get_trace(3)


def test_nodes(trace):
    """Parents, children, paths, leaves, with and without device work."""
    (stack,) = CallGraph(trace, [0]).get_call_stacks(rank=0)
    assert stack.get_parent(MM) == LINEAR
    assert stack.get_parent(999) == -2
    assert stack.get_children(LINEAR) == [MM, COPY_CALL]
    assert stack.get_children(999) == []
    assert stack.get_path_to_root(LAUNCH) == [LAUNCH, MM, LINEAR, 0, -1]
    assert stack.get_root(LAUNCH) == 0
    assert stack.get_leaf_nodes(LINEAR) == [LAUNCH, COPY_CALL]
    assert stack.get_leaf_nodes(LINEAR, include_gpu_kernel=True) == [GEMM, COPY]
    assert stack.get_paths_to_leaves(LINEAR) == [[LINEAR, MM, LAUNCH], [LINEAR, COPY_CALL]]
    assert stack.get_paths_to_leaves(MM, include_cuda_kernel=True) == [[MM, LAUNCH, GEMM]]
    assert stack.get_descendants(LINEAR, include_gpu_kernel=True) == [MM, LAUNCH, GEMM, COPY_CALL, COPY]
    assert stack.get_nodes()[GEMM].device is DeviceType.GPU
    assert stack.get_depth()[MM] == 2
    assert stack.get_nodes()[-1].children == [0, 9]
    assert stack.correlations.iloc[0].to_dict() == {"cpu_index": LAUNCH, "gpu_index": GEMM}
    assert len(stack.get_dataframe()) == 14
    assert "pid=1000" in repr(stack)


def test_depth_first(trace):
    """Into each node and out of it."""
    (stack,) = CallGraph(trace, [0]).get_call_stacks(rank=0)
    steps: list = []
    stack.dfs_traverse(lambda i, _: steps.append(f"+{i}"), lambda i, _: steps.append(f"-{i}"))
    assert steps[:6] == ["+-1", "+0", "+1", "+2", "+3", "+4"]
    assert steps[-1] == "--1"
    assert len(steps) == 2 * 15


def test_stack_of_a_node(trace):
    """What is around and below it, device work too."""
    graph = CallGraph(trace, [0])
    assert graph.get_stack_of_node(MM)["index"].tolist() == [0, LINEAR, MM, LAUNCH, GEMM]
    assert graph.get_stack_of_node(MM, 0, skip_ancestors=True)["index"].tolist() == [MM, LAUNCH, GEMM]
    assert graph.get_node_attributes(GEMM)["name"] == "void gemm<float>(int)"
    assert graph.get_csg_of_node(GEMM) is graph.get_csg_of_node(MM)
    assert len(graph.get_gpu_kernels(0)) == 4
    for ask in (graph.get_stack_of_node, graph.get_node_attributes, graph.get_csg_of_node):
        with pytest.raises(ValueError, match="no event 999"):
            ask(999)


def test_of_a_frame(trace):
    """Without a trace behind it."""
    df = trace.get_trace(0)[["index", "name", "pid", "tid", "ts", "dur", "stream", "index_correlation"]].copy()
    graph = CallGraph.from_dataframe(df, rank=7)
    assert graph.mapping["rank"].tolist()[:1] == [7]
    assert graph.get_node_attributes(LINEAR, 7)["num_kernels"] == 2


def test_backward_thread(tmp_path):
    """Its outermost rows are within "## backward ##" of the thread with the steps; without that, within the step."""
    trace = TraceBuilder(0).step(1, 0, 100).annotation("## backward ##", 40, 50)
    trace.cpu_op("autograd::engine::evaluate_function: A", 45, 10, tid=9).cpu_op("mm", 46, 2, tid=9)
    trace.cpu_op("autograd::engine::evaluate_function: B", 95, 3, tid=9)
    trace.write(tmp_path / "rank0.json")
    frame = Trace(trace_dir=tmp_path)
    graph = CallGraph(frame)
    assert frame.get_trace(0)["parent"].tolist() == [-1, 0, 1, 2, -1]
    assert frame.get_trace(0)["depth"].tolist() == [0, 1, 2, 3, 0]
    assert graph.mapping["label"].tolist() == ["bwd", "main"]
    assert graph.get_stack_of_node(3)["index"].tolist() == [0, 1, 2, 3]
    bare = frame.get_trace(0).query("name != '## backward ##'")[["index", "name", "pid", "tid", "ts", "dur", "stream"]]
    CallGraph.from_dataframe(bare := bare.copy())
    assert bare["parent"].tolist() == [-1, 0, 2, 0]


def test_ties(tmp_path):
    """Rows of no length; rows that start and end together: annotations are outside operators, these outside calls."""
    trace = TraceBuilder(0).cpu_op("b", 0, 10).runtime("call", 0, 10).annotation("a", 0, 10)
    trace.cpu_op("empty", 10, 0).cpu_op("next", 10, 5)
    trace.write(tmp_path / "rank0.json")
    df = CallGraph(Trace(trace_dir=tmp_path))._frames[0]
    assert df["parent"].tolist() == [2, 0, -1, 4, -1]


# --- the older ones -------------------------------------------------------------------------


def test_old_call_graph(trace):
    """Device work is a child of its launch, of no depth."""
    graph = call_stack.CallGraph(trace, [0])
    df = trace.get_trace(0)
    assert df["parent"].tolist()[:7] == [-1, 0, 1, 2, 3, 1, 5]
    assert df["depth"].tolist()[:7] == [0, 1, 2, 3, -1, 2, -1]
    assert graph.mapping.columns.tolist() == ["rank", "pid", "tid", "csg_index"]
    assert graph.get_stack_of_node(MM, 0)["index"].tolist() == [0, LINEAR, MM, LAUNCH, GEMM]
    host = next(stack for stack in graph.call_stacks if stack.identity.pid == 1000)
    assert host.device_type is DeviceType.CPU
    assert host.correlations[LAUNCH] == GEMM
    assert "CPU" in repr(host)


def test_old_call_graph_with_options(tmp_path):
    """Threads put together, rows left out, Python functions cut to the one around them."""
    trace = TraceBuilder(0).cpu_op("a", 0, 50).cpu_op("b", 10, 5, tid=9)
    trace.python_function("outer", 60, 20, python_id=1).python_function("inner", 65, 30, python_id=2, parent=1)
    trace.write(tmp_path / "rank0.json")
    frame = Trace(trace_dir=tmp_path)
    call_stack.CallGraph(
        frame,
        remapped_tids={0: {9: 1000}},
        filter_func=lambda df: df[df["name"] != "outer"],
        pre_process_trace_data=True,
    )
    df = frame.get_trace(0)
    assert df["parent"].tolist() == [-1, 0, -1, -1]
    assert df["tid"].tolist()[:2] == [1000, 9]
    assert df["dur"].tolist() == [50, 5, 20, 15]
    assert df["end"].tolist()[3] == 80


def test_stack_of_one_thread(trace):
    """From its rows and the whole frame; what is there already is taken over."""
    df = trace.get_trace(0)
    identity = trace_call_stack.CallStackIdentity(0, 1000, 1000)
    rows = df[df["pid"] == 1000]
    stack = trace_call_stack.CallStackGraph(rows, identity, full_df=df)
    assert df.loc[LINEAR, "num_kernels"] == 2
    again = trace_call_stack.CallStackGraph(rows, identity, full_df=df)
    assert again.get_nodes() == stack.get_nodes()
    again.update_parent_of_first_layer_nodes(77)
    assert again.get_parent(0) == df.loc[0, "parent"] == 77
    old = call_stack.CallStackGraph(rows, identity, filter_func=lambda each: each[each["name"] != "aten::mm"])
    assert old.get_parent(LAUNCH) == LINEAR
