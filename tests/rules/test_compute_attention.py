"""Attention in plain operators. Fused, 4 · 3 · 1500 · 1950 · 64 operations take 16 µs at 45 % of an A100's peak."""

from __future__ import annotations

import pytest
from rules.computing import BF16, FLOAT, GEMM, H100, Work, states

from htareport.rules.compute.attention import UnfusedAttention

QUERY, KEY, VALUE, SCORES = [3, 1500, 64], [3, 64, 1950], [3, 1950, 64], [3, 1500, 1950]
RULE = UnfusedAttention()


def attention(trace: Work, kernel=GEMM, scores=SCORES, query=QUERY, key=KEY, value=VALUE, dtype=BF16) -> Work:
    """100 + 30 + 200 + 86 = 416 µs over the scores; a copy of 10 µs among them is not."""
    trace.run("aten::bmm", [(kernel, 100)], [query, key], dtype)
    trace.run("aten::mul", [("scale", 30)], [scores, []], dtype)
    trace.run("aten::_softmax", [("softmax", 200)], [scores, [], []], dtype)
    trace.run("aten::copy_", [("copy", 10)], [value, value], dtype)
    return trace.run("aten::bmm", [(kernel, 86)], [scores, value], dtype)


def test_forward(findings):
    """416 - 16 µs of a step of 1000; half of the speed leaves 32."""
    told = findings([RULE], attention(Work()))["C6"]
    assert (told.saving_ns, told.low_ns, told.severity, told.confidence) == (400_000, 384_000, "high", "high")
    assert told.title == "Attention is not fused, which costs up to 400\u202fµs per step"
    assert "Once per step, products and a softmax write" in told.evidence
    assert "3 × 1,500 × 1,950 scores (16.7\u202fMiB)" in told.evidence
    assert "takes 416\u202fµs, of which the softmax takes 200\u202fµs" in told.evidence
    assert "scaled_dot_product_attention" in told.advice


def test_misaligned(findings):
    """1,951 is no multiple of 8, and the kernel's name says what that means."""
    kernel = "cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(params)"
    sizes = {"scores": [3, 1500, 1951], "key": [3, 64, 1951], "value": [3, 1951, 64]}
    told = findings([RULE], attention(Work(), kernel, **sizes))["C6"]
    assert told.title.startswith("Attention is not fused and has misaligned sizes, which costs")
    assert "1500 and 1951 are no multiple of 8" in told.evidence
    assert "`cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1`" in told.evidence


def test_backward(findings):
    """2 · 3 · 1500 · 1950 · (2 + 3) · 64 operations take 40 µs, two and a half times as much: 540 - 40."""
    trace = Work(1000)
    trace.run("aten::bmm", [(GEMM, 60)], [[3, 1950, 1500], [3, 1500, 64]])  # Gradient of the values.
    trace.run("aten::bmm", [(GEMM, 100)], [[3, 1500, 64], [3, 64, 1950]])  # Of the scores.
    trace.run("aten::_softmax_backward_data", [("softmax", 250)], [SCORES, SCORES, [], []])
    trace.run("aten::mul", [("scale", 30)], [SCORES, []])
    trace.run("aten::bmm", [(GEMM, 60)], [SCORES, [3, 1950, 64]])  # Of the query.
    trace.run("aten::bmm", [(GEMM, 40)], [[3, 64, 1500], SCORES])  # Of the key.
    told = findings([RULE], trace)["C6"]
    assert (told.saving_ns, told.low_ns) == (500_000, 460_000)


def test_layers(findings):
    """Two of them; a softmax of other sizes between is none."""
    trace = attention(Work(2000)).run("aten::_softmax", [("softmax", 20)], [[3, 1500, 10], [], []])
    told = findings([RULE], attention(trace))["C6"]
    assert told.saving_ns == 800_000
    assert "2 times per step" in told.evidence


def test_a_device_that_is_not_known(findings):
    """Everything but the two products of 100 and 86: 230."""
    assert findings([RULE], attention(Work(name="some GPU")))["C6"].saving_ns == 230_000


