"""The rule about communication that compute waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.job.replay import JobChange
from htareport.rank.capability import Capability
from htareport.rank.collective_names import OTHER
from htareport.rank.communication import (
    SINGLE,
    awaited,
    compute,
    covered_by,
    exposed,
    in_backward,
    is_of_layers,
    kernels,
)
from htareport.rank.host_rows import per
from htareport.rank.interval_sets import minus, total
from htareport.rank.kernel_launches import distinct, summed
from htareport.rank.parallel_dimensions import DATA, PIPELINE, dimensions_of
from htareport.rank.rank import Rank
from htareport.report import Unit
from htareport.report.findings import Finding
from htareport.report.units import text
from htareport.rows.metadata import world_size_of
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_MOST_GROUPS, _LEAST_SHOWN = 3, 0.02
_SLOW, _LARGE = 5e9, 4 * 2**20  # Bytes per second that any link between devices carries in calls of so many bytes.


@dataclass(frozen=True)
class AwaitedKind:
    """One kind of collective that compute waits for."""

    what: str  # Collective and process group.
    collective: str
    is_single: bool  # Whether all of it is float32.
    in_backward: bool
    of_layers: bool
    of_stages: bool
    median_bytes: float  # nan where the trace does not tell,
    time_ns: float  # per step,
    bytes_per_second: float  # with all waiting.


@dataclass(frozen=True, kw_only=True)
class ExposedCommunicationEvidence(Evidence):
    """What was seen on one rank: communication is exposed."""

    exposed: float
    late: float
    communication: float
    alone_ns: float
    groups: list[AwaitedKind]
    world: int


@dataclass(frozen=True)
class ExposedCommunication(Rule[ExposedCommunicationEvidence]):
    """Communication takes time in which the device computes nothing.

    ## When it speaks
    Communication kernels run while no compute does, for at least `least` of the step. What does not count: time in
    which the host has not launched the next compute anyway, and what ranks wait for each other, as far as N3, N4 and
    N6 speak of it.

    ## What it could save
    All of that time, if it were hidden under compute or went away; half of it is the lower estimate.

    ## What to do
    - **ranks missing**: Only {recorded|some ranks were} recorded: record all of them to see how much of
      this is waiting for a late rank.
    - **little compute**: Only {alone|little} of compute runs without communication, so hiding is not enough: send less,
      less often, or over faster links.
    - **slow**: Large calls reach only {rate|a low rate}: a rank is late, or they use a slow link. `NCCL_DEBUG=INFO`
      shows which link they use.
    - **fp32**: The gradients are fp32: reduce in bf16 (`bf16_compress_hook`).
    - **stages**: Stages of a pipeline wait for what others send: give all stages as much to compute, use more
      micro-batches, or several chunks per stage (an interleaved schedule).
    - **exchange**: Overlap the exchange with compute that does not need it, or exchange less: lower precision, fewer
      ranks.
    - **layers**: What follows needs the result: split the layers over fewer ranks, within one host. Or overlap the
      communication of one half of the batch with the compute of the other.
    - **shards**: Under FSDP prefetch (`set_modules_to_forward_prefetch`, `forward_prefetch=True`) and wrap larger
      blocks. Shard within a host only (a 2-D mesh, HYBRID_SHARD).
    - **gradients**: Under DDP let buckets be ready earlier (smaller `bucket_cap_mb`, `static_graph=True`) and
      accumulate gradients under `model.no_sync()`.
    - **reduction**: For gradients: buckets that are ready earlier, `model.no_sync()`. For layers split over ranks,
      where what follows needs the result: fewer ranks, or two half batches in turns.
    - **other**: Start collectives as early as their input is there, with `async_op=True`, and wait as late as possible.

    ## How to verify
    `exposed_comm_pct` goes down in `htareport diff`.
    """

    code, title, family, section = "N1", "Communication is exposed", Family.COMMUNICATION, "comm_overlap"
    requires = frozenset({Capability.GPU, Capability.COMM})
    about_idle, confidence = True, "high"

    least: float = 0.05

    def look(self, rank: Rank) -> ExposedCommunicationEvidence | None:
        claim, every = awaited(rank), per(rank)
        rows = kernels(rank)
        return ExposedCommunicationEvidence(
            claim=claim,
            spans=rank.spans(claim),
            exposed=total(exposed(rank)) / every,
            late=(total(exposed(rank)) - total(claim)) / every,
            communication=total(rank.busy("comm")) / every,
            alone_ns=total(minus(compute(rank), rank.busy("comm"))) / every,
            groups=_groups(rank, rows.assign(awaited=covered_by(rank, claim, rows)), every),
            world=world_size_of(rank.captures[0].meta) or 1,
        )

    def change(self, job: JobEvidence[ExposedCommunicationEvidence]) -> JobChange:
        del job
        return JobChange(transfer_share=0.0)

    def tell(self, job: JobEvidence[ExposedCommunicationEvidence]) -> Finding | None:
        if job.saving_share < self.least:
            return None
        return self.finding(
            job,
            f"Communication is exposed for {job.percent(job.saving_share)} of {job.window}: {job.max_saving} "
            f"{job.per_step}",
            evidence=" ".join(self._evidence(job)),
            values=self._values(job),
            cases=self._cases(job),
            assumption="All of it is hidden under compute, or goes away; half of it is the lower estimate.",
            snippet=_SNIPPETS.get(_way(job), _ASYNC),
        )

    @staticmethod
    def _evidence(job: JobEvidence[ExposedCommunicationEvidence]) -> list[str]:
        worst = job.worst
        elsewhere = worst.exposed - worst.late - job.max_saving_ns
        length, alone = job.time(worst.communication), job.time(worst.exposed)
        said = [
            f"On rank {job.worst_rank} there is communication for {length} {job.per_step}, without compute for {alone}."
        ]
        if worst.late > 0.01 * worst.exposed:
            said.append(f"In {job.time(worst.late)} the host has not launched the next compute anyway.")
        if worst.groups:
            said.append(
                f"By kind, as far as compute waits: {', '.join(_group_words(group, job) for group in worst.groups)}."
            )
        if elsewhere > 0.01 * worst.exposed:
            said.append(
                f"Of that {job.time(elsewhere)} are due to late or slow ranks, which have findings of their own."
            )
        return said

    @staticmethod
    def _values(job: JobEvidence[ExposedCommunicationEvidence]) -> dict[str, str]:
        worst, slow = job.worst, _slow(job)
        recorded = f"{job.num_ranks} of {worst.world} ranks {'was' if job.num_ranks == 1 else 'were'}"
        values = {"recorded": recorded, "alone": job.time(worst.alone_ns)}
        return values | ({"rate": text(slow[0].bytes_per_second, Unit.BYTES_PER_SECOND)} if slow else {})

    @staticmethod
    def _cases(job: JobEvidence[ExposedCommunicationEvidence]) -> list[str]:
        """What to do, by what the collective that is awaited most is for."""
        worst, way = job.worst, _way(job)
        applies = {
            "ranks missing": worst.world > job.num_ranks,
            "little compute": job.max_saving_ns > worst.alone_ns and way != "stages",
            "slow": bool(_slow(job)),
            "fp32": way == "gradients" and any(group.is_single for group in worst.groups),
            way: True,
        }
        return [case for case, is_so in applies.items() if is_so]


def _slow(job: JobEvidence[ExposedCommunicationEvidence]) -> list[AwaitedKind]:
    """Kinds of collectives with large calls that move few bytes per second."""
    return [kind for kind in job.worst.groups if kind.bytes_per_second < _SLOW and kind.median_bytes >= _LARGE]


def _groups(rank: Rank, rows: pd.DataFrame, every: int) -> list[AwaitedKind]:
    """What is awaited most, per step: by collective and process group."""
    columns = {name: rows[name].to_numpy() for name in ("what", "collective", "awaited", "dur", "bytes", "dtype")}
    first, number = distinct(columns["what"], columns["collective"])
    names = [(str(columns["what"][row]), str(columns["collective"][row])) for row in first.tolist()]
    awaits = summed(number, columns["awaited"], len(names)).tolist()
    dimension = dimensions_of(rank, rows)["dimension"].to_numpy()
    flags = (in_backward(rank, rows) | (dimension == DATA), is_of_layers(rows), dimension == PIPELINE)
    order = sorted(range(len(names)), key=lambda each: (-awaits[each], names[each]))
    found = [each for each in order if awaits[each] > _LEAST_SHOWN * sum(awaits)][:_MOST_GROUPS]
    return [
        _group(names[each], awaits[each] / every, {n: c[number == each] for n, c in columns.items()},
               [flag[number == each] for flag in flags])
        for each in found
    ]  # fmt: skip


def _group(
    name: tuple[str, str], time: float, columns: Mapping[str, NDArray[Any]], flags: Sequence[NDArray[np.bool_]]
) -> AwaitedKind:
    """What is told of one kind of collective that compute waits for so long, in ns per step."""
    known = columns["bytes"][~np.isnan(columns["bytes"])]
    size = float(known.sum()) if len(known) else float("nan")
    back, layers, stages = (bool(flag.all()) for flag in flags)
    return AwaitedKind(
        what=name[0],
        collective=name[1],
        is_single=bool(np.isin(columns["dtype"], SINGLE).all()),
        in_backward=back,
        of_layers=layers,
        of_stages=stages,
        median_bytes=float(np.median(known)) if len(known) else float("nan"),
        time_ns=time,
        bytes_per_second=1e9 * size / max(int(columns["dur"].sum()), 1),
    )


def _group_words(group: AwaitedKind, job: JobEvidence[ExposedCommunicationEvidence]) -> str:
    unknown = group.collective == OTHER
    said = f"{'collectives of unknown kind' if unknown else group.what} {job.time(group.time_ns)}"
    if not np.isfinite(group.bytes_per_second):
        return said
    size, rate = text(group.median_bytes, Unit.BYTES), text(group.bytes_per_second, Unit.BYTES_PER_SECOND)
    return f"{said} (median call {size}, {rate} with all waiting)"


def _way(job: JobEvidence[ExposedCommunicationEvidence]) -> str:
    """What the collective that is awaited most is for, of those whose kind is known.

    A job that only infers has no gradients, and its parameters lie where they are used: it reduces parts of layers.
    """
    groups = job.worst.groups
    if groups and groups[0].of_stages:
        return "stages"
    group = next((group for group in groups if group.collective != OTHER), None)
    if group is None:
        return "other"
    collective = group.collective
    if collective.startswith("all_to_all") or collective == "send_recv":
        return "exchange"
    if collective.startswith(("all_reduce", "reduce_scatter", "all_gather")):
        shards = not collective.startswith("all_reduce")
        return (
            "layers"
            if group.of_layers or job.infers
            else "shards"
            if shards
            else "gradients"
            if group.in_backward
            else "reduction"
        )
    return "other"


_ASYNC = "work = dist.all_reduce(tensor, async_op=True)\n...  # compute meanwhile\nwork.wait()"
_SNIPPETS = {
    "shards": "block.set_modules_to_forward_prefetch([next_block])  # FSDP2: gather ahead",
    "stages": "schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4 * num_stages)",
    "gradients": "with model.no_sync():  # DDP: reduce every n micro-batches\n    loss.backward()",
}
