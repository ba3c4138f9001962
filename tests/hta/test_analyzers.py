"""The analyzers are the methods of TraceAnalysis, for a `Trace`; and what stragglers are found by."""

from __future__ import annotations

import inspect

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.hta import TraceAnalysis
from htareport.hta.analyzers.breakdown_analysis import BreakdownAnalysis
from htareport.hta.analyzers.communication_analysis import CommunicationAnalysis
from htareport.hta.analyzers.critical_path_analysis import CriticalPathAnalysis
from htareport.hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis
from htareport.hta.analyzers.cupti_counter_analysis import CUDA_SASS_INSTRUCTION_COUNTER_FLOPS, CuptiCounterAnalysis
from htareport.hta.analyzers.straggler import extract_iteration_info, find_stragglers_with_late_start_comm_kernels
from htareport.hta.analyzers.straggler_analysis import StragglerAnalysis
from htareport.hta.analyzers.trace_counters import TraceCounters
from htareport.hta.common.trace import Trace

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
CALLS = {
    "get_temporal_breakdown": BreakdownAnalysis.get_temporal_breakdown,
    "get_gpu_kernel_breakdown": BreakdownAnalysis.get_gpu_kernel_breakdown,
    "get_gpu_user_annotation_breakdown": BreakdownAnalysis.get_gpu_user_annotation_breakdown,
    "get_comm_comp_overlap": CommunicationAnalysis.get_comm_comp_overlap,
    "get_cuda_kernel_launch_stats": CudaKernelAnalysis.cuda_kernel_launch_stats,
    "get_aten_op_kernels_and_delay": CudaKernelAnalysis.get_aten_op_kernels_and_delay,
    "get_cupti_counter_data_with_operators": CuptiCounterAnalysis.get_counter_data_with_operators,
    "get_queue_length_time_series": TraceCounters.get_queue_length_time_series,
    "get_queue_length_summary": TraceCounters.get_queue_length_summary,
    "get_memory_bw_time_series": TraceCounters.get_memory_bw_time_series,
    "get_memory_bw_summary": TraceCounters.get_memory_bw_summary,
    "get_profiler_steps": StragglerAnalysis.get_profiler_steps,
    "get_potential_stragglers": StragglerAnalysis.get_potential_stragglers,
}


def equal(one, other) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return one.equals(other) if isinstance(one, pd.DataFrame) else one == other


@pytest.mark.parametrize("name", CALLS)
def test_the_same_answers(run, name):
    trace, analysis = Trace(trace_dir=run), TraceAnalysis(trace_dir=run)
    assert equal(CALLS[name](trace), getattr(analysis, name)())
    assert next(iter(inspect.signature(CALLS[name]).parameters)) == "t"


def test_those_with_parameters(run, tmp_path):
    trace, analysis = Trace(trace_dir=run), TraceAnalysis(trace_dir=run)
    idle, stats = BreakdownAnalysis.get_idle_time_breakdown(trace, 5, 3, show_idle_interval_stats=True)
    assert set(idle["rank"]) == {3}
    assert len(stats)
    assert equal(
        CudaKernelAnalysis.get_frequent_cuda_kernel_sequences(trace, "aten::linear", "", 1),
        analysis.get_frequent_cuda_kernel_sequences("aten::linear", min_pattern_len=1),
    )
    assert len(BreakdownAnalysis.get_gpu_kernels_with_user_annotations(t=trace, rank=0)) == 4
    series = TraceCounters.get_queue_length_time_series(trace)
    assert equal(TraceCounters.get_queue_length_summary_from_time_series(series), analysis.get_queue_length_summary())
    blocked = TraceCounters.get_time_spent_blocked_on_full_queue(trace, series, 1)
    assert blocked["rank"].tolist() == [0, 3]
    graph, _ = CriticalPathAnalysis.critical_path_analysis(trace, 0, "ProfilerStep", 0)
    assert CriticalPathAnalysis.overlay_critical_path_analysis(trace, 0, graph, tmp_path / "out").endswith("rank0.json")
    assert CUDA_SASS_INSTRUCTION_COUNTER_FLOPS["smsp__sass_thread_inst_executed_op_hfma_pred_on.sum"] == 2
    assert len(CUDA_SASS_INSTRUCTION_COUNTER_FLOPS) == 9


