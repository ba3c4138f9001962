"""Rules about the host: what it does while the devices have nothing to run."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from htareport.algorithms import intervals
from htareport.findings import Finding
from htareport.rules.base import Evidence, Family, Found, Rule
from htareport.rules.rank import Rank, Sets, common, total
from htareport.trace import Capability
from htareport.trace.idle import Cause

_IDLE = "idle_causes"
_WAITS = re.compile(r"^(?:cuda|hip|cu)(?:\w*Synchronize|Memcpy)")
_ON_HOST = (
    Cause.LOADING, Cause.COMPILING, Cause.COLLECTING, Cause.ALLOCATING, Cause.SYNCHRONISING, Cause.COPYING,
    Cause.LAUNCHING, Cause.CALLING, Cause.OPERATING, Cause.ANNOTATED, Cause.NOTHING,
)  # fmt: skip
_DISPATCH = (Cause.LAUNCHING, Cause.CALLING, Cause.OPERATING, Cause.ANNOTATED, Cause.NOTHING, Cause.COPYING)


def _listed(names: list[tuple[str, int]], found: Found, per: float) -> str:
    """Names with the idle time that they fill, per step."""
    return ", ".join(f"`{name}` {found.time(time / per)}" for name, time in names)


@dataclass(frozen=True)
class HostBound(Rule):
    """The device waits for the host, which does not launch fast enough.

    ## When it speaks
    The device is idle for at least `idle` of the step, and in at least `late` of that the next launch is late.

    ## What it could save
    The idle time in which the host is late; half of it is the lower estimate.

    ## What to do
    Launch more with less: `torch.compile`, CUDA graphs, fused optimizers (`fused=True`), larger batches.

    ## How to verify
    GPU idle, and in it the share of host wait, go down; the step gets shorter.
    """

    code, title, family, section = "H1", "The host launches too late", Family.HOST, _IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = is_general = True

    idle: float = 0.15
    late: float = 0.5

    def look(self, rank: Rank) -> Evidence | None:
        claim = rank.idle_by(*_ON_HOST)
        share, late = rank.share(rank.idle), total(claim)
        if share < self.idle or late < self.late * total(rank.idle):
            return None
        names = rank.names(*_ON_HOST)
        return Evidence(claim, {"idle": share, "late": late / total(rank.idle), "names": names,
                                "steps": rank.num_steps}, rank.spans(claim))  # fmt: skip

    def tell(self, found: Found) -> Finding:
        n = found.numbers
        return self.finding(
            found,
            f"The GPU waits for the host in {found.percent(found.share)} of the step",
            evidence=f"It is idle for {found.percent(n['idle'])} of the step; in {found.percent(n['late'])} of that "
            f"the next launch comes late. Meanwhile the host runs {_listed(n['names'], found, n['steps'])} per step.",
            advice="Let the host launch more at once: `torch.compile`, CUDA graphs, fused optimizers, larger batches.",
            assumption="All of the host's delay goes away; half of it is the lower estimate.",
            verify="`idle_pct` and `host_wait_pct` go down in `htareport diff`.",
            snippet='model = torch.compile(model, mode="reduce-overhead")',
        )


@dataclass(frozen=True)
class InputStall(Rule):
    """The device waits for the next batch.

    ## When it speaks
    The data loader's `__next__` runs while the device is idle, for at least `least` of the step. Loading that the
    device's work hides is no finding.

    ## What it could save
    The idle time that the loader fills. With a single-process loader, as much as eight workers could take over.

    ## What to do
    Load in worker processes (`num_workers`), ahead (`prefetch_factor`), into pinned memory (`pin_memory=True`). Where
    there are workers already, profile `__getitem__`.

    ## How to verify
    *Data loading* is gone from the idle time by what the host did.
    """

    code, title, family, section = "H14", "The device waits for the data loader", Family.HOST, _IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, confidence = True, "high"

    least: float = 0.05

    def look(self, rank: Rank) -> Evidence | None:
        claim = rank.idle_by(Cause.LOADING)
        share = rank.share(claim)
        if share < self.least:
            return None
        names = rank.names(Cause.LOADING)
        single = any("_SingleProcess" in name for name, _ in names)
        return Evidence(claim, {"share": share, "names": names, "single": single, "steps": rank.num_steps},
                        rank.spans(claim, name=names[0][0] if names else ""))  # fmt: skip

    def tell(self, found: Found) -> Finding:
        n = found.numbers
        where = "in the main process" if n["single"] else "although it has workers"
        advice = (
            "Load in worker processes and ahead: `num_workers=4` or more, `persistent_workers=True`, `pin_memory=True`."
            if n["single"]
            else "More workers or prefetching; profile the dataset's `__getitem__`; decode on the GPU or beforehand."
        )
        return self.finding(
            found,
            f"The GPU waits {found.time(found.most)} {found.per} for the data loader, {where}",
            evidence=f"While the device is idle the host runs {_listed(n['names'], found, n['steps'])} per step.",
            advice=advice,
            assumption="Loading is hidden behind the device's work altogether.",
            verify="*Data loading* is gone from *Idle time by what the host did*.",
            snippet="DataLoader(dataset, batch_size, num_workers=8, persistent_workers=True, pin_memory=True)",
        )


@dataclass(frozen=True)
class SyncDrains(Rule):
    """A synchronising call lets the device run empty, and only then the host launches more.

    ## When it speaks
    A call that waits for the device (`cudaStreamSynchronize`, `cudaDeviceSynchronize`, a blocking copy) returns after
    the device ran empty, and the next work is launched after that; such gaps take at least `least` of the step. How
    long the call itself lasts says nothing: a host that is ahead waits for nothing that is lost.

    ## What it could save
    In each such gap, no more than the host has spent in waiting calls since the last one: that is by how much it would
    be ahead without them. Often it is another way to time that other findings explain, and is never added to theirs.

    ## What to do
    Move `.item()`, `.cpu()`, `print(tensor)` and `torch.cuda.synchronize()` out of the loop, or do them every n steps.

    ## How to verify
    The gaps behind the call are gone, and *host wait* goes down.
    """

    code, title, family, section = "H4", "Synchronisation lets the device run empty", Family.HOST, _IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = True

    least: float = 0.02

    def look(self, rank: Rank) -> Evidence | None:
        claim, calls = _drained(rank)
        if rank.share(claim) < self.least:
            return None
        names = [(str(name), int(count)) for name, count in calls.items()][:3]
        return Evidence(claim, {"share": rank.share(claim), "calls": names, "steps": rank.num_steps},
                        rank.spans(claim, name=names[0][0] if names else ""))  # fmt: skip

    def tell(self, found: Found) -> Finding:
        n = found.numbers
        calls = ", ".join(f"`{name}` {count / n['steps']:.3g}×" for name, count in n["calls"])
        return self.finding(
            found,
            f"Synchronising calls leave the GPU idle for {found.time(found.most)} {found.per}",
            evidence=f"Per step the device ran empty before {calls} returned; only then the host launched more.",
            advice="Move `.item()`, `.cpu()`, prints and `torch.cuda.synchronize()` out of the loop; log every n "
            "steps; copy with `non_blocking=True` from and to pinned memory.",
            assumption="The host uses the time that it spent in the call to launch ahead.",
            verify="The gaps behind the call are gone; *host wait* goes down.",
            snippet="if step % 50 == 0:\n    log(loss.item())  # Not in every step.",
        )


def _drained(rank: Rank) -> tuple[Sets, dict[str, int]]:
    """Idle time behind calls that waited for the device until it was empty, and how often each call was it.

    Of such a gap no more could be saved than what the host has spent in waiting calls since the last one: the time by
    which it would be ahead without them.
    """
    host, strings = rank.trace.host, rank.trace.loaded.strings
    waits = np.array([_WAITS.search(name) is not None for name in strings] or [False])
    codes = host["name"].array.codes
    rows = np.flatnonzero(waits[codes] & (host["level"] == "call").to_numpy())
    start, end, capture = (host[name].to_numpy()[rows] for name in ("ts", "end", "capture"))
    found, calls = Sets(), Counter[str]()
    for lane, gaps in rank.gaps.items():
        mine = np.flatnonzero(capture == lane[1])
        mine = mine[np.argsort(end[mine], kind="stable")]
        if not len(mine) or not len(gaps):
            continue
        blocked = np.cumsum(end[mine] - start[mine])
        place = np.searchsorted(end[mine], gaps[:, 0])  # The first call that returns behind the gap's begin.
        call = np.minimum(place, len(mine) - 1)
        drained = np.flatnonzero((place < len(mine)) & (end[mine][call] < gaps[:, 1]))
        taken, used = list[tuple[int, int]](), 0
        for gap, at in zip(gaps[drained].tolist(), call[drained].tolist(), strict=True):
            room = min(gap[1] - gap[0], int(blocked[at]) - used)
            if room > 0:
                used += room
                taken.append((gap[0], gap[0] + room))
                calls[strings[codes[rows[mine[at]]]]] += 1
        found[lane] = np.array(taken, np.int64).reshape(-1, 2)
    late = rank.idle_by(*_ON_HOST)
    return common(rank.clipped(found), late), dict(calls.most_common())


@dataclass(frozen=True)
class LaunchBound(Rule):
    """Many small kernels, each of which the device waits for.

    ## When it speaks
    Idle time in front of compute kernels of less than `short` µs, in which the host dispatches and launches, takes at
    least `least` of the step. The number of small kernels alone says nothing: half of a healthy step's are.

    ## What it could save
    Those gaps, but for 1 µs per kernel.

    ## What to do
    CUDA graphs: `torch.compile(mode="reduce-overhead")` or `torch.cuda.make_graphed_callables`; foreach or fused
    optimizers; larger batches.

    ## How to verify
    Fewer launches per step, and the idle time of operators and launch calls goes down.
    """

    code, title, family, section = "H2", "Small kernels are launched one by one", Family.HOST, "launch_stats"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = True

    short: float = 10.0
    least: float = 0.05

    def look(self, rank: Rank) -> Evidence | None:
        late, found, kernels, small = rank.idle_by(*_DISPATCH), Sets(), 0, 0
        for lane in rank.lanes:
            events = rank.events[lane]
            starts = events["ts"].to_numpy()
            is_short = ((events["kind"] == "compute") & (events["dur"] < 1000 * self.short)).to_numpy()
            idle = rank.idle.get(lane, intervals.EMPTY)
            place = np.searchsorted(starts, idle[:, 1])
            before = (place < len(starts)) & (starts[np.minimum(place, len(starts) - 1)] == idle[:, 1])
            before &= is_short[np.minimum(place, len(starts) - 1)]
            chosen = idle[before]
            room = np.maximum(chosen[:, 1] - chosen[:, 0] - 1000, 0)
            found[lane] = np.column_stack((chosen[:, 0], chosen[:, 0] + room))[room > 0]
            kernels, small = kernels + len(events), small + int(is_short.sum())
        claim = common(found, late)
        if rank.share(claim) < self.least:
            return None
        numbers = {"share": rank.share(claim), "kernels": kernels / rank.num_steps, "small": small / rank.num_steps}
        return Evidence(claim, numbers, rank.spans(claim))

    def tell(self, found: Found) -> Finding:
        n = found.numbers
        return self.finding(
            found,
            f"The GPU waits {found.time(found.most)} {found.per} for launches of kernels under {self.short:g} µs",
            evidence=f"{n['small']:,.0f} of {n['kernels']:,.0f} device events per step are kernels that short, and the "
            "device is idle before them while the host dispatches.",
            advice='Launch them together: CUDA graphs (`torch.compile(mode="reduce-overhead")`), fused optimizers '
            "(`fused=True`), larger batches.",
            assumption="One launch starts them all; each keeps 1 µs.",
            verify="Fewer launches per step; idle time of operators and launch calls goes down.",
            snippet='model = torch.compile(model, mode="reduce-overhead")',
        )


@dataclass(frozen=True)
class DriverAllocations(Rule):
    """Memory is asked from the driver within the steps, which stops the host and often the device.

    ## When it speaks
    The device is idle while `cudaMalloc`, `cudaFree` and the like run, for at least `least` of the step.

    ## What it could save
    The idle time in which they run.

    ## What to do
    `PYTORCH_ALLOC_CONF=expandable_segments:True`, inputs of fixed shapes, less memory at the peak; no
    `torch.cuda.empty_cache()` in the loop.

    ## How to verify
    No `cudaMalloc` after the first steps.
    """

    code, title, family, section = "H9", "The allocator goes to the driver", Family.HOST, _IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, confidence = True, "high"

    least: float = 0.01

    def look(self, rank: Rank) -> Evidence | None:
        claim = rank.idle_by(Cause.ALLOCATING)
        names = rank.names(Cause.ALLOCATING)
        if rank.share(claim) < self.least:
            return None
        return Evidence(claim, {"names": names, "steps": rank.num_steps}, rank.spans(claim))

    def tell(self, found: Found) -> Finding:
        n = found.numbers
        return self.finding(
            found,
            f"Memory is asked from the driver while the GPU is idle: {found.time(found.most)} {found.per}",
            evidence=f"Idle time is filled by {_listed(n['names'], found, n['steps'])} per step.",
            advice="Set `PYTORCH_ALLOC_CONF=expandable_segments:True`, keep shapes fixed, lower the peak; no "
            "`torch.cuda.empty_cache()` in the loop.",
            assumption="The cache serves every allocation after the first steps.",
            verify="No `cudaMalloc` or `cudaFree` within the steps.",
            snippet="PYTORCH_ALLOC_CONF=expandable_segments:True python train.py",
        )
