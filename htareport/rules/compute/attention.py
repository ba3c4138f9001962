"""Attention that writes its scores to memory instead of computing them tile by tile."""

from __future__ import annotations

import re
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
    """The sizes of attention scores that take most time, and how they are computed."""

    batch: int
    rows: int
    columns: int
    bytes: int
    count: int  # Of chains with these sizes, in all steps.
    misaligned_sizes: list[int]
    kernel: str  # The slow kernel that misaligned sizes lead to, empty without.
    is_fallback: bool  # Whether PyTorch chose it instead of a fused kernel.


@dataclass(frozen=True, kw_only=True)
class AttentionEvidence(WorkEvidence):
    """Attention that is not fused, in all steps."""

    scores: MainScores
    chains_ns: int
    softmax_ns: int
    num_steps: int
    low_share: float


@dataclass(frozen=True)
class UnfusedAttention(Rule[AttentionEvidence]):
    """Attention writes its scores to memory, between two matrix products and a softmax.

    ## When it speaks
    A softmax over the result of a product, which another product takes, takes at least `least` of the step, with
    scales, masks and dropout over the scores between them. Backward passes count. Fused attention leaves no such
    operators.

    ## What it could save
    What they take, but for what fused attention needs for the same: 45 % of the device's peak, or its inputs and
    outputs once through memory. Where the device's limits are not known, everything but the products. Of that, what no
    other work covers and the host's launches allow.

    ## What to do
    - **plain**: Call `torch.nn.functional.scaled_dot_product_attention` (in Transformers:
      `attn_implementation="sdpa"`). It takes any length, and masks as `attn_mask`. It returns no attention weights:
      `output_attentions` and `need_weights` have to be off.
    - **fallback**: `scaled_dot_product_attention` is called, but runs its fallback of plain operators. `with
      torch.nn.attention.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION)` around it makes PyTorch say why: the type, head
      sizes that differ or are no multiples of 8, a mask that does not fit, or a backend that is switched off.

    ## How to verify
    `aten::_softmax` is gone from *Kernels by operator*, and a fused operator has its time.
    """

    code, title, family, section = "C6", "Attention is not fused", Family.COMPUTE, "compute_efficiency"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})
    confidence = "high"

    least: float = 0.02

    def look(self, rank: Rank) -> AttentionEvidence | None:
        found = [chain for chain in chains(rank) if chain.time > chain.fused]
        time = sum(each.time for each in found)
        if not found or time < self.least * rank.whole:
            return None
        durations = rank.device_events["dur"].to_numpy()
        saving = np.zeros(len(durations))
        for each in found:
            saving[each.events] = durations[each.events] * (1 - each.fused / each.time)
        claim = shortened(rank, saving)
        if rank.share(claim) < WORTH:
            return None
        high, low = (sum(max(each.time - times * each.fused, 0) for each in found) for times in (1, 2))
        return AttentionEvidence(
            claim=claim,
            spans=rank.spans(claim),
            scores=_main_scores(found),
            chains_ns=time,
            softmax_ns=sum(each.softmax for each in found),
            num_steps=rank.num_steps,
            low_share=low / high,
            requested_ns=asked(rank, saving),
            edit=edit_of_fusion(rank, saving, saving > 0),
        )

    def tell(self, job: JobEvidence[AttentionEvidence]) -> Finding | None:
        worst = job.worst
        lengths = f"{worst.scores.rows:,} × {worst.scores.columns:,}"
        evidence = (
            f"{_times(worst.scores.count / worst.num_steps)} {job.per_step}, products and a softmax over "
            f"{worst.scores.batch:,} × {lengths} "
            f"scores ({text(worst.scores.bytes, Unit.BYTES)}) write and read them; all that is over scores takes "
            f"{job.time(worst.chains_ns / worst.num_steps)}, softmax alone "
            f"{job.time(worst.softmax_ns / worst.num_steps)}."
        )
        if worst.scores.misaligned_sizes:
            evidence += (
                f" The products are slow besides: {' and '.join(map(str, worst.scores.misaligned_sizes))} is no "
                f"multiple of {_ALIGNED}, so "
                f"their kernels (`{worst.scores.kernel}`) load few elements at a time."
            )
        words = "Unfused and misaligned" if worst.scores.misaligned_sizes else "Unfused"
        return self.finding(
            job,
            f"{words} attention over {lengths} scores: fused, it takes up to {job.max_saving} less {job.per_step}",
            evidence=evidence,
            cases=("fallback" if worst.scores.is_fallback else "plain",),
            low_ns=round(job.max_saving_ns * worst.low_share),
            assumption="Fused attention reaches 45 % of the device's peak; the lower estimate is half of that.",
            snippet="out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
        )


def _times(number: float) -> str:
    return "Once" if number == 1 else f"{number:,.4g} times"


def _main_scores(found: list[Chain]) -> MainScores:
    """The sizes of scores whose chains take the most time."""
    sums = dict[Scores, int]()
    for each in found:
        sums[each.scores] = sums.get(each.scores, 0) + each.time
    most = max(sums, key=lambda scores: sums[scores])
    main = max((each for each in found if each.scores == most), key=lambda each: each.time)
    slow = _MISALIGNED.search(main.kernel) if SIZES[main.dtype] * _ALIGNED <= 16 else None  # noqa: PLR2004  bytes
    odd = sorted({size for size in most[1:] if size % _ALIGNED}) if slow else []
    return MainScores(
        **most._asdict(),
        bytes=prod(most) * SIZES[main.dtype],
        count=sum(each.scores == most for each in found),
        misaligned_sizes=odd,
        kernel=slow[0] if slow else "",
        is_fallback=main.is_fallback,
    )
