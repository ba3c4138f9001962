"""Rules about communication that the host does itself, or through interfaces that others have replaced."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from htareport.rank.capability import Capability
from htareport.rank.host_rows import IDLE, during, names_of, per, rows_named, times
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rows.metadata import distributed
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_ON_HOST = re.compile(
    r"barrier|^gloo:|(?:broadcast|gather|scatter|send|recv|reduce)_object|_object_list|all_gather_object"
)
_WRAPPER = re.compile(r"^(?:Broadcast|Scatter|Gather|ReduceAddCoalesced)(?:Backward)?$|^DataParallel\.forward")


@dataclass(frozen=True, kw_only=True)
class HostCollectivesEvidence(Evidence):
    """What was seen on one rank: the host communicates in the loop."""

    names: list[tuple[str, int]]
    windows: int


@dataclass(frozen=True)
class HostCollectives(Rule[HostCollectivesEvidence]):
    """The device is idle while the host is in a barrier, or exchanges Python objects.

    ## When it speaks
    Barriers, gloo collectives or collectives of objects run on the host while the device is idle and the host launches
    nothing, for at least `least` of the step.

    ## What it could save
    That idle time.

    ## What to do
    Take barriers out of the loop: collectives wait by themselves. Exchange numbers as tensors on the device, every n
    steps, instead of objects.

    ## How to verify
    They are gone from *Idle time by what the host did*.
    """

    code, title, family, section = "N19", "The host communicates in the loop", Family.COMMUNICATION, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.STEPS})
    about_idle = True

    least: float = 0.005

    def look(self, rank: Rank) -> HostCollectivesEvidence | None:
        rows = rows_named(rank, _ON_HOST)
        claim = during(rank, rows)
        if rank.share(claim) < self.least:
            return None
        names = Counter(names_of(rank, rows)).most_common(3)
        return HostCollectivesEvidence(
            claim=claim, spans=rank.spans(claim, name=names[0][0]), names=names, windows=per(rank)
        )

    def tell(self, job: JobEvidence[HostCollectivesEvidence]) -> Finding:
        worst = job.worst
        return self.finding(
            job,
            f"The GPU is idle for {job.max_saving} {job.per_step} while the host communicates",
            evidence=f"Meanwhile the host runs {times(worst.names, worst.windows)} {job.per_step}.",
            assumption="None of it is needed in every step.",
            snippet="if step % 100 == 0:\n    dist.all_reduce(metrics)  # A tensor on the device, not an object.",
        )


@dataclass(frozen=True, kw_only=True)
class LegacyParallelEvidence(Evidence):
    """What was seen on one rank: outdated way of running in parallel."""

    names: list[str]
    devices: int
    gloo: bool


@dataclass(frozen=True)
class LegacyParallel(Rule[LegacyParallelEvidence]):
    """Several devices of one process under DataParallel, or devices that communicate through gloo.

    ## When it speaks
    One process drives several devices and runs DataParallel's scatter, gather or broadcast; or the backend of a job
    with GPUs is gloo alone, whose collectives run on the host.

    ## What it could save
    Not known: DataParallel copies the model to every device in each step, and gloo moves everything through the host.

    ## What to do
    - **DataParallel**: Use DistributedDataParallel with one process per GPU: no copies of the model in each step.
    - **gloo**: Use `backend="nccl"`, which on ROCm is RCCL.

    ## How to verify
    One rank per GPU; collectives are kernels.
    """

    code, title, family, section = "N21", "Outdated way of running in parallel", Family.COMMUNICATION, "collectives"
    requires = frozenset({Capability.GPU, Capability.HOST_OPS})
    confidence = "high"

    def look(self, rank: Rank) -> LegacyParallelEvidence | None:
        devices = len(rank.devices)
        names = sorted(set(names_of(rank, rows_named(rank, _WRAPPER)))) if devices > 1 else []
        gloo = _only_gloo(rank) and len(rows_named(rank, re.compile(r"^gloo:"))) > 0
        return LegacyParallelEvidence(names=names, devices=devices, gloo=gloo) if names or gloo else None

    def tell(self, job: JobEvidence[LegacyParallelEvidence]) -> Finding:
        worst = job.by_rank[min(job.by_rank)]
        if worst.names:
            title = f"DataParallel drives {worst.devices} GPUs from one process"
            evidence = f"The process runs {', '.join(f'`{name}`' for name in worst.names)} on all of them."
            case = "DataParallel"
            snippet = "torchrun --nproc-per-node=gpu main.py\nmodel = DistributedDataParallel(model, [local_rank])"
        else:
            title = "GPUs communicate through gloo, on the host"
            evidence = "The backend of the job is gloo, and gloo collectives run in the trace."
            case = "gloo"
            snippet = 'torch.distributed.init_process_group("nccl")'
        return self.finding(
            job, title, severity=Severity.MEDIUM, evidence=evidence, cases=(case,),
             snippet=snippet,
        )  # fmt: skip


def _only_gloo(rank: Rank) -> bool:
    """Whether the job's backend is gloo, and no group has another."""
    info = distributed(rank.captures[0].meta)
    listed = groups if isinstance(groups := info.get("pg_config"), list) else []
    others = [str(each.get("backend_config")) for each in listed if isinstance(each, dict)]
    backends = [str(info.get("backend")), *others]
    return "gloo" in backends[0] and not re.search(r"[nrxhm]ccl|ucc|mpi", " ".join(backends))
