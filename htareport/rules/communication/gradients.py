"""Rules about reducing gradients: behind the backward pass, in its last bucket, in more bits than needed."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.rank.cached import cached_until_release
from htareport.rank.capability import Capability
from htareport.rank.communication import (
    SINGLE,
    awaited,
    compute,
    in_backward,
    is_of_layers,
    kernels,
    limited,
    moving,
    sets_of,
)
from htareport.rank.host_rows import per
from htareport.rank.interval_sets import common, minus, total
from htareport.rank.rank import Rank
from htareport.report import Unit
from htareport.report.findings import Finding
from htareport.report.units import counted, text
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_REDUCING = ("all_reduce", "reduce_scatter")
_SINGLE = re.compile(r"_f32|[_<]float\b")
_HALF = re.compile(
    r"f16|fp16|half|bfloat16|DF16|[sh]16816|hgemm|nvjet_[ht]s|Cijk_\w+_(?:HHS|BBS|HHH|BBH|HB|BB)_", re.IGNORECASE
)  # Of cuBLAS, CUTLASS, PyTorch, hipBLASLt (Tensile), MIOpen and composable kernels.
_MOST_SEARCHED = 512
_QUEUED_NS = 20_000  # A collective that starts so soon behind another had to wait for it.


@dataclass(frozen=True, kw_only=True)
class OverlapEvidence(Evidence):
    """Reductions of gradients, per step, and how much of them runs under compute."""

    hidden_share: float
    free_ns: float  # Compute of the backward pass without communication.
    time_ns: float
    calls: float


@dataclass(frozen=True)
class LittleOverlap(Rule[OverlapEvidence]):
    """Gradients are reduced behind the backward pass although it has compute that could hide them.

    ## When it speaks
    Less than `overlap` of the collectives that the backward pass launches is hidden under compute, and at least
    `least` of the step is exposed that would fit under the rest of the backward pass.

    ## What it could save
    In each step the exposed time of these collectives, but no more than the backward pass computes without any.

    ## What to do
    Let the first bucket be ready earlier: a smaller `bucket_cap_mb` than the default 25, `static_graph=True`,
    `find_unused_parameters=False`; under FSDP smaller blocks.

    ## How to verify
    *Of communication hidden* goes up.
    """

    code, title, family, section = "N2", "Gradients hardly overlap", Family.COMMUNICATION, "comm_overlap"
    requires = frozenset({Capability.GPU, Capability.COMM, Capability.LAUNCHES, Capability.HOST_OPS})
    about_idle = True

    overlap: float = 0.7
    least: float = 0.02

    def look(self, rank: Rank) -> OverlapEvidence | None:
        rows = gradients(rank)
        if not len(rows):
            return None
        events = rank.device_events
        back = events[(events["kind"] == "compute").to_numpy() & in_backward(rank, events)]
        mine = sets_of(rank, rows)
        hidden = total(common(mine, compute(rank))) / max(total(mine), 1)
        free = minus(sets_of(rank, back), rank.busy("comm"))
        claim = limited(rank, common(awaited(rank), mine), free)
        if hidden >= self.overlap or rank.share(claim) < self.least:
            return None
        every = per(rank)
        return OverlapEvidence(
            claim=claim,
            spans=rank.spans(claim),
            hidden_share=hidden,
            free_ns=total(free) / every,
            time_ns=total(mine) / every,
            calls=len(rows) / every,
        )

    def tell(self, job: JobEvidence[OverlapEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"The backward pass could hide {job.max_saving} more of the gradients' communication {job.per_step}",
            evidence=f"It launches {counted(worst.calls, 'collective')} of {job.time(worst.time_ns)} {job.per_step}, "
            f"of "
            f"which {job.percent(worst.hidden_share)} run under compute, while {job.time(worst.free_ns)} of its "
            f"compute run "
            "without communication.",
            assumption="Collectives fill the backward pass from its start.",
            snippet="DistributedDataParallel(model, bucket_cap_mb=5, static_graph=True, gradient_as_bucket_view=True)",
        )


@cached_until_release
def gradients(rank: Rank) -> pd.DataFrame:
    """Collectives that reduce gradients: launched in the backward pass, on a group that is not one of a layer's own."""
    rows = kernels(rank)
    reducing = rows["collective"].str.startswith(_REDUCING).to_numpy(dtype=bool)
    return rows[reducing & ~is_of_layers(rows) & in_backward(rank, rows)]


