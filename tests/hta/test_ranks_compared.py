"""Stragglers and counters under HTA's names."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.hta import TraceAnalysis

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@pytest.fixture
def folder(tmp_path):
    """Rank 2 comes 200 µs late to all three collectives of steps 1 and 2; in step 3 nobody does."""
    for rank in range(3):
        trace = TraceBuilder(rank, 3)
        for step in (1, 2, 3):
            trace.step(step, 3000 * step, 3000)
            for number in range(3):
                at = 3000 * step + 1000 * number
                late = 200 if rank == 2 and step < 3 else 0
                trace.collective(NCCL, "allreduce", at + 10 + late, 490 - late, launch=(at + 1, 1))
        trace.write(tmp_path / f"rank{rank}.json")
    return tmp_path


def test_stragglers(folder):
    """Six of six at one in three."""
    assert TraceAnalysis(trace_dir=folder).get_potential_stragglers() == [2]


def test_steps(folder):
    """Only some of them: three of three may be chance at 4 %, and in step 3 nobody is late."""
    analysis = TraceAnalysis(trace_dir=folder)
    assert analysis.get_potential_stragglers(profiler_steps=[1, 2]) == [2]
    assert analysis.get_potential_stragglers(profiler_steps=[1]) == []
    assert analysis.get_potential_stragglers([3]) == []
    with pytest.raises(ValueError, match=r"no step \[9\]; there are \[1, 2, 3\]"):
        analysis.get_potential_stragglers([9])


def test_another_way_to_identify(folder):
    """Gets who comes when, and names whom it likes."""
    seen = []

    def latest(arrivals):
        seen.append(arrivals)
        order = arrivals.groupby("rank")["lateness"].mean().sort_values(ascending=False, kind="stable")
        return order.index.tolist()

    analysis = TraceAnalysis(trace_dir=folder)
    assert analysis.get_potential_stragglers(straggler_identification_impl=latest) == [2, 0]
    assert analysis.get_potential_stragglers(num_candidates=0, straggler_identification_impl=latest) == [2]
    assert {"collective", "rank", "step", "lateness", "wait", "margin", "last", "step_time"} <= set(seen[0].columns)
    assert len(seen[0]) == 27


def test_no_communication(tmp_path):
    """No stragglers, no exception."""
    TraceBuilder(0).kernel("gemm", 0, 5).write(tmp_path / "rank0.json")
    assert TraceAnalysis(trace_dir=tmp_path).get_potential_stragglers() == []


def test_figures(folder, monkeypatch):
    """The report's charts."""
    import plotly.graph_objects as go

    figures = []

    def show(figure, renderer=None):
        figures.append(figure)

    monkeypatch.setattr(go.Figure, "show", show)
    TraceAnalysis(trace_dir=folder).get_potential_stragglers(visualize=True)
    assert len(figures) == 2


def test_cupti_counters(tmp_path):
    """Only ranks that have some; times in µs."""
    counter = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
    trace = TraceBuilder(4).cpu_op("aten::mm", 0, 20).runtime("cudaLaunchKernel", 5, 5, 1)
    trace.profiler_range("gemm", 30, 12, {counter: 1.5}).write(tmp_path / "rank4.json")
    TraceBuilder(5).cpu_op("aten::mm", 0, 20).write(tmp_path / "rank5.json")
    [frame] = TraceAnalysis(trace_dir=tmp_path).get_cupti_counter_data_with_operators()
    [row] = frame.to_dict("records")
    assert (row["name"], row["ts"], row["dur"], row[counter]) == ("gemm", 30, 12, 1.5)
    assert (row["op_stack"], row["top_level_op"], row["bottom_level_op"]) == (["aten::mm"], "aten::mm", "aten::mm")
    assert row["flops"] == 3
