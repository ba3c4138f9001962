"""Narrow products: 8 rows by 1,200 × 1,300 are 3,159,200 bytes of bf16, which take 2.0316 µs at 1,555 GB/s."""

from __future__ import annotations

import pytest
from rules.computing import GEMM, Work, states

from htareport.rules.compute.fill import TooFewBlocks
from htareport.rules.compute.products import BelowRoof
from htareport.rules.compute.skinny import SkinnyProducts

NARROW = [[8, 1200], [1200, 1300]]
AT_LEAST = 2 * (8 * 1200 + 1200 * 1300 + 8 * 1300) / 1555  # ns.
LARGE = [[4, 4096], [4096, 4096]]
RULES = [BelowRoof(), TooFewBlocks(), SkinnyProducts()]


def layers(count: int, together: int, dur: int = 10, shapes=NARROW, **options) -> Work:
    """So many layers of some products each, with a norm of 1 µs behind."""
    trace = Work(1000, **options)
    for _ in range(count):
        for _ in range(together):
            trace.mm(dur, shapes, grid=(80, 1, 1))
        trace.run("aten::norm", [("norm", 1)])
    return trace


def test_products_that_could_be_one(findings):
    """10 layers of 3, 300 µs: a third is left if they share a matrix; with one of each, 2.0316 / 0.85 µs of each."""
    told = findings(RULES, layers(10, 3))
    assert list(told) == ["C15"]
    finding = told["C15"]
    assert (finding.saving_ns, finding.severity) == (200_000, "high")
    assert finding.low_ns == 200_000  # 2.39 µs are less than a third.
    assert finding.title == "30 products of at most 16 rows take 300\u202fµs per step"
    assert "on average 3 of one shape follow each other" in finding.evidence
    assert "`aten::mm` 8×1200, 1200×1300 in bf16: 30 calls" in finding.evidence
    assert "Serve more sequences at once" in finding.advice


def test_matrices_that_are_all_read(findings):
    """At 3 µs each they read at 68 % of the bandwidth: with matrices of their own 20 % is left above 85 %."""
    finding = findings(RULES, layers(10, 3, 3))["C15"]
    assert finding.saving_ns == 60_000
    assert finding.low_ns == pytest.approx(90_000 * (1 - AT_LEAST / 3000 / 0.85), abs=30)


def test_matrices_that_are_read_as_fast_as_memory_allows(findings):
    """33,619,968 bytes in 27 µs are 80 % of the bandwidth: each has a matrix of its own, and a little is left."""
    trace = Work(2000)
    for _ in range(10):
        trace.mm(27, LARGE).mm(27, LARGE).mm(27, LARGE).busy(1)
    finding = findings(RULES, trace)["C15"]
    assert (
        finding.saving_ns == finding.low_ns == pytest.approx(810_000 * (1 - 33_619_968 / 1.555 / 27e6 / 0.85), abs=30)
    )


def test_products_that_stand_alone(findings):
    """Nothing is claimed, but it is said what would help."""
    finding = findings(RULES, layers(30, 1))["C15"]
    assert (finding.saving_ns, finding.severity) == (None, "low")
    assert "each stands alone between other kernels" in finding.evidence


def test_training_needs_no_fewer_bits(findings):
    trace = layers(10, 3).cpu_op("autograd::engine::evaluate_function: MmBackward0", 300, 1)
    assert "bits" not in findings(RULES, trace)["C15"].advice


@pytest.mark.parametrize("long", [False, True], ids=["few blocks", "below the roof"])
def test_one_cause(findings, long):
    """Of products of 30 µs only this rule speaks, whether they fill the device or not; without it another does."""
    trace = Work(2000)
    for _ in range(30):
        trace.mm(30, NARROW, GEMM, grid=(200 if long else 80, 1, 1))
    assert list(findings(RULES, trace)) == ["C15"]
    assert list(findings(RULES[:2], trace)) == (["C1"] if long else ["C9"])


@pytest.mark.parametrize(
    "trace",
    [
        layers(9, 2),
        layers(10, 3, shapes=[[17, 1200], [1200, 1300]]),
        Work(100_000).mm(10, NARROW),
    ],
    ids=["18 calls", "17 rows", "one"],
)
def test_silent(tell, trace):
    assert states(tell([SkinnyProducts()], trace)) == {"C15": "fine"}


def test_little(tell):
    """150 µs of a step of 10 ms are less than 2 %, but more than 1 %."""
    trace = Work(10_000)
    for _ in range(30):
        trace.mm(5, NARROW)
    assert states(tell([SkinnyProducts()], trace)) == {"C15": "fine"}
    assert states(tell([SkinnyProducts(least=0.01)], trace)) == {"C15": "found"}
