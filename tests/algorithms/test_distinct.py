import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htareport.algorithms.distinct import unique_sorted


@given(st.lists(st.integers(-5, 5)), st.sampled_from([np.int8, np.int32, np.int64, np.float64]))
def test_as_numpy(values, dtype):
    array = np.array(values, dtype)
    found = unique_sorted(array)
    assert found.dtype == array.dtype
    assert found.tolist() == sorted(set(values)) == np.unique(array).tolist()
    assert array.tolist() == values  # It is not changed.


@pytest.mark.parametrize("values", [[], ["b", "a", "b"]])
def test_words(values):
    assert unique_sorted(np.array(values, object)).tolist() == sorted(set(values))
