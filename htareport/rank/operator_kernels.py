"""Device work that is launched within operators of certain names: shared by rules about what is moved."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.rank import kernel_launches
from htareport.rank.host_calls import innermost
from htareport.rank.host_rows import coded
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank


def within(rank: Rank, pattern: re.Pattern[str]) -> NDArray[np.int64]:
    """Row of the innermost operator of such a name around the launch of each device event, -1 for none."""
    host = rank.host
    named = coded(rank, pattern)[host["name"]] & host.of_level("operator")
    if not named.any():
        return np.full(len(rank.device_events), NONE, np.int64)
    return kernel_launches.around(rank, innermost(host, named))


def outside(rank: Rank, rows: NDArray[np.int64], pattern: re.Pattern[str]) -> NDArray[np.int64]:
    """Row of the innermost operator around each row of the host table that has no such name, -1 for none."""
    host = rank.host
    others = ~coded(rank, pattern)[host["name"]] & host.of_level("operator")
    outside: NDArray[np.int64] = innermost(host, others)[rows].astype(np.int64)
    return outside


def times_of(rank: Rank, names: list[Any], durations: NDArray[np.int64], most: int = 3) -> list[tuple[Any, float]]:
    """The names of most time, with that in ns per step; those without any are left out."""
    sums = Counter[Any]()
    for name, time in zip(names, durations.tolist(), strict=True):
        sums[name] += time
    longest = sorted(sums.items(), key=lambda item: (-item[1], str(item[0])))[:most]
    return [(name, time / rank.num_steps) for name, time in longest if round(time / rank.num_steps)]
