"""HTA's names and columns over the same numbers."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import TraceBuilder

import htareport
from htareport.errors import NothingToReadError
from htareport.hta import TraceAnalysis

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def rank_of(rank: int, device: int = 0) -> TraceBuilder:
    """Three steps of 100 µs.

    Each has gemm [10, 50] and relu [92, 95] on stream 7, a collective [40, 60] on 20, a copy [65, 75] on 7.
    """
    trace = TraceBuilder(rank, world_size=2)
    for step in range(3):
        at = 100 * step
        trace.step(step, at, 100)
        trace.kernel("gemm", at + 10, 40 + rank, device=device, launch=(at + 1, 2))
        trace.collective(NCCL, "allreduce", at + 40, 20, device=device, launch=(at + 4, 2))
        trace.memcpy("HtoD (Pinned -> Device)", at + 65, 10, device=device, launch=(at + 6, 2))
        trace.kernel("relu", at + 92, 3, device=device, launch=(at + 90, 1))
    return trace


@pytest.fixture
def folder(tmp_path):
    for rank in (0, 3):
        rank_of(rank).write(tmp_path / "traces" / f"rank{rank}.json")
    return tmp_path / "traces"


@pytest.fixture
def analysis(folder):
    return TraceAnalysis(trace_dir=folder)


@pytest.fixture
def shown(monkeypatch):
    """Figures that would have been shown."""
    import plotly.graph_objects as go

    figures = []
    monkeypatch.setattr(go.Figure, "show", lambda self, **kwargs: figures.append((self, kwargs)))
    return figures


def test_public_names():
    """They stand at the top of the package."""
    assert htareport.TraceAnalysis is TraceAnalysis
    assert htareport.TraceDiff
    assert htareport.LabeledTrace
    assert htareport.DeviceType


def test_temporal_breakdown(analysis):
    """HTA's columns first; µs, and percent of the span to two decimals."""
    table = analysis.get_temporal_breakdown()
    assert list(table.columns) == [
        "rank", "idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)", "idle_time_pctg",
        "compute_time_pctg", "non_compute_time_pctg", "device", "busy_time(us)", "comm_time(us)", "memory_time(us)",
        "exposed_comm_time(us)", "exposed_memory_time(us)", "overlap_time(us)", "num_device_events",
    ]  # fmt: skip
    row = table.set_index("rank").loc[0]
    # Span 10 to 295. Busy per step [10, 60], [65, 75], [92, 95] = 63; compute 43, exposed communication 10, copies 10.
    assert row["kernel_time(us)"] == 285
    assert row["busy_time(us)"] == 189
    assert (row["idle_time(us)"], row["compute_time(us)"], row["non_compute_time(us)"]) == (96, 129, 60)
    assert row["idle_time_pctg"] == round(100 * 96 / 285, 2)
    assert row["compute_time_pctg"] + row["non_compute_time_pctg"] + row["idle_time_pctg"] == pytest.approx(
        100, abs=0.02
    )
    assert (row["comm_time(us)"], row["overlap_time(us)"], row["exposed_comm_time(us)"]) == (60, 30, 30)
    assert row["num_device_events"] == 12


def test_comm_comp_overlap(analysis):
    """10 of 20 µs in each step on rank 0; rank 3's gemm reaches to 53."""
    table = analysis.get_comm_comp_overlap()
    assert list(table.columns) == [
        "rank", "comp_comm_overlap_pctg", "device", "comm_time(us)", "overlap_time(us)", "exposed_comm_time(us)",
    ]  # fmt: skip
    assert table["comp_comm_overlap_pctg"].tolist() == [50.0, 65.0]
    assert table["overlap_time(us)"].tolist() == [30, 39]


def test_kernel_breakdown(analysis):
    """Types over all ranks; kernels by rank."""
    types, kernels = analysis.get_gpu_kernel_breakdown(num_kernels=10, duration_ratio=1)
    assert list(types.columns) == ["kernel_type", "sum", "percentage"]
    sums = types.set_index("kernel_type")["sum"].to_dict()
    assert sums == {
        "COMPUTATION": 3 * (33 + 33), "MEMORY": 60, "COMMUNICATION": 3 * (10 + 7),
        "COMPUTATION overlapping COMMUNICATION": 3 * (10 + 13),
    }  # fmt: skip
    assert types["percentage"].sum() == pytest.approx(100, abs=0.2)
    assert list(kernels.columns) == [
        "name", "sum (us)", "max (us)", "min (us)", "stddev", "mean (us)", "kernel_type", "rank",
        "count", "p50 (us)", "p95 (us)",
    ]  # fmt: skip
    row = kernels[(kernels["name"] == "gemm") & (kernels["rank"] == 3)].iloc[0]
    assert row[["sum (us)", "max (us)", "min (us)", "stddev", "mean (us)", "count"]].tolist() == [129, 43, 43, 0, 43, 3]
    assert row["kernel_type"] == "COMPUTATION"
    assert set(kernels["kernel_type"]) == {"COMPUTATION", "COMMUNICATION", "MEMORY"}


