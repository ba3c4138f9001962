"""One operator that takes a large part of compute."""

from __future__ import annotations

import pytest
from rules.computing import GEMM, SHAPES, Work, states
from rules.test_compute_attention import attention

from htareport.rules.compute.attention import UnfusedAttention
from htareport.rules.compute.dominant import Dominates

RULE = Dominates()


def test_found(findings):
    """300 of 500 µs of compute, in two calls; the same operator on other shapes is another."""
    trace = Work().mm(100).mm(200).mm(100, [[64, 64], [64, 64]]).busy(100)
    told = findings([RULE], trace)["C23"]
    assert told.title == "`aten::mm` on 1000×1200, 1200×1300 takes 60.0\u202f% of all compute"
    assert told.evidence == "2 calls take 300\u202fµs per step."
    assert (told.severity, told.saving_ns) == ("low", None)


def test_attention_that_is_not_fused_is_told_as_that(findings):
    """Its softmax takes 48 % of compute, and goes with the rest."""
    assert list(findings([UnfusedAttention(), RULE], attention(Work()))) == ["C6"]
    assert list(findings([RULE], attention(Work()))) == ["C23"]


def test_script(findings):
    """It holds what the trace tells of the arguments, and is Python."""
    script = findings([RULE], Work().mm(300))["C23"].snippet
    assert script == (
        "import torch\n"
        "from torch.utils.benchmark import Timer\n"
        "args = [\n"
        '    torch.randn(1000, 1200, device="cuda").to(torch.bfloat16),\n'
        '    torch.randn(1200, 1300, device="cuda").to(torch.bfloat16),\n'
        "]\n"
        'print(Timer("torch.ops.aten.mm(*args)", globals=globals()).timeit(100))'
    )
    compile(script, "script", "exec")


def test_script_with_what_is_not_known(findings):
    """Arguments that are no tensors are not in the trace."""
    trace = Work().run("aten::_softmax", [("softmax", 300)], [[16, 512, 512], [], []])
    script = findings([RULE], trace)["C23"].snippet
    assert "args += []" in script
    compile(script, "script", "exec")


@pytest.mark.parametrize(
    "trace",
    [
        Work().mm(280).busy(700),
        Work(10_000).mm(900),
        Work().run("aten::mm", [(GEMM, 300)]).run("aten::mul", [("mul", 10)], SHAPES),
        Work().mm(10).memcpy("HtoD", 300, 500, launch=(30, 1)),
    ],
    ids=["of 1000", "of the step", "no shapes", "copies"],
)
def test_silent(tell, trace):
    assert states(tell([RULE], trace)) == {"C23": "fine"}


def test_the_script_has_tensors_of_8_bits(findings):
    script = findings([RULE], Work().mm(300, dtype="c10::Float8_e4m3fn"))["C23"].snippet
    assert script.count(".to(torch.float8_e4m3fn)") == 2


def test_steps_and_ranks(findings):
    """Per step; without steps in all."""
    told = findings([RULE], Work(0).mm(300).mm(300), Work(0, rank=1).mm(10))["C23"]
    assert told.evidence == "2 calls take 600\u202fµs in all that was recorded."
    assert told.ranks == ()
