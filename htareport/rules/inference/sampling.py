"""Tokens that the host reads before it launches the next."""

from __future__ import annotations

from dataclasses import dataclass

from htareport.rank.drains import Drain
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.host.sync import WaitEvidence, Waits, behind


@dataclass(frozen=True)
class SampledOnHost(Waits):
    """Each token is read by the host before it launches the next, and the device runs empty.

    ## When it speaks
    There is no backward pass, and gaps behind calls that wait for the device right behind the sampling of a token
    (`multinomial`, `argmax` over a vocabulary) take at least `least` of the step. Such gaps are of no rule about
    waiting calls (H4, H5, H6, H7, H8) then.

    ## What it could save
    In each gap, no more than the host has spent in waiting calls since the last one.

    ## What to do
    Leave tokens on the device, copy them to the host beside the next step, and test for the end of sequences every few
    tokens; engines call it asynchronous scheduling.

    ## How to verify
    The gaps behind the sampling are gone; *host wait* goes down.
    """

    code, title, kind, family = "I4", "Each token is read before the next is launched", Drain.SAMPLED, Family.INFERENCE

    least: float = 0.03

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        return self.finding(
            job,
            f"Reading each token leaves the GPU idle for {job.max_saving} {job.per_step}",
            evidence=f"Right behind the sampling of tokens: {behind(job)}",
            assumption="The host uses the time that it spent in the call to launch ahead.",
            snippet="tokens.append(next_token)  # Stays on the device.\n"
            "if step % 16 == 0 and bool((next_token == end).all()):\n    break",
        )
