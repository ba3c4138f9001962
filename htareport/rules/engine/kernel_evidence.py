"""Evidence of compute kernels that could take less time: shared by the rules about what kernels compute in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.rank.compute_time import WORTH, asked, compute_time, shortened
from htareport.rank.kernel_types import events_of
from htareport.rank.rank import Rank
from htareport.report.units import counted
from htareport.rules.engine.evidence import Evidence, JobEvidence


def evidence_of(rank: Rank, mine: NDArray[np.bool_], left: NDArray[np.float64], **more: Any) -> Evidence | None:
    """Evidence of kernels that take less; `left` is what is left of the time of each."""
    events = events_of(rank)
    saving = np.where(mine, events.durations * (1 - left), 0.0)
    claim = shortened(rank, saving)
    if rank.share(claim) < WORTH:
        return None
    time = int(events.durations[mine].sum())
    numbers = {
        "kernels": events.kernels(mine),
        "time": time / rank.num_steps,
        "share": time / compute_time(rank),
        "asked": asked(rank, saving),
        **more,
    }
    return Evidence(claim=claim, numbers=numbers, spans=rank.spans(claim))


def listed(job: JobEvidence[Any]) -> str:
    """The kernels of most time, as words."""
    return ", ".join(
        f"`{name}` {job.time(time)} in {counted(count, 'call')}" for name, count, time in job.numbers["kernels"]
    )
