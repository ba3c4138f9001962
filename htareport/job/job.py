"""What is known of a job once every rank was read: which ranks there are, when it began, whether it has steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """What is known of the whole run once every rank is mapped.

    `zero_ns` is the zero of all relative times: the earliest start of a complete event over all ranks, in ns since the
    epoch (or since whatever the files count from).
    """

    ranks: tuple[int, ...]
    zero_ns: int
    has_steps: bool
    salvaged: tuple[int, ...] = ()  # Ranks of which only a part is there: none of them is compared with others.
