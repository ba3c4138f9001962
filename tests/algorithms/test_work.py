"""Operations and bytes of operators, worked out on paper."""

from __future__ import annotations

import pytest

from htareport.algorithms.work import WORKING, Call, Kind, Product, work_of

BF16, FLOAT, HALF = "c10::BFloat16", "float", "c10::Half"


def work(name, shapes, dtype=BF16, values=(), types=None):
    return work_of(f"aten::{name}", Call(shapes, types or [dtype] * len(shapes), values))


def test_product():
    """2·(4·8·16) operations; 4·16 + 16·8 + 4·8 elements."""
    found = work("mm", [[4, 16], [16, 8]])
    assert (found.kind, found.flops, found.bytes, found.dtype) == (Kind.PRODUCT, 1024, 2 * 224, BF16)
    assert found.product == Product(1, 4, 8, 16)


def test_product_with_an_addend():
    """A row of 8, then the whole result, is read besides."""
    assert work("addmm", [[8], [4, 16], [16, 8], [], []], FLOAT).bytes == 4 * (8 + 224)
    assert work("baddbmm", [[3, 4, 8], [3, 4, 16], [3, 16, 8]], FLOAT).bytes == 4 * (96 + 3 * 224)


def test_batch():
    found = work("bmm", [[16, 5185, 64], [16, 64, 5185]])
    assert found.flops == 2 * 16 * 5185 * 5185 * 64
    assert found.bytes == 2 * 16 * (2 * 5185 * 64 + 5185 * 5185)
    assert found.product == Product(16, 5185, 5185, 64)


def test_results_of_another_type():
    """8-bit operands; results of 2 and 4 bytes."""
    fp8 = ["c10::Float8_e4m3fn"] * 2 + ["float"] * 2
    assert work("_scaled_mm", [[4, 16], [16, 8], [], []], types=fp8).bytes == 64 + 128 + 2 * 32
    assert work("_int_mm", [[4, 16], [16, 8]], "signed char").bytes == 64 + 128 + 4 * 32


def convolution(source, weight, stride, padding, transposed="False", groups="1", extra="[0, 0]"):
    values = ["", "", "", stride, padding, "[1, 1]", transposed, extra, groups]
    return work("convolution", [source, weight, [], [], [], [], [], [], []], values=values)


def test_convolution():
    """Patches of 14 of an image of 1008: 72 by 72 places, each 1024·3·14·14 products."""
    found = convolution([1, 3, 1008, 1008], [1024, 3, 14, 14], "[14, 14]", "[0, 0]")
    assert found.flops == 2 * 72 * 72 * 1024 * 3 * 14 * 14
    assert found.bytes == 2 * (3 * 1008 * 1008 + 1024 * 3 * 14 * 14 + 1024 * 72 * 72)


def test_convolution_with_options():
    """(14 + 2 - 2 - 1) // 2 + 1 = 7 places a side; in 4 groups a weight sees a quarter of the channels."""
    assert convolution([10, 256, 14, 14], [512, 256, 3, 3], "[2, 2]", "[1, 1]").flops == 2 * 10 * 49 * 512 * 256 * 9
    found = convolution([10, 256, 14, 14], [512, 64, 3, 3], "[2]", "[1]", groups="4")
    assert (found.flops, found.groups) == (2 * 10 * 49 * 512 * 64 * 9, 4)


def test_transposed_convolution():
    """Each of 64·64 places of the input is spread over 2 by 2: 128 by 128 places of the result."""
    found = convolution([8, 256, 64, 64], [256, 32, 2, 2], "[2, 2]", "[0, 0]", transposed="True")
    assert found.flops == 2 * 8 * 64 * 64 * 256 * 32 * 4
    assert found.bytes == 2 * (8 * 256 * 64 * 64 + 256 * 32 * 4 + 8 * 32 * 128 * 128)


@pytest.mark.parametrize(("mask", "times"), [("[True, True, False]", 2), ("[False, True, True]", 1)])
def test_convolution_backward(mask, times):
    """As much as forward for each of the two gradients; 7 by 7 places of the result."""
    shapes = [[10, 512, 7, 7], [10, 256, 14, 14], [512, 256, 3, 3]]
    values = ["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", mask]
    found = work("convolution_backward", shapes + [[]] * 8, values=values)
    assert found.flops == times * 2 * 10 * 49 * 512 * 256 * 9
    assert found.bytes == times * 2 * (10 * 512 * 49 + 10 * 256 * 196 + 512 * 256 * 9)


