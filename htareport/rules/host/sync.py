"""Rules about calls that wait for the GPU, which is idle after them until the CPU launches more.

Each gap after such a call belongs to one rule: to the one about what the call is for, where such gaps take enough of
the step, else to the one about all of them. Gaps after a call that reads a sampled token are I4's, where they take
enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from htareport.rank.capability import Capability
from htareport.rank.drains import Drain, Drains, drains_of
from htareport.rank.host_rows import IDLE, frame_at, per, short, times
from htareport.rank.interval_sets import Sets
from htareport.rank.rank import Rank
from htareport.rank.replay.host_edits import edit_without_waits
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import Evidence, JobEvidence

_READ_TOGETHER = "values = torch.stack(values).tolist()  # One read for all of them."
_READ_LATER = "if step % 50 == 0:\n    log(loss.item())  # Not in every step."
_ASSUMPTION = "The host uses the time that it spent in the call to launch ahead."


@dataclass(frozen=True, kw_only=True)
class WaitEvidence(Evidence):
    """Gaps of the device after calls that waited for it."""

    calls: list[tuple[str, int]]  # With how often, in all steps.
    frame: str  # The function of the user with the call before the longest gap.
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
        if rank.share(claim) < self.least:
            return None
        return _evidence(rank, drains, claim, self.kind)

    def wait_finding(  # noqa: PLR0913  what the rules say differently, by name
        self,
        job: JobEvidence[WaitEvidence],
        clause: str,
        snippet: str,
        *,
        prefix: str = "",
        assumption: str = _ASSUMPTION,
        cases: Sequence[str] = (),
    ) -> Finding:
        """The finding of these rules: `clause` begins the title, `prefix` the evidence."""
        worst = job.worst
        frame = f" The longest gap is behind `{short(worst.frame)}`." if worst.frame else ""
        return self.finding(
            job,
            f"{clause} for {job.max_saving} {job.per_step}",
            evidence=f"{prefix}The device had run empty before these calls returned, and only then the host launched "
            f"more: {times(worst.calls, worst.windows)} {job.per_step}.{frame}",
            cases=cases,
            assumption=assumption,
            snippet=snippet,
        )


def _evidence(rank: Rank, drains: Drains, claim: Sets, *kinds: Drain) -> WaitEvidence:
    row = drains.longest_row(*kinds)
    thread, stamp = (int(rank.host.at(name, [row])[0]) for name in ("thread", "ts"))
    return WaitEvidence(
        claim=claim,
        edit=edit_without_waits(rank, drains.waiting_launches(rank, *kinds), claim),
        spans=rank.spans(claim),
        calls=drains.calls(rank, *kinds),
        frame=frame_at(rank, thread, stamp),
        windows=per(rank),
        is_blocking=drains.is_blocking,
    )


@dataclass(frozen=True)
class SyncDrains(Waits):
    """After a synchronising call the device is idle until the host launches more.

    ## When it speaks
    A call that waits for the device (`cudaStreamSynchronize`, a blocking copy) returns while the device is idle, and
    its thread launches the next work after that. Such gaps take at least `least` of the step. How long the call itself
    takes does not matter: a host that is ahead loses nothing by waiting. What H5, H6, H7 and H8 say (scalars, shapes
    that depend on data, copies to the host, the whole device) is not said again here.

    ## What it could save
    In each gap, at most the time that the host has spent in waiting calls since the last one: without them it would be
    ahead by that. Other findings often explain the same time, and it is never added to theirs.

    ## What to do
    Move what waits for the device out of the loop, or do it every n steps. Copy with `non_blocking=True` from pinned
    memory, and create constants on the device (`torch.full`).

    ## How to verify
    The gaps after the call are gone. `host_wait_pct` goes down in `htareport diff`.
    """

    code, title = "H4", "Synchronisation lets the device run empty"

    least: float = 0.02

    def look(self, rank: Rank) -> WaitEvidence | None:
        drains = _drains(rank)
        min_share = {rule.kind: rule.least for rule in (ScalarReadback(), DataShapes(), CopiesBack(), WholeDevice())}
        min_share[Drain.SAMPLED] = 0.0  # They are of that kind only where a rule takes them.
        kinds = [kind for kind in Drain if rank.share(drains.sets(rank, kind)) < min_share.get(kind, 1.0)]
        claim = drains.sets(rank, *kinds)
        if rank.share(claim) < self.least:
            return None
        return _evidence(rank, drains, claim, *kinds)

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        snippet = "batch = batch.pin_memory().to(device, non_blocking=True)"
        return self.wait_finding(job, "Synchronising calls leave the GPU idle", snippet)


@dataclass(frozen=True)
class ScalarReadback(Waits):
    """`.item()` and similar calls read one number from the device, which is idle meanwhile.

    ## When it speaks
    Gaps after `aten::item` or `aten::_local_scalar_dense` (`.item()`, `float(tensor)`, `if tensor:`, `print`) take at
    least `least` of the step. A host that is far ahead may read numbers for free: then there are no such gaps.

    ## What it could save
    In each gap, at most the time that the host has spent in waiting calls since the last one.

    ## What to do
    Look for `x.item()`, `float(x)`, `if x:` and `print(x)`: each of them reads a number from the device.

    - **training**: Keep losses and metrics as tensors, add them up on the device and read them every n steps.
    - **inference**: Take such numbers from what the host knows (lengths, whether a mask is all ones), decide on the
      device (`torch.where`), or read them all at once at the end.

    ## How to verify
    A step has fewer `aten::item` calls. The gaps after them are gone.
    """

    code, title, kind = "H5", "A number is read from the device, which runs empty", Drain.SCALAR

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        snippet = _READ_TOGETHER if job.infers else _READ_LATER
        return self.wait_finding(
            job, "Reading single numbers from the GPU leaves it idle", snippet, cases=(job.purpose,)
        )


@dataclass(frozen=True)
class DataShapes(Waits):
    """An operator whose result has a size that depends on data makes the host wait for that size.

    ## When it speaks
    Gaps after `nonzero`, `masked_select`, `unique`, `repeat_interleave`, indexing with a mask and similar operators
    take at least `least` of the step.

    ## What it could save
    In each gap, at most the time that the host has spent in waiting calls since the last one.

    ## What to do
    Compute with the mask instead of selecting: use `torch.where(mask, a, b)`, multiplication, `index_fill`, or `topk`
    with a fixed number. Give `repeat_interleave` its `output_size`.

    ## How to verify
    `aten::nonzero` and similar operators are gone from the step, and so are the gaps after them.
    """

    code, title, kind = "H6", "Sizes that depend on data make the host wait", Drain.SHAPE

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        training = "loss = torch.where(mask, loss, 0.0).sum() / mask.sum()  # Instead of loss[mask].mean()."
        return self.wait_finding(
            job,
            "Operators whose size depends on data leave the GPU idle",
            "x = torch.where(mask, x, 0.0)  # Instead of x[mask]." if job.infers else training,
        )


@dataclass(frozen=True)
class CopiesBack(Waits):
    """A copy to the host blocks it until the device has done all earlier work, and then the device is idle.

    ## When it speaks
    Gaps after calls that copy from the device (`.cpu()`, `.numpy()`, `.tolist()`, `copy_` into a CPU tensor) take at
    least `least` of the step.

    ## What it could save
    In each gap, at most the time that the host has spent in waiting calls since the last one.

    ## What to do
    Copy into pinned memory with `non_blocking=True`, and record an event. Launch the next step, then wait for the event
    and use the values. Copy once instead of tensor by tensor.

    ## How to verify
    The gaps after the copies are gone. `host_wait_pct` goes down in `htareport diff`.
    """

    code, title, kind = "H7", "Copies to the host let the device run empty", Drain.COPY_BACK

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        return self.wait_finding(
            job,
            "Blocking copies to the host leave the GPU idle",
            "pinned.copy_(result, non_blocking=True)\ndone.record()\n...  # Launch the next step.\n"
            "done.synchronize()\nuse(pinned)",
            assumption="The host launches the next work before it needs what it copies.",
        )


@dataclass(frozen=True)
class WholeDevice(Waits):
    """The host waits for the whole device within the step.

    ## When it speaks
    Gaps after `cudaDeviceSynchronize` or `hipDeviceSynchronize` take at least `least` of the step; or gaps after launch
    calls do, because nearly every one lasts until its kernel has run, as under `CUDA_LAUNCH_BLOCKING=1`.

    ## What it could save
    In each gap, at most the time that the host has spent in waiting calls since the last one.

    ## What to do
    - **blocking**: Unset `CUDA_LAUNCH_BLOCKING` (on AMD `HIP_LAUNCH_BLOCKING`, `AMD_SERIALIZE_KERNEL`): it is for
      debugging.
    - **calls**: Remove `torch.cuda.synchronize()` left from timing or debugging. Time with CUDA events, which do not
      wait.

    ## How to verify
    - **blocking**: Launch calls take a few µs each.
    - **calls**: The steps have no `cudaDeviceSynchronize`.
    """

    code, title, kind = "H8", "The host waits for the whole device", Drain.DEVICE

    least: float = 0.002

    def tell(self, job: JobEvidence[WaitEvidence]) -> Finding:
        if job.worst.is_blocking:
            return self.finding(
                job,
                f"Every launch waits for its kernel: the GPU is idle for {job.max_saving} {job.per_step}",
                evidence="Launch calls return only once their kernels have run, as under `CUDA_LAUNCH_BLOCKING=1`.",
                cases=("blocking",),
                assumption="The host launches ahead of the device.",
                snippet="unset CUDA_LAUNCH_BLOCKING",
            )
        return self.wait_finding(
            job,
            "The host waits for the whole device within the step: the GPU is idle",
            "start = torch.cuda.Event(enable_timing=True)  # Instead of time.time() and synchronize().",
            cases=("calls",),
        )


def _drains(rank: Rank) -> Drains:
    """Gaps after waiting calls; those after sampled tokens are of the rule about these, where that looks as well."""
    sampling = context_of(rank).rule("I4")
    return drains_of(rank, None if sampling is None else sampling.least)
