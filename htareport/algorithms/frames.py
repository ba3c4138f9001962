"""Data frames by name, and stacking those of equal columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pandas as pd

Frames: TypeAlias = dict[str, pd.DataFrame]


def concat(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Stack frames of equal columns; an empty one keeps its columns and gives its dtypes to nobody."""
    full = [frame for frame in frames if len(frame)]
    return pd.concat(full, ignore_index=True) if full else frames[0].reset_index(drop=True)
