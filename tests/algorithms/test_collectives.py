"""Matching kernels across ranks, clocks, and who comes last."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htareport.algorithms.collectives import Clocks, Matched, agree, align, arrivals, chance, match


def array(*values):
    return np.array(values, np.int64)


def together(ranks, start, end):
    """Collectives of the same ranks: a row each."""
    start, end = np.array(start, np.int64), np.array(end, np.int64)
    rows = np.arange(start.size).reshape(start.shape)
    return Matched(array(*ranks), np.zeros(len(start), np.int64), rows, start, end)


def test_match_by_key_and_place():
    """Rows in any order; one row per rank; a kind that one rank has alone is left out."""
    rank, key, ordinal = array(1, 0, 1, 0, 5), array(7, 7, 7, 7, 9), array(1, 0, 0, 1, 0)
    count = array(2, 2, 2, 2, 1)
    [one] = match(rank, key, ordinal, count, (rank * 10, rank * 10 + 5))
    assert one.ranks.tolist() == [0, 1]
    assert one.rows.tolist() == [[1, 2], [3, 0]]
    assert one.key.tolist() == [7, 7]
    assert one.start.tolist() == [[0, 10], [0, 10]]
    assert one.end.tolist() == [[5, 15], [5, 15]]


def test_match_only_ranks_with_the_usual_count():
    """Rank 2 lacks a collective: its order says nothing."""
    rank, key = array(0, 0, 1, 1, 2), array(3, 3, 3, 3, 3)
    found = match(rank, key, array(0, 1, 0, 1, 0), array(2, 2, 2, 2, 1), (rank, rank))
    assert [one.ranks.tolist() for one in found] == [[0, 1]]


def test_of_equally_common_counts_the_larger():
    """Two ranks with one, two with two."""
    rank = array(0, 1, 2, 2, 3, 3)
    found = match(rank, rank * 0, array(0, 0, 0, 1, 0, 1), array(1, 1, 2, 2, 2, 2), (rank, rank))
    assert [one.ranks.tolist() for one in found] == [[2, 3]]


def test_match_nothing():
    """No rows, no collectives."""
    none = array()
    assert match(none, none, none, none, (none, none)) == []


def test_one_block_for_each_set_of_ranks():
    """Two groups of two ranks."""
    rank, key = array(0, 1, 2, 3), array(0, 0, 1, 1)
    found = match(rank, key, array(0, 0, 0, 0), array(1, 1, 1, 1), (rank, rank))
    assert sorted(one.ranks.tolist() for one in found) == [[0, 1], [2, 3]]


def test_align_takes_the_median():
    """Rank 1 is 100 ahead in two of three; the third is off. The middle of 0 and 100 is 50."""
    one = together([0, 1], [[0, 0]] * 3, [[10, 110], [20, 120], [30, 530]])
    clocks = align([one])
    assert clocks.offset == {0: -50, 1: 50}
    assert clocks.used == {0: 3, 1: 3}
    assert clocks.residual == {0: 0, 1: 0}


def test_groups_that_share_ranks_lie_on_one_clock():
    """Ranks 0, 1 and 2, 3 in pairs, 1 and 2 together: offsets 0, 10, 30, 60 around their middle."""
    pairs = [((0, 1), (0, 10)), ((2, 3), (30, 60)), ((1, 2), (10, 30))]
    blocks = [together(ranks, [[0, 0]], [[1000 + each for each in ends]]) for ranks, ends in pairs]
    assert align(blocks).offset == {0: -20, 1: -10, 2: 10, 3: 40}


def test_ranks_that_share_nothing_count_as_right():
    """Their offset is 0."""
    assert align([]).of(array(4, 7)).tolist() == [0, 0]


def test_arrivals():
    """Rank 5 is last by 30 after rank 3; the first end is 25 after that."""
    one = together([1, 3, 5], [[100, 120, 150]], [[180, 175, 182]])
    comes = arrivals(one, Clocks())
    assert comes.lateness.tolist() == [[0, 20, 50]]
    assert comes.wait.tolist() == [[50, 30, 0]]
    assert (comes.last.tolist(), comes.margin.tolist()) == ([2], [30])
    assert (comes.transfer.tolist(), comes.spread.tolist()) == ([25], [7])


def test_arrivals_on_one_clock():
    """A clock that is 100 ahead made rank 1 look last."""
    one = together([0, 1], [[100, 150]], [[200, 300]])
    comes = arrivals(one, Clocks({0: 0, 1: 100}))
    assert comes.lateness.tolist() == [[50, 0]]
    assert comes.transfer.tolist() == [100]


def test_transfer_is_never_negative():
    """Where a kernel ends before another begins, they don't belong together."""
    assert arrivals(together([0, 1], [[0, 50]], [[10, 60]]), Clocks()).transfer.tolist() == [0]


def test_agree():
    """Ends within 50 µs, or within 5 % of the duration."""
    one = together([0, 1], [[0, 0]] * 3, [[10_000, 60_000], [10_000, 60_001], [2_000_000, 2_100_000]])
    assert agree(one, Clocks()).tolist() == [True, False, True]


def test_chance():
    """Binomial tails: 4 of 5 at one in eight, all of 7 at one in two."""
    assert chance(4, 5, 1 / 8) == pytest.approx(5 * (1 / 8) ** 4 * 7 / 8 + (1 / 8) ** 5)
    assert chance(7, 7, 0.5) == pytest.approx(1 / 128)
    assert chance(0, 5, 0.1) == 1
    assert chance(6, 5, 0.1) == 0
    assert chance(1, 5, 0) == 0
    assert chance(3, 5, 1) == 1


@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=6),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=8),
)
def test_any_offsets_are_found_again(offsets, ends):
    """Where all end together, offsets come out up to a common shift, and nothing remains."""
    true = 2 * np.array(offsets, np.int64)  # Even, so that the middle of two is whole.
    end = 1_700_000_000_000_000_000 + np.array(ends, np.int64)[:, None] + true
    clocks = align([Matched(np.arange(len(true)), array(*[0] * len(ends)), end * 0, end - 5, end)])
    found = clocks.of(np.arange(len(true)))
    assert len(set((found - true).tolist())) == 1
    assert all(each == 0 for each in clocks.residual.values())


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=3, max_size=3), min_size=1, max_size=6))
def test_waits_and_lateness_add_up(starts):
    """Of each rank to the same sum, and the last one waits for nobody."""
    start = np.array(starts, np.int64)
    comes = arrivals(together([0, 1, 2], start, start + 10), Clocks())
    total = comes.lateness + comes.wait
    assert (total == total[:, :1]).all()
    assert (np.take_along_axis(comes.wait, comes.last[:, None], axis=1) == 0).all()
    assert (comes.margin <= total[:, 0]).all()
