"""A rule about ranks of one host whose operators take more of the CPU than those of the others."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from htareport.algorithms.call_tree import self_times
from htareport.algorithms.frame_packing import Packed, join, pack
from htareport.job.replay import JobChange
from htareport.rank.capability import Capability
from htareport.rank.host_rows import coded, during, per, rows_named, short
from htareport.rank.idle import Cause
from htareport.rank.interval_sets import minus
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE, step_of
from htareport.report.findings import Finding
from htareport.report.number_lists import listed
from htareport.rows.metadata import world_size_of
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_WAITS = re.compile(
    r"^c10d::|^(?:gloo|nccl|rccl|ucc|mpi):|record_param_comms|barrier|ProcessGroup|_object|wait|DataLoader|data_load",
    re.IGNORECASE,
)
_MAX_OPERATORS, _MAX_CHARACTERS, _MAX_NAMED = 24, 48, 3
_MIN_OPERATORS = 5  # Operators that are compared.
_MIN_COVERED = 0.5  # Of the time of each rank's operators: how much of it is compared at least.


@dataclass(frozen=True, kw_only=True)
class CpuEvidence(Evidence):
    """CPU time of a rank's operators: a frame `operators` of those that take most, and which host it runs on."""

    operators: Packed
    operators_ns: float
    host: str  # Empty where the trace does not name it.
    devices: int  # Of the host, where the rank drives the one of its own number; else 0.
    windows: int


@dataclass(frozen=True)
class SlowCpu(Rule[CpuEvidence]):
    """The same operators take more of the CPU on one rank than on the others of its host.

    ## When it speaks
    Ranks of one host call the same operators equally often. Their time on the CPU itself, without operators, calls of
    the runtime and waits within them, varies by more than `spread` over these ranks (standard deviation by mean); on
    one it is at least `ratio` times the median, and so is that of half of its operators; and its device is idle in
    operators. Ranks share a host if the traces name it; where they name none, if each drives the device of its own
    number, counted anew on each host.

    ## What it could save
    Of the idle time in which the rank runs operators, the part by which these take longer than in the median.

    ## What to do
    Bind each rank to cores of its own near its device, with no more threads than these (`OMP_NUM_THREADS`, `numactl`);
    loader workers times ranks no more than cores. Look for other processes on its cores, and for a lower clock.

    ## How to verify
    Self times of operators are the same on all ranks.
    """

    code, title, family, section = "H25", "One rank's operators take more of the CPU", Family.HOST, "operators"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.HOST_OPS})
    about_idle, reattributes_from = True, "H25"

    spread: float = 0.3
    ratio: float = 1.3

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        if found := super().lacking(rank):
            return found
        if (world_size_of(rank.captures[0].meta) or 1) < 2:  # noqa: PLR2004  nobody to compare with
            return ("the trace tells of no other ranks",)
        return () if any(_places(rank)) else ("the traces do not tell which ranks share a host",)

    def look(self, rank: Rank) -> CpuEvidence | None:
        claim = minus(rank.idle_by(Cause.OPERATING), during(rank, rows_named(rank, _WAITS, "operator")))
        usage = _usage(rank)
        host, devices = _places(rank)
        return CpuEvidence(
            claim=claim,
            spans=rank.spans(claim),
            operators=pack({"operators": usage.head(_MAX_OPERATORS)}),
            operators_ns=float(usage["time"].sum()),
            host=host,
            devices=devices,
            windows=per(rank),
        )

    def reattributed_ns(self, job: JobEvidence[CpuEvidence]) -> Mapping[int, float]:
        return {
            rank: job.saving_by_rank.get(rank, 0.0) * (1 - cpu.usual_ns / cpu.time_ns)
            for rank, cpu in self.slow(job).items()
        }

    def change(self, job: JobEvidence[CpuEvidence]) -> JobChange:
        slow = self.slow(job)
        if job.num_ranks > len(slow):
            return JobChange(without_lateness=frozenset(slow))
        return JobChange(host_scale={rank: cpu.usual_ns / cpu.time_ns for rank, cpu in slow.items()})

    def slow(self, job: JobEvidence[CpuEvidence]) -> dict[int, SlowCpuRank]:
        """The ranks whose operators take longer, worked out once."""
        slow = job.facts.cached(self, lambda: self._compared(job))
        job.shared.cpu_time_ratio = {rank: cpu.time_ns / cpu.usual_ns for rank, cpu in slow.items()}
        return slow

    def _compared(self, job: JobEvidence[CpuEvidence]) -> dict[int, SlowCpuRank]:
        hosts = _hosts(job.by_rank)
        calls = join((rank, job.by_rank[rank].operators) for rank in sorted(hosts))["operators"] if hosts else None
        if calls is None or not len(calls):
            return {}
        calls = _comparable(calls.assign(host=calls["rank"].map(hosts)), pd.Series(hosts).value_counts())
        sums = calls.groupby("rank").agg(time=("time", "sum"), ratio=("ratio", "median"), number=("name", "size"))
        sums["host"] = sums.index.map(hosts)
        sums["covered"] = sums["time"] / [job.by_rank[rank].operators_ns for rank in sums.index]
        by_host = sums.groupby("host")
        usual, spread = by_host["time"].transform("median"), by_host["time"].transform("std", ddof=0)
        is_slow = (spread >= self.spread * by_host["time"].transform("mean")) & (sums["time"] >= self.ratio * usual)
        is_slow &= (sums["ratio"] >= self.ratio) & (sums["number"] >= _MIN_OPERATORS)
        is_slow &= by_host["covered"].transform("min") >= _MIN_COVERED
        sums = sums.assign(usual=usual, ranks=by_host["time"].transform("size"))[is_slow]
        columns = [sums[name].tolist() for name in ("time", "usual", "ranks", "number")]
        return {
            rank: SlowCpuRank(time, usual, ranks, number, _largest_ratios(calls[calls["rank"] == rank]))
            for rank, time, usual, ranks, number in zip(sums.index.tolist(), *columns, strict=True)
        }

    def tell(self, job: JobEvidence[CpuEvidence]) -> Finding | None:
        slow = {rank: cpu for rank, cpu in self.slow(job).items() if job.saving_by_rank.get(rank)}
        if not slow:
            return None
        worst = min(slow, key=lambda rank: (-job.saving_by_rank[rank], rank))
        first, others = slow[worst], [rank for rank in sorted(slow) if rank != worst]
        also = f" So do those of rank{'s' * (len(others) > 1)} {listed(others)}." if others else ""
        late = [rank for rank in sorted(slow) if rank in job.facts.stragglers]
        waited = f" Collectives wait for rank{'s' * (len(late) > 1)} {listed(late)}, too." if late else ""
        windows = job.by_rank[worst].windows
        names = ", ".join(f"`{short(name)}` {ratio:.2g}×" for name, ratio in first.names)
        return self.finding(
            job,
            f"Operators of rank {worst} take {first.time_ns / first.usual_ns:.2g} times the CPU time of its host's "
            f"other ranks, and leave its GPU idle for {job.max_saving} {job.per_step}",
            evidence=f"{first.number} operators that the {first.ranks} ranks call equally often take "
            f"{job.time(first.time_ns / windows)} {job.per_step} of the CPU themselves, "
            f"{job.time(first.usual_ns / windows)} in "
            f"the median of these ranks: {names}.{also}{waited}",
            assumption="Its operators take as long as in the median of its host; only what of the excess is idle time "
            "counts.",
            snippet="OMP_NUM_THREADS=8 torchrun --nproc-per-node=8 main.py  # Cores of the host / ranks.\n"
            "numactl --cpunodebind=0 --membind=0 …  # The socket of the rank's device: nvidia-smi topo -m",
            ranks=tuple(sorted(slow)),
            spans=job.by_rank[worst].spans,
        )


