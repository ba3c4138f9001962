"""Arithmetic in float32 and 16 bits that does not use what the device has for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time, unknown_limits
from htareport.rank.device_peaks import Device, Precision
from htareport.rank.kernel_types import events_of
from htareport.rank.precision import PLAIN
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.engine.kernel_evidence import KernelEvidence, evidence_of, listed

_SINGLE = re.compile(r"(?<![a-z])sgemm|convolve_sgemm|_simt_|ffma|(?<![a-z])scudnn|f32f32_f32f32|engine<float")
_CONVOLUTION = re.compile(r"cudnn|convolve|fprop|dgrad|wgrad|winograd")
_HALF_INPUT = re.compile(r"fp16|f16|half|bf16|bfloat", re.IGNORECASE)
_HALF = ("c10::Half", "at::Half", "c10::BFloat16")
_RUN = ("loss = model(batch)", "out = model(batch)")  # If it trains, and if it infers.
_FASTER = 3  # Times plain float32: what tensor cores do at least.


@dataclass(frozen=True, kw_only=True)
class TensorCoreEvidence(KernelEvidence):
    """What NoTensorCores sees on one rank."""

    best: str  # The type that the device computes fastest.
    is_half: bool


@dataclass(frozen=True)
class NoTensorCores(Rule[TensorCoreEvidence]):
    """Matrix products or convolutions run without tensor (matrix) cores on a device that has them.

    ## When it speaks
    Kernels named for plain arithmetic (`sgemm`, `scudnn`, …) take at least `least` of the compute time: in float32 on
    devices without TF32, convolutions in float32 on others, and 16-bit types anywhere. Convolutions in groups and
    devices that are not known don't count; products in float32 on devices with TF32 are rule C3's.

    ## What it could save
    What they take above what 16 bits take: at 60 % of the tensor cores' peak, or half of the bytes at 80 % of the
    bandwidth. Where shapes were not recorded, half of their time. Of that, what no other work covers and the host's
    launches allow.

    ## What to do
    - **16 bits**: Make channels and sizes multiples of 8 and convolutions `channels_last`, so that the library has
      kernels for tensor cores.
    - **training**: Train under `torch.autocast("cuda", dtype=torch.{dtype|bfloat16})`{scaler|}. Check the loss: numbers
      are coarser.
    - **inference**: Run under `torch.autocast("cuda", dtype=torch.{dtype|bfloat16})`. Check the results: numbers are
      coarser.

    ## How to verify
    Kernel names say `s16816`, `s884`, `tensorop`, `mfma` or the like.
    """

    code, title, family, section = "C2", "Tensor cores are not used", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})

    least: float = 0.02

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def look(self, rank: Rank) -> TensorCoreEvidence | None:
        events = events_of(rank)
        fast = events.on(lambda each: _peak(each) >= _FASTER * each.peaks[Precision.FP32])
        dtype, wanted = events.dtype, events.wanted & fast & ~events.is_grouped
        is_single = events.named(_SINGLE) & ~events.named(_HALF_INPUT) & np.isin(dtype, ["float", ""])
        without = events.on(lambda each: Precision.TF32 not in each.peaks)
        single = wanted & is_single & (without | (events.named(_CONVOLUTION) & ~events.is_product.astype(bool)))
        half = wanted & events.named(PLAIN) & np.isin(dtype, _HALF)
        mine = single | half
        if not mine.any() or events.durations[mine].sum() < self.least * compute_time(rank):
            return None
        best = Precision.BF16 if events.on(lambda each: Precision.BF16 in each.peaks)[mine].all() else Precision.FP16
        left = np.where(half, events.left(best, 1.0), events.left(best, 0.5))
        left = np.where(np.isnan(left), np.where(half, 1.0, 0.5), left)
        is_half = bool(events.durations[half].sum() > events.durations[single].sum())
        return evidence_of(TensorCoreEvidence, rank, mine, left, best=str(best), is_half=is_half)

    def tell(self, job: JobEvidence[TensorCoreEvidence]) -> Finding | None:
        worst = job.worst
        words = "16-bit types" if worst.is_half else "float32"
        dtype = "bfloat16" if worst.best == Precision.BF16 else "float16"
        scaler = "" if dtype == "bfloat16" or job.infers else " with a `torch.amp.GradScaler`"
        return self.finding(
            job,
            f"Matrix products and convolutions in {words} run without tensor cores: up to {job.max_saving} "
            f"{job.per_step}",
            evidence=f"Kernels for plain arithmetic are {job.percent(worst.compute_share)} of compute: {listed(job)}.",
            values={"dtype": dtype, "scaler": scaler},
            cases=("16 bits" if worst.is_half else job.purpose,),
            assumption="In 16 bits they reach 60 % of the peak or 80 % of the bandwidth; without recorded shapes, they "
            "take half.",
            snippet=""
            if worst.is_half
            else f'with torch.autocast("cuda", dtype=torch.{dtype}):\n    {_RUN[job.infers]}',
        )


def _peak(device: Device) -> float:
    """Peak of 16-bit arithmetic."""
    return max(device.peaks.get(each, 0.0) for each in (Precision.FP16, Precision.BF16))


@dataclass(frozen=True, kw_only=True)
class Tf32Evidence(KernelEvidence):
    """What NoTf32 sees on one rank."""

    low_share: float  # Of the saving: the lower estimate.


@dataclass(frozen=True)
class NoTf32(Rule[Tf32Evidence]):
    """Matrix products in float32 do not use TF32, though the device has it.

    ## When it speaks
    Kernels named for plain float32 (`sgemm`, `simt`, `ffma`) multiply matrices on NVIDIA devices whose TF32 is faster
    than float32, and take at least `least` of the compute time.

    ## What it could save
    `saved` of their time, but not more than 60 % of the peak in TF32 and 80 % of the bandwidth leave. Nothing for the
    lower estimate where shapes were not recorded. Of that, what no other work covers and the host's launches allow.

    ## What to do
    `torch.set_float32_matmul_precision("high")` rounds inputs of matrix products to 10 bits of mantissa; sums stay in
    float32. Or `torch.autocast` in bfloat16, which halves the bytes too. Check the {results|loss}.

    ## How to verify
    Kernel names say `tf32` or `s1688`.
    """

    code, title, family, section = "C3", "TF32 is off", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})

    least: float = 0.02
    saved: float = 0.6

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def look(self, rank: Rank) -> Tf32Evidence | None:
        events = events_of(rank)
        has = events.on(lambda each: each.peaks.get(Precision.TF32, 0) > each.peaks[Precision.FP32] * 1.5)
        is_product = events.is_product.astype(bool) | ((events.dtype == "") & ~events.named(_CONVOLUTION))
        is_single = events.named(_SINGLE) & ~events.named(_HALF_INPUT) & np.isin(events.dtype, ["float", ""])
        mine = events.wanted & has & is_single & is_product
        if not mine.any() or events.durations[mine].sum() < self.least * compute_time(rank):
            return None
        known = events.left(Precision.TF32, 1.0)
        left = np.fmax(known, 1 - self.saved)  # Of two the one that is known.
        told = np.where(np.isnan(known), 0.0, 1 - left)[mine]
        low = float((events.durations[mine] * told).sum() / (events.durations[mine] * (1 - left[mine])).sum() / 2)
        return evidence_of(Tf32Evidence, rank, mine, left, low_share=low)

    def tell(self, job: JobEvidence[Tf32Evidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"Matrix products in float32 run without TF32: up to {job.max_saving} {job.per_step}",
            evidence=f"Kernels for plain float32 are {job.percent(worst.compute_share)} of compute: {listed(job)}.",
            values={"results": "results"} if job.infers else None,
            low_ns=round(job.max_saving_ns * worst.low_share),
            assumption=f"They take {job.percent(1 - self.saved)} of their time, or what 60 % of the peak and 80 % of "
            "the bandwidth leave.",
            snippet='torch.set_float32_matmul_precision("high")',
        )
