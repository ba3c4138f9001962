"""Layout conversions, kernels that fill a part of the device, and a rank that is slower altogether."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.computing import Work, states

from htareport.rules.compute.fill import TooFewBlocks
from htareport.rules.compute.layout import LayoutConversions
from htareport.rules.compute.ranks import SlowRank

TO_LAST = "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float>(params)"
FROM_LAST = "void cudnn::ops::nhwcToNchwKernel<float, float, float>(params)"


def test_conversions(findings):
    """40 + 10 of 250 µs of compute."""
    trace = Work().run("aten::cudnn_convolution", [(TO_LAST, 40), ("sm80_xmma_fprop", 200), (FROM_LAST, 10)])
    told = findings([LayoutConversions()], trace)["C18"]
    assert (told.saving_ns, told.severity) == (50_000, "high")
    assert (
        "20.0\u202f% of compute: `cudnn::engines_precompiled::nchwToNhwcKernel` 40.0\u202fµs in 1 call" in told.evidence
    )
    assert "MIOPEN" not in told.advice
    assert "memory_format=torch.channels_last" in told.snippet


def test_conversions_on_rocm(findings):
    trace = Work(hip_runtime_version=60443483).run(
        "aten::miopen_convolution", [("batched_transpose_32x32_half", 30), ("igemm_fwd_gtcx3_nhwc_bf16", 200)]
    )
    told = findings([LayoutConversions()], trace)["C18"]
    assert told.saving_ns == 30_000
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC=1" in told.advice


@pytest.mark.parametrize(
    "trace",
    [
        Work().run("aten::conv2d", [("sm80_xmma_fprop_nhwckrsc_nhwc", 200)]),
        Work().run("aten::conv2d", [(TO_LAST, 3), ("fprop", 250)]),
        Work().run("aten::conv2d", [(FROM_LAST, 50), (TO_LAST, 40), ("fprop", 200)]),
    ],
    ids=["none", "1.2 %", "channels last already"],
)
def test_no_conversions(tell, trace):
    assert states(tell([LayoutConversions()], trace)) == {"C18": "fine"}


def test_few_blocks(findings):
    """27 of 108 processors work for 200 µs: half of the three quarters without work are 75."""
    told = findings([TooFewBlocks()], Work().run("aten::x", [("scan", 200)], grid=(27, 1, 1)).busy(300))["C9"]
    assert (told.saving_ns, told.low_ns) == (75_000, 0)
    assert told.title == "Kernels that use only 25.0\u202f% of the GPU's processors cost up to 75.0\u202fµs per step"
    assert "than the GPU has processors (108) take 40.0\u202f% of compute" in told.evidence


@pytest.mark.parametrize(
    "trace",
    [
        Work().run("aten::x", [("a", 200)], grid=(27, 4, 1)),
        Work().run("aten::x", [("a", 19)], grid=(1, 1, 1)),
        Work().run("aten::x", [("a", 20)], grid=(1, 1, 1)).busy(200),
        TraceBuilder(deviceProperties=[{"id": 0, "name": "x"}]).kernel("a", 0, 200, grid=[1, 1, 1]),
        TraceBuilder().kernel("a", 0, 200),
    ],
    ids=["enough", "short", "little", "processors unknown", "blocks unknown"],
)
def test_enough_blocks(tell, trace):
    assert states(tell([TooFewBlocks()], trace)) == {"C9": "fine"}


def same_work(rank: int, factor: float = 1.0, kernels: int = 20, **other: float) -> TraceBuilder:
    """Kernels of 100, 110, 120, … µs times a factor, one of them by another; twice each."""
    trace, at = TraceBuilder(rank, 4).step(1, 0, 20_000), 100.0
    for number in range(2 * kernels):
        kernel = number % kernels
        dur = (100 + 10 * kernel) * other.get(f"k{kernel}", factor)
        trace.kernel(f"k{kernel}", round(at, 3), round(dur, 3), launch=(1 + number, "0.1"))
        at += dur + 1
    return trace


RULE = SlowRank()


def test_slow_rank(findings):
    """All of rank 2 takes a tenth longer: 780 of the 8,580 µs of its compute."""
    told = findings([RULE], *(same_work(rank, 1.1 if rank == 2 else 1.0) for rank in range(4)))["C24"]
    assert told.title == "All kernels of rank 2 take 10.0\u202f% longer than those of the other ranks"
    assert (told.ranks, told.saving_ns, told.severity) == ((2,), None, "medium")
    assert told.evidence.startswith("20 kernels of equal work take longer by the same factor (quartiles 0.000 apart)")
    assert "780\u202fµs to its compute per step" in told.evidence


def test_two_ranks(findings):
    """The slower of them is it."""
    assert findings([RULE], same_work(0), same_work(1, 1.06))["C24"].ranks == (1,)


@pytest.mark.parametrize(
    "ranks",
    [
        [same_work(0), same_work(1, 1.04)],
        [same_work(0, kernels=19), same_work(1, 1.2, kernels=19)],
        [same_work(0), same_work(1, 1.0, **{f"k{each}": 1.3 for each in range(12)})],
        [same_work(0)],
    ],
    ids=["4 %", "too few kernels", "different factors", "one rank"],
)
def test_no_slow_rank(tell, ranks):
    assert states(tell([RULE], *ranks)) == {"C24": "fine"}


def test_nothing_of_the_cpu(tell):
    """Without a device no rule about compute speaks."""
    trace = TraceBuilder().cpu_op("aten::mm", 0, 100, **{"Input Dims": [[8, 8], [8, 8]], "Input type": ["double"] * 2})
    assert not tell([RULE, LayoutConversions(), TooFewBlocks()], trace).findings
