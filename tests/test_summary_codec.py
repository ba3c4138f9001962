"""Values as bytes and back."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from htareport.run.summary_codec import decode, encode


@dataclass(frozen=True)
class Place:
    """Something with fields."""

    name: str
    inner: Any = None


CLASSES = {"Place": Place}
VALUES = [
    None, True, 0, -(2**63), 2**63, -(10**30), 1.5, float("inf"), -0.0, "", "ü", "half \ud800 pair", b"", b"\0" * 100,
    [], (), {}, set(), frozenset({1, 2}), Counter({("a", 1): 2}), {(1, "b"): [{"c": (None,)}], None: 3},
    Place("x", Place("y", (1, 2))), np.float64(0.1), np.int16(-3), np.bool_(1), np.zeros((2, 0, 3), np.uint8),
    np.array([[1.5, np.nan]], np.float32), np.array(7),
]  # fmt: skip


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.parametrize("value", VALUES)
def test_values_are_the_same_to_the_type_and_bit(value):
    assert _same(value, decode(encode(value, CLASSES), CLASSES))


def test_what_stands_twice_is_written_once_and_is_one_object_again():
    """Also within each other, and behind values that are never shared."""
    inner, long = {"a": [2**70, "\udc00"]}, b"x" * 1000
    value = [long, (inner, 3), inner, long, Place("p", inner), np.arange(3), inner]
    data = encode(value, CLASSES)
    assert len(data) < 1200
    found = decode(data, CLASSES)
    assert found[0] is found[3]
    assert found[1][0] is found[2] is found[4].inner is found[6]
    assert found[2] == inner


def test_equal_bytes_are_written_once_whoever_made_them():
    """How large a value is does not depend on what else its process has packed before."""
    value = [b"x" * 1000, b"y" * 1000, bytes(bytearray(b"x" * 1000))]
    assert value[0] is not value[2]
    data = encode(value, CLASSES)
    assert len(data) < 2100
    assert decode(data, CLASSES) == value


def test_arrays_can_be_written_to():
    """As those can that were made here."""
    found = decode(encode(np.arange(3), {}), {})
    found[0] = 5
    assert found.tolist() == [5, 1, 2]


@pytest.mark.parametrize("value", [OrderedDict(), MappingProxyType({}), object(), np.array([object()]), Place, len, 1j])
def test_other_classes_are_refused(value):
    with pytest.raises(TypeError, match="a value of "):
        encode([value], CLASSES)


def test_a_class_that_the_reader_does_not_name_is_refused():
    data = encode(Place("x"), CLASSES)
    with pytest.raises(KeyError):
        decode(data, {})
