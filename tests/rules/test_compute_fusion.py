"""Chains of elementwise kernels: 15,550,000 elements of bfloat16 take 25 µs at 80 % of 1,555 GB/s."""

from __future__ import annotations

import pytest
from rules.computing import BF16, ELEMENTWISE, FLOAT, Work, states

from htareport.rules.compute.dominant import Dominates
from htareport.rules.compute.fusion import ElementwiseChains

RULE = ElementwiseChains()
X = [15_550_000]  # 31.1 MB: 20 µs at the full bandwidth.


def gelu(trace: Work, shape=X, dur: int = 60, name: str = ELEMENTWISE) -> Work:
    """Multiply by a number, sigmoid, multiply by the input: 180 µs, in which the input is read, again, and written."""
    trace.run("aten::mul", [(name, dur)], [shape, []])
    trace.run("aten::sigmoid", [(name, dur)], [shape])
    return trace.run("aten::mul", [(name, dur)], [shape, shape])


def test_chain(findings):
    """Of 180 µs three times 25 are left; half of the saving is the lower estimate."""
    told = findings([RULE], gelu(Work()))["C7"]
    assert told.saving_ns == pytest.approx(105_000, abs=1)
    assert told.low_ns == pytest.approx(52_500, abs=1)
    assert told.evidence == (
        "1 chain takes 180\u202fµs per step. Most time goes to `aten::mul` → `aten::sigmoid` → `aten::mul` on "
        "15550000: 180\u202fµs in 1 chain."
    )


def test_each_chain_its_own_time(findings):
    """Another of 300 µs, behind a product: 105 and 225; not twice the first."""
    trace = gelu(gelu(Work(2000)).mm(50), dur=100)
    assert findings([RULE], trace)["C7"].saving_ns == pytest.approx(330_000, abs=1)


def test_numbers_of_other_shapes_are_read_besides(findings):
    """A bias of 1,555 elements more is next to nothing; 2 bytes each of it take 2.5 ns."""
    trace = Work().run("aten::add", [(ELEMENTWISE, 60)], [X, [1555]])
    trace.run("aten::relu", [(ELEMENTWISE, 60)], [X]).run("aten::mul", [(ELEMENTWISE, 60)], [X, []])
    assert findings([RULE], trace)["C7"].saving_ns == pytest.approx(180_000 - 50_002.5, abs=1)


def optimizer() -> Work:
    return gelu(Work().annotation("Optimizer.step#AdamW.step", 9, 100))


@pytest.mark.parametrize(
    "trace",
    [
        Work().run("aten::mul", [(ELEMENTWISE, 60)], [X, []]).run("aten::sigmoid", [(ELEMENTWISE, 60)], [X]),
        gelu(Work(), dur=4),
        gelu(Work(30_000)),
        gelu(Work(), name="triton_poi_fused_mul_sigmoid_0"),
        optimizer(),
        Work().run("aten::x", [(ELEMENTWISE, 60)] * 3, [X]),
        gelu(Work(), dur=24),
    ],
    ids=["two", "short", "little", "fused", "optimizer", "of one operator", "as fast as one"],
)
def test_silent(tell, trace):
    assert states(tell([RULE], trace)) == {"C7": "fine"}


def test_a_device_that_is_not_known(tell):
    """There is no telling what one kernel would take; and that is said, where any rule can look."""
    outcome = states(tell([RULE, Dominates()], gelu(Work(name="some GPU"))))
    assert outcome["C7"] == "not checked: the limits of some GPU are not known"


@pytest.mark.parametrize("between", ["product", "size", "stream"])
def test_what_ends_a_chain(tell, between):
    """Two and one are no three."""
    trace = Work().run("aten::mul", [(ELEMENTWISE, 60)], [X, []]).run("aten::sigmoid", [(ELEMENTWISE, 60)], [X])
    if between == "product":
        trace.mm(10)
    if between == "size":
        trace.run("aten::mul", [(ELEMENTWISE, 60)], [[15_000_000], []])
    elif between == "stream":
        trace.cpu_op("aten::mul", 50, 4, **{"Input Dims": [X], "Input type": [BF16]})
        trace.kernel(ELEMENTWISE, 400, 60, stream=9, launch=(51, 1))
    else:
        trace.run("aten::mul", [(ELEMENTWISE, 60)], [X, []])
    assert states(tell([RULE], trace)) == {"C7": "fine"}


def test_types_count(findings):
    """In float32 everything takes twice as long: of 300 µs 150 are left."""
    trace = Work()
    for name, shapes in (("mul", [X, []]), ("sigmoid", [X]), ("mul", [X, X])):
        trace.run(f"aten::{name}", [(ELEMENTWISE, 100)], shapes, FLOAT)
    assert findings([RULE], trace)["C7"].saving_ns == pytest.approx(150_000, abs=1)
