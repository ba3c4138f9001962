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
    """The CPU reads each token before it launches the next one, and the GPU is idle meanwhile.

    ## When it speaks
    There is no backward pass. Right after a token is sampled (`multinomial`, or `argmax` over a vocabulary) the CPU
    waits for the GPU, and the idle gaps after these waits take at least `least` of the step. No other rule about
    waiting calls (H4, H5, H6, H7, H8) claims these gaps then.

    ## What it could save
    In each gap, at most the time that the CPU has spent in waiting calls since the previous gap.

    ## What to do
    Leave tokens on the GPU, copy them to the CPU during the next step, and test for the end of sequences only every few
    tokens. Inference engines call this asynchronous scheduling.

    ## How to verify
    The gaps after sampling are gone. `host_wait_pct` goes down in `htareport diff`.
    """

    code, title, kind, family = "I4", "Each token is read before the next is launched", Drain.SAMPLED, Family.INFERENCE

    least: float = 0.03

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        return self.wait_finding(
            job,
            "Reading each token leaves the GPU idle",
            "tokens.append(next_token)  # Stays on the device.\n"
            "if step % 16 == 0 and bool((next_token == end).all()):\n    break",
            prefix="Right after sampling tokens: ",
        )
