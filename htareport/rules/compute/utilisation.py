"""How much of a device's arithmetic a step uses, and where the rest goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htareport.rank.capability import Capability
from htareport.rank.communication import exposed
from htareport.rank.compute_time import calls_in_steps, compute_time, in_steps, unknown_limits, work
from htareport.rank.interval_sets import total
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

IDLE, COMMUNICATION, COPIES, OTHERS = "idle time", "exposed communication", "exposed copies", "kernels of other work"
MEMORY, BELOW, ARITHMETIC = "waiting for memory", "kernels below the roof", "the arithmetic itself"


@dataclass(frozen=True, kw_only=True)
class LowUtilisationEvidence(Evidence):
    """What was seen on one rank: little of the arithmetic is used."""

    mfu: float
    known: float
    parts: dict[str, float]


@dataclass(frozen=True)
class LowUtilisation(Rule[LowUtilisationEvidence]):
    """A step uses little of the device's arithmetic.

    ## When it speaks
    The device computes for at least `busy` of the step, but the operations whose number is known would take less than
    `below` of it at the device's peak (MFU); and operators with known operations make up at least `known` of the
    compute kernels' time. Where it computes for less, what it waits for is what other findings speak of.

    ## What it could save
    Nothing is claimed: other findings say what can be done. This one says where the time goes, from the peak to what is
    reached: idle time, exposed communication and copies, kernels of other work, and of matrix products, convolutions
    and attention what memory allows, what they take beyond that, and what the arithmetic takes at the peak.

    ## What to do
    - **idle time**: The device waits: the findings about the host and idle time come first.
    - **exposed communication**: Hide communication, or send less, before anything is done about kernels.
    - **exposed copies**: Pin memory, and copy ahead, beside the compute.
    - **kernels of other work**: It goes into work that is no matrix product, convolution or attention: fuse it
      (`torch.compile`).
    - **waiting for memory**: Products are so small or narrow that memory is their limit: larger batches, smaller types,
      fused layers.
    - **kernels below the roof**: Products stay below what the device can do for their size: see *Compute efficiency*.
    - **the arithmetic itself**: The arithmetic itself takes it: smaller types, if the model allows.

    ## How to verify
    *MFU* in *Compute efficiency* rises.
    """

    code, title, family, section = "C22", "Little of the arithmetic is used", Family.COMPUTE, "compute_efficiency"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})
    about_idle, confidence = True, "high"

    below: float = 0.3
    known: float = 0.7
    busy: float = 0.5

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def look(self, rank: Rank) -> LowUtilisationEvidence | None:
        if compute_time(rank) < self.busy * rank.whole:
            return None
        found, events = work(rank), rank.device_events
        calls = found.calls[calls_in_steps(rank)]
        peak, memory = calls["by_compute"].to_numpy(), calls["by_memory"].to_numpy()
        is_known = ~np.isnan(peak)
        every = np.append(~np.isnan(found.calls["by_compute"].to_numpy()), False)
        mine = in_steps(rank) & (events["kind"] == "compute").to_numpy()
        counted = mine & (found.owner != NONE) & every[found.owner]
        durations = events["dur"].to_numpy()
        kernels, modelled = int(durations[mine].sum()), int(durations[counted].sum())
        at_peak = float(peak[is_known].sum())
        if not kernels or modelled < self.known * kernels or not at_peak < self.below * rank.whole:
            return None
        time = np.maximum(calls["time"].to_numpy()[is_known], peak[is_known])
        roof = np.clip(np.maximum(peak, np.nan_to_num(memory))[is_known], peak[is_known], time)
        share = compute_time(rank) / kernels  # Of kernels beside each other each counts in part.
        parts = {
            IDLE: total(rank.idle),
            COMMUNICATION: total(exposed(rank)),
            COPIES: total(rank.busy()) - total(rank.busy("compute", "comm")),
            OTHERS: share * (kernels - modelled),
            MEMORY: share * float((roof - peak[is_known]).sum()),
            ARITHMETIC: at_peak,
        }
        parts[BELOW] = max(rank.whole - sum(parts.values()), 0.0)
        return LowUtilisationEvidence(
            mfu=at_peak / rank.whole,
            known=modelled / kernels,
            parts={name: float(ns) / rank.whole for name, ns in parts.items()},
        )

    def tell(self, job: JobEvidence[LowUtilisationEvidence]) -> Finding | None:
        rank, evidence = min(job.by_rank.items(), key=lambda item: (item[1].mfu, item[0]))
        worst = evidence
        largest = sorted(worst.parts.items(), key=lambda item: -item[1])
        told = ", ".join(f"{name} {job.percent(share)}" for name, share in largest if share > 0)
        return self.finding(
            job,
            f"{job.percent(worst.mfu)} of the device's arithmetic is used (MFU); the largest part of {job.window} "
            f"is {largest[0][0]}",
            severity=Severity.LOW,
            evidence=f"On rank {rank}, of {job.window}: {told}. Operations are known of {job.percent(worst.known)} of "
            "the compute kernels' time.",
            cases=(largest[0][0],),
        )
