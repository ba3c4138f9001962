"""Levels over time, against one value per tick."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htareport.algorithms import series

PROPERTY = settings(derandomize=True, deadline=None, max_examples=200, database=None)
SHIFT = 1_750_000_000_000_000_000


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-5, 5)), max_size=12))
def test_levels(changes):
    """After each stamp the sum of all changes up to it."""
    stamps, steps = (np.array([change[i] for change in changes], np.int64) for i in (0, 1))
    found, level = series.levels(stamps + SHIFT, steps)
    assert (found - SHIFT).tolist() == sorted({stamp for stamp, _ in changes})
    assert level.tolist() == [sum(step for at, step in changes if at <= stamp) for stamp in (found - SHIFT).tolist()]


@PROPERTY
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), min_size=1, max_size=10),
    st.integers(0, 6),
    st.booleans(),
)
def test_time_weighted(pieces, final, busy_only):
    """Statistics of a level are those of its value at every tick."""
    stamps = np.cumsum([0, *(length for length, _ in pieces)]) + SHIFT
    level = np.array([*(value for _, value in pieces), final], np.int64)
    ticks = np.repeat(level[:-1], np.diff(stamps))
    ticks = ticks[ticks > 0] if busy_only else ticks
    found = series.time_weighted(stamps, level, (0.0, 0.5, 0.95, 1.0), busy_only=busy_only)
    assert found.max == max(level)
    if not len(ticks):
        assert np.isnan([found.mean, found.std, found.min, *found.quantiles]).all()
        return
    assert found.mean == pytest.approx(ticks.mean())
    assert found.std == pytest.approx(ticks.std(), abs=1e-9)
    assert found.min == ticks.min()
    assert found.quantiles[0] == ticks.min()
    assert found.quantiles[-1] == ticks.max()
    for share, quantile in zip((0.5, 0.95), found.quantiles[1:3], strict=True):
        assert (ticks < quantile).mean() <= share + 1e-9
        assert (ticks <= quantile).mean() >= share - 1e-9


def test_nothing():
    """No stamps, no level."""
    empty = np.zeros(0, np.int64)
    assert [each.tolist() for each in series.levels(empty, empty)] == [[], []]
    assert np.isnan(series.time_weighted(empty, empty).max)
    assert np.isnan(series.time_weighted(np.array([5]), np.array([3])).mean)
