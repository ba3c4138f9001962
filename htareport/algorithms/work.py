"""How much arithmetic and memory traffic an operator takes at least, from what it is called with.

Matrix products, convolutions and fused attention, forward and backward: what a model's arithmetic consists of. Each
tensor is taken to be read or written once. Anything else, and any call whose arguments leave a doubt, has no work here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from math import prod
from typing import Any, NamedTuple, TypeAlias

Shape: TypeAlias = tuple[int, ...]

SIZES = {
    "double": 8, "float": 4, "c10::Half": 2, "at::Half": 2, "c10::BFloat16": 2, "signed char": 1,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1, "c10::Float8_e4m3fnuz": 1, "c10::Float8_e5m2fnuz": 1,
}  # fmt: skip
"""Bytes of an element, by the name of its type in the trace."""


class Kind(StrEnum):
    """What an operator computes."""

    PRODUCT = "matrix product"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"


class Product(NamedTuple):
    """Sizes of a product of (m × k) by (k × n) matrices, `batch` of them."""

    batch: int
    m: int
    n: int
    k: int


class Work(NamedTuple):
    """Floating-point operations (2 for each multiplication with its addition) and bytes of one call."""

    kind: Kind
    flops: int
    bytes: int
    dtype: str
    product: Product | None = None
    groups: int = 1


class Call(NamedTuple):
    """What an operator is called with: of each argument its shape, type and value, as far as it has one."""

    shapes: Sequence[Any]
    types: Sequence[Any]
    values: Sequence[Any]

    def shape(self, index: int) -> Shape | None:
        """Shape of a tensor with elements, None for anything else."""
        found = self.shapes[index] if index < len(self.shapes) else None
        is_shape = isinstance(found, list) and found and _are(int, *found) and min(found) > 0
        return tuple(found) if isinstance(found, list) and is_shape else None

    def size(self, index: int) -> int:
        """Number of elements of a tensor that may be left out."""
        shape = self.shape(index)
        return prod(shape) if shape else 0

    def dtype(self, *indices: int) -> str | None:
        """Type of some tensors, None if they differ or it is not known."""
        found = {self.types[index] if index < len(self.types) else None for index in indices}
        name = next(iter(found))
        return name if len(found) == 1 and name in SIZES else None

    def value(self, index: int) -> Any:
        """A truth value, number or list of them; None for anything else."""
        text = self.values[index] if index < len(self.values) else None
        try:
            return json.loads(text.lower()) if isinstance(text, str) else None
        except ValueError:
            return None


def work_of(name: str, call: Call) -> Work | None:
    """The work of one call of an operator of WORKING; None where it can't be told."""
    return WORKING[name](call)


def _product(
    first: int, second: int, added: int | None = None, result: int | None = None
) -> Callable[[Call], Work | None]:
    """Product of two arguments, to which another may be added; `result` is the size of an element of the result."""

    def work(call: Call) -> Work | None:
        left, right, dtype = call.shape(first), call.shape(second), call.dtype(first, second)
        if left is None or right is None or dtype is None or len(left) != len(right) or len(left) not in {2, 3}:
            return None
        (*batch, m, k), (*other, inner, n) = left, right
        if k != inner or batch != other:
            return None
        sizes, size = Product(prod(batch), m, n, k), SIZES[dtype]
        read = prod(left) + prod(right) + (call.size(added) if added is not None else 0)
        moved = read * size + sizes.batch * m * n * (result or size)
        return Work(Kind.PRODUCT, 2 * sizes.batch * m * n * k, moved, dtype, sizes)

    return work


