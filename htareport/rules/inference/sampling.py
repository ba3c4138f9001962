"""A rule about tokens that the CPU reads before it launches the next."""

from __future__ import annotations

from dataclasses import dataclass

from htareport.rank.drains import Drain
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.host.sync import WaitEvidence, Waits


@dataclass(frozen=True)
class SampledOnHost(Waits):
    """The host reads each token before it launches the next, and the device is idle meanwhile.

    ## When it speaks
    There is no backward pass, and gaps after calls that wait for the device right after the sampling of a token
    (`multinomial`, `argmax` over a vocabulary) take at least `least` of the step. Then no other rule about waiting
    calls (H4, H5, H6, H7, H8) claims these gaps.

    ## What it could save
    In each gap, at most the time that the host has spent in waiting calls since the last one.

    ## What to do
    Leave tokens on the device, copy them to the host during the next step, and test for the end of sequences every few
    tokens. Inference engines call it asynchronous scheduling.

    ## How to verify
    The gaps after the sampling are gone. `host_wait_pct` goes down in `htareport diff`.
    """

    code, title, kind, family = "I4", "Each token is read before the next is launched", Drain.SAMPLED, Family.INFERENCE

    least: float = 0.03

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        return self.wait_finding(
            job,
            "Reading each token leaves the GPU idle",
            "tokens.append(next_token)  # Stays on the device.\n"
            "if step % 16 == 0 and bool((next_token == end).all()):\n    break",
            prefix="Right behind the sampling of tokens: ",
        )
