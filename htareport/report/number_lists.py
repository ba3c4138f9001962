"""Lists of rank and step numbers as text, such as 0, 3-5, and back."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from htareport.errors import UsageError

_RANGES = re.compile(r"\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*", re.ASCII)


_MIN_RANGE = 3
_MAX_NUMBERS = 1_000_000


def range_texts(numbers: Iterable[int], separator: str = "-") -> list[str]:
    """Return sorted numbers as texts: three or more in a row as a range, all others one by one."""
    runs = list[list[int]]()
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = list[str]()
    for run in runs:
        texts += [f"{run[0]}{separator}{run[-1]}"] if len(run) >= _MIN_RANGE else map(str, run)
    return texts


def listed(numbers: Collection[int], max_ranges: int = 20) -> str:
    """Return numbers as the options take them: 0, 3-5; of very many ranges only the first `max_ranges`."""
    texts = range_texts(numbers)
    return ", ".join(texts[:max_ranges]) + (f" and {len(texts) - max_ranges} more" if len(texts) > max_ranges else "")


def parse_numbers(text: str, option: str) -> frozenset[int]:
    """Read 0,3-5 as {0, 3, 4, 5}. UsageError on anything else."""
    if not _RANGES.fullmatch(text):
        raise UsageError(f"--{option} {text}: numbers and ranges such as 0,3-5 were expected")
    numbers = set[int]()
    for range_text in text.split(","):
        first, _, last = range_text.partition("-")
        number_range = range(int(first), int(last or first) + 1)
        if not number_range:
            raise UsageError(f"--{option} {text}: {range_text} runs backwards")
        if len(number_range) > _MAX_NUMBERS:
            raise UsageError(f"--{option} {text}: {range_text} is more than a million numbers")
        numbers.update(number_range)
    return frozenset(numbers)
