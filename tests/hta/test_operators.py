"""HTA's methods about operators and annotations, on paper values. Times are µs."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.hta import TraceAnalysis

LINEAR = ["aten::linear|splitk|gemm", "aten::linear|gemm"]


@pytest.fixture
def analysis(tmp_path):
    """Write each builder's trace, one rank each, and open them."""

    def opened(*builders, **options):
        for number, builder in enumerate(builders):
            builder.write(tmp_path / f"{number}.json")
        return TraceAnalysis(trace_dir=str(tmp_path), **options)

    return opened


def calls():
    """Three aten::linear: two with two kernels, one with one; and one within another operator."""
    trace = TraceBuilder(0)
    for number, kernels in enumerate((("splitk", "gemm"), ("gemm",), ("splitk", "gemm"))):
        at = 100 * number
        trace.cpu_op("aten::linear", at, 50).cpu_op("aten::addmm", at + 5, 40 + number)
        for position, kernel in enumerate(kernels):
            start = at + 10 * position
            trace.kernel(kernel, start + 60, 5 + number, launch=(start + 10, 2))
    trace.cpu_op("attention", 300, 100).cpu_op("aten::linear", 310, 80)
    return trace.kernel("gemm", 420, 1, launch=(320, 2))


def test_frequent_sequences(analysis):
    """Calls with the fewest calls around them; the one within attention does not count, as in HTA."""
    frame = analysis(calls()).get_frequent_cuda_kernel_sequences("aten::linear", min_pattern_len=1)
    assert frame["pattern"].tolist() == LINEAR
    assert frame.iloc[:, 1:].to_numpy().tolist() == [[2, 24.0, 100.0], [1, 6.0, 50.0]]
    assert list(frame.columns) == ["pattern", "count", "GPU kernel duration (us)", "CPU op duration (us)"]


def test_frequent_sequences_of_a_minimum_length(analysis):
    ours = analysis(calls())
    assert ours.get_frequent_cuda_kernel_sequences("linear", min_pattern_len=2)["pattern"].tolist() == LINEAR[:1]
    for nothing in (ours.get_frequent_cuda_kernel_sequences(name) for name in ("linear", "no such name", "")):
        assert nothing.shape == (0, 4)


def test_depth_is_compared_within_a_thread(analysis):
    """An operator of another thread is not dropped since more annotations are around it."""
    trace = TraceBuilder(0).annotation("forward", 0, 50).cpu_op("aten::mm", 5, 20).kernel("a", 100, 5, launch=(8, 2))
    trace.cpu_op("aten::mm", 60, 20, 2).kernel("b", 110, 5)
    trace.runtime("cudaLaunchKernel", 65, 2, trace.events[-1]["args"]["correlation"], tid=2)
    frame = analysis(trace).get_frequent_cuda_kernel_sequences("aten::mm", min_pattern_len=1)
    assert frame["pattern"].tolist() == ["aten::mm|a", "aten::mm|b"]


def test_aten_operators(analysis):
    """Kernels of the innermost aten:: operator, delays of the first; copies and other operators are left out."""
    trace = calls().cpu_op("mine", 500, 20).kernel("custom", 530, 5, launch=(505, 2))
    trace.cpu_op("aten::copy_", 600, 20).memcpy("HtoD", 630, 5, launch=(605, 2))
    frames = analysis(trace).get_aten_op_kernels_and_delay()
    assert list(frames) == [0]
    rows = frames[0].set_index(["aten_op_name", "kernel_sequence"])
    columns = ["occurrence_count", "avg_aten_op_launch_delay", "avg_runtime_delay", "GPU kernel duration (us)"]
    assert list(rows.columns) == columns
    assert {key: row.tolist() for key, row in rows.iterrows()} == {
        ("aten::addmm", "splitk -> gemm"): [2, 5.0, 50.0, 24.0],
        ("aten::addmm", "gemm"): [1, 5.0, 50.0, 6.0],
        ("aten::linear", "gemm"): [1, 10.0, 100.0, 1.0],
    }


def test_aten_operators_in_another_order(analysis):
    frame = analysis(calls()).get_aten_op_kernels_and_delay(ranks=[0], sort_by=["avg_runtime_delay"])[0]
    assert frame["avg_runtime_delay"].tolist() == [100.0, 50.0, 50.0]


def test_ranks_are_apart(analysis):
    """Fault 36 of HTA: rank 1 also had what rank 0 did."""
    frames = analysis(calls(), TraceBuilder(1).cpu_op("aten::mm", 0, 9)).get_aten_op_kernels_and_delay()
    assert {rank: len(frame) for rank, frame in frames.items()} == {0: 3, 1: 0}


