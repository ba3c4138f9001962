"""Arithmetic in float32 and 16-bit types that does not use tensor cores or TF32, although the GPU has them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time, unknown_limits
from htareport.rank.device_peaks import Device, Precision
from htareport.rank.kernel_types import Events, events_of
from htareport.rank.precision import PLAIN
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence
from htareport.rules.engine.kernel_evidence import KernelEvidence, kernel_fields, listed

_SINGLE = re.compile(r"(?<![a-z])sgemm|convolve_sgemm|_simt_|ffma|(?<![a-z])scudnn|f32f32_f32f32|engine<float")
_CONVOLUTION = re.compile(r"cudnn|convolve|fprop|dgrad|wgrad|winograd")
_HALF_INPUT = re.compile(r"fp16|f16|half|bf16|bfloat", re.IGNORECASE)
_HALF = ("c10::Half", "at::Half", "c10::BFloat16")
_SNIPPETS = ("loss = model(batch)", "out = model(batch)")  # If it trains, and if it infers.
_MIN_SPEEDUP = 3  # Of tensor cores over plain float32; devices with less have none.


@dataclass(frozen=True, kw_only=True)
class TensorCoreEvidence(KernelEvidence):
    """Matrix products and convolutions without tensor cores."""

    best: str  # The 16-bit type that all devices of these kernels have.
    is_half: bool  # Whether most of the time is in 16-bit types already.


@dataclass(frozen=True)
class NoTensorCores(Rule[TensorCoreEvidence]):
    """Matrix products or convolutions run without tensor (matrix) cores on a device that has them.

    ## When it speaks
    Kernels named for plain arithmetic (`sgemm`, `scudnn`, …) take at least `least` of the compute time. In 16-bit types
    all of them count. In float32 convolutions count, and on GPUs without TF32 matrix products as well; on GPUs with
    TF32 those belong to C3. Convolutions in groups and GPUs whose limits are not known do not count.

    ## What it could save
    The time above what the kernels take in 16 bits. There they reach 60 % of the tensor cores' peak, or move half of
    the bytes at 80 % of the bandwidth, whichever takes longer. Where shapes were not recorded, half of their time
    counts. Only what shortens the step counts: time that no other work covers, as far as the CPU launches early enough.

    ## What to do
    - **16 bits**: Make channels and sizes multiples of 8, and use `channels_last` for convolutions. Then the library
      has kernels for tensor cores.
    - **training**: Train under `torch.autocast("cuda", dtype=torch.{dtype|bfloat16})`{scaler|}. Check the loss, because
      numbers are coarser.
    - **inference**: Run under `torch.autocast("cuda", dtype=torch.{dtype|bfloat16})`. Check the results, because
      numbers are coarser.

    ## How to verify
    Kernel names contain `s16816`, `s884`, `tensorop`, `mfma` or the like.
    """

    code, title, family, section = "C2", "Tensor cores are not used", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})

    least: float = 0.02

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def look(self, rank: Rank) -> TensorCoreEvidence | None:
        events = events_of(rank)
        has_tensor_cores = events.on(lambda device: _half_peak(device) >= _MIN_SPEEDUP * device.peaks[Precision.FP32])
        has_tf32 = events.on(lambda device: Precision.TF32 in device.peaks)
        is_candidate = events.wanted & has_tensor_cores & ~events.is_grouped
        is_convolution = events.named(_CONVOLUTION) & ~events.is_product.astype(bool)
        is_single = is_candidate & _is_single(events) & (~has_tf32 | is_convolution)
        is_half = is_candidate & events.named(PLAIN) & np.isin(events.dtype, _HALF)
        is_plain = is_single | is_half
        if not is_plain.any() or events.durations[is_plain].sum() < self.least * compute_time(rank):
            return None
        has_bf16 = events.on(lambda device: Precision.BF16 in device.peaks)
        best = Precision.BF16 if has_bf16[is_plain].all() else Precision.FP16
        remaining_share = np.where(is_half, events.left(best, 1.0), events.left(best, 0.5))
        remaining_share = np.where(np.isnan(remaining_share), np.where(is_half, 1.0, 0.5), remaining_share)
        fields = kernel_fields(rank, is_plain, remaining_share)
        is_mostly_half = bool(events.durations[is_half].sum() > events.durations[is_single].sum())
        return TensorCoreEvidence(**fields, best=str(best), is_half=is_mostly_half) if fields else None

    def tell(self, job: JobEvidence[TensorCoreEvidence]) -> Finding | None:
        worst = job.worst
        types = "16-bit types" if worst.is_half else "float32"
        dtype = "bfloat16" if worst.best == Precision.BF16 else "float16"
        scaler = "" if dtype == "bfloat16" or job.infers else " with a `torch.amp.GradScaler`"
        return self.finding(
            job,
            f"Matrix products and convolutions in {types} run without tensor cores, which costs up to {job.max_saving} "
            f"{job.per_step}",
            evidence=f"Kernels for plain arithmetic take {job.percent(worst.compute_share)} of compute: {listed(job)}.",
            values={"dtype": dtype, "scaler": scaler},
            cases=("16 bits" if worst.is_half else job.purpose,),
            assumption="In 16 bits they reach 60 % of the peak or 80 % of the bandwidth. Where shapes were not "
            "recorded, they take half of their time.",
            snippet=""
            if worst.is_half
            else f'with torch.autocast("cuda", dtype=torch.{dtype}):\n    {_SNIPPETS[job.infers]}',
        )


def _half_peak(device: Device) -> float:
    """Peak of 16-bit arithmetic."""
    return max(device.peaks.get(precision, 0.0) for precision in (Precision.FP16, Precision.BF16))


def _is_single(events: Events) -> NDArray[np.bool_]:
    """Which kernels compute in plain float32, as far as name and operator tell."""
    is_single = events.named(_SINGLE) & ~events.named(_HALF_INPUT) & np.isin(events.dtype, ["float", ""])
    return np.asarray(is_single, np.bool_)


@dataclass(frozen=True, kw_only=True)
class Tf32Evidence(KernelEvidence):
    """Matrix products in float32 without TF32."""

    low_share: float  # Of the saving: the lower estimate.


@dataclass(frozen=True)
class NoTf32(Rule[Tf32Evidence]):
    """Matrix products in float32 do not use TF32, although the GPU has it.

    ## When it speaks
    Kernels named for plain float32 (`sgemm`, `simt`, `ffma`) multiply matrices on NVIDIA GPUs whose TF32 is faster than
    float32. They take at least `least` of the compute time.

    ## What it could save
    `saved` of their time. Less where even 60 % of the peak in TF32 and 80 % of the bandwidth need more than the rest.
    The lower estimate is half of it, and zero for kernels whose shapes were not recorded. Only what shortens the step
    counts: time that no other work covers, as far as the CPU launches early enough.

    ## What to do
    Call `torch.set_float32_matmul_precision("high")`. It rounds the inputs of matrix products to 10 bits of mantissa,
    and keeps sums in float32. Or run under `torch.autocast` in bfloat16, which halves the bytes as well. Check the
    {results|loss} afterwards.

    ## How to verify
    Kernel names contain `tf32` or `s1688`.
    """

    code, title, family, section = "C3", "TF32 is off", Family.COMPUTE, "kernel_breakdown"
    requires = frozenset({Capability.GPU})

    least: float = 0.02
    saved: float = 0.6

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def look(self, rank: Rank) -> Tf32Evidence | None:
        events = events_of(rank)
        has_tf32 = events.on(lambda device: device.peaks.get(Precision.TF32, 0) > device.peaks[Precision.FP32] * 1.5)
        is_product = events.is_product.astype(bool) | ((events.dtype == "") & ~events.named(_CONVOLUTION))
        is_plain = events.wanted & has_tf32 & _is_single(events) & is_product
        times = events.durations[is_plain]
        if not len(times) or times.sum() < self.least * compute_time(rank):
            return None
        modelled_share = events.left(Precision.TF32, 1.0)  # Of its time; nan where shapes were not recorded.
        remaining_share = np.fmax(modelled_share, 1 - self.saved)  # Ignores nan.
        fields = kernel_fields(rank, is_plain, remaining_share)
        saved_share = (1 - remaining_share)[is_plain]
        certain_share = np.where(np.isnan(modelled_share[is_plain]), 0.0, saved_share)
        low_share = float((times * certain_share).sum() / (times * saved_share).sum() / 2)
        return Tf32Evidence(**fields, low_share=low_share) if fields else None

    def tell(self, job: JobEvidence[Tf32Evidence]) -> Finding | None:
        worst = job.worst
        return self.finding(
            job,
            f"Matrix products in float32 run without TF32, which costs up to {job.max_saving} {job.per_step}",
            evidence=f"Kernels for plain float32 take {job.percent(worst.compute_share)} of compute: {listed(job)}.",
            values={"results": "results"} if job.infers else None,
            low_ns=round(job.max_saving_ns * worst.low_share),
            assumption=f"In TF32 they take {job.percent(1 - self.saved)} of their time. They take more where 60 % of "
            "the peak and 80 % of the bandwidth do not allow that.",
            snippet='torch.set_float32_matmul_precision("high")',
        )
