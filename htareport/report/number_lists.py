"""Lists of rank and step numbers as text: 0, 3-5."""

from __future__ import annotations

import re
from collections.abc import Collection

from htareport.errors import UsageError

_RANGES = re.compile(r"\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*", re.ASCII)


_MOST_NUMBERS = 1_000_000


def listed(numbers: Collection[int], most: int = 20) -> str:
    """Return numbers as the options take them: 0, 3-5; of very many pieces only the first."""
    runs = list[list[int]]()
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    pieces = list[str]()
    for run in runs:
        pieces += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)  # noqa: PLR2004  Two are as short.
    return ", ".join(pieces[:most]) + (f" and {len(pieces) - most} more" if len(pieces) > most else "")


def parse_numbers(text: str, what: str) -> frozenset[int]:
    """Read 0,3-5 as {0, 3, 4, 5}. UsageError on anything else."""
    if not _RANGES.fullmatch(text):
        raise UsageError(f"--{what} {text}: numbers and ranges such as 0,3-5 were expected")
    numbers = set[int]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        chosen = range(int(first), int(last or first) + 1)
        if not chosen:
            raise UsageError(f"--{what} {text}: {part} runs backwards")
        if len(chosen) > _MOST_NUMBERS:
            raise UsageError(f"--{what} {text}: {part} is more than a million numbers")
        numbers.update(chosen)
    return frozenset(numbers)
