"""What users of HTA have in their notebooks runs when `hta` becomes `htareport.hta`, and nothing else is changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from htareport.hta.configs.parser_config import ParserConfig

pytestmark = pytest.mark.slow  # Whole call sequences, each part of which has its own tests.
ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "traces"
EXAMPLE = ROOT / "examples" / "traces"
README = """
from hta.trace_analysis import TraceAnalysis
analyzer = TraceAnalysis(trace_dir=trace_dir)
temporal_breakdown_df = analyzer.get_temporal_breakdown()
idle_time_df, interval_stats_df = analyzer.get_idle_time_breakdown()
kernel_type_df, kernel_df = analyzer.get_gpu_kernel_breakdown()
comm_comp_overlap_df = analyzer.get_comm_comp_overlap()
memory_bw_series = analyzer.get_memory_bw_time_series()
memory_bw_summary = analyzer.get_memory_bw_summary()
queue_length_series = analyzer.get_queue_length_time_series()
queue_length_summary = analyzer.get_queue_length_summary()
cuda_launch_kernel_stats = analyzer.get_cuda_kernel_launch_stats()
frequent_patterns_df = analyzer.get_frequent_cuda_kernel_patterns(operator_name="aten::linear", output_dir=out)
analyzer.generate_trace_with_counters(output_dir=out)
"""
TRACE_ANALYSIS = """
import pandas as pd
from hta.trace_analysis import TraceAnalysis, TimeSeriesTypes
analyzer = TraceAnalysis(trace_dir=trace_dir, include_last_profiler_step=True)
time_spent_df = analyzer.get_temporal_breakdown(visualize=True)
rank = analyzer.t.get_ranks()[0]
idle_time_df, idle_interval_df = analyzer.get_idle_time_breakdown(
    ranks=[rank], visualize_pctg=False, show_idle_interval_stats=True, consecutive_kernel_delay=30)
kernel_type_metrics_df, kernel_metrics_df = analyzer.get_gpu_kernel_breakdown(
    visualize=True, duration_ratio=0.9, num_kernels=5, include_memory_kernels=True, image_renderer="notebook")
overlap_df = analyzer.get_comm_comp_overlap(True)
annotations_df = analyzer.get_gpu_user_annotation_breakdown(use_gpu_annotation=False, visualize=True)
with_annotations_df = analyzer.get_gpu_kernels_with_user_annotations(rank)
stats = analyzer.get_cuda_kernel_launch_stats(ranks=[rank], runtime_cutoff=50, launch_delay_cutoff=100, visualize=True)
assert set(stats[rank]) >= {"correlation", "cpu_duration", "gpu_duration", "launch_delay"}
for frame in analyzer.get_aten_op_kernels_and_delay(ranks=[rank], sort_by=["occurrence_count"]).values():
    assert "kernel_sequence" in frame
mem_bw_summary = analyzer.get_memory_bw_summary(ranks=[rank])
queues = analyzer.get_queue_length_time_series(ranks=[rank])
summary = analyzer.get_queue_length_summary_from_time_series(queues)
blocked = analyzer.get_time_spent_blocked_on_full_queue(queues)
for name in ("rank", "stream", "duration_at_max_queue_length", "relative_duration_at_max_queue_length"):
    assert name in blocked
analyzer.generate_trace_with_counters(
    time_series=TimeSeriesTypes.QUEUE_LENGTH | TimeSeriesTypes.MEMCPY_BANDWIDTH, ranks=[rank], output_dir=out)
sequences = analyzer.get_frequent_cuda_kernel_sequences(
    operator_name="aten::", output_dir=out, min_pattern_len=1, rank=rank, top_k=3, visualize=True)
assert list(sequences.columns) == ["pattern", "count", "GPU kernel duration (us)", "CPU op duration (us)"]
counters = analyzer.get_cupti_counter_data_with_operators(ranks=[rank])
"""
CRITICAL_PATH = """
from hta.trace_analysis import TraceAnalysis
from hta.analyzers.critical_path_analysis import CPEdge, CPEdgeType, CPNode, restore_cpgraph
analyzer = TraceAnalysis(trace_dir=trace_dir)
cp_graph, success = analyzer.critical_path_analysis(rank=0, annotation=annotation, instance_id=instance)
assert success
print(cp_graph.summary())
breakdown = cp_graph.get_critical_path_breakdown()
assert abs(cp_graph.summary().sum() - 100) < 1e-6
overlaid = analyzer.overlay_critical_path_analysis(
    0, cp_graph, output_dir=out, only_show_critical_events=False, show_all_edges=True)
