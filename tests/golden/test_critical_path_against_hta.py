"""Critical paths against those of HTA 0.6, where its values are at hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from htareport.hta import TraceAnalysis

SHARED = Path(__file__).parents[3] / "shared"
FORWARD = "-param-pytorch.model.alex_net-0-0-0-measure-forward-"
BLOCKING_COPY = "HTA_FAULTS 43: a blocking cudaMemcpyAsync keeps its weight, so the path does not go through the copy"
HIP_SYNC = "HTA_ANALYSES 10: hip* names are in none of HTA's lists, so waiting in hipDeviceSynchronize counts as work"
# Folder, run, window: what ours has more than HTA (µs), and the fault that explains it.
CASES = {
    ("hta", "critical_path_alexnet", "EMPTY,instance_id=None"): ({}, ""),
    ("hta", "critical_path_alexnet", f"{FORWARD},instance_id=1"): ({}, ""),
    ("hta", "critical_path_simple_add", "EMPTY,instance_id=None"): ({}, ""),
    ("hta", "critical_path_simple_add", f"{FORWARD},instance_id=1"): ({}, ""),
    ("hta", "critical_path_event_sync_streams", "EMPTY,instance_id=None"): ({}, ""),
    # The call takes 29; instead 18 until the copy starts and 2 of copy.
    ("hta", "critical_path_event_sync", "EMPTY,instance_id=None"): (
        {"cpu_bound": -29, "gpu_kernel_launch_overhead": 18, "gpu_compute_bound": 2},
        BLOCKING_COPY,
    ),
    ("hta", "critical_path_event_sync", "ProfilerStep,instance_id=0"): (
        {"cpu_bound": -29, "gpu_kernel_launch_overhead": 18, "gpu_compute_bound": 2},
        BLOCKING_COPY,
    ),
    ("hta_exact_ns", "nccl_args_a100", "ProfilerStep,instance_id=0"): ({}, ""),
    ("hta_exact_ns", "nccl_args_a100", "ProfilerStep,instance_id=1"): ({}, ""),
    ("hta_exact_ns", "bert_h100", "ProfilerStep,instance_id=0"): (
        {"cpu_bound": -8.0, "gpu_kernel_launch_overhead": 9.437, "gpu_compute_bound": 2.24},
        BLOCKING_COPY,
    ),
    ("hta_exact_ns", "bert_mi300x", "ProfilerStep,instance_id=0"): ({"cpu_bound": -30.938}, HIP_SYNC),
}
FLOAT = 1e-3  # µs: HTA adds floats.

pytestmark = pytest.mark.skipif(not (SHARED / "golden" / "hta").is_dir(), reason=f"needs HTA's values in {SHARED}")


@pytest.fixture(scope="module", params=list(CASES), ids="/".join)
def case(request):
    """Our graph, HTA's result, and the difference that is explained."""
    folder, run, window = request.param
    file = SHARED / "golden" / folder / run / f"critical_path_analysis__annotation={window}.json.gz"
    golden = json.loads(gzip.decompress(file.read_bytes()))
    chosen = {name: golden["params"][name] for name in ("rank", "annotation", "instance_id")}
    found, fine = TraceAnalysis(trace_dir=SHARED / "traces" / run).critical_path_analysis(**chosen)
    assert fine
    return found, golden["result"], *CASES[request.param]


def test_breakdown_by_bound(case):
    found, theirs, difference, _ = case
    ours = found.get_critical_path_breakdown().groupby("bound_by")["duration"].sum().to_dict()
    expected = {name: value + difference.get(name, 0) for name, value in theirs["breakdown_duration_by_bound"].items()}
    assert ours == pytest.approx(expected, abs=FLOAT)


def test_length(case):
    found, theirs, difference, fault = case
    assert found.critical_path_length == pytest.approx(
        theirs["critical_path_length"] + sum(difference.values()), abs=FLOAT
    )
    assert bool(difference) == bool(fault)


def test_edges_between_events(case):
    """As many launches, kernel gaps and waits as HTA has, of the runs that have rows of cuda_sync."""
    found, theirs, difference, _ = case
    edges = [edge["object"].type.value for edge in (found.edges[pair] for pair in found.edges)]
    if difference or "critical_path_sync_dependency" not in theirs["edges_by_type"]:
        pytest.skip("HTA has other edges here")
    for kind in ("kernel_launch_delay", "kernel_kernel_delay", "sync_dependency"):
        assert edges.count(f"critical_path_{kind}") == theirs["edges_by_type"].get(f"critical_path_{kind}", 0)
