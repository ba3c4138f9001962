"""Evidence of compute kernels that could take less time: shared by the rules about what kernels compute in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from htareport.rank.compute_time import WORTH, asked, compute_time, shortened
from htareport.rank.kernel_types import events_of
from htareport.rank.rank import Rank
from htareport.rank.replay.edits import RankEdit
from htareport.report.findings import Span
from htareport.report.units import counted
from htareport.rules.engine.evidence import Claim, JobEvidence, WorkEvidence


@dataclass(frozen=True, kw_only=True)
class KernelEvidence(WorkEvidence):
    """Compute kernels that could take less time."""

    kernels: list[tuple[str, float, float]]  # Name, calls and ns per step; those of most time.
    time_ns: float  # Per step.
    compute_share: float


class KernelFields(TypedDict):
    """The fields of `KernelEvidence`, to which the evidence of a rule adds its own."""

    claim: Claim
    spans: tuple[Span, ...]
    kernels: list[tuple[str, float, float]]
    time_ns: float
    compute_share: float
    requested_ns: float
    edit: RankEdit


K = TypeVar("K", bound=KernelEvidence)


def kernel_fields(
    rank: Rank, is_affected: NDArray[np.bool_], remaining_share: NDArray[np.float64] | float
) -> KernelFields | None:
    """What evidence says of affected kernels that could take this share of their time; None if that saves too little.

    The mask, and shares that differ from kernel to kernel, have one element for each device event.
    """
    events = events_of(rank)
    saving = np.where(is_affected, events.durations * (1 - remaining_share), 0.0)
    claim = shortened(rank, saving)
    if rank.share(claim) < WORTH:
        return None
    time = int(events.durations[is_affected].sum())
    return KernelFields(
        claim=claim,
        spans=rank.spans(claim),
        kernels=events.kernels(is_affected),
        time_ns=time / rank.num_steps,
        compute_share=time / compute_time(rank),
        requested_ns=asked(rank, saving),
        edit=RankEdit(shorter_ns=saving),
    )


def listed(job: JobEvidence[K]) -> str:
    """The kernels of most time, as words."""
    return ", ".join(
        f"`{name}` {job.time(time)} in {counted(count, 'call')}" for name, count, time in job.worst.kernels
    )
