"""Equal and repeated runs of codes: on paper values, and against counting them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htareport.algorithms import sequences
from htareport.algorithms.sequences import Repeats, leading, numbers_of, repeats

words = st.lists(st.integers(0, 2), max_size=40)
PROPERTY = settings(derandomize=True, deadline=None, max_examples=100, database=None)


def found(text, *, shortest=2, longest=4, fewest=2, stretches=None):
    """Repeated runs of a text as {run: places}."""
    codes = np.array([ord(each) for each in text], np.int64)
    limits = np.zeros(len(codes), np.int64) if stretches is None else np.array(stretches)
    out = repeats(codes, limits, shortest=shortest, longest=longest, fewest=fewest)
    return {
        text[out.starts[out.run == run][0] :][: out.lengths[run]]: out.starts[out.run == run].tolist()
        for run in range(len(out.lengths))
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("abc", {}),
        ("abxab", {"ab": [0, 3]}),
        ("abcxabcyab", {"abc": [0, 4], "ab": [0, 4, 8]}),  # ab also occurs where no c follows.
        ("abcxabcybc", {"abc": [0, 4], "bc": [1, 5, 8]}),
        ("aaaa", {"aa": [0, 2]}),  # Of three occurrences two do not overlap; aaa has only one.
        ("abcdeabcde", {"abcd": [0, 5], "bcde": [1, 6]}),  # Longer than is looked at.
    ],
)
def test_on_paper(text, expected):
    assert found(text) == expected


def test_runs_stay_within_their_stretch():
    """Such as a stream."""
    assert found("ababab", stretches=[0, 0, 0, 1, 1, 1]) == {"ab": [0, 4], "ba": [1, 3]}
    assert found("abab", stretches=[0, 1, 2, 3]) == {}


def test_rare_runs_are_left_out():
    assert found("abxabyab", fewest=3) == {"ab": [0, 3, 6]}
    assert found("abxabyab", fewest=4) == {}


def everything(codes, stretches, shortest, longest):
    """Places of every run, by counting."""
    places = {}
    for length in range(shortest, longest + 1):
        for start in range(len(codes) - length + 1):
            if len(set(stretches[start : start + length])) == 1:
                places.setdefault(tuple(codes[start : start + length]), []).append(start)
    return places


def apart(starts, length):
    kept, free = [], -1
    for start in starts:
        if start >= free:
            kept.append(start)
            free = start + length
    return kept


@PROPERTY
@given(
    words, st.lists(st.booleans(), min_size=40, max_size=40), st.integers(1, 3), st.integers(0, 4), st.integers(2, 3)
)
def test_the_same_as_counting(codes, breaks, shortest, more, fewest):
    """Every run that is often enough, but for those that always are within one and the same longer run."""
    stretches, longest = np.cumsum(breaks[: len(codes)]), shortest + more
    out = repeats(np.array(codes, np.int64), stretches, shortest=shortest, longest=longest, fewest=fewest)
    ours = {}
    for run, length in enumerate(out.lengths.tolist()):
        starts = out.starts[out.run == run].tolist()
        ours[tuple(codes[starts[0] : starts[0] + length])] = starts
    assert len(ours) == len(out.lengths)
    places = everything(codes, stretches.tolist(), shortest, longest)
    expected = {}
    for run, starts in places.items():
        longer = [o for o in places if len(o) == len(run) + 1 and run in (o[:-1], o[1:])]
        always = any(len(places[o]) == len(starts) >= fewest for o in longer)
        kept = apart(starts, len(run))
        if len(kept) >= fewest and not always:
            expected[run] = kept
    assert ours == expected


@PROPERTY
@given(words, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=20))
def test_equal_runs_have_equal_numbers(codes, spans):
    """And different runs different ones."""
    spans = [(min(a, b, len(codes)), min(max(a, b), len(codes))) for a, b in spans]
    starts, stops = (np.array([span[i] for span in spans], np.int64) for i in (0, 1))
    numbers = numbers_of(starts, stops, np.array(codes, np.int64)).tolist()
    runs = [tuple(codes[a:b]) for a, b in spans]
    for i, one in enumerate(runs):
        for j, other in enumerate(runs):
            assert (numbers[i] == numbers[j]) == (one == other)


def test_leading_runs_are_about_different_places():
    """Of abcde and its shifted likes the first is taken, and then what is elsewhere."""
    runs = Repeats(
        np.array([3, 3, 2]), np.array([0, 0, 1, 1, 2, 2, 2]), np.array([0, 10, 1, 11, 2, 20, 30])
    )  # 0-2 and 10-12; 1-3 and 11-13; 2-3, 20-21, 30-31.
    assert leading(runs, np.array([0, 1, 2]), 40, 5).tolist() == [0, 2]
    assert leading(runs, np.array([1, 0, 2]), 40, 5).tolist() == [1, 2]
    assert leading(runs, np.array([0, 1, 2]), 40, 1).tolist() == [0]


def test_one_name_many_times():
    """A hundred thousand equal codes: long runs overlap themselves, and are counted in one go."""
    out = repeats(np.zeros(100_000, np.int64), np.zeros(100_000, np.int64), shortest=2, longest=16, fewest=3)
    assert out.lengths.max() == 16
    assert np.bincount(out.run)[out.lengths == 16].tolist() == [100_000 // 16]
    assert sequences.NOWHERE == -1
