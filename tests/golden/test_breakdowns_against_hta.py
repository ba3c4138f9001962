"""Breakdowns, launches, queues and copies of real traces against HTA's values, where those are at hand.

Numbers of faults are those of HTA_FAULTS.md. Tolerated, each where it is applied:

- 2: what is left of an interval between two whole µs is lost in sums by kernel type, even of exact times.
- 4: synchronisation rows count as kernels of the temporal breakdown, and stretch its window.
- 8: queue lengths leave out launches of whole graphs.
- 9: launch statistics leave out those by the driver (Triton's) and all of HIP.
"""

from __future__ import annotations

import gzip
import json
import math
import warnings
from functools import cache
from pathlib import Path

import pytest

from htareport.hta import TraceAnalysis

SHARED = Path(__file__).parents[3] / "shared"
GOLDEN = SHARED / "golden"
# Where the trace is exact to the ns so is the calculation; traces of whole µs are as HTA read them.
RUNS = {
    **dict.fromkeys(
        ["bert_h100", "bert_mi300x", "nccl_args_a100", "owlv2_h100", "vllm_decode_hipgraph"],
        "hta_exact_ns",
    ),
    **dict.fromkeys(
        [
            *["critical_path_alexnet", "critical_path_simple_add", "critical_path_event_sync"],
            *["critical_path_event_sync_streams", "cupti_counters", "sampled_2of128ranks_a100"],
        ],
        "hta",
    ),
}
WITH_SYNCS = {run for run in RUNS if run.startswith("critical_path")}  # 4
EVERY_KERNEL = {"num_kernels": 100_000, "duration_ratio": 1.0}

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"needs the traces and HTA's values in {SHARED}")


@cache
def opened(run: str) -> TraceAnalysis:
    """A run without its last step, as HTA takes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TraceAnalysis(trace_dir=SHARED / "traces" / run, include_last_profiler_step=False)


def golden(run: str, name: str):
    """What HTA answered; the test is skipped where it could not."""
    stored = json.loads(gzip.decompress((GOLDEN / RUNS[run] / run / f"{name}.json.gz").read_bytes()))
    if stored["status"] != "ok":
        pytest.skip(f"HTA answers {stored['status']}")
    return stored["result"]


def records(encoded) -> list[dict[str, object]]:
    if encoded["orient"] == "records":
        return encoded["records"]
    return [dict(zip(encoded["columns"], row, strict=True)) for row in encoded["rows"]]


def number(value: object) -> float:
    return math.nan if value in ("NaN", None) else float(value)


def about(value: object, by: float):
    return pytest.approx(number(value), abs=by, rel=0, nan_ok=True)


@pytest.mark.parametrize("run", RUNS)
def test_temporal_breakdown(run):
    ours = opened(run).get_temporal_breakdown().set_index("rank")
    theirs = records(golden(run, "get_temporal_breakdown"))
    assert [row["rank"] for row in theirs] == ours.index.tolist()
    for row in theirs:
        columns = [name for name in row if name != "rank"]
        if run in WITH_SYNCS:
            columns = ["compute_time(us)"]
        for name in columns:
            assert ours.loc[row["rank"], name] == about(row[name], 0.011), name


@pytest.mark.parametrize("run", RUNS)
def test_overlap(run):
    ours = opened(run).get_comm_comp_overlap().set_index("rank")["comp_comm_overlap_pctg"]
    for row in records(golden(run, "get_comm_comp_overlap")):
        assert ours[row["rank"]] == about(row["comp_comm_overlap_pctg"], 0.011)


@pytest.mark.parametrize("run", RUNS)
def test_every_kernel(run):
    """Names with sum, extremes, mean, deviation and type; the types' sums never less, and more by under 1 µs each."""
    theirs = golden(run, "get_gpu_kernel_breakdown__num_kernels=100000")
    types, kernels = (records(each) for each in (theirs["items"] if isinstance(theirs, dict) else theirs))
    our_types, our_kernels = opened(run).get_gpu_kernel_breakdown(**EVERY_KERNEL)
    ours = {(row["name"], row["rank"]): row for row in our_kernels.to_dict("records")}
    assert len(ours) == len(kernels)
    for row in kernels:
        mine = ours[row["name"], row["rank"]]
        assert mine["kernel_type"] == row["kernel_type"]
        for name in ("sum (us)", "max (us)", "min (us)", "mean (us)", "stddev"):
            assert mine[name] == about(row[name], 0.01), name
    sums = our_types.set_index("kernel_type")["sum"]
    launched = sum(round(row["sum (us)"] / row["mean (us)"]) for row in ours.values())
    for row in types:
        lost = sums[row["kernel_type"]] - number(row["sum"])
        assert -0.01 <= lost < (launched if RUNS[run] == "hta_exact_ns" else 0.01)  # 2


@pytest.mark.parametrize("run", RUNS)
def test_idle_time(run):
    """Each kind of idle time of each stream; both begin and end where a kernel does, to rounding."""
    theirs = golden(run, "get_idle_time_breakdown__defaults")
    ours = opened(run).get_idle_time_breakdown()[0].set_index(["rank", "stream", "idle_category"])["idle_time"]
    for row in records(theirs[0] if isinstance(theirs, list) else theirs):
        assert ours[row["rank"], row["stream"], row["idle_category"]] == about(row["idle_time"], 0.02)


@pytest.mark.parametrize("run", RUNS)
def test_launches(run):
    """Every launch that HTA finds, with its three times; and those that it leaves out (9)."""
    theirs = golden(run, "get_cuda_kernel_launch_stats")
    ours = opened(run).get_cuda_kernel_launch_stats()
    for rank, encoded in theirs["items"] if "items" in theirs else theirs.items():
        mine = {row["correlation"]: row for row in ours[int(rank)].to_dict("records")}
        for row in records(encoded):
            for name in ("cpu_duration", "gpu_duration", "launch_delay"):
                assert mine[row["correlation"]][name] == about(row[name], 0.0015), (row["correlation"], name)
        by_driver = run in {"bert_h100", "bert_mi300x", "owlv2_h100", "vllm_decode_hipgraph"}
        assert (len(mine) > len(records(encoded))) == by_driver


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    ("method", "measure"), [("get_queue_length_summary", "queue_length"), ("get_memory_bw_summary", "memory_bw_gbps")]
)
def test_most_queued_and_fastest_copy(run, method, measure):
    encoded = golden(run, method)
    ours = getattr(opened(run), method)()[measure, "max"]
    last = [name[-1] if isinstance(name, list) else name for name in encoded["columns"]].index("max")
    values = encoded.get("rows") or [list(row.values()) for row in encoded["records"]]
    for key, row in zip(encoded["index"], values, strict=True):
        place = tuple(key) if isinstance(key, list) else key
        if (run, measure) == ("vllm_decode_hipgraph", "queue_length"):
            assert ours[place] > number(row[last])  # 8
        else:
            assert ours[place] == about(row[last], 0.01)
