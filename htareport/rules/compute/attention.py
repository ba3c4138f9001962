"""Attention that writes its scores to memory instead of computing them tile by tile."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from math import prod

import numpy as np

from htareport.algorithms.work import SIZES
from htareport.rank.attention_chains import Chain, Scores, chains
from htareport.rank.capability import Capability
from htareport.rank.compute_time import WORTH, asked, shortened
from htareport.rank.rank import Rank
from htareport.rank.replay.host_edits import edit_of_fusion
from htareport.report import Unit
from htareport.report.findings import Finding
from htareport.report.units import text
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence

_MISALIGNED = re.compile(r"[a-z0-9_]*_align[124]\b")
_ALIGNED = 8  # Elements of two bytes that are loaded at once.


@dataclass(frozen=True)
class MainScores:
    """Attention scores of the sizes that take most time, and how they are computed."""

    batch: int
    rows: int
    columns: int
    bytes: int
    count: int  # How often they are computed, in all steps.
    misaligned_sizes: list[int]
    kernel: str  # The slow kernel that misaligned sizes lead to, empty without.
    is_fallback: bool  # Whether PyTorch chose it instead of a fused kernel.


@dataclass(frozen=True, kw_only=True)
class AttentionEvidence(WorkEvidence):
    """Attention that is not fused; times are of all steps."""

    scores: MainScores
    chains_ns: int
    softmax_ns: int
    num_steps: int
    low_share: float  # Of the saving: the lower estimate.


@dataclass(frozen=True)
class UnfusedAttention(Rule[AttentionEvidence]):
    """Attention writes its scores to memory, between two matrix products and a softmax.

    ## When it speaks
    Operators compute attention one by one: a product gives the scores, a softmax runs over them, and another product
    takes the result. With the scales, masks and dropout between them they take at least `least` of the step. Backward
    passes count. Fused attention leaves no such operators.

    ## What it could save
    The time above what fused attention needs for the same scores. It computes at 45 % of the GPU's peak, or moves its
    inputs and outputs through memory once, whichever takes longer. Where the GPU's limits are not known, everything but
    the products counts. Only what shortens the step counts: time that no other work covers, as far as the CPU launches
    early enough.

    ## What to do
    - **plain**: Call `torch.nn.functional.scaled_dot_product_attention` (in Transformers:
      `attn_implementation="sdpa"`). It takes any length, and masks as `attn_mask`. It returns no attention weights, so
      switch `output_attentions` and `need_weights` off.
    - **fallback**: The model calls `scaled_dot_product_attention`, which falls back to plain operators. Put `with
      torch.nn.attention.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION)` around the call: PyTorch then says why. Usual
      reasons are the type, head sizes that differ or are no multiples of 8, a mask that does not fit, and a backend
      that is switched off.

    ## How to verify
    *Kernels by operator* lists a fused operator instead of `aten::_softmax`.
    """

    code, title, family, section = "C6", "Attention is not fused", Family.COMPUTE, "compute_efficiency"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})
    confidence = "high"

    least: float = 0.02

    def look(self, rank: Rank) -> AttentionEvidence | None:
        slow_chains = [chain for chain in chains(rank) if chain.time > chain.fused]
        time = sum(chain.time for chain in slow_chains)
        if not slow_chains or time < self.least * rank.whole:
            return None
        durations = rank.device_events["dur"].to_numpy()
        saving = np.zeros(len(durations))
        for chain in slow_chains:
            saving[chain.events] = durations[chain.events] * (1 - chain.fused / chain.time)
        claim = shortened(rank, saving)
        if rank.share(claim) < WORTH:
            return None
        high, low = (sum(max(chain.time - times * chain.fused, 0) for chain in slow_chains) for times in (1, 2))
        return AttentionEvidence(
            claim=claim,
            spans=rank.spans(claim),
            scores=_main_scores(slow_chains),
            chains_ns=time,
            softmax_ns=sum(chain.softmax for chain in slow_chains),
            num_steps=rank.num_steps,
            low_share=low / high,
            requested_ns=asked(rank, saving),
            edit=edit_of_fusion(rank, saving, saving > 0),
        )

    def tell(self, job: JobEvidence[AttentionEvidence]) -> Finding | None:
        worst = job.worst
        lengths = f"{worst.scores.rows:,} × {worst.scores.columns:,}"
        evidence = (
            f"{_times(worst.scores.count / worst.num_steps)} {job.per_step}, products and a softmax write "
            f"{worst.scores.batch:,} × {lengths} scores ({text(worst.scores.bytes, Unit.BYTES)}) to memory and read "
            f"them again. All attention that is not fused takes {job.time(worst.chains_ns / worst.num_steps)}, of "
            f"which the softmax takes {job.time(worst.softmax_ns / worst.num_steps)}."
        )
        if misaligned := worst.scores.misaligned_sizes:
            evidence += (
                f" The products are slow as well: {' and '.join(map(str, misaligned))} "
                f"{'is' if len(misaligned) == 1 else 'are'} no multiple of {_ALIGNED}, so their kernels "
                f"(`{worst.scores.kernel}`) load few elements at a time."
            )
        words = " and has misaligned sizes" if misaligned else ""
        return self.finding(
            job,
            f"Attention is not fused{words}, which costs up to {job.max_saving} {job.per_step}",
            evidence=evidence,
            cases=("fallback" if worst.scores.is_fallback else "plain",),
            low_ns=round(job.max_saving_ns * worst.low_share),
            assumption="Fused attention reaches 45 % of the GPU's peak. The lower estimate is half of that.",
            snippet="out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
        )


def _times(number: float) -> str:
    return "Once" if number == 1 else f"{number:,.4g} times"


def _main_scores(slow_chains: list[Chain]) -> MainScores:
    """The sizes of scores whose chains take the most time."""
    times = defaultdict[Scores, int](int)
    for chain in slow_chains:
        times[chain.scores] += chain.time
    scores = max(times, key=lambda scores: times[scores])
    of_scores = [chain for chain in slow_chains if chain.scores == scores]
    longest = max(of_scores, key=lambda chain: chain.time)
    slow = _MISALIGNED.search(longest.kernel) if SIZES[longest.dtype] * _ALIGNED <= 16 else None  # noqa: PLR2004  bytes
    return MainScores(
        **scores._asdict(),
        bytes=prod(scores) * SIZES[longest.dtype],
        count=len(of_scores),
        misaligned_sizes=sorted({size for size in scores[1:] if size % _ALIGNED}) if slow else [],
        kernel=slow[0] if slow else "",
        is_fallback=longest.is_fallback,
    )