# Events of the path in the frame, edges of an event, nodes of an edge.
trace_df = analyzer.t.get_trace(0)
sym_table = analyzer.t.symbol_table.get_sym_table()
names = [sym_table[trace_df.name.loc[idx]] for idx in sorted(cp_graph.critical_path_events_set)]
assert names
event = int(breakdown.dropna(subset=["event_idx"]).event_idx.iloc[0])
assert trace_df["index"].loc[event] == event
for edge in cp_graph.get_edges_attributed_to_event(event):
    assert cp_graph.get_event_attribution_for_edge(edge) == event
    start, end = cp_graph.node_list[edge.begin], cp_graph.node_list[edge.end]
    assert start.ts <= end.ts
    assert cp_graph.get_events_for_edge(edge) == (start.ev_idx, end.ev_idx)
start_node, end_node = cp_graph.get_nodes_for_event(event)
assert start_node.is_start and not end_node.is_start
# What if kernels took no time.
zip_file = cp_graph.save(out + "/graph")
rest_graph = restore_cpgraph(zip_filename=zip_file, t_full=analyzer.t, rank=0)
before = rest_graph.critical_path_length
for u, v in list(rest_graph.edges):
    if rest_graph.edges[u, v]["object"].type == CPEdgeType.OPERATOR_KERNEL:
        rest_graph.edges[u, v]["weight"] = 0
rest_graph.critical_path()
assert rest_graph.critical_path_length <= before
"""
TRACE_DIFF = """
from hta.common.trace import Trace
from hta.trace_diff import DeviceType, LabeledTrace, TraceDiff
base_trace = Trace(trace_dir=trace_dir)
base_trace.parse_traces()
base_trace.decode_symbol_ids()
test_trace = LabeledTrace(label="Test", trace_dir=other_dir)
df = TraceDiff.compare_traces(base_trace, test_trace, use_short_name=True)
df.sort_values(by="diff_counts", ascending=False).head(10)
TraceDiff.visualize_counts_diff(df.head(20))
TraceDiff.visualize_duration_diff(df.head(20))
df = TraceDiff.compare_traces(LabeledTrace("Control", base_trace), test_trace, device_type=DeviceType.GPU)
assert {"Control_counts", "Test_counts", "diff_counts", "diff_duration", "counts_change_categories"} <= set(df)
ops = TraceDiff.ops_diff(base_trace, test_trace, device_type=DeviceType.CPU)
assert set(ops) == {"added", "deleted", "increased", "decreased", "unchanged"}
"""
STRAGGLERS = """
from hta.trace_analysis import TraceAnalysis
from hta.analyzers.straggler import extract_iteration_info, find_stragglers_with_late_start_comm_kernels
analyzer = TraceAnalysis(trace_dir=trace_dir)
steps = analyzer.get_profiler_steps()
late = analyzer.get_potential_stragglers(num_candidates=2, visualize=True)
also = analyzer.get_potential_stragglers(profiler_steps=steps[:2], num_candidates=1)
info = extract_iteration_info(analyzer.t)
assert set(late) <= set(analyzer.t.get_ranks())
analyzer.get_potential_stragglers(straggler_identification_impl=find_stragglers_with_late_start_comm_kernels)
"""
CUPTI = """
from hta.trace_analysis import TraceAnalysis
from hta.analyzers.cupti_counter_analysis import CUDA_SASS_INSTRUCTION_COUNTER_FLOPS
analyzer = TraceAnalysis(trace_dir=trace_dir)
gpu_kernels = analyzer.get_cupti_counter_data_with_operators(ranks=[0])[0]
counters = [name for name in CUDA_SASS_INSTRUCTION_COUNTER_FLOPS if name in gpu_kernels]
gpu_kernels["CU_flops"] = sum(gpu_kernels[name] * CUDA_SASS_INSTRUCTION_COUNTER_FLOPS[name] for name in counters)
assert (gpu_kernels["CU_flops"] == gpu_kernels["flops"]).all()
gpu_kernels.groupby("top_level_op")["CU_flops"].sum()
gpu_kernels["op_stack"].map(len)
"""
TIMELINE = """
import pandas as pd
from hta.common.trace import Trace
from hta.common.trace_call_graph import CallGraph
from hta.common.trace_filter import FirstIterationFilter, GPUKernelFilter, CompositeFilter
from hta.common.timeline import (EventType, PlotFormat, Timeline, TimelinePlotSetting, align_module_with_kernels,
                                 plot_events_timeline, prepare_timeline_events)
