"""A last wave that is nearly empty: an A100 of 108 processors holds 216 blocks of 128 threads and 226 registers."""

from __future__ import annotations

from typing import Any

import pytest
from rules.computing import GEMM, SHAPES, Work, states

from htareport.rules.compute.products import BelowRoof
from htareport.rules.compute.ranks import SlowRank
from htareport.rules.compute.waves import WaveTail

LIMITS = {
    "computeMajor": 8, "computeMinor": 0, "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65_536,
    "sharedMemPerMultiprocessor": 167_936,
}  # fmt: skip
RULE = WaveTail()


def kernel(blocks: int, dur: int = 200, length: int = 1000, limits: Any = None, **more: Any) -> Work:
    """A product of so many blocks, of which two fit on a processor."""
    trace = Work(length)
    trace.metadata["deviceProperties"][0] |= LIMITS | (limits or {})
    trace.mm(dur, grid=(blocks, 1, 1))
    told = {"block": [128, 1, 1], "registers per thread": 226, "shared memory": 0} | more
    trace.events[-1]["args"] |= told
    return trace


def test_a_tail(findings):
    """238 blocks are 1.1019 waves: of two, 44.9 % of 200 µs; on a processor 2.2037 of three, 26.5 %."""
    finding = findings([RULE], kernel(238))["C10"]
    assert finding.saving_ns == pytest.approx(200_000 * (1 - 238 / 216 / 2), abs=1)
    assert finding.low_ns == pytest.approx(200_000 * (1 - 238 / 108 / 3), abs=1)
    assert (finding.severity, finding.confidence) == ("high", "low")
    assert (
        "has 238 blocks, 1.10 times what 108 processors hold with 2 each. With 216 blocks it needs one wave less"
        in (finding.evidence)
    )
    assert " a grid of at most 216 blocks. Or let" in finding.advice


@pytest.mark.parametrize("tile", ["128x256_ldg8", "256x128_64x3", "s_tilesize128x256x64_warp"])
def test_sizes_that_make_a_wave_less(findings, tile):
    """Tiles of 128 × 256 of 1,793 × 4,000 are 15 × 16, 240; 13 × 16 or 15 × 14 are the most that 216 allow."""
    trace = kernel(240)
    trace.events[-1]["name"] = f"ampere_bf16_s16816gemm_bf16_{tile}_tn"
    trace.events[1]["args"]["Input Dims"] = [[1793, 512], [512, 4000]]
    assert "with 1,664 instead of 1,793 or 3,584 instead of 4,000. Or" in findings([RULE], trace)["C10"].advice


def test_no_more_than_above_the_roof(findings):
    """In 12 µs of which 10 are the roof no more than 2 are lost; shown where so little counts."""
    rule = WaveTail(shortest=10, least=0.001)
    assert findings([rule], kernel(238, 12, 300))["C10"].saving_ns == pytest.approx(2_000, abs=1)


@pytest.mark.parametrize(
    "trace",
    [
        kernel(216),
        kernel(200),
        kernel(300),
        kernel(4 * 216 + 10),
        kernel(238, 49),
        kernel(238, 200, 20_000),
        kernel(238, block=None),
        kernel(0),
    ],
    ids=["full", "one wave", "a third", "many", "short", "little", "block unknown", "no grid"],
)  # fmt: skip
def test_silent(tell, trace):
    assert states(tell([RULE], trace)) == {"C10": "fine"}


@pytest.mark.parametrize(
    ("trace", "lacking"),
    [
        (kernel(238, limits={"regsPerMultiprocessor": 0}), "what a processor of its devices holds (deviceProperties)"),
        (Work().mm(200, grid=(238, 1, 1)), "what a processor of its devices holds (deviceProperties)"),
        (kernel(238, **{"registers per thread": None}), "of kernels how many registers they take"),
    ],
    ids=["no registers", "nothing", "of the kernel nothing"],
)
def test_what_is_not_recorded_is_said(tell, trace, lacking):
    assert states(tell([RULE, SlowRank()], trace))["C10"] == f"not checked: the trace does not tell {lacking}"


def test_misalignment_is_another_cause(tell):
    trace = Work()
    trace.metadata["deviceProperties"][0] |= LIMITS
    trace.mm(200, SHAPES, "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_64x3_nn_align1", grid=(238, 1, 1))
    trace.events[-1]["args"] |= {"block": [128, 1, 1], "registers per thread": 226, "shared memory": 0}
    assert states(tell([RULE], trace)) == {"C10": "fine"}
    trace.events[-1]["name"] = GEMM
    assert states(tell([RULE], trace)) == {"C10": "found"}


def test_one_cause(findings):
    """Of such a product nobody says that it is below its roof, unless this rule does not look."""
    assert list(findings([BelowRoof(), RULE], kernel(238))) == ["C10"]
    assert list(findings([BelowRoof(), RULE], kernel(216))) == ["C1"]
    assert list(findings([BelowRoof()], kernel(238))) == ["C1"]