def _convolution(call: Call) -> Work | None:
    source, weight, dtype = call.shape(0), call.shape(1), call.dtype(0, 1)
    transposed, groups = call.value(6), call.value(8)
    if source is None or weight is None or dtype is None or len(source) != len(weight) or not _are(bool, transposed):
        return None
    count = len(source) - 2
    stride, padding, dilation, extra = (_spread(call.value(index), count) for index in (3, 4, 5, 7))
    if stride is None or padding is None or dilation is None or extra is None or not _are(int, groups) or 0 in stride:
        return None
    each = zip(source[2:], weight[2:], stride, padding, dilation, extra, strict=True)
    if transposed:
        result = [(size - 1) * s - 2 * p + d * (k - 1) + e + 1 for size, k, s, p, d, e in each]
    else:
        result = [(size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, p, d, _ in each]
    if any(size <= 0 for size in result):
        return None
    grown = source[0] * (weight[1] * groups if transposed else weight[0]) * prod(result)
    moved = (prod(source) + prod(weight) + call.size(2) + grown) * SIZES[dtype]
    places = source[2:] if transposed else result
    return Work(Kind.CONVOLUTION, 2 * source[0] * prod(places) * prod(weight), moved, dtype, groups=groups)


def _convolution_backward(call: Call) -> Work | None:
    grown, source, weight, dtype = call.shape(0), call.shape(1), call.shape(2), call.dtype(0, 1, 2)
    transposed, groups, wanted = (call.value(index) for index in (7, 9, 10))
    if grown is None or source is None or weight is None or dtype is None or len(source) != len(weight):
        return None
    if not _are(bool, transposed) or not _are(int, groups) or not isinstance(wanted, list) or not _are(bool, *wanted):
        return None
    times = sum(wanted[:2])  # The gradients of the input and of the weight; that of the bias takes next to nothing.
    places = source[2:] if transposed else grown[2:]
    moved = times * (prod(grown) + prod(source) + prod(weight)) * SIZES[dtype]
    flops = times * 2 * source[0] * prod(places) * prod(weight)
    return Work(Kind.CONVOLUTION, flops, moved, dtype, groups=groups) if times else None


def _are(kind: type, *values: Any) -> bool:
    return all(type(value) is kind for value in values)


def _spread(option: Any, count: int) -> Sequence[int] | None:
    """An option for each dimension, which may be given once for all; None if it is no such thing."""
    if not isinstance(option, list) or not _are(int, *option):
        return None
    each = option * count if len(option) == 1 else option
    return each if len(each) == count else None


def _attention(causal: int, *, first: int = 0, heads: int = 1, backward: bool = False) -> Callable[[Call], Work | None]:
    """Attention whose query, key and value begin at argument `first`; `heads` is the dimension of the heads.

    Backward computes the scores again, which counts: five products instead of two.
    """

    def work(call: Call) -> Work | None:
        query, key, value = (call.shape(first + each) for each in range(3))
        dtype, is_causal = call.dtype(first, first + 1, first + 2), call.value(causal)
        if query is None or key is None or value is None or dtype is None or not isinstance(is_causal, bool):
            return None
        if {len(query), len(key), len(value)} != {4} or query[::3] != key[::3] or key[:3] != value[:3]:
            return None
        if query[heads] % key[heads]:
            return None
        rows, columns, depth, width = query[3 - heads], key[3 - heads], query[3], value[3]
        pairs = _pairs(rows, columns) if is_causal else rows * columns
        result = prod(query[:3]) * width
        if backward:
            flops, moved = 3 * depth + 2 * width, 2 * (prod(query) + prod(key) + prod(value) + result)
        else:
            flops, moved = depth + width, prod(query) + prod(key) + prod(value) + result
        return Work(Kind.ATTENTION, 2 * query[0] * query[heads] * pairs * flops, moved * SIZES[dtype], dtype)

    return work


def _pairs(rows: int, columns: int) -> int:
    """Places on and below the diagonal."""
    square = min(rows, columns)
    return square * (square + 1) // 2 + max(rows - columns, 0) * columns


WORKING: dict[str, Callable[[Call], Work | None]] = {
    "aten::mm": _product(0, 1),
    "aten::bmm": _product(0, 1),
    "aten::addmm": _product(1, 2, added=0),
    "aten::_addmm_activation": _product(1, 2, added=0),
    "aten::baddbmm": _product(1, 2, added=0),
    "aten::_int_mm": _product(0, 1, result=4),
    "aten::_scaled_mm": _product(0, 1, result=2),
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::_scaled_dot_product_flash_attention": _attention(4),
    "aten::_scaled_dot_product_efficient_attention": _attention(6),
    "aten::_scaled_dot_product_cudnn_attention": _attention(6),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(11, first=1, backward=True),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(11, first=1, backward=True),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(14, first=1, backward=True),
    "aten::_flash_attention_forward": _attention(8, heads=2),
    "aten::_flash_attention_backward": _attention(11, first=1, heads=2, backward=True),
}
"""The operators whose work is known from their arguments, as PyTorch's schemas order them."""