from hta.analyzers.timeline import plot_timeline_gpu_kernels, plot_timeline_gpu_kernels_from_trace
t = Trace(trace_dir=trace_dir)
t.parse_traces()
t.align_and_filter_trace()
t.decode_symbol_ids()
rank = t.get_ranks()[0]
df = t.get_trace(rank)
plot_timeline_gpu_kernels_from_trace("Kernels", t, ranks=[rank], iterations=None, streams=None)
plot_timeline_gpu_kernels("Kernels", df, t.symbol_table, duration_threshold=100)
setting = TimelinePlotSetting(event_type=EventType.AllEvents, plot_format=PlotFormat.HTML)
html = plot_events_timeline("All", prepare_timeline_events(df, setting, t.symbol_table), setting)
Timeline(df, t.symbol_table, CompositeFilter([GPUKernelFilter(), FirstIterationFilter()])).plot("First iteration")
cg = CallGraph(t, [rank])
some = df.nlargest(3, "num_kernels")["name"].tolist()
aligned = align_module_with_kernels(df, some, t.symbol_table)
"""
PARSER = """
from hta.common.trace import Trace
from hta.configs.parser_config import ParserConfig, ParserBackend, AVAILABLE_ARGS
from hta.configs.default_values import AttributeSpec, ValueType, YamlVersion
custom_cfg = ParserConfig(ParserConfig.get_minimum_args())
custom_cfg.add_args([AVAILABLE_ARGS["cpu_op::input_dims"], AVAILABLE_ARGS["data::bandwidth"]])
custom_cfg.add_args([AttributeSpec("seq", "Sequence number", ValueType.Int, -1, YamlVersion(1, 0, 0))])
custom_cfg.set_parser_backend(ParserBackend.IJSON_BATCH_AND_COMPRESS)
ParserConfig.set_default_cfg(custom_cfg)
t = Trace(trace_dir=trace_dir)
t.parse_traces(max_ranks=1, use_multiprocessing=False)
df = t.get_trace(t.get_ranks()[0])
assert {"input_dims", "memory_bw_gbps", "seq", "stream", "correlation"} <= set(df) and "bytes" not in df
every = Trace(trace_dir=trace_dir, parser_config=ParserConfig().set_parse_all_args(True))
every.parse_traces(max_ranks=1)
ParserConfig.show_available_args()
t.symbol_table.get_sym_id_map()
"""
FILTERS = """
from hta.common.trace import Trace
from hta.common.trace_filter import (CompositeFilter, CPUOperatorFilter, FirstIterationFilter, GPUKernelFilter,
    IterationFilter, IterationIndexFilter, NameFilter, QueryFilter, RankFilter, TimeRangeFilter, ZeroDurationFilter)
from hta.common.trace_stack_filter import (AfterOperatorFilter, BeforeOperatorFilter, CombinedOperatorFilter,
    UnderOperatorFilter)
t = Trace(trace_dir=trace_dir)
t.parse_traces()
t.align_and_filter_trace(include_last_profiler_step=False)
t.decode_symbol_ids()
df = t.get_trace(t.get_ranks()[0])
symbols = t.symbol_table
gpu, cpu = GPUKernelFilter()(df, symbols), CPUOperatorFilter()(df, symbols)
assert len(gpu) + len(cpu) == len(df) and len(gpu)
combined = CompositeFilter([IterationIndexFilter([0, 1]), NameFilter(r"aten::"), QueryFilter("dur > 1")])
assert combined(df, symbols)["s_name"].str.startswith("aten::").all()
first = FirstIterationFilter()(df)
in_time = TimeRangeFilter((0, df["end"].max() / 2))(df)
one = combined(df)["s_name"].iloc[0]
under = UnderOperatorFilter(one, 0, include_gpu_kernels=True)(df, symbols)
after, before = AfterOperatorFilter(one, 0)(df, symbols), BeforeOperatorFilter(one, -1)(df, symbols)
assert len(under) and len(after)
CombinedOperatorFilter(one, "", "", include_gpu_kernels=True)(df, symbols)
"""
CALL_STACKS = """
from hta.common.trace import Trace
from hta.common.call_stack import CallGraph as OldCallGraph
from hta.common.trace_call_graph import CallGraph
t = Trace(trace_dir=trace_dir)
t.parse_traces()
t.decode_symbol_ids()
rank = t.get_ranks()[0]
cg = CallGraph(t, ranks=[rank])
df = t.get_trace(rank)
node = int(df["index"].loc[df["num_kernels"].idxmax()])
stack = cg.get_stack_of_node(node, rank)
csg = cg.get_csg_of_node(node, rank)
assert csg.get_path_to_root(node)[0] == node
assert cg.get_node_attributes(node, rank)["num_kernels"] == df["num_kernels"].max()
for each in cg.get_call_stacks(rank=rank):
    each.get_nodes()
