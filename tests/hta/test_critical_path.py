"""HTA's questions to a critical path."""

from __future__ import annotations

import zipfile

import pytest
from builder import TraceBuilder

from htareport.hta import TraceAnalysis
from htareport.hta.critical_path import CPEdge, CPEdgeType, CPNode, restore_cpgraph

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@pytest.fixture
def analysis(tmp_path):
    """Two steps; in each an operator (20), a gemm launched at 5 that runs 30 to 70, and a wait for it until 80."""
    trace = TraceBuilder(0)
    for step in range(2):
        at = 100 * step
        trace.step(step, at, 100).cpu_op(f"aten::mm{step}", at, 20)
        trace.kernel("void gemm<float, (int)3>(float*)", at + 30, 40, launch=(at + 5, 2))
        trace.runtime("cudaDeviceSynchronize", at + 20, 60, 100 + step)
        trace.gpu_annotation(f"ProfilerStep#{step}", at + 30, 40)
    trace.write(tmp_path / "traces" / "rank0.json")
    return TraceAnalysis(trace_dir=tmp_path / "traces")


@pytest.fixture
def graph(analysis):
    found, fine = analysis.critical_path_analysis(0, "ProfilerStep", 1)
    assert fine is True
    return found


def test_breakdown(graph):
    """HTA's weights: the return of the wait and Python are free."""
    frame = graph.get_critical_path_breakdown()
    columns = ["event_idx", "duration", "type", "s_name", "cat", "pid", "tid", "stream", "index", "bound_by"]
    assert list(frame.columns)[: len(columns)] == columns
    sums = frame.groupby("bound_by")["duration"].sum().to_dict()
    assert sums == {
        "": 0,
        "cpu_bound": 5,
        "gpu_kernel_launch_overhead": 25,
        "gpu_compute_bound": 40,
    }
    kernel = frame[frame["bound_by"] == "gpu_compute_bound"].iloc[0]
    assert kernel[["s_name", "cat", "stream", "type"]].tolist() == ["gemm", "kernel", 7, "critical_path_operator"]
    assert graph.critical_path_length == 70
    assert graph.summary().round(2).to_dict() == {
        "": 0,
        "cpu_bound": 7.14,
        "gpu_compute_bound": 57.14,
        "gpu_kernel_launch_overhead": 35.71,
    }


def test_python_time(analysis):
    """As in the report: 10 of the return and 20 of Python more."""
    found, _ = analysis.critical_path_analysis(0, "ProfilerStep", 1, python_time=True)
    sums = found.get_critical_path_breakdown().groupby("bound_by")["duration"].sum()
    assert sums["cpu_bound"] == 15
    assert sums["python_bound"] == 20


def test_windows(analysis):
    """One instance, a range of them, everything; the annotations of the device are no instances."""
    for instance, names in ((None, ["aten::mm0"]), (1, ["aten::mm1"]), ((0, 1), ["aten::mm0", "aten::mm1"])):
        found, _ = analysis.critical_path_analysis(0, "ProfilerStep", instance)
        assert [name for name in found.trace_df["s_name"] if name.startswith("aten")] == names
    whole, _ = analysis.critical_path_analysis(0, "")
    assert len(whole.trace_df) == 8
    with pytest.raises(ValueError, match=r"no instance 2 of 'ProfilerStep': there are 2"):
        analysis.critical_path_analysis(0, "ProfilerStep", 2)
    with pytest.warns(UserWarning, match="'nothing' in its name"):
        assert analysis.critical_path_analysis(0, "nothing") is None


