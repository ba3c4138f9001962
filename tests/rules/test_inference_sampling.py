"""A token that is read by the host before it launches the next."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.rules.host.sync import CopiesBack, ScalarReadback, SyncDrains
from htareport.rules.inference.sampling import SampledOnHost

RULES = [SyncDrains(), ScalarReadback(), CopiesBack(), SampledOnHost()]
VOCABULARY = {"Input Dims": [[1, 32_000]], "Input type": ["float"]}


def generated(name: str = "aten::argmax", between: int = 0, gap: int = 100, **args) -> TraceBuilder:
    """Three tokens: 100 µs of work that the host waits for, a number that it reads, and a gap behind it."""
    trace, period = TraceBuilder(), 200 + gap
    for number in range(3):
        at = period * number
        trace.cpu_op(name, at, 4, **(args or VOCABULARY)).kernel("sample", at + 5, 100, launch=(at + 1, 2))
        for place in range(between):
            trace.kernel("more", at + 105, 0, launch=(f"{at + 4}.{place:02}", 0))
        trace.cpu_op("aten::item", at + 10, 110).memcpy("DtoH (Device -> Pageable)", at + 106, 2, launch=(at + 11, 3))
        trace.runtime("cudaStreamSynchronize", at + 15, 100)
    return trace.kernel("last", 3 * period, 100, launch=(3 * period - 1, 1))


def test_tokens_that_are_read(findings):
    """In the gap behind each read: as long as the host had waited before, 100 µs; nobody else claims it."""
    told = findings(RULES, generated())
    assert list(told) == ["I4"]
    assert told["I4"].saving_ns == 3 * 100_000
    assert "launched more: `aten::item` 3× in all that was recorded." in told["I4"].evidence


def test_one_that_is_drawn(findings):
    assert list(findings(RULES, generated("aten::multinomial", Shapes=[]))) == ["I4"]


@pytest.mark.parametrize(
    "trace",
    [
        generated(**{"Input Dims": [[64, 1000]]}),
        generated("aten::add"),
        generated(between=30),
        generated().cpu_op("autograd::engine::evaluate_function: MmBackward0", 150, 1),
    ],
    ids=["classes", "no sampling", "much between", "training"],
)
def test_other_numbers(findings, trace):
    """Then it is a number like any other."""
    assert list(findings(RULES, trace)) == ["H5"]


def test_without_the_rule_it_is_a_number(findings):
    assert list(findings(RULES[:3], generated())) == ["H5"]


def test_too_little_for_tokens(findings):
    """With a limit above what is there, others may speak."""
    assert list(findings([*RULES[:3], SampledOnHost(least=0.5)], generated())) == ["H5"]