def test_bound_by_memory(findings):
    """With rows of 30 the traffic, 3 · (30 + 1950) · 128 · 2 bytes, takes 0.978 µs; the arithmetic a third of that."""
    sizes = {"query": [3, 30, 64], "scores": [3, 30, 1950]}
    assert findings([RULE], attention(Work(), **sizes))["C6"].saving_ns == pytest.approx(416_000 - 977.7, abs=1)


def test_the_fallback_of_the_fused_operator(findings):
    """Where PyTorch was asked for it, the advice is another."""
    trace = Work().cpu_op("aten::_scaled_dot_product_attention_math", 9, 50)
    assert "falls back to plain operators" in findings([RULE], attention(trace))["C6"].advice


def test_without_steps(findings):
    """Of 426 µs in all."""
    told = findings([RULE], attention(Work(0)))["C6"]
    assert (told.saving_ns, told.is_per_step) == (400_000, False)
    assert told.title.endswith("in all that was recorded")


def test_little_of_the_step(findings):
    """416 of 30,000 µs are less than 2 %."""
    assert not findings([RULE], attention(Work(30_000)))


@pytest.mark.replayed
def test_a_host_that_launches_late(findings):
    """Each kernel is launched when the device is idle already: of three launches, 100 µs each, one stays."""
    trace = Work()
    for number, (name, shapes) in enumerate(
        (("bmm", [QUERY, KEY]), ("_softmax", [SCORES, [], []]), ("bmm", [SCORES, VALUE]), ("sum", [VALUE]))
    ):
        at = 100 * number
        trace.cpu_op(f"aten::{name}", at, 20, **{"Input Dims": shapes, "Input type": [BF16] * len(shapes)})
        trace.kernel(GEMM, at + 30, 60 if number < 3 else 1, launch=(at + 10, 5))
    assert findings([RULE], trace)["C6"].saving_ns == 200_000


@pytest.mark.parametrize("missing", ["before", "softmax", "behind"])
def test_only_all_three_are_attention(tell, missing):
    trace = Work()
    if missing != "before":
        trace.run("aten::bmm", [(GEMM, 100)], [QUERY, KEY])
    if missing != "softmax":
        trace.run("aten::_softmax", [("softmax", 200)], [SCORES, [], []])
    if missing != "behind":
        trace.run("aten::bmm", [(GEMM, 86)], [SCORES, VALUE])
    assert states(tell([RULE], trace)) == {"C6": "fine"}


def test_products_too_far_away(findings):
    """Thirteen operators between."""
    trace = Work(2000).run("aten::bmm", [(GEMM, 100)], [QUERY, KEY])
    for _ in range(13):
        trace.run("aten::add", [("add", 5)], [[8], [8]])
    trace.run("aten::_softmax", [("softmax", 200)], [SCORES, [], []])
    assert not findings([RULE], trace.run("aten::bmm", [(GEMM, 86)], [SCORES, VALUE]))


def test_fused_attention_is_fine(tell):
    args = {"Concrete Inputs": ["", "", "", "0.", "False", "False", ""]}
    shapes = [[1, 3, 1500, 64]] * 3 + [[]] * 4
    trace = Work().run("aten::_scaled_dot_product_flash_attention", [("flash_fwd_kernel", 500)], shapes, **args)
    assert states(tell([RULE], trace)) == {"C6": "fine"}


def test_what_it_needs(tell):
    trace = Work().run("aten::bmm", [(GEMM, 100)])
    assert not tell([RULE], trace).tables


def test_on_rocm(findings):
    """2,246,400,000 operations take 3.818 µs at 45 % of 1,307.4 TFLOP/s."""
    trace = attention(Work(name="AMD Instinct MI300X", hip_runtime_version=60443483), "Cijk_Ailk_Bljk_BBS_MI16x16x16x1")
    assert findings([RULE], trace)["C6"].saving_ns == pytest.approx(416_000 - 3818, abs=1)


def test_float32_in_plain_arithmetic(findings):
    """At 45 % of 67 TFLOP/s of an H100 it takes 74.5 µs."""
    trace = attention(Work(name=H100), "sm80_xmma_gemm_f32f32_f32f32_f32_tn", dtype=FLOAT)
    assert findings([RULE], trace)["C6"].saving_ns == pytest.approx(416_000 - 74_507, abs=1)
