"""HTA's own values for operators, sequences and annotations, where they are at hand.

Numbers of faults are those of HTA_FAULTS.md. Tolerated, each where it is applied:

- 4: synchronisation rows (Stream Sync, Context Sync, Stream Wait Event) count as kernels, in patterns and sums.
- 1: statistics of annotations are of sums per name as soon as there are more than `num_kernels` names.
- 12: kernels on stream 0 (AMD) are in no call tree, so there are no patterns.
- 34: of operators that start in the same µs any may be the innermost.
- 36: rank 1 also has the sequences of rank 0.
- 31: the last step begins with its annotation on the device.
- HTA_ANALYSES §4.1, depth: Python functions count as calls around an operator, so that most calls are dropped; and so
  do annotations around the backward pass.
- HTA_ANALYSES §2.5: an annotation of the device counts where HTA looks at nothing else.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from htareport.hta import TraceAnalysis

SHARED = Path(__file__).parents[3] / "shared"
GOLDEN = SHARED / "golden"
RUNS = sorted(path.name for path in (GOLDEN / "hta").glob("*")) if GOLDEN.is_dir() else []
AMD = {"bert_mi300x", "resnet_ddp_mi300x", "vllm_decode_hipgraph"}
SYNCS = {"Stream Sync", "Context Sync", "Event Sync", "Stream Wait Event"}
SUMS = ["GPU kernel duration (us)", "CPU op duration (us)"]
STATISTICS = ["sum (us)", "max (us)", "min (us)", "stddev", "mean (us)"]

pytestmark = pytest.mark.skipif(not RUNS, reason=f"needs HTA's values in {GOLDEN}")


@cache
def _reader():
    spec = importlib.util.spec_from_file_location("golden_io", GOLDEN / "golden_io.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def opened(run):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TraceAnalysis(trace_dir=SHARED / "traces" / run, include_last_profiler_step=False)


def golden(run, start):
    """Parameters and result of each call that HTA could answer, exact to the ns where the trace is."""
    exact = GOLDEN / "hta_exact_ns" / run
    for path in sorted((exact if exact.is_dir() else GOLDEN / "hta" / run).glob(f"{start}*.json.gz")):
        found = _reader().dec(json.loads(gzip.decompress(path.read_bytes())))
        if found["status"] == "ok":
            yield found["params"], found["result"]


def as_frame(encoded):
    return pd.DataFrame(encoded["rows"], columns=encoded["columns"])


def assert_alike(ours, theirs, atol):
    """The same rows and values, whatever the types of text and the order of rows."""
    ours, theirs = ours.sort_index(), theirs.sort_index()
    assert ours.index.tolist() == theirs.index.tolist()
    np.testing.assert_allclose(ours.to_numpy(float), theirs.to_numpy(float), rtol=0, atol=atol)


@pytest.mark.parametrize("run", RUNS)
def test_frequent_sequences(run):
    """Every pattern of HTA, with its count and sums; more calls only where HTA's depth drops them."""
    analysis = opened(run)
    for params, result in golden(run, "get_frequent_cuda_kernel_sequences"):
        theirs = as_frame(result["patterns"])
        # 12; or a Python function, or an annotation of the device (31), of that name is outermost.
        if not len(theirs) or run in AMD:
            continue
        name = params["operator_name"]
        ours = analysis.get_frequent_cuda_kernel_sequences(**params).set_index("pattern")
        synced = theirs["pattern"].map(lambda text: bool(SYNCS & set(text.split("|"))))
        parts = theirs["pattern"].map(lambda text: "|".join(p for p in text.split("|") if p not in SYNCS))  # 4
        theirs = (
            theirs.assign(synced=synced)
            .groupby(parts)
            .agg({"count": "sum", "synced": "any", **dict.fromkeys(SUMS, "sum")})
        )
        python_around = run in {"bert_h100", "owlv2_h100"}  # Recorded with stacks.
        backward_around = (run, name) == ("sampled_2of128ranks_a100", "aten::matmul")
        if python_around and name == "forward":
            continue  # A Python function of that name is outermost.
        if backward_around or python_around:
            assert (ours.reindex(theirs.index)["count"] >= theirs["count"]).all(), params
            continue
        assert ours["count"].to_dict() == theirs["count"].to_dict(), params
        for column in SUMS:
            expected = theirs[column].where(~(theirs["synced"] & (column == SUMS[0])), ours[column])
            assert_alike(ours[column], expected, atol=0.01)


@pytest.mark.parametrize("run", RUNS)
def test_aten_operators(run):
    """Every sequence with its count and both delays to the ns that HTA rounds to."""
    analysis = opened(run)
    for params, result in golden(run, "get_aten_op_kernels_and_delay"):
        answer = analysis.get_aten_op_kernels_and_delay(**params)
        for rank, encoded in result.items():
            if int(rank) > 0:
                continue  # 36
            keys = ["aten_op_name", "kernel_sequence"]
            theirs, ours = as_frame(encoded).set_index(keys), answer[int(rank)].set_index(keys)
            if run == "sampled_2of128ranks_a100":  # 34: whole µs; what both find must agree.
                assert ours["occurrence_count"].sum() == theirs["occurrence_count"].sum()
                both = theirs.index.intersection(ours.index)
                same = theirs.loc[both, "occurrence_count"] == ours.loc[both, "occurrence_count"]
                both = both[same]
                assert len(both) > 0.9 * len(theirs)
                theirs, ours = theirs.loc[both], ours.loc[both]
            assert_alike(ours[theirs.columns], theirs, atol=0.002)


@pytest.mark.parametrize("run", RUNS)
def test_annotation_breakdown(run):
    """Every annotation; where names are pooled only the sums are right in HTA (1)."""
    analysis = opened(run)
    if run == "resnet_ddp_mi300x":
        pytest.skip("31")
    for params, result in golden(run, "get_gpu_user_annotation_breakdown"):
        ours = analysis.get_gpu_user_annotation_breakdown(**params, duration_ratio=1)
        theirs, ours = (frame.set_index(["rank", "name"]) for frame in (as_frame(result), ours))
        pooled = (theirs.index.get_level_values("name") == "others").any()
        columns = STATISTICS[:1] if pooled else STATISTICS
        assert_alike(ours[columns], theirs[columns], atol=0.01)


@pytest.mark.parametrize("run", RUNS)
def test_kernels_with_annotations(run):
    """What HTA finds on the device is what launched it, or is around what did (§2.5)."""
    analysis = opened(run)
    for params, result in golden(run, "get_gpu_kernels_with_user_annotations"):
        theirs = as_frame(result)
        theirs = theirs[theirs["stream"] >= 0]
        ours = analysis.get_gpu_kernels_with_user_annotations(**params, shorten_names=False)
        both = theirs.merge(ours, left_on=["correlation", "tid"], right_on=["correlation", "tid"])
        assert len(both) == len(ours)
        both = both[both["s_user_annotation_x"] != ""]
        stacks = both["annotation_stack"].fillna("").str.split(" > ")
        agree = [name in stack for name, stack in zip(both["s_user_annotation_x"], stacks, strict=True)]
        # 38 and touching: a kernel that an annotation of its stream only touches, or of another stream's, has its name.
        assert sum(agree) >= 0.99 * len(agree)
        assert agree
