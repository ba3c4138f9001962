"""Norms, rotary embeddings and activations operator by operator; an A100 moves 1,555 GB/s."""

from __future__ import annotations

import pytest
from rules.computing import ELEMENTWISE, Work, states

from htareport.rules.compute.copies import Moves
from htareport.rules.compute.patterns import Decomposed

BIG, SMALL = [4096, 4096], [4096, 1]  # 33.6 MB in bf16: read and written at 80 % in 53.9 µs.
RMS_NORM = (
    ("pow", 50, BIG),
    ("mean", 30, BIG),
    ("add", 5, SMALL),
    ("rsqrt", 5, SMALL),
    ("mul", 50, BIG),
    ("mul", 50, BIG),
)
LAYER_NORM = (
    ("mean", 30, BIG), ("sub", 50, BIG), ("pow", 50, BIG), ("mean", 30, BIG), ("add", 5, SMALL), ("rsqrt", 5, SMALL),
    ("mul", 50, BIG),
)  # fmt: skip
ROTARY = (("mul", 40, BIG), ("neg", 20, BIG), ("cat", 40, BIG), ("mul", 40, BIG), ("add", 60, BIG))
GELU = tuple((name, 40, BIG) for name in ("mul", "pow", "mul", "add", "mul", "tanh", "add", "mul"))
SILU = (("silu", 50, BIG), ("mul", 70, BIG))


def written(*parts, name="NVIDIA A100-SXM4-40GB"):
    """Operators in a row, one kernel each, with something else before, between and behind."""
    trace = Work(2000, name).busy(300)
    for part in parts:
        for operator, dur, shape in part:
            trace.run(f"aten::{operator}", [(ELEMENTWISE, dur)], [shape])
        trace.busy(20)
    return trace


@pytest.mark.parametrize(
    ("part", "name", "saving"),
    [
        (RMS_NORM, "RMSNorm", 190 - 53.95),
        (LAYER_NORM, "LayerNorm", 220 - 53.95),
        (ROTARY, "rotary embedding", 200 - 53.95),
        (GELU, "GELU by tanh", 320 - 53.95),
        (SILU, "SwiGLU", 120 - 80.92),
    ],
)
def test_each_pattern(saved, findings, part, name, saving):
    told = findings([Decomposed()], written(part))["C8"]
    assert told.title.startswith(f"Operators of {name} are not fused, which costs up to ")
    assert told.saving_ns / 1000 == pytest.approx(saving, abs=0.1)
    assert saved([Decomposed()], written(part, part))["C8"] == pytest.approx(2 * saving, abs=0.2)


def test_a_norm_with_weight_and_bias_is_one(findings):
    """The second half of a LayerNorm is that of an RMSNorm."""
    affine = (*LAYER_NORM, ("mul", 50, BIG), ("add", 50, BIG))
    told = findings([Decomposed()], written(affine, RMS_NORM))["C8"]
    assert told.evidence.startswith("LayerNorm 320\u202fµs in 1 call; RMSNorm 190\u202fµs in 1 call per step")


def test_several(findings):
    told = findings([Decomposed()], written(RMS_NORM, ROTARY, RMS_NORM))["C8"]
    assert told.evidence == (
        "RMSNorm 380\u202fµs in 2 calls; rotary embedding 200\u202fµs in 1 call per step. Each call runs several "
        "kernels that read and write whole tensors."
    )
    assert told.advice.startswith("Use `torch.nn.RMSNorm` (`F.rms_norm`) and a fused rotary embedding")


@pytest.mark.parametrize(
    ("trace", "state"),
    [
        (written(RMS_NORM[:4], RMS_NORM[4:]), "fine"),
        (written((*RMS_NORM[:5], ("mul", 50, [4096, 1]))), "fine"),
        (written(tuple((name, 3, shape) for name, _, shape in RMS_NORM)), "fine"),
        (written((("native_layer_norm", 60, BIG),)), "fine"),
        (written(RMS_NORM, name="a device"), "not checked: the limits of a device are not known"),
    ],
    ids=["interrupted", "another size", "short", "fused already", "limits unknown"],
)
def test_no_pattern(tell, trace, state):
    assert states(tell([Decomposed(), Moves()], trace))["C8"] == state
