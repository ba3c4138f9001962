"""Timelines: what is shown, and where."""

from __future__ import annotations

import pandas as pd
import pytest

from htareport.errors import UsageError
from htareport.hta.analyzers import timeline as kernels
from htareport.hta.common.timeline import (
    DefaultTimelinePlotSetting,
    EventType,
    PlotFormat,
    Timeline,
    TimelinePlotSetting,
    align_module_with_kernels,
    auto_detect_setting,
    get_fig_name_from_fig_title,
    get_fig_title_from_fig_name,
    plot_events_timeline,
    prepare_timeline_events,
    timeline_chart,
)
from htareport.hta.common.trace import Trace
from htareport.hta.common.trace_call_graph import CallGraph
from htareport.hta.common.trace_filter import FirstIterationFilter


@pytest.fixture
def trace(run):
    return Trace(trace_dir=run)


@pytest.fixture
def shown(monkeypatch):
    """Figures that would have been shown."""
    import plotly.graph_objects as go

    figures: list = []
    monkeypatch.setattr(go.Figure, "show", lambda self, **_: figures.append(self))
    return figures


def test_device_work_by_default(trace):
    """Short events shown 1 ms long, from the first on."""
    events = prepare_timeline_events(trace.get_trace(0))
    assert events["task"].unique().tolist() == ["gpu stream 007"]
    assert events["calibrated_start_global"].tolist() == [0, 22, 100, 122]
    assert events["calibrated_end_global"].tolist() == [1000, 1022, 1100, 1122]
    assert {"name", "ts", "dur", "stream", "cat", "index", "iteration"} <= set(events)


def test_settings(trace):
    """Events of the host, by depth if it is known; the real lengths; the run's own time."""
    setting = TimelinePlotSetting(event_type=EventType.AllEvents, amplify_short_events=False, use_global_time=True)
    events = prepare_timeline_events(trace.get_trace(0), setting, hover_columns=["tid"])
    assert set(events["task"]) == {"cpu events", "gpu stream 007"}
    assert (events["calibrated_start_global"] == events["ts"]).all()
    assert (events["calibrated_end_global"] == events["ts"] + events["dur"]).all()
    assert "tid" in events
    setting.compress_threads = False
    assert "thread 1000" in set(prepare_timeline_events(trace.get_trace(0), setting)["task"])
    CallGraph(trace, [0])
    assert "cpu level 002" in set(prepare_timeline_events(trace.get_trace(0), setting)["task"])
    with pytest.raises(ValueError, match="needs the columns ts, dur"):
        prepare_timeline_events(pd.DataFrame({"name": []}))


def test_detected(trace):
    both = pd.concat([trace.get_trace(rank).assign(rank=rank) for rank in (0, 3)])
    setting = TimelinePlotSetting()
    auto_detect_setting(both, setting)
    assert (setting.multi_ranks, setting.multi_traces, setting.event_type) == (True, False, EventType.AllEvents)
    assert set(prepare_timeline_events(both[both["stream"] >= 0], setting)["task"]) == {
        "rank 0 gpu stream 007", "rank 3 gpu stream 007",
    }  # fmt: skip
    auto_detect_setting(both[both["stream"] < 0], setting)
    assert setting.event_type is EventType.CPUEvents


def test_chart(trace):
    """A lane for each row, colours by class, names short."""
    events = prepare_timeline_events(trace.get_trace(0), TimelinePlotSetting(amplify_short_events=False))
    marks = timeline_chart("x", events, hover_columns=["iteration"]).frame
    assert sorted(marks["kind"]) == ["compute", "compute", "memory", "memory"]
    assert "gemm (iteration: 4)" in set(marks["name"])
    with pytest.raises(ValueError, match="no events of prepare_timeline_events"):
        timeline_chart("x", trace.get_trace(0))


def test_formats(trace, tmp_path, shown):
    """A page as text, a file, a figure."""
    events = prepare_timeline_events(trace.get_trace(0))
    html = plot_events_timeline("A title", events, TimelinePlotSetting(plot_format=PlotFormat.HTML))
    assert "<html>" in html
    assert "A title" in html
    for suffix in (".html", ".svg"):
        path = tmp_path / f"timeline{suffix}"
        assert plot_events_timeline("x", events, TimelinePlotSetting(plot_format=PlotFormat.File), None, path) is None
        assert path.stat().st_size > 1000
    with pytest.raises(UsageError, match="output_image_path"):
        plot_events_timeline("x", events, TimelinePlotSetting(plot_format=PlotFormat.File))
    with pytest.raises(UsageError, match=r"'.gif'"):
        plot_events_timeline("x", events, output_image_path=tmp_path / "x.gif")
    assert plot_events_timeline("x", events) is None
    assert len(shown) == 1


def test_timeline_object(trace, shown):
    """Filters, prepares, draws; the default setting stays as it is."""
    timeline = Timeline(trace.get_trace(0), trace.symbol_table, FirstIterationFilter())
    assert len(timeline.timeline_events) == 2
    timeline.plot("Kernels")
    assert Timeline(timeline.timeline_events).timeline_events is timeline.timeline_events
    assert len(shown) == 1
    assert TimelinePlotSetting() == DefaultTimelinePlotSetting


def test_modules_over_their_kernels(trace):
    """From the first start to the last end of what they launch, on stream 0."""
    df = trace.get_trace(0)
    with pytest.raises(ValueError, match="CallGraph writes these columns"):
        align_module_with_kernels(df, ["aten::linear"])
    CallGraph(trace, [0])
    rows = align_module_with_kernels(df, ["aten::linear", "nothing"])
    assert len(rows) == 6
    first = rows[rows["stream"] == 0].iloc[0]
    assert (first["name"], first["ts"], first["dur"]) == ("aten::linear", 50, 26)
    assert len(align_module_with_kernels(df, ["aten::linear"], include_original_cpu_events=True)) == 8


def test_kernels_of_a_run(trace, shown):
    """Some ranks, steps and streams."""
    both = pd.concat([trace.get_trace(rank).assign(rank=rank) for rank in (0, 3)])
    assert len(kernels.prepare_timeline_gpu_events(both, None, [3], [4], [7], 10)) == 2
    assert kernels.prepare_timeline_gpu_events(both, streams=[8]).empty
    kernels.plot_timeline_gpu_kernels_from_trace("Two ranks", trace, iterations=[4])
    kernels.plot_timeline_gpu_kernels("One", trace.get_trace(0), trace.symbol_table)
    assert len(shown) == 2


def test_names_of_pictures():
    assert get_fig_title_from_fig_name("a_long-name.html") == "A Long Name"
    assert get_fig_name_from_fig_title("A Long Name!") == "a_long_name"
