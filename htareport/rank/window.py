"""Which part of a trace the numbers are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.report.number_lists import listed, parse_numbers


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
