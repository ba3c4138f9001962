"""Matrix products that stay far below what the device can do: for no known reason, misaligned, on old kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

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
from htareport.report.findings import Finding
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence
from htareport.rules.engine.wording import held_up

_OLD = re.compile(r"sm75|sm80|cutlass_(?:75|80)|ampere|volta|turing")
_DATA_CENTRE = (9, 10)  # Generations whose own instructions older kernels lack.
_GOOD, _FAIR = 0.85, 0.7  # Of the roof: what good kernels reach, and what most do.
_ALIGNED = 0.6  # What aligned products reach.
_FILLED = 0.75  # Blocks per processor: with fewer the size of the work is the limit.
_SHOWN = 3


def _saving(rank: Rank, chosen: list[Group], goal: float) -> NDArray[np.float64]:
    """What each device event takes less, ns, if all reach this share of their roof."""
    shares = np.zeros(len(work(rank).calls))
    for each in chosen:
        shares[each.calls] = max(1 - each.roof / goal, 0)
    return spread(rank, shares)


def _is_old(rank: Rank, group: Group) -> bool:
    """Whether a group runs a kernel for older devices than its own."""
    limits = limits_of(rank, [group.device])[group.device]
    return limits is not None and limits.generation in _DATA_CENTRE and _OLD.search(group.kernel) is not None


@dataclass(frozen=True, kw_only=True)
class RoofEvidence(WorkEvidence):
    """Operators below their roof."""

    groups: list[GroupSummary]  # Those of most time.
    count: int  # Of groups.
    time_ns: float  # Per step.
    roof_share: float
    low_share: float  # Of the saving: the lower estimate.


R = TypeVar("R", bound=RoofEvidence)


@dataclass(frozen=True, kw_only=True)
class MisalignedEvidence(RoofEvidence):
    """Misaligned matrix products: sizes of those of most time, with the next aligned ones."""

    pads: list[tuple[int, int]]
    elements: int  # That a kernel loads at once.


class _BelowRoof(Rule[R]):
    """What rules about operators below their roof have in common."""

    family, section = Family.COMPUTE, "compute_efficiency"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})
    goal: ClassVar[float] = _GOOD

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def evidence(self, rank: Rank, chosen: list[Group], low: float, **more: Any) -> R | None:
        """Evidence with the groups of most time first; `low` is the share of the roof of the lower estimate."""
        saving = _saving(rank, chosen, self.goal)
        claim = shortened(rank, saving)
        if rank.share(claim) < WORTH:
            return None
        most = sorted(chosen, key=lambda each: -each.time)
        high, less = (sum(each.time * max(1 - each.roof / goal, 0) for each in chosen) for goal in (self.goal, low))
        evidence: R = cast("Any", self.evidence_class())(
            claim=claim,
            spans=rank.spans(claim, name=most[0].signature.name),
            groups=[each.summary(rank.num_steps) for each in most[:_SHOWN]],
            count=len(chosen),
            time_ns=sum(each.time for each in chosen) / rank.num_steps,
            roof_share=sum(each.roof * each.time for each in chosen) / sum(each.time for each in chosen),
            low_share=less / high,
            requested_ns=asked(rank, saving),
            **more,
        )
        return evidence


def _listed(job: JobEvidence[R]) -> str:
    """The groups of most time, as a sentence each."""
    worst = job.worst
    each = (
        f"`{g.name}` {g.shapes} in {g.precision}: {job.percent(g.roof_share)} of its roof ({g.bound} "
        f"bound), {job.time(g.time_ns)} in {counted(g.calls, 'call')} {job.per_step}, kernel `{g.kernel}`"
        for g in worst.groups
    )
    more = f"; {worst.count - len(worst.groups)} more" if worst.count > len(worst.groups) else ""
    return "; ".join(each) + more + "."


@dataclass(frozen=True)
class BelowRoof(_BelowRoof[RoofEvidence]):
    """Matrix products stay far below what the device can do.

    ## When it speaks
    Products of equal shapes on the same kernel reach less than `below` of their roof (peak arithmetic or memory
    bandwidth, whichever is nearer) and take at least `least` of the step. Products of less than `short` µs, or with too
    few blocks to fill the device, are limited by their size and don't count; nor do those that are misaligned (C4), run
    old kernels (C5), are part of attention that is not fused (C6), leave a nearly empty wave (C10) or are narrow and
    could be computed together (C15).

    ## What it could save
    What they take above what 85 % of the roof takes, which good kernels reach; at 70 % for the lower estimate. Of that,
    what no other work covers and the host's launches allow.

    ## What to do
    Let PyTorch look for better kernels (`torch.compile` with `mode="max-autotune"`, on AMD
    `PYTORCH_TUNABLEOP_ENABLED=1`); make sizes multiples of 64 or 128; try the other layout of the operands.

    ## How to verify
    The share of the roof of these shapes in *Compute efficiency* rises.
    """

    code, title, is_general = "C1", "Matrix products far below the roof", True

    below: float = 0.6
    least: float = 0.01
    short: float = 20.0

    def look(self, rank: Rank) -> RoofEvidence | None:
        calls, count = work(rank).calls, processors(rank)
        room = np.array([count.get(device, 0) for device in calls["device"]]) * _FILLED
        number = blocks(rank)[calls["event"].to_numpy()]
        is_filled = (number == NONE) | (number >= room)
        wanted = of_kind(rank, Kind.PRODUCT) & ~is_unfused_attention(rank) & is_filled
        wanted &= ~context_of(rank).explained(rank, "C10", "C15")[calls["event"].to_numpy()]
        chosen = [
            group
            for group in groups(rank, wanted)
            if group.roof < self.below
            and group.mean >= 1000 * self.short
            and group.time >= self.least * rank.whole
            and not misaligned_sizes(group)
            and not _is_old(rank, group)
        ]
        return self.evidence(rank, chosen, _FAIR) if chosen else None

    def tell(self, job: JobEvidence[RoofEvidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"Matrix products reach {job.percent(worst.roof_share)} of what the device can do, for up to "
            f"{job.max_saving} {job.per_step}",
            evidence=_listed(job),
            low_ns=round(job.max_saving_ns * worst.low_share),
            assumption="85 % of the roof is reached; 70 % is the lower estimate." + held_up(job),
            snippet='model = torch.compile(model, mode="max-autotune")',
        )


@dataclass(frozen=True)
class Misaligned(_BelowRoof[MisalignedEvidence]):
    """Matrix products have sizes that keep their kernels from loading 16 bytes at once.

    ## When it speaks
    The kernel's name says that it loads fewer elements at a time (`align1`, `align2`, `align4`) than 16 bytes, it
    reaches less than 60 % of its roof in at least `short` µs, and such products take at least `least` of the compute
    time.

    ## What it could save
    What they take above what 60 % of the roof takes, which aligned products reach. Of that, what no other work covers
    and the host's launches allow.

    ## What to do
    {what|Pad the sizes}: multiples of {elements|8 (16 for 8-bit types, 4 for float32)} elements are loaded 16 bytes at
    a time. Masked or cut off behind, the padding changes no result.

    ## How to verify
    The names of their kernels say `align8`, or nothing of alignment.
    """

    code, title, goal = "C4", "Misaligned matrix products", _ALIGNED
    confidence = "high"

    least: float = 0.01
    short: float = 20.0

    def look(self, rank: Rank) -> MisalignedEvidence | None:
        chosen = [
            group
            for group in groups(rank, of_kind(rank, Kind.PRODUCT))
            if group.roof < self.goal and group.mean >= 1000 * self.short and misaligned_sizes(group)
        ]
        if not chosen or sum(each.time for each in chosen) < self.least * compute_time(rank):
            return None
        main = max(chosen, key=lambda each: each.time)
        known = main.signature.work
        elements = VECTOR // SIZES[known.dtype] if known else 1
        pads = [(size, -(-size // elements) * elements) for size in misaligned_sizes(main) if size]
        return self.evidence(rank, chosen, self.goal / 2, pads=pads, elements=elements)

    def tell(self, job: JobEvidence[MisalignedEvidence]) -> Finding | None:
        worst = job.worst
        pads = " and ".join(f"{size} to {padded}" for size, padded in worst.pads)
        what = f"Pad {pads}" if pads else "Make strides and offsets of the operands whole multiples of 16 bytes"
        sizes = [str(size) for size, _ in worst.pads] or ["Strides or offsets"]
        why = f"{' and '.join(sizes)} {'is' if len(worst.pads) == 1 else 'are'}"
        return self.finding(
            job,
            f"Misaligned matrix products cost up to {job.max_saving} {job.per_step}",
            evidence=f"{why} no multiple of {worst.elements} elements (16 bytes). {_listed(job)}",
            values={"what": what, "elements": str(worst.elements)},
            low_ns=round(job.max_saving_ns * worst.low_share),
            assumption="Aligned, they reach 60 % of the roof; half of that is the lower estimate." + held_up(job),
            snippet="x = F.pad(x, (0, -x.shape[-1] % 8))",
        )


@dataclass(frozen=True)
class OldKernels(_BelowRoof[RoofEvidence]):
    """Operators run kernels for older devices than this one.

    ## When it speaks
    On Hopper and Blackwell of the data centre, kernels whose names are of older generations (`cutlass_75`, `sm80`,
    `ampere`, …) run matrix products, convolutions or attention below `below` of the roof, for at least `short` µs each,
    and take at least `least` of the compute time. Where they are fast enough they are the library's good choice;
    where products are misaligned, that is the reason (C4).

    ## What it could save
    What they take above what 85 % of the roof takes; at 70 % for the lower estimate. Of that, what no other work covers
    and the host's launches allow.

    ## What to do
    The library falls back to them: look at types and layouts of the operands first; then at the build
    (`torch.cuda.get_arch_list()`) and a newer PyTorch.

    ## How to verify
    Kernels are named `sm90`, `sm100` or `nvjet`.
    """

    code, title, is_general = "C5", "Kernels for older devices", True

    below: float = 0.6
    least: float = 0.02
    short: float = 20.0

    def look(self, rank: Rank) -> RoofEvidence | None:
        chosen = [
            group
            for group in groups(rank, np.ones(len(work(rank).calls), np.bool_))
            if group.roof < self.below
            and group.mean >= 1000 * self.short
            and _is_old(rank, group)
            and not misaligned_sizes(group)
        ]
        if not chosen or sum(each.time for each in chosen) < self.least * compute_time(rank):
            return None
        return self.evidence(rank, chosen, _FAIR)

    def tell(self, job: JobEvidence[RoofEvidence]) -> Finding | None:
        return self.finding(
            job,
            f"Kernels for older devices run for up to {job.max_saving} {job.per_step} longer than needed",
            evidence=_listed(job),
            low_ns=round(job.max_saving_ns * job.worst.low_share),
            assumption="85 % of the roof is reached; 70 % is the lower estimate." + held_up(job),
        )
