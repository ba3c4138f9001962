"""Integers as few bytes: what comes out is what went in, and what goes up evenly takes next to nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htareport.algorithms.integers import coded

LEAST, MOST = -(2**63), 2**63 - 1


@given(st.lists(st.integers(LEAST, MOST)), st.booleans())
def test_integers_come_out_as_they_went_in(numbers, in_order):
    values = np.array(sorted(numbers) if in_order else numbers, np.int64)
    found = coded(values).values()
    assert found.dtype == np.int64
    assert found.tolist() == values.tolist()


@pytest.mark.parametrize(
    ("numbers", "width"),
    [
        ([], 0),
        ([7] * 9, 0),
        (range(10**18, 10**18 + 1000), 0),  # By one each.
        ([10**18, 10**18 + 255], 0),  # Two have one difference.
        ([10**18, 10**18 + 255, 10**18], 1),
        ([0, 70_000, 3], 3),
        ([LEAST, MOST, 0], 8),
    ],
)
def test_the_bytes_are_those_that_they_differ_by(numbers, width):
    found = coded(np.array(numbers, np.int64))
    assert found.width == width
    assert len(found.data) <= width * len(numbers)
