"""Evidence of compute kernels that could take less time: shared by the rules about what kernels compute in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from htareport.rank.compute_time import WORTH, asked, compute_time, shortened
from htareport.rank.kernel_types import events_of
from htareport.rank.rank import Rank
from htareport.rank.replay.edits import RankEdit
from htareport.report.units import counted
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence


@dataclass(frozen=True, kw_only=True)
class KernelEvidence(WorkEvidence):
    """Compute kernels that could take less time."""

    kernels: list[tuple[str, float, float]]  # Name, calls and ns per step, those of most time first.
    time_ns: float  # Per step.
    compute_share: float


K = TypeVar("K", bound=KernelEvidence)


def evidence_of(
    kind: type[K], rank: Rank, is_affected: NDArray[np.bool_], left: NDArray[np.float64], **more: Any
) -> K | None:
    """Evidence of some compute kernels; `left` is what share of the time of each would be left."""
    events = events_of(rank)
    saving = np.where(is_affected, events.durations * (1 - left), 0.0)
    claim = shortened(rank, saving)
    if rank.share(claim) < WORTH:
        return None
    time = int(events.durations[is_affected].sum())
    return kind(
        claim=claim,
        spans=rank.spans(claim),
        kernels=events.kernels(is_affected),
        time_ns=time / rank.num_steps,
        compute_share=time / compute_time(rank),
        requested_ns=asked(rank, saving),
        edit=RankEdit(shorter_ns=saving),
        **more,
    )


def listed(job: JobEvidence[K]) -> str:
    """The kernels of most time, as words."""
    return ", ".join(
        f"`{name}` {job.time(time)} in {counted(count, 'call')}" for name, count, time in job.worst.kernels
    )
