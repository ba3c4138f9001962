"""Sequences of kernels marked in copies."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from export_content import content

from htareport.errors import UsageError
from htareport.hta import TraceAnalysis


def builder() -> TraceBuilder:
    """Three calls of linear, two of which launch the same kernels; one kernel of nobody's."""
    trace = TraceBuilder(0)
    for number, second in enumerate(("relu", "relu", "gelu")):
        at = 100 * number
        trace.cpu_op("aten::linear", at, 20)
        trace.kernel("gemm", at + 30, 10, launch=(at + 2, 2)).kernel(second, at + 45, 10, launch=(at + 6, 2))
    return trace.kernel("other", 500, 10, launch=(480, 2), grid=[1, 1])


@pytest.fixture
def analysis(tmp_path):
    def opened(trace):
        trace.write(tmp_path / "traces" / "rank0.json")
        return TraceAnalysis(trace_dir=tmp_path / "traces")

    return opened


def overlaid(analysis, folder, **options) -> dict:
    analysis.get_frequent_cuda_kernel_sequences("aten::linear", folder, min_pattern_len=2, **options)
    return content(folder / "overlaid_rank0.json")


def test_marks(analysis, tmp_path):
    """The calls of the most frequent pattern and what they launch, with how often it comes."""
    made = overlaid(analysis(builder()), tmp_path / "out", top_k=1, compress_other_kernels=False)
    assert made["htareportCopy"] == {"with": "kernel sequences", "rank": 0}
    marks = [(e["name"], e["args"]["Patterns"]) for e in made["traceEvents"] if "Patterns" in e.get("args", {})]
    pattern = {"aten::linear|gemm|relu": 2}
    assert sorted(marks, key=lambda each: each[0]) == sorted(
        [("aten::linear", pattern), ("gemm", pattern), ("relu", pattern)] * 2, key=lambda each: each[0]
    )
    other = next(event for event in made["traceEvents"] if event["name"] == "other")
    assert other["args"]["grid"] == [1, 1]


@pytest.mark.parametrize("with_row", [False, True])
def test_compression(analysis, tmp_path, with_row):
    """Others lose arguments and names; the profiler's row spells names out, without one the metadata do."""
    trace = builder()
    if with_row:
        row = {
            "ph": "X",
            "cat": "Trace",
            "name": "PyTorch Profiler (0)",
            "pid": "Spans",
            "tid": "t",
            "ts": 0,
            "dur": 600,
        }
        trace.event({**row, "args": {"Op count": 0}})
    made = overlaid(analysis(trace), tmp_path / "out", top_k=1)
    row = next((event for event in made["traceEvents"] if event.get("cat") == "Trace"), None)
    names = row["args"]["names"] if with_row else made["names"]
    others = [e for e in made["traceEvents"] if e["ph"] == "X" and e.get("cat") != "Trace"
              and "Patterns" not in e.get("args", {})]  # fmt: skip
    assert not any("args" in event for event in others)
    assert sorted({names[event["name"]] for event in others}) == [
        "aten::linear", "cudaLaunchKernel", "gelu", "gemm", "other",
    ]  # fmt: skip


def test_nothing_to_mark(analysis, tmp_path):
    """No file; nor into the folder of the traces."""
    opened = analysis(builder())
    assert opened.get_frequent_cuda_kernel_sequences("nothing", tmp_path / "out").empty
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError):
        opened.get_frequent_cuda_kernel_sequences("aten::linear", tmp_path / "traces", min_pattern_len=1)