def test_kernel_breakdown_of_the_top(analysis):
    """The rest of a class on a rank is one row with the statistics of its calls."""
    _, kernels = analysis.get_gpu_kernel_breakdown(num_kernels=1)
    names = kernels[(kernels["rank"] == 0) & (kernels["kernel_type"] == "COMPUTATION")].set_index("name")
    assert set(names.index) == {"gemm", "others"}
    assert names.loc["others", ["sum (us)", "count", "p95 (us)", "stddev"]].tolist() == [9, 3, 3, 0]


def test_kernel_breakdown_without_memory(analysis):
    """Copies are neither rows nor part of what overlaps."""
    types, kernels = analysis.get_gpu_kernel_breakdown(include_memory_kernels=False)
    assert not types["kernel_type"].str.contains("MEMORY").any()
    assert "MEMORY" not in set(kernels["kernel_type"])


def test_idle_time_breakdown(analysis):
    """All ranks and streams by default; statistics only if asked for."""
    idle, statistics = analysis.get_idle_time_breakdown()
    assert statistics is None
    assert list(idle.columns) == [
        "rank", "stream", "idle_category", "idle_time", "idle_time_ratio", "device", "count",
    ]  # fmt: skip
    assert set(idle["rank"]) == {0, 3}
    stream = idle[(idle["rank"] == 0) & (idle["stream"] == 7)].set_index("idle_category")
    # Per step 15 to the copy (launched in time), 17 to relu (launched at 90, late), 15 to the next gemm (late).
    assert stream["idle_time"].to_dict() == {"host_wait": 3 * 17 + 2 * 15, "kernel_wait": 45, "other": 0}
    assert stream["count"].to_dict() == {"host_wait": 5, "kernel_wait": 3, "other": 0}
    assert stream["idle_time_ratio"].sum() == pytest.approx(1)


def test_idle_time_of_some_ranks_and_streams(analysis):
    """And with another delay, in µs."""
    idle, statistics = analysis.get_idle_time_breakdown(
        ranks=[3], streams=[7], show_idle_interval_stats=True, consecutive_kernel_delay=10
    )
    assert set(idle["rank"]) == {3}
    assert set(idle["stream"]) == {7}
    assert idle.set_index("idle_category")["idle_time"]["other"] == 3 * 12  # Rank 3's gemm ends at 53.
    assert statistics.index.name == "idle_category"
    assert list(statistics.columns) == [
        "rank", "stream", "count", "mean", "std", "min", "25%", "50%", "75%", "max", "device",
    ]  # fmt: skip
    assert statistics.loc["other", ["count", "mean", "std", "max"]].tolist() == [3, 12, 0, 12]


def test_the_deviation_of_one_gap(tmp_path):
    """Is none, as in HTA."""
    TraceBuilder(0).kernel("a", 0, 10).kernel("b", 15, 10).write(tmp_path / "0.json")
    _, statistics = TraceAnalysis(trace_dir=tmp_path).get_idle_time_breakdown(show_idle_interval_stats=True)
    assert statistics["mean"].tolist() == [5]
    assert statistics["std"].isna().tolist() == [True]


def test_an_unknown_rank(analysis):
    """The message says which there are."""
    with pytest.raises(KeyError, match=r"no rank 7; there are \[0, 3\]"):
        analysis.get_idle_time_breakdown(ranks=[7])


def test_without_the_last_step(folder):
    """Work launched in or after the last step is left out."""
    analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=False)
    row = analysis.get_temporal_breakdown().set_index("rank").loc[0]
    assert (row["num_device_events"], row["kernel_time(us)"], row["compute_time(us)"]) == (8, 185, 86)
    assert TraceAnalysis(trace_dir=folder).get_temporal_breakdown()["num_device_events"].tolist() == [12, 12]


def test_steps(analysis):
    """Numbers on any rank."""
    assert analysis.get_profiler_steps() == [0, 1, 2]


