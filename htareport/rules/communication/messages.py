"""Rules about many small collectives, where time is latency: small messages, bursts, SyncBatchNorm."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.rank.capability import Capability
from htareport.rank.communication import awaited, in_backward, is_of_layers, kernels, launched_in, moving, sets_of
from htareport.rank.host_rows import per
from htareport.rank.interval_sets import Sets, common, total
from htareport.rank.rank import Rank
from htareport.rank.replay.host_edits import edit_without_collectives
from htareport.report import Unit
from htareport.report.findings import Finding
from htareport.report.units import text
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_BUCKET_BYTES = 4 * 2**20  # Collectives of less go into one as well, if small ones are put together.
_NORM = re.compile(r"^SyncBatchNorm")
_REQUIRES = frozenset({Capability.GPU, Capability.COMM})


@dataclass(frozen=True, kw_only=True)
class SmallMessagesEvidence(Evidence):
    """What was seen on one rank: small messages."""

    calls: float
    size: float
    time: float
    share: float
    what: str


@dataclass(frozen=True)
class SmallMessages(Rule[SmallMessagesEvidence]):
    """Many small collectives: their time is latency, which one larger collective has once.

    ## When it speaks
    Collectives of less than `near` KiB, or `far` KiB where their group has more ranks than the host has devices, that
    could go together (of the backward pass, or without compute in between, not those of tensor parallelism) take at
    least `share` of the communication time, and there are at least `calls` per step.

    ## What it could save
    In each step and kind all but the longest of them, as far as they are exposed and move bytes (the shortest of their
    kind).

    ## What to do
    Put them together: {buckets|a larger `bucket_cap_mb` (DDP), larger units (FSDP), }one flattened tensor, or the
    coalescing manager.

    ## How to verify
    Fewer calls of larger messages in *Collectives*.
    """

    code, title, family, section = "N9", "Small messages", Family.COMMUNICATION, "collectives"
    requires = _REQUIRES
    about_idle = True

    near: float = 256.0
    far: float = 1024.0
    share: float = 0.2
    calls: float = 8.0

    def look(self, rank: Rank) -> SmallMessagesEvidence | None:
        rows = kernels(rank)
        hosted = max(len(capture.devices) for capture in rank.captures)
        limit = 1024 * np.where(rows["group_size"] > max(hosted, 1), self.far, self.near)
        is_joinable = _joinable(rank, rows)
        small = rows[(rows["bytes"] < limit).to_numpy(dtype=bool) & is_joinable]
        if len(small) < self.calls * per(rank) or small["dur"].sum() < self.share * rows["dur"].sum():
            return None
        rest = _all_but_the_longest(small)
        joined = _all_but_the_longest(rows[(rows["bytes"] < _BUCKET_BYTES).to_numpy(dtype=bool) & is_joinable])
        claim = common(awaited(rank), sets_of(rank, rest.assign(ts=rest["end"] - rest["least"])))
        return (
            SmallMessagesEvidence(
                claim=claim,
                edit=edit_without_collectives(rank, joined),
                spans=rank.spans(claim, name=str(small["what"].mode().iloc[0])),
                calls=len(small) / per(rank),
                size=float(small["bytes"].median()),
                time=float(small["dur"].median()),
                share=float(small["dur"].sum() / rows["dur"].sum()),
                what=small["what"].mode().iloc[0],
            )
            if total(claim)
            else None
        )

    def tell(self, job: JobEvidence[SmallMessagesEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"{worst.calls:,.0f} small collectives {job.per_step} could go in one: {job.max_saving}",
            evidence=f"They move {text(worst.size, Unit.BYTES)} in {job.time(worst.time)} (medians), mostly "
            f"{worst.what}, and take {job.percent(worst.share)} of the communication time.",
            values={"buckets": ""} if job.infers else None,
            assumption="One of each kind and step stays, and takes no longer than the longest does now.",
            snippet="with torch.distributed._coalescing_manager():\n    for t in tensors:\n        dist.all_reduce(t)",
        )


def _all_but_the_longest(rows: pd.DataFrame) -> pd.DataFrame:
    """Collectives of each step and kind but for the one that moves bytes longest; `least` is for how long at least."""
    rows = rows.assign(least=moving(rows))
    kinds = ["device", "capture", "step", "what"]
    is_other = rows.sort_values("least", kind="stable").duplicated(kinds, keep="last").reindex(rows.index)
    others: pd.DataFrame = rows[is_other]
    return others


def _joinable(rank: Rank, rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Which collectives could go with others: those of gradients, and those behind another without compute between."""
    return (in_backward(rank, rows) | _behind(rank, rows)) & ~is_of_layers(rows) & ~launched_in(rank, _NORM, rows)


