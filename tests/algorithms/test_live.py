"""Memory levels, what is live, and thinning."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htareport.algorithms.live import growth, live_rows, running_total, thinned


def test_running_total():
    """Never negative: what is freed without having been allocated was there before."""
    assert running_total(np.array([5, -2, 4])).tolist() == [5, 3, 7]
    assert running_total(np.array([-5, 3, -4])).tolist() == [1, 4, 0]
    assert running_total(np.array([], np.int64)).tolist() == []


def test_live_rows():
    """An address that was freed and allocated again is live once."""
    addresses, sizes = np.array([1, 2, 1, 3, 1]), np.array([8, 8, -8, 8, 4])
    assert live_rows(addresses, sizes).tolist() == [1, 3, 4]
    assert live_rows(addresses[:3], sizes[:3]).tolist() == [1]


def test_thinned_keeps_the_largest():
    """One of each stretch of two."""
    assert thinned(np.array([1, 9, 3, 2, 5, 5]), 3).tolist() == [1, 2, 4]
    assert thinned(np.array([4, 4]), 3).tolist() == [0, 1]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=60), st.integers(1, 12))
def test_thinned(values, most):
    """No more than asked for, in order, the peak among them."""
    values = np.array(values, np.int64)
    rows = thinned(values, most)
    assert len(rows) == min(len(values), most)
    assert (np.diff(rows) > 0).all()
    assert values[rows].max() == values.max()


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=40))
def test_live_rows_against_a_dictionary(events):
    """Like keeping the books event by event."""
    addresses = np.array([address for address, _ in events], np.int64)
    sizes = np.array([8 if is_new else -8 for _, is_new in events], np.int64)
    books: dict[int, int] = {}
    for row, (address, is_new) in enumerate(events):
        books.pop(address, None)
        if is_new:
            books[address] = row
    assert live_rows(addresses, sizes).tolist() == sorted(books.values())


def test_growth_is_the_median_slope_of_all_pairs():
    """Slopes of 0, 10, 20, 60: 10, 10, 40; 10, 25; 20. The jump at the end does not carry it away."""
    assert growth(np.array([0, 10, 20, 60])) == (10 + 20) / 2
    assert growth(np.arange(10_000) * 3) == 3
    assert np.isnan(growth(np.array([5])))
    assert np.isnan(growth(np.zeros(0, np.int64)))