old = OldCallGraph(t, ranks=[rank])
old.get_stack_of_node(node, rank)
"""
MEMORY = """
from hta.memory_analysis import Category, MemoryAnalysis
memory = MemoryAnalysis(path=memory_file)
times, sizes = memory._process_raw_events()
assert len(times) == len(sizes)
memory.plot_memory_timeline(save_graph=False)
"""
NOTEBOOKS = {
    "README": README, "trace analysis": TRACE_ANALYSIS, "critical path": CRITICAL_PATH, "trace diff": TRACE_DIFF,
    "stragglers": STRAGGLERS, "timeline": TIMELINE, "parser": PARSER, "filters": FILTERS, "call stacks": CALL_STACKS,
    "memory": MEMORY,
}  # fmt: skip
REAL = [
    *(("trace analysis", run) for run in ("nccl_args_a100", "bert_mi300x", "vllm_decode_hipgraph", "npu_ascend")),
    *(("critical path", run) for run in ("critical_path_alexnet", "critical_path_simple_add", "bert_h100")),
    ("stragglers", "dlrm_8rank_v100"), ("CUPTI", "cupti_counters"), ("filters", "nccl_args_a100"),
    ("timeline", "bert_mi300x"), ("parser", "bert_h100"), ("call stacks", "bert_h100"), ("trace diff", "bert_h100"),
    ("README", "tp_toy_2rank_rtx4090"),
]  # fmt: skip


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Runs a notebook's cells with the one change, figures put aside."""
    import plotly.graph_objects as go

    figures: list = []
    monkeypatch.setattr(go.Figure, "show", lambda self, **_: figures.append(self))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ParserConfig, "_default", None)  # Which one of them sets.

    def run(name, trace_dir, other=None, annotation="ProfilerStep", instance=0):
        (tmp_path / "memory.json").write_text("[[5, 0, 100, 1], [7, 1, -100, 1]]")
        names = {"trace_dir": trace_dir, "other_dir": other or trace_dir, "out": tmp_path / "out"}
        names = {key: str(path) for key, path in names.items()} | {"annotation": annotation, "instance": instance}
        names["memory_file"] = str(tmp_path / "memory.json")
        code = (NOTEBOOKS | {"CUPTI": CUPTI})[name]
        changed = re.sub(r"^(from|import) hta\b", r"\1 htareport.hta", code, flags=re.MULTILINE)
        assert changed.count("htareport.hta") == len(re.findall(r"^(?:from|import) hta", code, re.MULTILINE)) > 0
        exec(compile(changed, f"{name}.ipynb", "exec"), names)  # noqa: S102  our own text
        return names, figures

    return run


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_on_the_example_traces(notebook, name):
    before = sorted(EXAMPLE.iterdir())
    found, figures = notebook(name, EXAMPLE)
    assert sorted(EXAMPLE.iterdir()) == before
    shows = {"trace analysis": 9, "stragglers": 2, "trace diff": 2, "timeline": 3, "memory": 1}
    assert len(figures) == shows.get(name, 0)
    if name == "stragglers":
        assert found["late"] == [2]


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the traces in {SHARED}")
@pytest.mark.parametrize(("name", "run"), REAL)
def test_on_real_traces(notebook, name, run):
    forward = {"annotation": "[param|pytorch.model.alex_net|0|0|0|measure|forward]", "instance": 1}
    options = forward if run in {"critical_path_alexnet", "critical_path_simple_add"} else {}
    notebook(name, SHARED / run, SHARED / "bert_mi300x", **options)