def _behind(rank: Rank, rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Which collectives, in order of start, come behind one of their kind without compute that starts in between."""
    events = rank.device_events
    starts = events.loc[(events["kind"] == "compute").to_numpy(), "ts"].to_numpy()
    found = np.zeros(len(rows), np.bool_)
    found[1:] = np.diff(np.searchsorted(starts, rows["ts"].to_numpy())) == 0
    for name in ("what", "device", "capture"):
        values = rows[name].to_numpy()
        found[1:] &= values[1:] == values[:-1]
    return found


@dataclass(frozen=True, kw_only=True)
class ManyCollectivesEvidence(Evidence):
    """What was seen on one rank: too many collectives."""

    calls: float
    largest: int
    what: str


@dataclass(frozen=True)
class ManyCollectives(Rule[ManyCollectivesEvidence]):
    """Collectives of one kind are issued one by one in quick succession, and the device is idle in between.

    ## When it speaks
    At least `calls` collectives of one kind and group start within `within` µs of each other, without compute in
    between, and the device is idle between them for at least `least` of the step.

    ## What it could save
    That idle time.

    ## What to do
    Issue them as one: the coalescing manager, a flattened tensor, `foreach` collectives; leave out those that repeat
    what is known.

    ## How to verify
    Fewer calls per step in *Collectives*.
    """

    code, title, family, section = "N10", "Too many collectives", Family.COMMUNICATION, "collectives"
    requires = _REQUIRES
    about_idle = True

    calls: int = 8
    within: float = 1000.0
    least: float = 0.01

    def look(self, rank: Rank) -> ManyCollectivesEvidence | None:
        found, sizes, names = Sets(), list[int](), list[str]()
        for device, capture in rank.lanes:
            rows = kernels(rank)
            rows = rows[(rows["device"] == device).to_numpy() & (rows["capture"] == capture).to_numpy()]
            first, last = self._bursts(rank, rows)
            found[device, capture] = intervals.union(rows["ts"].to_numpy()[first], rows["end"].to_numpy()[last])
            sizes += (last - first + 1).tolist()
            names += rows["what"].iloc[first].tolist()
        claim = common(found, rank.idle)
        if rank.share(claim) < self.least:
            return None
        largest = max(sizes)
        return ManyCollectivesEvidence(
            claim=claim,
            spans=rank.spans(claim),
            calls=sum(sizes) / per(rank),
            largest=largest,
            what=names[sizes.index(largest)],
        )

    def _bursts(self, rank: Rank, rows: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First and last row of each long run of one kind, each soon behind the one before, without compute between."""
        apart = (np.diff(rows["ts"].to_numpy(), prepend=0) > 1000 * self.within) | ~_behind(rank, rows)
        first = np.flatnonzero(apart)
        last = np.append(first[1:], len(rows)) - 1 if len(first) else first
        long = last - first + 1 >= self.calls
        return first[long], last[long]

    def tell(self, job: JobEvidence[ManyCollectivesEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"Between collectives that follow each other the GPU is idle for {job.max_saving} {job.per_step}",
            evidence=f"{worst.calls:,.0f} {job.per_step} come in bursts, up to {worst.largest} in a row: {worst.what}.",
            assumption="Launching one takes no idle time.",
            snippet="with torch.distributed._coalescing_manager():\n    for t in tensors:\n        dist.all_reduce(t)",
        )


@dataclass(frozen=True, kw_only=True)
class SyncBatchNormEvidence(Evidence):
    """What was seen on one rank: syncBatchNorm communicates."""

    calls: float


@dataclass(frozen=True)
class SyncBatchNorm(Rule[SyncBatchNormEvidence]):
    """SyncBatchNorm exchanges tiny statistics in every layer, forward and backward.

    ## When it speaks
    Operators of SyncBatchNorm launch at least `calls` collectives per step, which are exposed for at least `least` of
    it.

    ## What it could save
    Their exposed time.

    ## What to do
    Plain BatchNorm where a rank's batch is large enough (from about 16), GroupNorm, or a larger batch per rank. Compare
    the accuracy.

    ## How to verify
    No `SyncBatchNorm` operators in *Operators*.
    """

    code, title, family, section = "N18", "SyncBatchNorm communicates", Family.COMMUNICATION, "collectives"
    requires = _REQUIRES | {Capability.LAUNCHES, Capability.HOST_OPS}
    about_idle = True

    calls: float = 20.0
    least: float = 0.01

    def look(self, rank: Rank) -> SyncBatchNormEvidence | None:
        rows = kernels(rank)
        rows = rows[launched_in(rank, _NORM, rows)]
        if len(rows) < self.calls * per(rank):
            return None
        claim = common(awaited(rank), sets_of(rank, rows))
        if rank.share(claim) < self.least:
            return None
        return SyncBatchNormEvidence(
            claim=claim, spans=rank.spans(claim, name="SyncBatchNorm"), calls=len(rows) / per(rank)
        )

    def tell(self, job: JobEvidence[SyncBatchNormEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"SyncBatchNorm communicates {worst.calls:,.0f} times {job.per_step}: {job.max_saving}",
            evidence="Each layer exchanges its statistics, a few KB, and the next kernel waits for them.",
            assumption="No layer communicates.",
            snippet="torch.nn.GroupNorm(32, channels)  # instead of SyncBatchNorm",
        )