def test_sources(folder):
    """Files by rank or in a list, absolute or of the folder."""
    expected = TraceAnalysis(trace_dir=folder).get_temporal_breakdown()
    for files in (
        {0: "rank0.json", 3: "rank3.json"},
        ["rank0.json", "rank3.json"],
        {0: str(folder / "rank0.json"), 3: folder / "rank3.json"},
    ):
        found = TraceAnalysis(trace_files=files, trace_dir=folder).get_temporal_breakdown()
        pd.testing.assert_frame_equal(found, expected)
    renamed = TraceAnalysis({8: "rank3.json"}, folder).get_temporal_breakdown()
    assert renamed["rank"].tolist() == [8]


def test_nothing_to_read(tmp_path):
    """An error for the user, that says what was looked for."""
    with pytest.raises(NothingToReadError):
        TraceAnalysis(trace_dir=tmp_path)


def test_a_bad_file_is_warned_of(folder):
    """The other ranks are there."""
    (folder / "rank3.json").write_text((folder / "rank3.json").read_text()[:3000])
    with pytest.warns(UserWarning, match=r"rank3\.json: not used: .* \(rank 3 is missing\)"):
        analysis = TraceAnalysis(trace_dir=folder)
    assert analysis.get_temporal_breakdown()["rank"].tolist() == [0]


def test_a_rank_without_device_events(tmp_path):
    """Keeps its row, with zeros and unknown percentages."""
    rank_of(0).write(tmp_path / "0.json")
    TraceBuilder(1).cpu_op("aten::mm", 0, 5).write(tmp_path / "1.json")
    analysis = TraceAnalysis(trace_dir=tmp_path)
    row = analysis.get_temporal_breakdown().set_index("rank").loc[1]
    assert (row["kernel_time(us)"], row["num_device_events"]) == (0, 0)
    assert row[["idle_time_pctg", "compute_time_pctg", "device"]].isna().all()
    assert pd.isna(analysis.get_comm_comp_overlap().set_index("rank").loc[1, "comp_comm_overlap_pctg"])
    assert set(analysis.get_idle_time_breakdown()[0]["rank"]) == {0}


def test_the_host_alone(tmp_path):
    """All methods answer, with empty or zero frames of their columns."""
    TraceBuilder(0).cpu_op("aten::mm", 0, 5).write(tmp_path / "0.json")
    analysis = TraceAnalysis(trace_dir=tmp_path)
    assert analysis.get_temporal_breakdown()["kernel_time(us)"].tolist() == [0]
    assert analysis.get_comm_comp_overlap()["comm_time(us)"].tolist() == [0]
    types, kernels = analysis.get_gpu_kernel_breakdown()
    assert list(types.columns) == ["kernel_type", "sum", "percentage"]
    assert types.empty
    assert kernels.empty
    idle, statistics = analysis.get_idle_time_breakdown(show_idle_interval_stats=True)
    assert idle.empty
    assert "idle_category" in idle.columns
    assert statistics.empty


def test_several_devices(tmp_path):
    """A row for each."""
    TraceBuilder(0, devices=2).kernel("a", 0, 10).kernel("b", 5, 10, device=1).write(tmp_path / "0.json")
    table = TraceAnalysis(trace_dir=tmp_path).get_temporal_breakdown()
    assert table[["rank", "device", "busy_time(us)"]].to_numpy().tolist() == [[0, 0, 10], [0, 1, 10]]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("get_temporal_breakdown", {}),
        ("get_comm_comp_overlap", {}),
        ("get_gpu_kernel_breakdown", {"image_renderer": "svg"}),
        ("get_idle_time_breakdown", {}),
    ],
)
def test_visualize(analysis, shown, method, options):
    """Shows the report's chart as a Plotly figure; nothing by default."""
    getattr(analysis, method)()
    assert not shown
    getattr(analysis, method)(visualize=True, **options)
    ((figure, asked),) = shown
    assert len(figure.data)
    assert asked.get("renderer") == (options.get("image_renderer") or None)


def test_visualize_without_anything_to_show(tmp_path, shown):
    """A trace of the host has no charts of devices, and no error."""
    TraceBuilder(0).cpu_op("aten::mm", 0, 5).write(tmp_path / "0.json")
    analysis = TraceAnalysis(trace_dir=tmp_path)
    analysis.get_temporal_breakdown(visualize=True)
    analysis.get_comm_comp_overlap(visualize=True)
    analysis.get_gpu_kernel_breakdown(visualize=True)
    analysis.get_idle_time_breakdown(visualize=True)
