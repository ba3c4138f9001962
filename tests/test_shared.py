"""Real traces against values that were worked out apart, where those are at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from htareport.hta import TraceAnalysis

SHARED = Path(__file__).parents[2] / "shared"
RUNS = ["bert_h100", "cpu_student", "npu_ascend", "owlv2_h100", "profiler_cycles_a100", "tp_toy_2rank_rtx4090"]
TIMES = {
    "span_us": "kernel_time(us)", "busy_us": "busy_time(us)", "idle_us": "idle_time(us)",
    "compute_us": "compute_time(us)", "comm_us": "comm_time(us)", "memory_us": "memory_time(us)",
    "non_compute_us": "non_compute_time(us)", "overlap_us": "overlap_time(us)",
    "exposed_comm_us": "exposed_comm_time(us)", "exposed_memory_us": "exposed_memory_time(us)",
    "n_device_events": "num_device_events",
}  # fmt: skip
PERCENT = {
    "idle_pct": "idle_time_pctg", "compute_pct": "compute_time_pctg", "non_compute_pct": "non_compute_time_pctg",
}  # fmt: skip
KERNEL = {"sum_us": "sum (us)", "mean_us": "mean (us)", "min_us": "min (us)", "max_us": "max (us)", "std_us": "stddev"}

pytestmark = pytest.mark.skipif(
    not (SHARED / "golden" / "exact").is_dir(), reason=f"needs the traces and exact values in {SHARED}"
)


@pytest.fixture(scope="module", params=RUNS)
def run(request):
    expected = json.loads((SHARED / "golden" / "exact" / f"{request.param}.json").read_text("utf-8"))
    return TraceAnalysis(trace_dir=SHARED / "traces" / request.param), expected


def test_temporal_breakdown(run):
    """Every time of every rank and device to the nanosecond, percentages to two decimals."""
    analysis, expected = run
    table = analysis.get_temporal_breakdown()
    assert len(table) == len(expected)
    for (_, row), exact in zip(table.iterrows(), expected, strict=True):
        assert row["rank"] == exact["rank"]
        assert pd.isna(row["device"]) if exact["device"] is None else row["device"] == exact["device"]
        for theirs, ours in TIMES.items():
            assert row[ours] == pytest.approx(exact[theirs], abs=1e-6), ours
        for theirs, ours in PERCENT.items():
            assert pd.isna(row[ours]) if exact[theirs] is None else row[ours] == pytest.approx(exact[theirs]), ours


def test_kernels(run):
    """Statistics of single calls, by name."""
    analysis, expected = run
    _, kernels = analysis.get_gpu_kernel_breakdown(num_kernels=10**6, duration_ratio=1)
    assert "others" not in set(kernels["name"])
    for exact in expected:
        mine = kernels[kernels["rank"] == exact["rank"]]
        by_name = mine.groupby("name").filter(lambda rows: len(rows) == 1).set_index("name")
        assert len(expected) > 1 or mine["name"].nunique() == exact["kernel_names"]
        for kernel in exact["kernels"] if len(expected) == len({each["rank"] for each in expected}) else ():
            row = by_name.loc[kernel["name"]]
            assert row["count"] == kernel["count"]
            for theirs, ours in KERNEL.items():
                assert row[ours] == pytest.approx(kernel[theirs], abs=6e-4), (kernel["name"], ours)


def test_idle_time(run):
    """Idle time by stream and cause."""
    analysis, expected = run
    idle, _ = analysis.get_idle_time_breakdown()
    for exact in expected:
        mine = idle[(idle["rank"] == exact["rank"]) & (idle["device"] == exact["device"])]
        found = {
            str(stream): rows.set_index("idle_category")["idle_time"].to_dict()
            for stream, rows in mine.groupby("stream")
        }
        assert set(found) == set(exact["idle_by_stream_us"])
        for stream, causes in exact["idle_by_stream_us"].items():
            assert found[stream] == pytest.approx(causes, abs=1e-6), stream
