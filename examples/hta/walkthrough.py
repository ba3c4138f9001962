# ruff: noqa: D100  the first cell says what this is
# %% [markdown]
# # A walk through htareport
#
# Run this file cell by cell in Jupyter, VS Code or Spyder, or as a script: `python walkthrough.py [TRACES]`. By
# itself it takes the example traces: 4 ranks, 4 steps; one rank is late, one step waits for the data loader.

# %%
from __future__ import annotations

import builtins
import sys
import tempfile
from pathlib import Path

import htareport

HERE = Path(__file__).resolve().parent if "__file__" in globals() else Path.cwd()
GIVEN = [each for each in sys.argv[1:] if Path(each).is_dir()]
TRACES = GIVEN[0] if GIVEN else str(HERE.parent / "traces")
OUTPUT = Path(tempfile.mkdtemp(prefix="htareport-"))


def show(value: object, title: str = "") -> None:
    """Display a value in a notebook, print it in a script."""
    if title:
        print(f"\n== {title}")
    getattr(builtins, "display", print)(value)


# %% [markdown]
# ## The report
#
# It shows itself; so does each section. Tables are DataFrames, times in integer nanoseconds.

# %%
report = htareport.analyze(TRACES)
show(report.verdict, "Verdict")
show(report["temporal_breakdown"].table(), "Temporal breakdown")
report.write(OUTPUT / "report.html")

# %% [markdown]
# ## The same questions under HTA's names
#
# Times are µs here.

# %%
from htareport.hta.trace_analysis import TimeSeriesTypes, TraceAnalysis  # noqa: E402  as in a notebook

analyzer = TraceAnalysis(trace_dir=TRACES)
show(analyzer.get_temporal_breakdown(), "Where the time goes")
show(analyzer.get_comm_comp_overlap(), "Communication under compute")

# %%
types, kernels = analyzer.get_gpu_kernel_breakdown(num_kernels=5)
show(types, "Kernel types")
show(kernels[kernels["rank"] == 0].head(), "Kernels")

# %%
idle, gaps = analyzer.get_idle_time_breakdown(ranks=[0], show_idle_interval_stats=True)
show(idle, "Idle time by cause")
show(gaps, "Gaps")

# %%
launches = analyzer.get_cuda_kernel_launch_stats(ranks=[0])
show(launches[0].nlargest(5, "launch_delay"), "Longest launch delays")
operators = analyzer.get_aten_op_kernels_and_delay(ranks=[0])
show(operators[0].head(), "Kernels by operator")
sequences = analyzer.get_frequent_cuda_kernel_sequences("aten::linear", min_pattern_len=1)
show(sequences.head(3), "Sequences under aten::linear")

# %%
queues = analyzer.get_queue_length_time_series(ranks=[0])
show(analyzer.get_queue_length_summary_from_time_series(queues), "Queue lengths")
show(analyzer.get_time_spent_blocked_on_full_queue(queues, max_queue_length=100), "Full queues")
show(analyzer.get_memory_bw_summary(ranks=[0]), "Memory bandwidth")

# %%
show(analyzer.get_potential_stragglers(num_candidates=1), "Stragglers")
show(analyzer.get_gpu_user_annotation_breakdown(use_gpu_annotation=False), "Annotations")

# %% [markdown]
# ## Copies of the traces with more in them
#
# They go into a folder of their own, for Perfetto; htareport reads them too.

# %%
written = analyzer.generate_trace_with_counters(TimeSeriesTypes.QUEUE_LENGTH, ranks=[0], output_dir=OUTPUT / "counters")
show([Path(path).name for path in written], "With counters")

# %% [markdown]
# ## The critical path of a step, and what if

# %%
graph, _ = analyzer.critical_path_analysis(0, "ProfilerStep", instance_id=1)
show(graph.summary(), "What the step's length hangs on (%)")
overlaid = analyzer.overlay_critical_path_analysis(0, graph, OUTPUT / "path", only_show_critical_events=False)
show(Path(overlaid).name, "With the path")

# %%
before = graph.critical_path_length
slowest = graph.get_critical_path_breakdown().dropna(subset=["event_idx"]).nlargest(1, "duration").iloc[0]
for edge in graph.get_edges_attributed_to_event(int(slowest["event_idx"])):
    graph.set_weight(edge, edge.weight / 2)
graph.critical_path()
show(f"{before:.0f} → {graph.critical_path_length:.0f} µs", f"If {slowest['s_name']} took half the time")

# %% [markdown]
# ## Events as a frame

# %%
from htareport.hta.common.trace import Trace  # noqa: E402
from htareport.hta.common.trace_call_graph import CallGraph  # noqa: E402
from htareport.hta.common.trace_filter import CompositeFilter, FirstIterationFilter, GPUKernelFilter  # noqa: E402
from htareport.hta.common.trace_stack_filter import UnderOperatorFilter  # noqa: E402

trace = Trace(trace_dir=TRACES)
trace.decode_symbol_ids()
events = trace.get_trace(0)
first_kernels = CompositeFilter([FirstIterationFilter(), GPUKernelFilter()])(events)
show(first_kernels[["s_name", "ts", "dur", "stream", "iteration"]].head(), "Kernels of the first step")

# %%
calls = CallGraph(trace, ranks=[0])
show(calls.mapping, "Threads")
show(events.nlargest(3, "num_kernels")[["s_name", "depth", "num_kernels", "kernel_dur_sum"]], "Most kernels below")
step = events.loc[events["name"].str.startswith("ProfilerStep"), "name"].iloc[0]
show(len(UnderOperatorFilter(step, 0, include_gpu_kernels=True)(events)), f"Events under {step}")

# %% [markdown]
# ## Two runs compared

# %%
from htareport.hta.trace_diff import DeviceType, LabeledTrace, TraceDiff  # noqa: E402

steps = trace.get_iterations()
compared = TraceDiff.compare_traces(
    LabeledTrace("early", trace_dir=TRACES),
    LabeledTrace("late", trace_dir=TRACES),
    control_iteration=steps[0],
    test_iteration=steps[-1],
    device_type=DeviceType.GPU,
)
show(compared.sort_values("diff_duration").tail(3), "What got slower from the first step to the last")
show(f"Files stand in {OUTPUT}")
