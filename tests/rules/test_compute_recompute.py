"""Activations that the backward pass computes again: 30 of 100 µs of compute."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.computing import states

from htareport.rules.compute.ranks import SlowRank
from htareport.rules.compute.recompute import Recomputed

RULE = Recomputed()
SHAPES = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
FORWARD = {"Sequence number": 5, "Fwd thread id": 0, **SHAPES}
BACKWARD = {"Sequence number": 5, "Fwd thread id": 1}
GIGABYTE = 10**9


def checkpointed(name: str = "aten::linear", again: int = 30, **args) -> TraceBuilder:
    """A forward operator of 30 µs; in the backward pass the same once more, and 40 µs of gradients."""
    trace = TraceBuilder().step(1, 0, 500).cpu_op("aten::linear", 10, 10, **FORWARD)
    trace.cpu_op("aten::mm", 12, 5, **SHAPES).kernel("gemm", 100, 30, launch=(13, 1))
    trace.cpu_op("autograd::engine::evaluate_function: MulBackward0", 30, 40, tid=2, **BACKWARD)
    trace.cpu_op("MulBackward0", 31, 38, tid=2, **BACKWARD)
    trace.cpu_op(name, 32, 10, tid=2, **(FORWARD | args)).cpu_op("aten::mm", 33, 5, tid=2, **SHAPES)
    launched(trace, "gemm", 130, again, 34)
    trace.cpu_op("aten::mul", 45, 5, tid=2, **SHAPES)
    return launched(trace, "mul", 130 + again, 40, 46)


def launched(trace: TraceBuilder, name: str, start: int, dur: int, launch: int) -> TraceBuilder:
    """A kernel that is launched on the thread of the backward pass."""
    trace.kernel(name, start, dur, launch=(launch, 1))
    call = next(each for each in reversed(trace.events) if each["cat"] == "cuda_runtime")
    call["tid"] = 2
    return trace


def remembered(used: int, needed: int, trace: TraceBuilder | None = None) -> TraceBuilder:
    """With memory: so many GB of 80 are taken at the peak, and so many allocated while it is computed again."""
    trace = trace or checkpointed()
    trace.metadata["deviceProperties"][0]["totalGlobalMem"] = 80 * GIGABYTE
    trace.memory(5, (used - needed) * GIGABYTE, 1, (used - needed) * GIGABYTE)
    return trace.memory(35, needed * GIGABYTE, 2, used * GIGABYTE, tid=2)


def test_where_memory_is_not_known(findings):
    finding = findings([RULE], checkpointed())["C21"]
    assert (finding.saving_ns, finding.low_ns, finding.confidence) == (30_000, 0, "low")
    assert "in the backward pass (activation checkpointing) take 30.0\u202f% of compute" in finding.evidence
    assert "`aten::linear` 30.0\u202fµs per step. Memory was not recorded, so it is not known" in finding.evidence


def test_all_fits(findings):
    """10 of 80 GB are taken; 54 are left up to 80 %."""
    finding = findings([RULE], remembered(10, 8))["C21"]
    assert (finding.saving_ns, finding.low_ns, finding.confidence) == (30_000, 15_000, "medium")
    assert "filled to 12.5\u202f% at its peak" in finding.evidence


def test_half_of_it_fits(findings):
    """Of 16 GB that are needed 8 are left up to 80 % of 80."""
    finding = findings([RULE], remembered(56, 16))["C21"]
    assert finding.saving_ns == 15_000
    assert "50.0\u202f% of the activations fit" in finding.assumption


def test_memory_is_needed(tell):
    assert states(tell([RULE], remembered(64, 8))) == {"C21": "fine"}
    assert states(tell([Recomputed(filled=0.9)], remembered(64, 8))) == {"C21": "found"}


@pytest.mark.parametrize(
    "trace",
    [
        checkpointed(**{"Sequence number": -1}),
        checkpointed(**{"Fwd thread id": 1}),
        checkpointed("aten::linear_backward"),
        checkpointed(**{"Input Dims": [[64, 32], [32, 64]]}),
        checkpointed(again=7),
        TraceBuilder().step(1, 0, 500).cpu_op("aten::linear", 10, 10, **FORWARD).kernel("a", 20, 30, launch=(13, 1)),
    ],
    ids=[
        "records nothing",
        "of the backward pass",
        "not of the forward pass",
        "other shapes",
        "little",
        "forward only",
    ],
)
def test_nothing_again(tell, trace):
    assert states(tell([RULE, SlowRank()], trace))["C21"] == "fine"