class SlowCpuRank(NamedTuple):
    """A rank's CPU time in operators that it shares with its host's others (ns), their median, and which these are."""

    time_ns: float
    usual_ns: float
    ranks: int
    number: int
    names: Sequence[tuple[str, float]]


def _usage(rank: Rank) -> pd.DataFrame:
    """Operators of the steps by name, most time first: name, calls (count), and time (ns) outside all within them."""
    host, strings = rank.host, rank.loaded.strings
    own = self_times(host["ts"], host["end"], host["parent"])
    rows = np.flatnonzero(host.of_level("operator"))
    if len(rank.steps):
        rows = rows[step_of(rank.steps, host.at("ts", rows)) != OUTSIDE]
    codes = host.at("name", rows)
    counts = ~coded(rank, _WAITS)[codes]
    codes, own = codes[counts], own[rows[counts]]
    count, time = np.bincount(codes, minlength=len(strings)), np.bincount(codes, own, len(strings)).astype(np.int64)
    order = np.argsort(-time, kind="stable")
    order = order[count[order] > 0]
    names = [strings[code][:_MAX_CHARACTERS] for code in order[:_MAX_OPERATORS].tolist()]
    names += [""] * (len(order) - len(names))  # Only the first are told.
    return pd.DataFrame({"name": names, "count": count[order], "time": time[order]})


def _places(rank: Rank) -> tuple[str, int]:
    """The host, if the trace names it, and how many devices it has, if this rank drives that of its own number; or 0.

    A rank that sees only its own device does not tell how many there are.
    """
    host = next((capture.host for capture in rank.captures if capture.host), "")
    devices = rank.captures[0].meta.get("deviceProperties")
    number = len(devices) if isinstance(devices, list) else 0
    driven = {device for device, _ in rank.lanes}
    fits = number > 1 and driven == {rank.rank % number}
    return host, number if fits else 0


def _hosts(evidence_by_rank: Mapping[int, CpuEvidence]) -> dict[int, Hashable]:
    """What stands for the host of each rank; none where that is not known.

    By name, unless each has a name of its own, as of containers; else ranks count through the devices of each host.
    """
    names = {rank: evidence.host for rank, evidence in evidence_by_rank.items()}
    if all(names.values()) and len(set(names.values())) < len(names):
        return dict(names)
    devices = {evidence.devices for evidence in evidence_by_rank.values()}
    if len(devices) != 1 or not (number := devices.pop()):
        return {}
    return {rank: rank // number for rank in evidence_by_rank}


def _comparable(calls: pd.DataFrame, sizes: pd.Series[int]) -> pd.DataFrame:
    """Operators that all ranks of a host, two or more, call equally often, with their ratio to the median there."""
    groups = calls.groupby(["host", "name"], sort=False)
    size = calls["host"].map(sizes)
    alike = groups["count"].transform("min") == groups["count"].transform("max")
    everywhere = (groups["rank"].transform("size") == size) & (size > 1)
    ratio = calls["time"] / groups["time"].transform("median").clip(lower=1)
    return calls.assign(ratio=ratio)[alike & everywhere]


def _largest_ratios(operators: pd.DataFrame) -> list[tuple[str, float]]:
    largest = operators.nlargest(_MAX_NAMED, "time")
    return list(zip(largest["name"].tolist(), largest["ratio"].tolist(), strict=True))
