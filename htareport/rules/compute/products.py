"""Matrix products far below the roof, misaligned matrix products, and kernels built for older GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from htareport.algorithms.work import SIZES, Kind
from htareport.rank.capability import Capability
from htareport.rank.compute_time import WORTH, asked, compute_time, shortened, spread, unknown_limits, work
from htareport.rank.kernel_grids import blocks, processors
from htareport.rank.operator_groups import (
    VECTOR,
    Group,
    GroupSummary,
    groups,
    is_unfused_attention,
    misaligned_sizes,
    of_kind,
)
from htareport.rank.operator_work import NONE, limits_of
from htareport.rank.rank import Rank
from htareport.rank.replay.edits import RankEdit
from htareport.report.findings import Finding
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence

_OLD_KERNEL = re.compile(r"sm75|sm80|cutlass_(?:75|80)|ampere|volta|turing")
_DATA_CENTRE_GENERATIONS = (9, 10)  # Those with instructions of their own, which older kernels do not use.
_GOOD, _FAIR = 0.85, 0.7  # Of the roof: what good kernels reach, and what most do.
_ALIGNED = 0.6  # What aligned products reach.
_MIN_BLOCKS_PER_PROCESSOR = 0.75  # With fewer the size of the product is the limit.
_MAX_GROUPS = 3  # In a sentence.


@dataclass(frozen=True, kw_only=True)
class RoofEvidence(WorkEvidence):
    """Operators below their roof, grouped by shapes and kernel."""

    groups: list[GroupSummary]  # Those of most time.
    num_groups: int
    roof_share: float
    low_share: float  # Of the saving: the lower estimate.


R = TypeVar("R", bound=RoofEvidence)


@dataclass(frozen=True, kw_only=True)
class MisalignedEvidence(RoofEvidence):
    """Misaligned matrix products: sizes of those of most time, each with the next aligned one."""

    padded_sizes: list[tuple[int, int]]
    elements: int  # That 16 bytes hold.


class _RoofRule(Rule[R]):
    """What rules about operators below their roof have in common."""

    family, section = Family.COMPUTE, "compute_efficiency"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)


def _roof_evidence(rank: Rank, below_roof: list[Group], goal: float, low_goal: float) -> RoofEvidence | None:
    """Return evidence of groups that could reach this share of their roof, `low_goal` at the lower estimate."""
    shares = np.zeros(len(work(rank).calls))
    for group in below_roof:
        shares[group.calls] = max(1 - group.roof / goal, 0)
    saving = spread(rank, shares)
    claim = shortened(rank, saving)
    if rank.share(claim) < WORTH:
        return None
    high, low = (sum(group.time * max(1 - group.roof / share, 0) for group in below_roof) for share in (goal, low_goal))
    by_time = sorted(below_roof, key=lambda group: -group.time)
    return RoofEvidence(
        claim=claim,
        spans=rank.spans(claim, name=by_time[0].signature.name),
        groups=[group.summary(rank.num_steps) for group in by_time[:_MAX_GROUPS]],
        num_groups=len(below_roof),
        roof_share=sum(group.roof * group.time for group in below_roof) / sum(group.time for group in below_roof),
        low_share=low / high,
        requested_ns=asked(rank, saving),
        edit=RankEdit(shorter_ns=saving),
    )


def _listed(job: JobEvidence[R]) -> str:
    """The groups of most time, as a sentence."""
    clauses = [
        f"`{group.name}` {group.shapes} in {group.precision}: {job.percent(group.roof_share)} of its roof "
        f"({group.bound} bound), {job.time(group.time_ns)} in {counted(group.calls, 'call')} {job.per_step}, kernel "
        f"`{group.kernel}`"
        for group in job.worst.groups
    ]
    if job.worst.num_groups > len(clauses):
        clauses.append(f"{job.worst.num_groups - len(clauses)} more")
    return "; ".join(clauses) + "."


@dataclass(frozen=True)
class BelowRoof(_RoofRule[RoofEvidence]):
    """Matrix products stay far below what the GPU can do.

    ## When it speaks
    Products of equal shapes on the same kernel reach less than `below` of their roof and take at least `least` of the
    step. The roof is the peak arithmetic or the memory bandwidth, whichever limits the product. Products of less than
    `short` µs, or with too few blocks to fill the GPU, are limited by their size and do not count. Products with a
    cause of their own do not count either: misaligned (C4), on old kernels (C5), part of attention that is not fused
    (C6), with a nearly empty last wave (C10), or narrow and repeated (C15).

    ## What it could save
    The time above what they take at 85 % of the roof, which good kernels reach. The lower estimate takes 70 %. Only
    what shortens the step counts: time that no other work covers, as far as the CPU launches early enough.

    ## What to do
    Let PyTorch search for faster kernels: `torch.compile` with `mode="max-autotune"`, or on AMD
    `PYTORCH_TUNABLEOP_ENABLED=1`. Make sizes multiples of 64 or 128. Try the other memory layout of the operands.

    ## How to verify
    These shapes reach a larger share of the roof in *Compute efficiency*.
    """

    code, title, is_general = "C1", "Matrix products far below the roof", True

    below: float = 0.6
    least: float = 0.01
    short: float = 20.0

    def look(self, rank: Rank) -> RoofEvidence | None:
        calls, num_processors = work(rank).calls, processors(rank)
        event_rows = calls["event"].to_numpy()
        min_blocks = np.array([num_processors.get(device, 0) for device in calls["device"]]) * _MIN_BLOCKS_PER_PROCESSOR
        num_blocks = blocks(rank)[event_rows]
        is_candidate = of_kind(rank, Kind.PRODUCT) & ((num_blocks == NONE) | (num_blocks >= min_blocks))
        is_candidate &= ~is_unfused_attention(rank) & ~context_of(rank).explained(rank, "C10", "C15")[event_rows]
        below_roof = [
            group
            for group in groups(rank, is_candidate)
            if group.roof < self.below
            and group.mean >= 1000 * self.short
            and group.time >= self.least * rank.whole
            and not misaligned_sizes(group)
            and not _is_old(rank, group)
        ]
        return _roof_evidence(rank, below_roof, _GOOD, _FAIR) if below_roof else None

    def tell(self, job: JobEvidence[RoofEvidence]) -> Finding | None:
        return self.finding(
            job,
            f"Matrix products reach {job.percent(job.worst.roof_share)} of what the GPU can do, which costs up to "
            f"{job.max_saving} {job.per_step}",
            evidence=_listed(job),
            low_ns=round(job.max_saving_ns * job.worst.low_share),
            assumption="They reach 85 % of the roof. In the lower estimate they reach 70 %.",
            snippet='model = torch.compile(model, mode="max-autotune")',
        )


@dataclass(frozen=True)
class Misaligned(_RoofRule[MisalignedEvidence]):
    """Sizes of matrix products keep their kernels from loading 16 bytes at once.

    ## When it speaks
    The kernel's name says that it loads fewer elements at once (`align1`, `align2`, `align4`) than 16 bytes hold. It
    takes at least `short` µs and reaches less than 60 % of its roof. Such products take at least `least` of the compute
    time.

    ## What it could save
    The time above what they take at 60 % of the roof, which aligned products reach. The lower estimate takes 30 %. Only
    what shortens the step counts: time that no other work covers, as far as the CPU launches early enough.

    ## What to do
    - **sizes**: Pad {pads|sizes to multiples of 8 elements (16 for 8-bit types, 4 for float32)}, so that kernels load
      16 bytes at once. Mask the padding or cut it off afterwards, so that results stay the same.
    - **strides**: Make strides and offsets of the operands multiples of 16 bytes, for example with `.contiguous()`.

    ## How to verify
    The names of their kernels say `align8`, or nothing about alignment.
    """

    code, title = "C4", "Misaligned matrix products"
    confidence = "high"

    least: float = 0.01
    short: float = 20.0

    def look(self, rank: Rank) -> MisalignedEvidence | None:
        misaligned = [
            group
            for group in groups(rank, of_kind(rank, Kind.PRODUCT))
            if group.roof < _ALIGNED and group.mean >= 1000 * self.short and misaligned_sizes(group)
        ]
        if not misaligned or sum(group.time for group in misaligned) < self.least * compute_time(rank):
            return None
        largest = max(misaligned, key=lambda group: group.time)
        operation, evidence = largest.signature.work, _roof_evidence(rank, misaligned, _ALIGNED, _ALIGNED / 2)
        if evidence is None or operation is None:
            return None
        elements = VECTOR // SIZES[operation.dtype]
        padded = [(size, -(-size // elements) * elements) for size in misaligned_sizes(largest) if size]
        return MisalignedEvidence(**vars(evidence), padded_sizes=padded, elements=elements)

    def tell(self, job: JobEvidence[MisalignedEvidence]) -> Finding | None:
        worst = job.worst
        pads = " and ".join(f"{size} to {padded}" for size, padded in worst.padded_sizes)
        sizes = " and ".join(str(size) for size, _ in worst.padded_sizes) or "Strides or offsets"
        return self.finding(
            job,
            f"Misaligned matrix products cost up to {job.max_saving} {job.per_step}",
            evidence=f"{sizes} {'is' if len(worst.padded_sizes) == 1 else 'are'} no multiple of {worst.elements} "
            f"elements (16 bytes). {_listed(job)}",
            cases=("sizes" if pads else "strides",),
            values={"pads": pads},
            low_ns=round(job.max_saving_ns * worst.low_share),
            assumption="Aligned, they reach 60 % of the roof. In the lower estimate they reach 30 %.",
            snippet="x = F.pad(x, (0, -x.shape[-1] % 8))",
        )


@dataclass(frozen=True)
class OldKernels(_RoofRule[RoofEvidence]):
    """Matrix products, convolutions or attention run kernels that were built for older GPUs.

    ## When it speaks
    On data-centre GPUs of the Hopper and Blackwell generations, kernels named after older ones (`cutlass_75`, `sm80`,
    `ampere`, …) run matrix products, convolutions or attention. They take at least `short` µs each, reach less than
    `below` of the roof, and take at least `least` of the compute time. Old kernels that are fast enough are a good
    choice of the library. Misaligned products are left to C4.

    ## What it could save
    The time above what they take at 85 % of the roof. The lower estimate takes 70 %. Only what shortens the step
    counts: time that no other work covers, as far as the CPU launches early enough.

    ## What to do
    Check types and layouts of the operands first: libraries fall back to older kernels for unusual ones. Then check
    that the build supports this GPU (`torch.cuda.get_arch_list()`), and try a newer PyTorch.

    ## How to verify
    Kernels are named `sm90`, `sm100` or `nvjet`.
    """

    code, title, is_general = "C5", "Kernels for older GPUs", True

    below: float = 0.6
    least: float = 0.02
    short: float = 20.0

    def look(self, rank: Rank) -> RoofEvidence | None:
        old = [
            group
            for group in groups(rank, np.ones(len(work(rank).calls), np.bool_))
            if group.roof < self.below
            and group.mean >= 1000 * self.short
            and _is_old(rank, group)
            and not misaligned_sizes(group)
        ]
        if not old or sum(group.time for group in old) < self.least * compute_time(rank):
            return None
        return _roof_evidence(rank, old, _GOOD, _FAIR)

    def tell(self, job: JobEvidence[RoofEvidence]) -> Finding | None:
        return self.finding(
            job,
            f"Kernels built for older GPUs cost up to {job.max_saving} {job.per_step}",
            evidence=_listed(job),
            low_ns=round(job.max_saving_ns * job.worst.low_share),
            assumption="They reach 85 % of the roof. In the lower estimate they reach 70 %.",
        )


def _is_old(rank: Rank, group: Group) -> bool:
    """Whether a group runs a kernel that was built for older GPUs than its own."""
    limits = limits_of(rank, [group.device])[group.device]
    if limits is None or limits.generation not in _DATA_CENTRE_GENERATIONS:
        return False
    return _OLD_KERNEL.search(group.kernel) is not None
