"""Counters and stragglers of real traces against HTA's values, where those are at hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from htareport.hta import TraceAnalysis

SHARED = Path(__file__).parents[3] / "shared"
GOLDEN = SHARED / "golden" / "hta"
pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"needs the traces and HTA's values in {SHARED}")


def golden(run: str, name: str):
    return json.loads(gzip.decompress((GOLDEN / run / f"{name}.json.gz").read_bytes()))


def analysis(run: str) -> TraceAnalysis:
    return TraceAnalysis(trace_dir=SHARED / "traces" / run)


def test_cupti_counters():
    """Every counter and operator of all 77 kernels is HTA's."""
    [expected] = golden("cupti_counters", "get_cupti_counter_data_with_operators")["result"]
    [frame] = analysis("cupti_counters").get_cupti_counter_data_with_operators()
    shared = [name for name in frame.columns if name in expected["columns"] and name != "correlation"]
    assert {"name", "ts", "dur", "op_stack", "top_level_op", "bottom_level_op"} < set(shared)
    assert len(shared) == 6 + 9
    assert len(frame) == len(expected["records"]) == 77
    for ours, theirs in zip(frame[shared].to_dict("records"), expected["records"], strict=True):
        assert ours == {name: theirs[name] for name in shared}


@pytest.mark.parametrize("run", ["cupti_counters", "critical_path_alexnet", "owlv2_h100", "nccl_args_a100"])
def test_stragglers_where_hta_crashes(run):
    """HTA_FAULTS 21: no step, no name beginning "ncclKernel", or one rank; ours says that there is none."""
    assert golden(run, "get_potential_stragglers__num_candidates=2")["status"] == "error"
    assert analysis(run).get_potential_stragglers() == []


def test_stragglers_of_two_ranks():
    """HTA_ANALYSES 8: HTA always names `num_candidates` ranks, here both; four collectives are no proof."""
    assert golden("sampled_2of128ranks_a100", "get_potential_stragglers__num_candidates=2")["result"] == [0, 1]
    assert analysis("sampled_2of128ranks_a100").get_potential_stragglers() == []


def test_who_is_last():
    """Rank 7 in the first four collectives, rank 5 in the sixth: as the traces' description says."""
    found = analysis("dlrm_8rank_v100")
    seen = []
    named = found.get_potential_stragglers(
        straggler_identification_impl=lambda arrivals: seen.append(arrivals) or [],
    )
    last = seen[0][seen[0]["last"]].set_index("collective")["rank"]
    assert last.loc[[0, 1, 2, 3, 5]].tolist() == [7, 7, 7, 7, 5]
    assert named == []
    assert found.get_potential_stragglers() == [7]
