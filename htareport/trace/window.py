"""Which part of a trace the numbers are about."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.errors import UsageError

_RANGES = re.compile(r"\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*", re.ASCII)
_MOST_NUMBERS = 1_000_000


@dataclass(frozen=True)
class Window:
    """Everything recorded, unless narrowed: to some steps, to complete ones, or to what is launched before the last."""

    steps: frozenset[int] | None = None
    complete_only: bool = False
    without_last_step: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `all`, `complete`, or numbers and ranges such as 3,5-7. UsageError on anything else."""
        if text == "all":
            return cls()
        if text == "complete":
            return cls(complete_only=True)
        return cls(steps=parse_numbers(text, "steps"))

    def holds_steps(self, steps: pd.DataFrame, cut: frozenset[int]) -> NDArray[np.bool_]:
        """Which steps belong to the window."""
        numbers = steps["number"].to_numpy()
        keep = np.ones(len(steps), np.bool_)
        if self.steps is not None:
            keep &= np.isin(numbers, list(self.steps))
        if self.complete_only:
            keep &= ~np.isin(numbers, list(cut))
        if self.without_last_step and len(steps) > 1:
            keep &= steps["start"].to_numpy() < steps["start"].max()
        return keep

    def holds_events(
        self, events: pd.DataFrame, launches: pd.DataFrame, steps: pd.DataFrame, cut: frozenset[int]
    ) -> NDArray[np.bool_] | None:
        """Which device events belong to the window; None for all."""
        if self == ALL or not len(steps):
            return None
        if self.without_last_step:
            if len(steps) < 2:  # noqa: PLR2004  nothing would be left
                return None
            launch = events["launch"].to_numpy()
            starts = launches["ts"].to_numpy()
            return (launch >= 0) & (starts[np.maximum(launch, 0)] < steps["start"].max() if len(starts) else False)
        chosen = steps["number"].to_numpy()[self.holds_steps(steps, cut)]
        return np.isin(events["step"].to_numpy(), chosen)

    def describe(self) -> str:
        """Say in a sentence what is in and what is out."""
        if self.steps is not None:
            return f"steps {listed(self.steps)}: work of other steps, or outside steps, is left out"
        if self.complete_only:
            return "complete steps: work outside steps, or in a step whose work is cut off, is left out"
        if self.without_last_step:
            return "without the last step: work launched in or after it, or without a launch, is left out"
        return "everything recorded"


ALL = Window()


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