def annotated():
    """A step with forward in it; kernels launched in each, outside, and without a launch."""
    trace = TraceBuilder(0).step(3, 0, 100).annotation("forward", 10, 30)
    trace.kernel("void a<int>(int)", 50, 5, launch=(15, 1)).kernel("b", 60, 5, launch=(50, 1))
    trace.kernel("c", 200, 5, launch=(150, 1)).kernel("d", 210, 5)
    return trace.gpu_annotation("decode", 205, 20)


def test_kernels_with_annotations(analysis):
    """The innermost annotation around the launch, else around the kernel; and the whole stack."""
    frame = analysis(annotated()).get_gpu_kernels_with_user_annotations(0)
    assert frame["user_annotation"].tolist() == [
        "forward", "ProfilerStep#3", None, "decode",
    ]  # fmt: skip
    assert frame["annotation_stack"].tolist()[0] == "ProfilerStep#3 > forward"
    assert frame["ts"].tolist() == [50.0, 60.0, 200.0, 210.0]
    assert frame["s_name"].tolist()[:2] == ["a", "b"]
    assert frame["cat"].tolist() == ["kernel"] * 4
    assert frame["iteration"].tolist() == [3, 3, -1, -1]


def test_names_may_stay_whole(analysis):
    ours = analysis(annotated())
    whole = ours.get_gpu_kernels_with_user_annotations(0, shorten_names=False)
    assert whole["s_name"].tolist() == whole["name"].tolist()
    plain = ours.get_gpu_kernels_with_user_annotations(0, expand_names=False)
    assert not [column for column in plain.columns if column.startswith("s_")]


def test_no_annotations(analysis):
    ours = analysis(TraceBuilder(0).kernel("a", 0, 5))
    assert ours.get_gpu_kernels_with_user_annotations(0) is None
    assert ours.get_gpu_user_annotation_breakdown() is None


def many():
    """Sums 100, 60 (20 + 40), 30 and 10; on the device one of 7."""
    trace = TraceBuilder(0).annotation("a", 0, 100).annotation("b", 100, 20).annotation("b", 120, 40)
    trace.annotation("Optimizer.step#SGD.step", 160, 30).annotation("d", 190, 10)
    return trace.kernel("k", 0, 5).gpu_annotation("a", 0, 7)


def test_annotation_breakdown(analysis):
    """Exact statistics of single ranges; what is beyond the share is pooled."""
    ours = analysis(many())
    frame = ours.get_gpu_user_annotation_breakdown(use_gpu_annotation=False).set_index("name")
    assert list(frame.columns[:6]) == ["sum (us)", "max (us)", "min (us)", "stddev", "mean (us)", "rank"]
    assert frame["sum (us)"].to_dict() == {"a": 100.0, "b": 60.0, "others": 40.0}
    assert frame.loc["b", ["max (us)", "min (us)", "mean (us)", "count"]].tolist() == [40.0, 20.0, 30.0, 2]
    assert frame.loc["b", "stddev"] == pytest.approx(200**0.5)
    assert frame.loc["others", ["max (us)", "min (us)", "mean (us)", "count"]].tolist() == [30.0, 10.0, 20.0, 2]
    assert ours.get_gpu_user_annotation_breakdown()[["name", "sum (us)"]].to_numpy().tolist() == [["a", 7.0]]


def test_allow_list_holds_regular_expressions(analysis):
    """Fault 37 of HTA: they were taken as plain text."""
    frame = analysis(many()).get_gpu_user_annotation_breakdown(
        use_gpu_annotation=False, num_kernels=1, allowlist_patterns=["Optim.*step"]
    )
    assert frame["name"].tolist() == ["Optimizer.step#SGD.step", "a", "others"]


def test_no_last_step(analysis):
    """Annotations of the step that is left out are left out too."""
    trace = annotated().step(4, 145, 60).annotation("forward", 146, 10)
    ours = analysis(trace, include_last_profiler_step=False)
    frame = ours.get_gpu_user_annotation_breakdown(use_gpu_annotation=False, duration_ratio=1)
    assert frame[["name", "count"]].to_numpy().tolist() == [["ProfilerStep#3", 1], ["forward", 1]]


@pytest.mark.parametrize(
    "call",
    [
        lambda a: a.get_frequent_cuda_kernel_sequences("aten::linear", min_pattern_len=1, visualize=True),
        lambda a: a.get_aten_op_kernels_and_delay(visualize=True),
        lambda a: a.get_gpu_user_annotation_breakdown(use_gpu_annotation=False, visualize=True),
    ],
)
def test_pictures(analysis, monkeypatch, call):
    """Each shows at least one Plotly figure when asked to."""
    import plotly.graph_objects as go

    shown = []
    monkeypatch.setattr(go.Figure, "show", lambda self, *_, **__: shown.append(self))
    result = call(analysis(calls().annotation("x", 0, 5)))
    assert shown
    assert isinstance(result, (dict, pd.DataFrame))
