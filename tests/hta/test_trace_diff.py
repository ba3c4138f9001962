"""Two traces compared by name."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.errors import NothingToReadError
from htareport.hta import DeviceType, LabeledTrace, TraceDiff
from htareport.hta.common.trace import Trace as HtaTrace
from htareport.trace import Trace


def steps(
    rank: int = 0, *, mm: int = 1, gemm: int = 1, extra: str = "", numbers: tuple[int, ...] = (1, 2)
) -> TraceBuilder:
    """Return steps with so many calls of aten::mm (5 µs), kernels gemm (10 µs) and one extra operator."""
    trace = TraceBuilder(rank, world_size=2)
    for number in numbers:
        at = 1000 * number
        trace.step(number, at, 1000)
        for call in range(mm):
            trace.cpu_op("aten::mm", at + 10 * call, 5)
        for call in range(gemm):
            # The last kernel of a step runs in the next one, but belongs to the step of its launch.
            trace.kernel("gemm", at + 900 + 110 * call, 10, launch=(at + 100 + 10 * call, 2))
        if extra:
            trace.cpu_op(extra, at + 500, 7)
    return trace


@pytest.fixture
def folders(tmp_path):
    """Return a function that writes two folders."""

    def write(base, new):
        return base.write(tmp_path / "base" / "rank0.json").parent, new.write(tmp_path / "new" / "rank0.json").parent

    return write


def test_compare_traces(folders):
    """Calls and µs in the first step of both, and what changed."""
    base, new = folders(steps(mm=2, gemm=1, extra="aten::old"), steps(mm=2, gemm=3, extra="aten::new"))
    table = TraceDiff.compare_traces(base, new)
    assert list(table.columns) == [
        "base_counts", "base_total_duration", "new_counts", "new_total_duration",
        "diff_counts", "diff_duration", "counts_change_categories",
    ]  # fmt: skip
    assert table.index.name == "name"
    assert list(table.index) == sorted(table.index)
    assert table.loc["gemm"].tolist() == [1, 10, 3, 30, 2, 20, "+"]
    assert table.loc["aten::mm"].tolist() == [2, 10, 2, 10, 0, 0, "="]
    assert table.loc["aten::old"].tolist() == [1, 7, 0, 0, -1, -7, "-"]
    assert table.loc["aten::new"].tolist() == [0, 0, 1, 7, 1, 7, "+"]
    assert table["base_counts"].dtype == "int64"


def test_ops_diff(folders):
    """Every name is in one of five lists."""
    base, new = folders(steps(mm=3, gemm=1, extra="aten::old"), steps(mm=2, gemm=3, extra="aten::new"))
    found = TraceDiff.ops_diff(base, new)
    assert found["added"] == ["aten::new"]
    assert found["deleted"] == ["aten::old"]
    assert found["increased"] == ["cudaLaunchKernel", "gemm"]
    assert found["decreased"] == ["aten::mm"]
    assert found["unchanged"] == ["ProfilerStep#1"]


def test_a_trace_is_like_itself(folders):
    """Nothing changed; the second label tells the columns apart."""
    base, _ = folders(steps(), steps())
    table = TraceDiff.compare_traces(base, base)
    assert list(table.columns)[:4] == [
        "base_counts", "base_total_duration", "base_control_test_counts", "base_control_test_total_duration",
    ]  # fmt: skip
    assert set(table["counts_change_categories"]) == {"="}
    assert not table["diff_duration"].any()


def test_chosen_steps_and_ranks(tmp_path):
    """One, several; steps and ranks that the other run does not have."""
    base = steps(0, mm=1).write(tmp_path / "base" / "0.json").parent
    steps(4, mm=5).write(tmp_path / "base" / "4.json")
    new = steps(0, mm=2, numbers=(7, 8, 9)).write(tmp_path / "new" / "0.json").parent
    table = TraceDiff.compare_traces(base, new, control_rank=4, control_iteration=2, test_iteration=[8, 9])
    assert table.loc["aten::mm", ["base_counts", "new_counts"]].tolist() == [5, 4]
    both = TraceDiff.compare_traces(base, new, control_rank=[0, 4], test_iteration=7)
    assert both.loc["aten::mm", ["base_counts", "new_counts"]].tolist() == [6, 2]


def test_device_types(folders):
    """Only the host, only the device, or both."""
    base, new = folders(steps(), steps())
    names = {each: set(TraceDiff.compare_traces(base, new, device_type=each).index) for each in DeviceType}
    assert names[DeviceType.GPU] == {"gemm"}
    assert names[DeviceType.CPU] == {"aten::mm", "cudaLaunchKernel", "ProfilerStep#1"}
    assert names[DeviceType.ALL] == names[DeviceType.CPU] | names[DeviceType.GPU]


def test_runs_without_steps(folders):
    """Are taken whole."""
    base, new = folders(
        TraceBuilder(0).kernel("gemm", 0, 10).cpu_op("aten::mm", 0, 5),
        TraceBuilder(0).kernel("gemm", 0, 10).kernel("gemm", 20, 10),
    )
    table = TraceDiff.compare_traces(base, new)
    assert table.loc["gemm", ["base_counts", "new_counts"]].tolist() == [1, 2]
    assert table.loc["aten::mm", "new_counts"] == 0


def test_a_trace_of_the_host(folders):
    """Has no rows of devices, and no error."""
    base, new = folders(TraceBuilder(0).cpu_op("aten::mm", 0, 5), TraceBuilder(0).cpu_op("aten::mm", 0, 5))
    assert TraceDiff.compare_traces(base, new, device_type=DeviceType.GPU).empty
    assert TraceDiff.ops_diff(base, new)["unchanged"] == ["aten::mm"]


def test_labeled_trace(folders):
    """Ranks, steps, rows and their summary, under a name of one's own."""
    base, _ = folders(steps(mm=2), steps())
    labeled = LabeledTrace("before", trace_dir=base)
    assert labeled.label == "before"
    assert labeled.ranks() == [0]
    assert labeled.iterations() == [1, 2]
    rows = labeled.extract_ops(0, 2, DeviceType.CPU)
    assert rows["name"].tolist().count("aten::mm") == 2
    assert set(rows.loc[rows["name"] == "aten::mm", "dur"]) == {5}
    summary = labeled.get_ops_summary(labeled.extract_ops(0, [1, 2]))
    row = summary[summary["name"] == "gemm"].iloc[0]
    assert (row["cat"], row["counts"], row["total_duration"]) == ("kernel", 2, 20)
    assert "before_counts" in TraceDiff.compare_traces(labeled, base).columns


