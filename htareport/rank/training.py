"""Whether a job trains or infers, so that what findings advise is possible for it."""

from __future__ import annotations

import re

from htareport.rank.host_rows import rows_named
from htareport.rank.rank import Rank

_BACKWARD = re.compile(r"^autograd::engine|Backward\d*$|^Optimizer\.step")


def trains(rank: Rank) -> bool:
    """Whether there is a backward pass or an optimizer."""
    return len(rows_named(rank, _BACKWARD)) > 0


def infers(rank: Rank) -> bool:
    """Whether operators are recorded, and none of a backward pass or an optimizer."""
    return bool(rank.host.of_level("operator").any()) and not trains(rank)
