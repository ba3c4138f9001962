"""Raw files of export_memory_timeline."""

from __future__ import annotations

import json
from gzip import compress

import pytest

from htareport.errors import TraceFileError
from htareport.hta.memory_analysis import CATEGORIES, MemoryAnalysis

EVENTS = [
    [-1, 0, 1000, 0],  # A parameter that was there before.
    [100, 1, 500, 4],
    [100, 1, 300, None],  # Of no category.
    [200, 2, -500, 4],
    [200, 2, 500, 5],  # The activation becomes a gradient.
    [300, 3, -300, 7],
]


@pytest.fixture(params=["plain", "gzip"])
def analysis(request, tmp_path):
    data = json.dumps(EVENTS).encode()
    path = tmp_path / "memory.raw.json.gz"
    path.write_bytes(compress(data) if request.param == "gzip" else data)
    return MemoryAnalysis(path)


def test_levels(analysis):
    """One row per time; what was there before counts from the first."""
    times, sizes = analysis._process_raw_events()
    assert times.tolist() == [100, 200, 300]
    assert sizes[:, [0, 4, 5, 7]].tolist() == [[1000, 500, 0, 300], [1000, 0, 500, 300], [1000, 0, 500, 0]]
    assert analysis.timeline()["total"].tolist() == [1800, 1800, 1500]


def test_peak(analysis):
    """The first of equal ones, with what it consists of, largest first."""
    peak = analysis.peak()
    assert (peak.bytes, peak.at_ns) == (1800, 0)
    assert list(peak.composition.items()) == [("Parameter", 1000), ("Activation", 500), ("Unknown", 300)]


def test_figure(analysis, monkeypatch, tmp_path):
    """An area for each category that is there; saved where it is asked for."""
    import plotly.graph_objects as go

    shown = []

    def show(figure):
        shown.append(figure)

    monkeypatch.setattr(go.Figure, "show", show)
    monkeypatch.chdir(tmp_path)
    analysis.plot_memory_timeline()
    assert {trace.name for trace in shown[0].data} == {"Parameter", "Activation", "Gradient", "Unknown"}
    assert set(analysis.chart().frame["category"]) <= set(CATEGORIES)
    analysis.plot_memory_timeline(save_graph=True)
    assert (tmp_path / "images" / "memory_plot.html").stat().st_size


def test_nothing(tmp_path):
    """An empty list has no peak."""
    path = tmp_path / "memory.json"
    path.write_text("[]")
    assert MemoryAnalysis(path).peak().bytes == 0


@pytest.mark.parametrize("text", ["{}", "[1]", "[[1, 2]]", '[["a", 1, 2, 3]]', "[[1, 1, 1.5e300, 0]]", "no JSON"])
def test_other_files(tmp_path, text):
    """Are named with the reason."""
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(TraceFileError, match=r"other\.json: "):
        MemoryAnalysis(path)


def test_no_file(tmp_path):
    """Neither is a file that isn't there."""
    with pytest.raises(TraceFileError):
        MemoryAnalysis(tmp_path / "absent.json")
