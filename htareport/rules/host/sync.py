"""Rules about calls that wait for the device: behind them it is empty, and only then the host launches more.

Each gap behind such a call belongs to one rule: to the one about its kind, where that kind takes enough of the step,
else to the one about all of them. Behind a token that was sampled, it is I4's, where those take enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from htareport.rank.capability import Capability
from htareport.rank.drains import Drain, Drains, drains_of
from htareport.rank.host_rows import IDLE, frame_at, per, short, times
from htareport.rank.interval_sets import Sets
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import Evidence, JobEvidence

_AT_ONCE = "values = torch.stack(values).tolist()  # One read for all of them."
_LATER = "if step % 50 == 0:\n    log(loss.item())  # Not in every step."


@dataclass(frozen=True, kw_only=True)
class WaitEvidence(Evidence):
    """Gaps of the device behind calls that waited for it."""

    calls: list[tuple[str, int]]  # With how often, in all steps.
    frame: str  # The function of the user behind whose call the longest gap is.
    windows: int
    is_blocking: bool  # Whether launches wait for their kernels.


@dataclass(frozen=True)
class Waits(Rule[WaitEvidence]):
    """What the rules about waiting calls have in common."""

    family, section = Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = enables = True
    kind: ClassVar[Drain]

    least: float = 0.005

    def look(self, rank: Rank) -> WaitEvidence | None:
        drains = _drains(rank)
        claim = drains.sets(rank, self.kind)
        if not claim or rank.share(claim) < self.least:
            return None
        return _evidence(rank, drains, claim, self.kind)


def _evidence(rank: Rank, drains: Drains, claim: Sets, *kinds: Drain) -> WaitEvidence:
    row = drains.worst(*kinds)
    host, at = rank.host, [row]
    frame = frame_at(rank, int(host.at("thread", at)[0]), int(host.at("ts", at)[0])) if row >= 0 else ""
    return WaitEvidence(
        claim=claim,
        spans=rank.spans(claim),
        calls=drains.calls(rank, *kinds),
        frame=frame,
        windows=per(rank),
        is_blocking=drains.blocking,
    )


def behind(job: JobEvidence[WaitEvidence]) -> str:
    """Which calls, how often and where."""
    worst = job.worst
    where = f" The longest gap is behind `{short(worst.frame)}`." if worst.frame else ""
    return (
        "The device had run empty before these calls returned, and only then the host launched more: "
        f"{times(worst.calls, worst.windows)} {job.per_step}.{where}"
    )


@dataclass(frozen=True)
class SyncDrains(Waits):
    """A synchronising call lets the device run empty, and only then the host launches more.

    ## When it speaks
    A call that waits for the device (`cudaStreamSynchronize`, a blocking copy) returns after the device ran empty, and
    its thread launches the next work after that; such gaps take at least `least` of the step. How long the call itself
    lasts says nothing: a host that is ahead waits for nothing that is lost. What H5, H6, H7 and H8 say (scalars, shapes
    that depend on data, copies to the host, the whole device) is not said again here.

    ## What it could save
    In each such gap, no more than the host has spent in waiting calls since the last one: that is by how much it would
    be ahead without them. Often it is another way to time that other findings explain, and is never added to theirs.

    ## What to do
    Move what waits for the device out of the loop, or do it every n steps; copy with `non_blocking=True` from pinned
    memory, and make constants on the device (`torch.full`).

    ## How to verify
    The gaps behind the call are gone; *host wait* goes down.
    """

    code, title = "H4", "Synchronisation lets the device run empty"

    least: float = 0.02

    def look(self, rank: Rank) -> WaitEvidence | None:
        drains = _drains(rank)
        least: dict[Drain, float] = {
            kind.kind: kind.least for kind in (ScalarReadback(), DataShapes(), CopiesBack(), WholeDevice())
        }
        least[Drain.SAMPLED] = 0.0  # They are of that kind only where a rule takes them.
        kinds = [each for each in Drain if rank.share(drains.sets(rank, each)) < least.get(each, 1.0)]
        claim = drains.sets(rank, *kinds)
        if rank.share(claim) < self.least:
            return None
        return _evidence(rank, drains, claim, *kinds)

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        return self.finding(
            job,
            f"Synchronising calls leave the GPU idle for {job.max_saving} {job.per_step}",
            evidence=behind(job),
            assumption="The host uses the time that it spent in the call to launch ahead.",
            snippet="batch = batch.pin_memory().to(device, non_blocking=True)",
        )


@dataclass(frozen=True)
class ScalarReadback(Waits):
    """`.item()` and its like read one number from the device, which runs empty meanwhile.

    ## When it speaks
    Gaps behind `aten::item` or `aten::_local_scalar_dense` (`.item()`, `float(tensor)`, `if tensor:`, `print`) take at
    least `least` of the step. A host that is far ahead may read numbers for free; then it is silent.

    ## What it could save
    In each gap, no more than the host has spent in waiting calls since the last one.

    ## What to do
    `float(x)`, `if x:` and `print(x)` read as well.

    - **training**: Keep losses and metrics as tensors, add them up on the device and read them every n steps.
    - **inference**: Take such numbers from what the host knows (lengths, whether a mask is all ones), decide on the
      device (`torch.where`), or read them all at once at the end.

    ## How to verify
    Fewer `aten::item` calls per step; the gaps behind them are gone.
    """

    code, title, kind = "H5", "A number is read from the device, which runs empty", Drain.SCALAR

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        return self.finding(
            job,
            f"Reading single numbers from the GPU leaves it idle for {job.max_saving} {job.per_step}",
            evidence=behind(job),
            cases=(job.purpose,),
            assumption="The host uses the time that it spent in the call to launch ahead.",
            snippet=_AT_ONCE if job.infers else _LATER,
        )


@dataclass(frozen=True)
class DataShapes(Waits):
    """An operator whose result has a size that depends on data makes the host wait for that size.

    ## When it speaks
    Gaps behind `nonzero`, `masked_select`, `unique`, `repeat_interleave`, indexing with a mask and the like take at
    least `least` of the step.

    ## What it could save
    In each gap, no more than the host has spent in waiting calls since the last one.

    ## What to do
    Compute with the mask instead of selecting: `torch.where(mask, a, b)`, multiplication, `index_fill`, `topk` with a
    fixed number; give `repeat_interleave` its `output_size`.

    ## How to verify
    `aten::nonzero` and its like are gone from the step; the gaps behind them too.
    """

    code, title, kind = "H6", "Sizes that depend on data make the host wait", Drain.SHAPE

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        return self.finding(
            job,
            f"Operators whose size depends on data leave the GPU idle for {job.max_saving} {job.per_step}",
            evidence=behind(job),
            assumption="The host uses the time that it spent in the call to launch ahead.",
            snippet="x = torch.where(mask, x, 0.0)  # Instead of x[mask]."
            if job.infers
            else "loss = torch.where(mask, loss, 0.0).sum() / mask.sum()  # Instead of loss[mask].mean().",
        )


@dataclass(frozen=True)
class CopiesBack(Waits):
    """A copy to the host blocks it until the device has done everything before, and the device runs empty.

    ## When it speaks
    Gaps behind calls that copy from the device (`.cpu()`, `.numpy()`, `.tolist()`, `copy_` into a CPU tensor) take at
    least `least` of the step.

    ## What it could save
    In each gap, no more than the host has spent in waiting calls since the last one.

    ## What to do
    Copy into pinned memory with `non_blocking=True` and an event, launch the next step first, and use the values
    afterwards; copy once instead of tensor by tensor.

    ## How to verify
    The gaps behind the copies are gone; *host wait* goes down.
    """

    code, title, kind = "H7", "Copies to the host let the device run empty", Drain.COPY_BACK

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        return self.finding(
            job,
            f"Blocking copies to the host leave the GPU idle for {job.max_saving} {job.per_step}",
            evidence=behind(job),
            assumption="The host launches the next work before it needs what it copies.",
            snippet="pinned.copy_(result, non_blocking=True)\ndone.record()\n...  # Launch the next step.\n"
            "done.synchronize()\nuse(pinned)",
        )


@dataclass(frozen=True)
class WholeDevice(Waits):
    """The host waits for the whole device within the step.

    ## When it speaks
    Gaps behind `cudaDeviceSynchronize` or `hipDeviceSynchronize` take at least `least` of the step; or nearly every
    launch call lasts until its kernel has run, as under `CUDA_LAUNCH_BLOCKING=1`.

    ## What it could save
    In each gap, no more than the host has spent in waiting calls since the last one.

    ## What to do
    - **blocking**: Unset `CUDA_LAUNCH_BLOCKING` (on AMD `HIP_LAUNCH_BLOCKING`, `AMD_SERIALIZE_KERNEL`): it is for
      debugging.
    - **calls**: Remove `torch.cuda.synchronize()` left from timing or debugging; time with events, which do not wait.

    ## How to verify
    - **blocking**: Launch calls take a few µs each.
    - **calls**: No `cudaDeviceSynchronize` within the steps.
    """

    code, title, kind = "H8", "The host waits for the whole device", Drain.DEVICE

    least: float = 0.002

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        idle = f"the GPU is idle for {job.max_saving} {job.per_step}"
        if job.worst.is_blocking:
            return self.finding(
                job,
                f"Every launch waits for its kernel: {idle}",
                evidence="Launch calls return only once their kernels have run, as under `CUDA_LAUNCH_BLOCKING=1`.",
                cases=("blocking",),
                assumption="The host launches ahead of the device.",
                snippet="unset CUDA_LAUNCH_BLOCKING",
            )
        return self.finding(
            job,
            f"The host waits for the whole device within the step: {idle}",
            evidence=behind(job),
            cases=("calls",),
            assumption="The host uses the time that it spent in the call to launch ahead.",
            snippet="start = torch.cuda.Event(enable_timing=True)  # Instead of time.time() and synchronize().",
        )


def _drains(rank: Rank) -> Drains:
    """Gaps behind waiting calls; those behind sampled tokens are of the rule about these, where that looks as well."""
    sampling = context_of(rank).rule("I4")
    return drains_of(rank, None if sampling is None else sampling.least)
