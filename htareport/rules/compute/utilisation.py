"""How much of the GPU's peak arithmetic a step uses (MFU), and where the time goes otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htareport.rank.capability import Capability
from htareport.rank.communication import exposed
from htareport.rank.compute_time import calls_in_steps, compute_time, in_steps, unknown_limits, work
from htareport.rank.interval_sets import total
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_IDLE, _COMMUNICATION, _COPIES = "idle time", "exposed communication", "exposed copies"
_OTHER_KERNELS, _MEMORY = "kernels of other work", "waiting for memory"
_BELOW_ROOF, _ARITHMETIC = "kernels below the roof", "the arithmetic itself"


@dataclass(frozen=True, kw_only=True)
class UtilisationEvidence(Evidence):
    """How much of the peak arithmetic a step uses, and where the time goes instead."""

    mfu: float
    modelled_share: float  # Of the compute kernels' time: what operators with known operations take.
    window_shares: dict[str, float]  # Of the step, by what it is spent on.


@dataclass(frozen=True)
class LowUtilisation(Rule[UtilisationEvidence]):
    """A step uses little of the GPU's peak arithmetic (MFU).

    ## When it speaks
    The GPU computes for at least `busy` of the step, but at its peak the operations of the step would take less than
    `below` of it (MFU). Operators whose number of operations is known take at least `known` of the compute kernels'
    time. Where the GPU computes for less of the step, other findings say what it waits for.

    ## What it could save
    Nothing is claimed: other findings say what can be done. This one divides the step into idle time, exposed
    communication, exposed copies, kernels of other work, and matrix products, convolutions and attention. The time of
    the last three is divided again: what the arithmetic takes at the peak, what memory needs beyond that, and what they
    take beyond the roof.

    ## What to do
    - **idle time**: Follow the findings about the CPU and idle time before you work on kernels.
    - **exposed communication**: Overlap communication with compute, or send fewer bytes, before you work on kernels.
    - **exposed copies**: Pin memory and copy ahead with `non_blocking=True`, so that copies overlap with compute.
    - **kernels of other work**: Fuse operators other than matrix products, convolutions and attention, for example with
      `torch.compile`.
    - **waiting for memory**: Use larger batches, smaller types or fused layers: products are so small or narrow that
      memory limits them.
    - **kernels below the roof**: Look in *Compute efficiency* for the shapes that stay far below what the GPU can do
      for their size.
    - **the arithmetic itself**: Use smaller types if the model allows it.

    ## How to verify
    *MFU* in *Compute efficiency* rises.
    """

    code, title, family, section = "C22", "Little of the peak arithmetic is used", Family.COMPUTE, "compute_efficiency"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})
    about_idle, confidence = True, "high"

    below: float = 0.3
    known: float = 0.7
    busy: float = 0.5

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def look(self, rank: Rank) -> UtilisationEvidence | None:
        if compute_time(rank) < self.busy * rank.whole:
            return None
        operators, events = work(rank), rank.device_events
        is_modelled = np.append(~np.isnan(operators.calls["by_compute"].to_numpy()), False)  # The last: of no call.
        is_compute = in_steps(rank) & (events["kind"] == "compute").to_numpy()
        durations = events["dur"].to_numpy()
        kernels_ns = int(durations[is_compute].sum())
        modelled_ns = int(durations[is_compute & is_modelled[operators.owner]].sum())
        calls = operators.calls[calls_in_steps(rank) & is_modelled[:-1]]
        peak, memory, time = (calls[name].to_numpy() for name in ("by_compute", "by_memory", "time"))
        peak_ns = float(peak.sum())
        if not kernels_ns or modelled_ns < self.known * kernels_ns or not peak_ns < self.below * rank.whole:
            return None
        roof = np.clip(np.maximum(peak, np.nan_to_num(memory)), peak, np.maximum(time, peak))
        share = compute_time(rank) / kernels_ns  # Kernels that run at the same time count in part.
        times = {
            _IDLE: total(rank.idle),
            _COMMUNICATION: total(exposed(rank)),
            _COPIES: total(rank.busy()) - total(rank.busy("compute", "comm")),
            _OTHER_KERNELS: share * (kernels_ns - modelled_ns),
            _MEMORY: share * float((roof - peak).sum()),
            _ARITHMETIC: peak_ns,
        }
        times[_BELOW_ROOF] = max(rank.whole - sum(times.values()), 0.0)
        return UtilisationEvidence(
            mfu=peak_ns / rank.whole,
            modelled_share=modelled_ns / kernels_ns,
            window_shares={name: float(ns) / rank.whole for name, ns in times.items()},
        )

    def tell(self, job: JobEvidence[UtilisationEvidence]) -> Finding | None:
        rank, worst = min(job.by_rank.items(), key=lambda item: (item[1].mfu, item[0]))
        by_share = sorted(worst.window_shares.items(), key=lambda item: -item[1])
        shares = ", ".join(f"{name} {job.percent(share)}" for name, share in by_share if share > 0)
        return self.finding(
            job,
            f"{job.percent(worst.mfu)} of the GPU's peak arithmetic is used (MFU); the largest part of {job.window} "
            f"is {by_share[0][0]}",
            severity=Severity.LOW,
            evidence=f"Parts of {job.window} on rank {rank}: {shares}. The number of operations is known for "
            f"{job.percent(worst.modelled_share)} of the compute kernels' time.",
            cases=(by_share[0][0],),
        )