@dataclass(frozen=True, kw_only=True)
class TailBucketEvidence(Evidence):
    """What was seen on one rank: the last bucket is reduced alone."""

    what: str
    time: float
    bytes: float
    share: float


@dataclass(frozen=True)
class TailBucket(Rule[TailBucketEvidence]):
    """The last gradients are reduced when the backward pass is over, and everything waits for them.

    ## When it speaks
    The last collective of a backward pass starts when its compute has ended, not because another one kept it waiting,
    and is exposed for at least `least` of the step.

    ## What it could save
    Its exposed time, as far as it moves bytes (the shortest of its kind), but for a quarter: what a bucket a quarter as
    large takes.

    ## What to do
    Make the last bucket smaller with a lower `bucket_cap_mb`. It holds the first layers' parameters: large embeddings
    there make it large.

    ## How to verify
    The last collective of the step is shorter.
    """

    code, title, family, section = "N12", "The last bucket is reduced alone", Family.COMMUNICATION, "collectives"
    requires = frozenset({Capability.GPU, Capability.COMM, Capability.LAUNCHES, Capability.HOST_OPS})
    about_idle = True

    least: float = 0.02

    def look(self, rank: Rank) -> TailBucketEvidence | None:
        rows = _tails(rank)
        if not len(rows):
            return None
        least = moving(rows)
        claim = common(awaited(rank), sets_of(rank, rows.assign(ts=rows["end"] - least, end=rows["end"] - least // 4)))
        if rank.share(claim) < self.least:
            return None
        return TailBucketEvidence(
            claim=claim,
            spans=rank.spans(claim, name=str(rows["what"].iloc[-1])),
            what=rows["what"].iloc[-1],
            time=float(rows["dur"].mean()),
            bytes=float(rows["bytes"].mean()),
            share=float(rows["dur"].sum() / max(gradients(rank)["dur"].sum(), 1)),
        )

    def tell(self, job: JobEvidence[TailBucketEvidence]) -> Finding:
        worst = job.worst
        size = f" of {text(worst.bytes, Unit.BYTES)}" if np.isfinite(worst.bytes) else ""
        return self.finding(
            job,
            f"The last bucket of gradients is reduced alone, {job.max_saving} {job.per_step}",
            evidence=f"When the backward pass has computed everything, {worst.what}{size} takes another "
            f"{job.time(worst.time)}, {job.percent(worst.share)} of the time of all gradients.",
            assumption="A bucket a quarter as large takes a quarter of the time.",
            snippet="DistributedDataParallel(model, bucket_cap_mb=5, gradient_as_bucket_view=True)",
        )


def _tails(rank: Rank) -> pd.DataFrame:
    """The last gradient collective of each step, where it starts behind the backward pass and behind no other."""
    tails: pd.DataFrame
    rows, events = gradients(rank), rank.device_events
    if not len(rows):
        return rows
    keys = ["device", "capture", "step"]
    back = events.loc[(events["kind"] == "compute").to_numpy() & in_backward(rank, events), [*keys, "end"]]
    over = back.groupby(keys, observed=True)["end"].max().rename("over").reset_index()
    last = rows.sort_values("ts").groupby(keys, observed=True).tail(1).merge(over, on=keys)
    last = last[last["ts"] >= last["over"]]
    ends = np.sort(kernels(rank)["end"].to_numpy())
    place = np.searchsorted(ends, last["ts"].to_numpy(), side="right") - 1
    free = (place < 0) | (last["ts"].to_numpy() - ends[np.maximum(place, 0)] > _QUEUED_NS)
    tails = last[free]
    return tails


@dataclass(frozen=True, kw_only=True)
class SinglePrecisionGradientsEvidence(Evidence):
    """What was seen on one rank: gradients are reduced in fp32."""

    half: float
    bytes: float
    what: str


@dataclass(frozen=True)
class SinglePrecisionGradients(Rule[SinglePrecisionGradientsEvidence]):
    """Gradients are reduced in fp32 although the model computes in half precision.

    ## When it speaks
    At least `half` of the time of compute kernels is in those with half precision in their name, and fp32 gradients
    take at least `least` of the communication that compute waits for.

    ## What it could save
    Half of their exposed time, as far as they move bytes (the shortest of its kind).

    ## What to do
    Reduce in bf16: a communication hook (DDP), `reduce_dtype` (FSDP). Check the loss: sums over very many ranks lose
    precision.

    ## How to verify
    The bytes of the collective halve in *Collectives*.
    """

    code, title, family, section = "N20", "Gradients are reduced in fp32", Family.COMMUNICATION, "collectives"
    requires = frozenset({Capability.GPU, Capability.COMM, Capability.LAUNCHES, Capability.HOST_OPS})
    about_idle = True

    half: float = 0.5
    least: float = 0.3

    def look(self, rank: Rank) -> SinglePrecisionGradientsEvidence | None:
        rows = gradients(rank)
        rows = rows[_in_single(rows)]
        if not len(rows):
            return None
        exposed = common(awaited(rank), sets_of(rank, rows))
        share = _half_precision(rank)
        if share < self.half or total(exposed) < self.least * total(awaited(rank)):
            return None
        half = sets_of(rank, rows.assign(ts=rows["end"] - moving(rows) // 2))
        return SinglePrecisionGradientsEvidence(
            claim=common(exposed, half),
            spans=rank.spans(exposed, name=str(rows["what"].iloc[0])),
            half=share,
            bytes=rows["bytes"].sum(min_count=1) / per(rank),
            what=rows["what"].iloc[0],
        )

    def tell(self, job: JobEvidence[SinglePrecisionGradientsEvidence]) -> Finding:
        worst = job.worst
        size = f"{text(worst.bytes, Unit.BYTES)} {job.per_step}" if np.isfinite(worst.bytes) else "gradients"
        return self.finding(
            job,
            f"Gradients are reduced in fp32: {job.max_saving} {job.per_step} could be saved in bf16",
            evidence=f"{worst.what} moves {size} as fp32, while {job.percent(worst.half)} of compute time is in "
            "kernels of half precision.",
            assumption="Half the bytes take half the time that moves bytes.",
            snippet="from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook\n"
            "model.register_comm_hook(state=None, hook=bf16_compress_hook)",
        )


def _in_single(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Which collectives move fp32, by their arguments, else by their name."""
    named = rows["name"].astype(object).str.contains(_SINGLE).to_numpy(dtype=bool)
    given = rows["dtype"].to_numpy()
    return np.where(given == "", named, np.isin(given, SINGLE)).astype(np.bool_)


def _half_precision(rank: Rank) -> float:
    """Share of compute time in kernels that have half precision in their name."""
    events = rank.device_events
    events = events[(events["kind"] == "compute").to_numpy()]
    if not len(events):
        return 0.0
    used, number = np.unique(events["name"].cat.codes.to_numpy(), return_inverse=True)
    names = (rank.loaded.strings[code] for code in used.tolist())
    half = np.array([_HALF.search(name[:_MOST_SEARCHED]) is not None for name in names], np.bool_)
    time = events["dur"].to_numpy()
    return float(time[half[number]].sum() / max(time.sum(), 1))
