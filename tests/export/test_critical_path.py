"""Overlaid critical paths on paper values."""

from __future__ import annotations

import jsonschema
import pytest
from builder import BASE_NS
from export_content import SCHEMA, content, sections_of

from htareport.hta import TraceAnalysis


@pytest.fixture
def analysis(tmp_path, two_steps):
    two_steps.write(tmp_path / "traces" / "rank0.json")
    return TraceAnalysis(trace_dir=tmp_path / "traces")


@pytest.fixture
def overlaid(analysis, tmp_path):
    from pathlib import Path

    def made(instance=1, **options):
        graph, _ = analysis.critical_path_analysis(0, "ProfilerStep", instance)
        return Path(analysis.overlay_critical_path_analysis(0, graph, tmp_path / "out", **options))

    return made


def marked(events) -> list:
    return [event["name"] for event in events if event["ph"] == "X" and event.get("args", {}).get("critical") == 1]


def arrows(events) -> list:
    ends = [event for event in events if event.get("cat") == "critical_path"]
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return [(one["ts"], other["ts"], one["args"]["type"].removeprefix("critical_path_"), one["args"]["weight"])
            for one, other in pairs]  # fmt: skip


def test_path_of_the_second_step(overlaid, two_steps):
    """Launch (25), gemm (40), the wait's end, the launch of the copy (5 after 85), the copy (5)."""
    path = overlaid(only_show_critical_events=False)
    assert path.name == "overlaid_critical_path_rank0.json"
    events = content(path)["traceEvents"]
    assert len([event for event in events if event["ph"] == "X"]) == len(two_steps.events)
    on_host, copy = ["cudaDeviceSynchronize", "cudaMemcpyAsync"], "Memcpy HtoD (Pinned -> Device)"
    assert marked(events) == ["aten::mm", "cudaLaunchKernel", "gemm", *on_host, copy]
    assert arrows(events) == [
        (105, 130, "kernel_launch_delay", 25),
        (169.999, 179.999, "sync_dependency", 0),
        (179.999, 185, "dependency", 0),
        (185, 190, "kernel_launch_delay", 5),
    ]


def test_schema(overlaid, two_steps):
    made = content(overlaid(only_show_critical_events=False))
    assert made["htareportCopy"] == {"with": "critical path", "rank": 0}
    for event in made["traceEvents"][len(two_steps.events) :]:
        jsonschema.validate(event, SCHEMA)
    flows = [event for event in made["traceEvents"] if event["ph"] in "sf"]
    assert {event["id"] for event in flows if event["ph"] == "s"} == {e["id"] for e in flows if e["ph"] == "f"}


def test_arrows_begin_and_end_within_events(overlaid):
    """On their thread, so that viewers find what they belong to."""
    events = content(overlaid(only_show_critical_events=False))["traceEvents"]
    rows = [event for event in events if event["ph"] == "X"]
    for arrow in (event for event in events if event["ph"] in "sf"):
        assert any(row["pid"] == arrow["pid"] and row["tid"] == arrow["tid"]
                   and row["ts"] <= arrow["ts"] < row["ts"] + row["dur"] for row in rows)  # fmt: skip


def test_only_what_is_critical(overlaid):
    """By default, as in HTA: of complete events the path and annotations stay."""
    events = content(overlaid())["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X" and not event.get("args", {}).get("critical")] == [
        "ProfilerStep#0", "ProfilerStep#1",
    ]  # fmt: skip


def test_all_edges(overlaid):
    """Off the path too, and they say so; of all types only if asked for."""
    from htareport.hta.analyzers.critical_path_analysis import CPEdgeType

    events = content(overlaid(only_show_critical_events=False, show_all_edges=True))["traceEvents"]
    flows = [event for event in events if event["ph"] == "s"]
    assert {event["args"]["critical"] for event in flows} == {True, False}
    options = {"only_show_critical_events": False, "edge_types_to_viz": set(CPEdgeType)}
    every = content(overlaid(**options))["traceEvents"]
    assert "critical_path_operator" in {event["args"]["type"] for event in every if event["ph"] == "s"}


def test_it_reads_again_with_the_same_numbers(tmp_path, overlaid):
    overlaid(only_show_critical_events=False)
    one, other = (sections_of(tmp_path / name) for name in ("traces", "out"))
    assert one == other


def test_what_if_and_restored(analysis, tmp_path):
    """Changed weights change the marks; a restored graph draws the same."""
    from pathlib import Path

    from htareport.hta.analyzers.critical_path_analysis import restore_cpgraph

    graph, _ = analysis.critical_path_analysis(0, "ProfilerStep", 0)
    for edge in graph.critical_path_edges_set:
        graph.set_weight(edge, 0)
    graph.critical_path()
    again = restore_cpgraph(graph.save(tmp_path / "graph"), analysis.t, 0)
    copies = [content(Path(analysis.overlay_critical_path_analysis(0, each, tmp_path / name)))
              for name, each in (("a", graph), ("b", again))]  # fmt: skip
    assert copies[0] == copies[1]
    assert "gemm" not in marked(copies[0]["traceEvents"])
    assert again.full_trace_df is analysis.t.get_trace(0)


def test_the_second_of_two_files(tmp_path, two_steps):
    """The copy is of the file that the window is in, in its time."""
    from pathlib import Path

    two_steps.write(tmp_path / "traces" / "rank0_a.json")
    two_steps.metadata["baseTimeNanoseconds"] = BASE_NS + 10**9
    two_steps.write(tmp_path / "traces" / "rank0_b.json")
    analysis = TraceAnalysis(trace_dir=tmp_path / "traces")
    graph, _ = analysis.critical_path_analysis(0, "ProfilerStep#1", 1)
    events = analysis.t.get_trace(0).loc[sorted(graph.critical_path_events_set)]
    assert events["name"].tolist()[:2] == ["aten::mm", "cudaLaunchKernel"]
    path = Path(analysis.overlay_critical_path_analysis(0, graph, tmp_path / "out", only_show_critical_events=False))
    assert path.name == "overlaid_critical_path_rank0_b.json"
    assert arrows(content(path)["traceEvents"])[0][:2] == (105, 130)
    assert len(marked(content(path)["traceEvents"])) == len(events)
