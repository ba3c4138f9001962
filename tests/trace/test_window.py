"""Numbers and ranges of the command line."""

from __future__ import annotations

import pytest

from htareport.errors import UsageError
from htareport.rank.window import ALL, Window
from htareport.report.number_lists import parse_numbers


@pytest.mark.parametrize(
    ("text", "numbers"), [("0", {0}), ("3,5", {3, 5}), ("3-7,5,9-9", {3, 4, 5, 6, 7, 9}), ("007", {7})]
)
def test_numbers(text, numbers):
    """Single ones and ranges, in any order."""
    assert parse_numbers(text, "ranks") == numbers
    assert Window.parse(text).steps == numbers


@pytest.mark.parametrize(
    "text", ["", "x", "3-", "-3", "1,,2", "1 2", "5-3", "1-2-3", "0-99999999", "9" * 5000, "٣", "All"]
)
def test_anything_else(text):
    """Is wrong usage, and takes no time."""
    with pytest.raises(UsageError, match="--ranks"):
        parse_numbers(text, "ranks")
    with pytest.raises(UsageError, match="--steps"):
        Window.parse(text)


def test_words():
    """All is the window that narrows nothing; each describes itself."""
    assert Window.parse("all") == ALL
    windows = [ALL, Window.parse("complete"), Window.parse("2,1"), Window(without_last_step=True)]
    texts = [window.describe() for window in windows]
    assert len(set(texts)) == 4
    assert texts[2].startswith("steps 1, 2:")
