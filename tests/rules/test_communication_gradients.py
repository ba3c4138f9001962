"""Gradients that are reduced behind the backward pass, in its last bucket, or in more bits than needed."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.parallel import ALL_REDUCE, BACKWARD, GEMM, US, one, plain

BF16 = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"


def training(*buckets, kernel=GEMM, group_name="0", dtype="Float", bits=4, back=True, launches=None):
    """A step of 2000 µs: forward 0-200, backward 200-800, all-reduces (start, duration), and the optimizer 1900-1950.

    The backward operator runs from 100 to 300 on a thread of its own, and launches all but the first and last kernel.
    """
    trace = TraceBuilder(0, 2).step(1, 0, 2000).kernel(kernel, 0, 200, launch=(0, 5))
    if back:
        trace.cpu_op(BACKWARD, 100, 200, tid=77)
    for number in range(6):
        trace.kernel(kernel, 200 + 100 * number, 100, launch=(101 + 10 * number, 5))
    for number, (start, length) in enumerate(buckets):
        launch = (launches or [170 + 10 * number for number in range(9)])[number]
        trace.collective(
            ALL_REDUCE, "allreduce", start, length, nelems=1000 * length // bits, dtype=dtype, group_name=group_name,
            launch=(launch, 5), **({"Process Group Description": "mesh_tp"} if group_name == "tp" else {}),
        )  # fmt: skip
    trace.kernel(kernel, 1900, 50, launch=(320, 5))
    for event in trace.events:
        if event["cat"] == "cuda_runtime" and 100 <= event["ts"] < 300:
            event["tid"] = 77
    return trace


def test_behind_the_backward_pass(tmp_path):
    """600 µs of compute are free, 1000 µs exposed: 600 would fit. Nothing is hidden."""
    found = one(tmp_path, [training((900, 1000))], "N2")
    assert found.saving_ns == 600 * US
    assert plain(found.title) == "The backward pass could hide 600 µs more of the gradients' communication per step"
    assert "1 collective of 1.00 ms per step" in plain(found.evidence)
    assert "0 % run under compute, while 600 µs of its compute" in plain(found.evidence)


def test_well_overlapped(tmp_path):
    """400 of 500 µs are hidden."""
    assert one(tmp_path, [training((400, 500))], "N2") is None


@pytest.mark.parametrize("options", [{"group_name": "tp"}, {"back": False}])
def test_no_gradients(tmp_path, options):
    """What tensor parallelism reduces is needed at once; without backward operators nobody knows."""
    assert one(tmp_path, [training((900, 1000), **options)], "N2", "N12") is None


def test_the_last_bucket(tmp_path):
    """It starts 20 µs after the backward pass. 300 µs, of which 75 would stay."""
    found = one(tmp_path, [training((250, 400), (821, 300))], "N12")
    assert found.saving_ns == 225 * US
    assert "all_reduce · default_pg of 293 KiB takes another 300 µs, 42.9 %" in plain(found.evidence)
    assert (found.spans[0].start, found.spans[0].end) == (821 * US, 1046 * US)


@pytest.mark.parametrize(
    "buckets",
    [
        [(250, 560), (821, 300)],  # Behind another one, which held it up.
        [(250, 400), (790, 300)],  # While the backward pass still runs.
        [(250, 400), (821, 40)],  # 30 of 2000 µs.
    ],
)
def test_no_tail(tmp_path, buckets):
    assert one(tmp_path, [training(*buckets)], "N12") is None


def test_only_what_moves_bytes_counts(tmp_path):
    """In another step the same bucket takes 100 µs: of the 300 here 200 may be waiting."""
    trace = training((250, 400), (821, 300)).step(2, 2000, 1000)
    trace.cpu_op(BACKWARD, 2000, 100, tid=77).kernel(GEMM, 2010, 50, launch=(2001, 5))
    trace.collective(ALL_REDUCE, "allreduce", 2100, 100, nelems=75_000, launch=(2010, 5))
    trace.kernel(GEMM, 2300, 10, launch=(2020, 5))
    for event in trace.events:
        if event["cat"] == "cuda_runtime" and 2000 <= event["ts"] < 2015:
            event["tid"] = 77
    found = one(tmp_path, [trace], "N12")
    assert found.saving_ns == 75 * US  # 75 in each of two steps.


def test_fp32_gradients_of_a_bf16_model(tmp_path):
    """1000 µs exposed, of which half."""
    found = one(tmp_path, [training((900, 1000), kernel=BF16)], "N20")
    assert found.saving_ns == 500 * US
    assert plain(found.title) == "Gradients are reduced in fp32: 500 µs per step could be saved in bf16"
    assert "moves 977 KiB per step as fp32, while 100 % of compute time" in plain(found.evidence)


@pytest.mark.parametrize(
    "options", [{"kernel": GEMM}, {"kernel": BF16, "dtype": "BFloat16", "bits": 2}, {"kernel": BF16, "back": False}]
)
def test_no_fp32_gradients(tmp_path, options):
    assert one(tmp_path, [training((900, 1000), **options)], "N20") is None


def test_fp32_by_the_name_of_the_kernel(tmp_path):
    trace = training((900, 1000), kernel=BF16)
    for event in trace.events:
        if event["name"] == ALL_REDUCE:
            event["args"] = {key: event["args"][key] for key in ("device", "stream", "correlation")}
    found = one(tmp_path, [trace], "N20")
    assert (found.saving_ns, "all_reduce moves gradients as fp32" in found.evidence) == (500 * US, True)


def test_exposed_gradients_are_called_so(tmp_path):
    advice = one(tmp_path / "a", [training((900, 1000))], "N1").advice
    assert "accumulate gradients under `model.no_sync()`" in advice
    assert "The gradients are fp32: reduce in bf16" in advice
    assert "NCCL_DEBUG" not in advice  # 977 KiB are little.
    trace = training((900, 1000))
    for event in trace.events:
        if event["name"] == ALL_REDUCE:
            event["args"]["In msg nelems"] = 1_100_000
    assert "Large calls reach only 4.40 GB/s" in plain(one(tmp_path / "c", [trace], "N1").advice)
    assert "bf16" not in one(tmp_path / "b", [training((900, 1000), dtype="BFloat16", bits=2)], "N1").advice


def test_collectives_without_a_kind(tmp_path):
    """RCCL calls all of them alike: those without arguments, launched before the recording, are of unknown kind."""
    trace = training((900, 500), (1400, 400))
    named = [event for event in trace.events if event["name"] == ALL_REDUCE]
    for event in named:
        event["name"] = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
    named[0]["args"] = {"device": 0, "stream": 20}
    found = one(tmp_path, [trace], "N1")
    assert "as far as compute waits: collectives of unknown kind 500 µs, all_reduce · default_pg 400 µs" in plain(
        found.evidence
    )
    assert "model.no_sync()" in found.advice