def test_look_ups(graph):
    kernel = int(graph.trace_df.index[graph.trace_df["s_name"] == "gemm"][0])
    start, end = graph.get_nodes_for_event(kernel)
    assert (start.ts, end.ts, start.is_start, end.is_start) == (130, 170, True, False)
    assert isinstance(start, CPNode)
    assert graph.node_list[start.idx] == start
    edge = CPEdge(start.idx, end.idx, CPEdgeType.OPERATOR_KERNEL, 40)
    assert edge in graph.critical_path_edges_set
    assert graph.edges[start.idx, end.idx]["object"] == edge
    assert graph.get_edges_attributed_to_event(kernel) == [edge]
    assert graph.get_event_attribution_for_edge(edge) == kernel
    assert graph.get_events_for_edge(edge) == (kernel, kernel)
    launch = next(e for e in graph.critical_path_edges_set if e.type is CPEdgeType.KERNEL_LAUNCH_DELAY)
    assert launch.weight == 25
    assert graph.get_event_attribution_for_edge(launch) is None
    assert kernel in graph.critical_path_events_set
    assert graph.get_nodes_for_event(10**6) == (None, None)
    assert graph.show_critical_path()["node"].tolist() == graph.critical_path_nodes
    with pytest.raises(KeyError, match="no edge"):
        graph.get_event_attribution_for_edge(CPEdge(0, 10**6, CPEdgeType.DEPENDENCY, 0))


def test_what_if(graph):
    """A kernel of no length: the path is 25 of launch and 5 of the operator, or the operator's 20 at last."""
    kernel = int(graph.trace_df.index[graph.trace_df["s_name"] == "gemm"][0])
    (edge,) = graph.get_edges_attributed_to_event(kernel)
    graph.edges[edge.begin, edge.end]["weight"] = 0
    assert graph.critical_path_length == 70, "not yet"
    assert graph.critical_path() is True
    assert graph.critical_path_length == 30
    graph.set_weight(edge, 100.5)
    graph.critical_path()
    assert graph.critical_path_length == 130.5
    assert graph.get_critical_path_breakdown()["duration"].sum() == 130.5
    with pytest.raises(ValueError, match="0 µs or more"):
        graph.set_weight(edge, -1)
    with pytest.raises(KeyError, match="only the weight"):
        graph.edges[edge.begin, edge.end]["object"] = None


def test_launch_edges_without_weight(analysis, monkeypatch):
    """As an option, as in HTA: the second kernel waits for the first, and stays behind its launch as well."""
    trace_edges = len(analysis.critical_path_analysis(0, "")[0].edges)
    monkeypatch.setenv("CRITICAL_PATH_ADD_ZERO_WEIGHT_LAUNCH_EDGE", "1")
    assert len(analysis.critical_path_analysis(0, "")[0].edges) > trace_edges


def test_save_and_restore(graph, tmp_path):
    path = graph.save(tmp_path / "saved" / "graph")
    assert path.endswith("graph.zip")
    assert all(name.endswith((".npy", ".json")) for name in zipfile.ZipFile(path).namelist())
    restored = restore_cpgraph(path)
    assert restored.get_critical_path_breakdown().equals(graph.get_critical_path_breakdown())
    assert restored.critical_path_nodes == graph.critical_path_nodes
    assert restored.trace_df.equals(graph.trace_df)
    edge = next(iter(restored.critical_path_edges_set))
    restored.set_weight(edge, 1000)
    restored.critical_path()
    assert restored.critical_path_length >= 1000


def test_files_that_are_no_graph(tmp_path):
    """Each is named, and nothing of it is run."""
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("cp_graph.pkl", b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(ValueError, match=r"other.zip: not a saved critical path"):
        restore_cpgraph(other)
    text = tmp_path / "text.zip"
    text.write_text("no zip")
    with pytest.raises(ValueError, match=r"text.zip: not a saved critical path"):
        restore_cpgraph(text)


def test_a_rank_without_host_rows_or_device(tmp_path):
    """Only the host, and only the device."""
    TraceBuilder(0).cpu_op("a", 0, 10).write(tmp_path / "host" / "rank0.json")
    found, _ = TraceAnalysis(trace_dir=tmp_path / "host").critical_path_analysis(0, "")
    assert found.critical_path_length == 10
    TraceBuilder(0).collective(NCCL, "allreduce", 0, 10).write(tmp_path / "device" / "rank0.json")
    found, _ = TraceAnalysis(trace_dir=tmp_path / "device").critical_path_analysis(0, "")
    assert found.summary().to_dict() == {"gpu_communication_bound": 100}