def test_labeled_trace_sources(folders):
    """An opened trace, files, a folder; without any there is nothing to read."""
    base, _ = folders(steps(), steps())
    assert LabeledTrace(t=Trace.open(base)).ranks() == [0]
    assert LabeledTrace(trace_files={5: str(base / "rank0.json")}).ranks() == [5]
    with pytest.raises(NothingToReadError):
        LabeledTrace("x")
    with pytest.raises(ValueError, match=r"no rank 3; there are \[0\]"):
        LabeledTrace(trace_dir=base).extract_ops(3)


def test_short_names(folders):
    """What is the same in short counts together."""
    base, new = folders(
        TraceBuilder(0).kernel("void gemm<float>(int)", 0, 10).kernel("void gemm<half>(int)", 20, 5),
        TraceBuilder(0).kernel("void gemm<float>(int)", 0, 10),
    )
    table = TraceDiff.compare_traces(base, new, use_short_name=True)
    assert table.index.name == "short_name"
    assert table.loc["gemm"].tolist() == [2, 15, 1, 10, -1, -5, "-"]


def test_traces_that_are_open(folders):
    """HTA's Trace, as its demos give it, with whatever was done to it."""
    base, new = (HtaTrace(trace_dir=folder) for folder in folders(steps(mm=1), steps(mm=3)))
    base.parse_traces()
    base.decode_symbol_ids(use_shorten_name=False)
    assert TraceDiff.ops_diff(base, new)["increased"] == ["aten::mm"]
    labeled = LabeledTrace("mine", new)
    assert labeled.t is new
    assert labeled.extract_ops(device_type=DeviceType.GPU)["rank"].tolist() == [0]
    assert labeled.get_ops_summary(labeled.extract_ops()).columns.tolist() == [
        "cat", "name", "short_name", "counts", "total_duration",
    ]  # fmt: skip


def test_pictures(folders, tmp_path, monkeypatch):
    """Shown, written, or both; the names that changed most."""
    import plotly.graph_objects as go

    figures = []
    monkeypatch.setattr(go.Figure, "show", lambda self, **_: figures.append(self))
    table = TraceDiff.compare_traces(*folders(steps(mm=1), steps(mm=3)))
    TraceDiff.visualize_counts_diff(table)
    TraceDiff.visualize_duration_diff(table, show_image=False, export_image_path=tmp_path / "durations.svg")
    assert len(figures) == 1
    assert {trace.name for trace in figures[0].data if trace.name} >= {"control", "test", "difference"}
    assert "aten::mm" in (tmp_path / "durations.svg").read_text("utf-8")
    many = pd.concat([table.rename(lambda name, n=n: f"{name}{n}") for n in range(30)])
    TraceDiff.visualize_counts_diff(many)
    assert len(figures[1].layout.yaxis.ticktext) <= 40