def test_no_gradient_no_work():
    shapes = [[10, 512, 7, 7], [10, 256, 14, 14], [512, 256, 3, 3]]
    values = ["", "", "", "[512]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[False, False, True]"]
    assert work("convolution_backward", shapes, values=values) is None


def flash(query, key, causal="False"):
    values = ["", "", "", "0.", causal, "False", "0.125"]
    return work("_scaled_dot_product_flash_attention", [query, key, key, [], [], [], []], HALF, values)


def test_attention():
    """Two products of 2·8·141·141·64; query, key, value and result are moved, the scores are not."""
    found = flash([1, 8, 141, 64], [1, 8, 141, 64])
    assert found.kind is Kind.ATTENTION
    assert found.flops == 2 * 2 * 8 * 141 * 141 * 64
    assert found.bytes == 2 * 4 * 8 * 141 * 64


def test_heads_may_share_keys():
    """The arithmetic is that of 8 heads, the traffic that of 2 for key and value."""
    found = flash([1, 8, 100, 64], [1, 2, 100, 64])
    assert found.flops == 2 * 2 * 8 * 100 * 100 * 64
    assert found.bytes == 2 * 100 * 64 * (8 + 2 + 2 + 8)


@pytest.mark.parametrize(("rows", "columns", "pairs"), [(4, 4, 10), (3, 5, 6), (5, 3, 12)])
def test_causal_attention(rows, columns, pairs):
    """Places on and below the diagonal: 1 + 2 + 3 + 4; 1 + 2 + 3; 1 + 2 + 3 + 3 + 3."""
    assert flash([1, 1, rows, 64], [1, 1, columns, 64], "True").flops == 2 * pairs * 2 * 64


def test_attention_backward():
    """Five products; query, key, value, result and their gradients are moved."""
    values = [""] * 8 + ["32", "32", "0.", "False"]
    shapes = [[2, 4, 32, 64]] * 5 + [[2, 4, 32]] + [[]] * 6
    found = work("_scaled_dot_product_flash_attention_backward", shapes, HALF, values)
    assert found.flops == 5 * 2 * 2 * 4 * 32 * 32 * 64
    assert found.bytes == 2 * 8 * 2 * 4 * 32 * 64


def test_heads_behind_the_rows():
    """The inner operator has them the other way round."""
    values = [""] * 5 + ["141", "141", "0.", "False", "False"]
    found = work("_flash_attention_forward", [[1, 141, 8, 64]] * 3 + [[]] * 7, HALF, values)
    assert found == flash([1, 8, 141, 64], [1, 8, 141, 64])


@pytest.mark.parametrize("name", WORKING)
@pytest.mark.parametrize("values", [(), ["", "", "", "None", "[1]", "x", "2", "[]", "0", "[1, 2, 3]", "{}", "yes"]])
@pytest.mark.parametrize(
    "shapes",
    [[], [[]], [[2, 3], [4, 5]], [[0, 3], [3, 0]], [[2, [3]], [3, 2]], [[1, 2, 3, 4]] * 12, ["x"] * 3, [[2, 3.5]] * 3],
    ids=["none", "scalar", "unequal", "empty", "nested", "alike", "text", "fractions"],
)
def test_no_work_where_there_is_a_doubt(name, shapes, values):
    assert work_of(name, Call(shapes, [BF16] * len(shapes), values)) is None


@pytest.mark.parametrize("key", [[1, 8, 141, 32], [2, 8, 141, 64], [1, 3, 141, 64]], ids=["depth", "batch", "heads"])
def test_keys_have_to_fit_the_query(key):
    assert flash([1, 8, 141, 64], key) is None


def test_types_have_to_be_known_and_equal():
    assert work("mm", [[4, 16], [16, 8]], types=[BF16, FLOAT]) is None
    assert work("mm", [[4, 16], [16, 8]], "c10::complex<float>") is None
    assert work("mm", [[4, 16], [16, 8]], types=[BF16]) is None