def test_files_with_counters(run):
    """In a folder beside that of the traces, or where one says; of some ranks and series."""
    from htareport.hta.trace_analysis import TimeSeriesTypes

    analysis = TraceAnalysis(trace_dir=run)
    before = sorted(run.iterdir())
    paths = analysis.generate_trace_with_counters()
    folder = run.with_name("traces_with_counters")
    assert paths == [str(folder / f"rank{rank}_with_counters.json") for rank in (0, 3)]
    assert sorted(run.iterdir()) == before
    assert TraceAnalysis(trace_dir=folder).get_temporal_breakdown().equals(analysis.get_temporal_breakdown())
    options = {"time_series": TimeSeriesTypes.MEMCPY_BANDWIDTH, "ranks": [3], "output_suffix": "_x"}
    (path,) = analysis.generate_trace_with_counters(**options, output_dir=run.parent / "other")
    assert path.endswith("other/rank3_x.json")


# --- stragglers -----------------------------------------------------------------------------


def collectives(rank: int, late: float) -> TraceBuilder:
    """Twelve collectives in three steps; they end together, and one rank starts late."""
    trace = TraceBuilder(rank, world_size=3)
    for step in range(3):
        trace.step(step + 1, 10_000 * step, 10_000)
        for number in range(4):
            at = 10_000 * step + 2000 * number + 500
            trace.collective(NCCL, "allreduce", at + late, 1000 - late, launch=(at - 400, 10))
    return trace


@pytest.fixture
def late_run(tmp_path):
    def written(late=600.0):
        for rank in range(3):
            collectives(rank, late if rank == 1 else 5 * rank).write(tmp_path / "late" / f"rank{rank}.json")
        return tmp_path / "late"

    return written


def test_found_in_frames(late_run):
    """As by the analysis, which sets the clocks right first; nobody if it may be chance."""
    analysis = TraceAnalysis(trace_dir=late_run())
    assert analysis.get_potential_stragglers() == [1]
    frames = pd.concat([analysis.t.get_trace(rank).assign(rank=rank) for rank in range(3)], ignore_index=True)
    found = find_stragglers_with_late_start_comm_kernels(frames, analysis.t.symbol_table, 2)
    assert found.to_dict() == {0: 0, 1: 1, 2: 0}
    none = find_stragglers_with_late_start_comm_kernels(frames[frames["rank"] == 1])
    assert none.to_dict() == {1: 0}
    calm = TraceAnalysis(trace_dir=late_run(late=5.0))
    frames = pd.concat([calm.t.get_trace(rank).assign(rank=rank) for rank in range(3)], ignore_index=True)
    assert find_stragglers_with_late_start_comm_kernels(frames).sum() == 0


def test_finders_of_either_kind(late_run):
    """HTA's get events, symbols, number and `visualize`, and give a series; ours get who comes when."""
    analysis = TraceAnalysis(trace_dir=late_run())
    asked = []

    def htas(df, symbol_table, n_stragglers, visualize):
        asked.append(
            (sorted(df["rank"].unique()), set(df["iteration"]), NCCL in symbol_table.get_sym_table(), n_stragglers)
        )
        return pd.Series([0, 1, 5], index=[0, 1, 2])

    assert analysis.get_potential_stragglers([2], 2, straggler_identification_impl=htas) == [2, 1]
    assert asked == [([0, 1, 2], {2}, True, 2)]
    assert analysis.get_potential_stragglers(
        straggler_identification_impl=find_stragglers_with_late_start_comm_kernels
    ) == [1]
    assert analysis.get_potential_stragglers(straggler_identification_impl=lambda arrivals: [2] * len(arrivals)) == [
        2,
        2,
    ]


def test_pictures(late_run, monkeypatch):
    import plotly.graph_objects as go

    figures = []
    monkeypatch.setattr(go.Figure, "show", lambda self, **_: figures.append(self))
    frames = TraceAnalysis(trace_dir=late_run()).t.get_all_traces()
    every = pd.concat([df.assign(rank=rank) for rank, df in frames.items()], ignore_index=True)
    find_stragglers_with_late_start_comm_kernels(every, visualize=True)
    assert len(figures) == 1


def test_steps_by_rank(run):
    info = extract_iteration_info(Trace(trace_dir=run))
    assert info.index.tolist() == [(0, 4), (0, 5), (3, 4), (3, 5)]
    assert info.loc[(3, 5)].to_dict() == {"profiler_step": 5, "ts": 100, "dur": 100, "end": 200}


def test_idle_time_as_shares_or_times(run, monkeypatch):
    """By default shares of the stream's idle time, as in HTA."""
    import plotly.graph_objects as go

    figures = []
    monkeypatch.setattr(go.Figure, "show", lambda self, **_: figures.append(self))
    analysis = TraceAnalysis(trace_dir=run)
    analysis.get_idle_time_breakdown(visualize=True)
    analysis.get_idle_time_breakdown(visualize=True, visualize_pctg=False)
    sums = [sum(float(value) for trace in figure.data for value in trace.x) for figure in figures]
    assert sums[0] == pytest.approx(100)
    assert sums[1] != pytest.approx(100)
