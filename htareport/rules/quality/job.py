"""Rules about the recordings of all ranks: different devices, different clocks, and options that were not recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from htareport.algorithms.collectives import AGREED_NS, AGREED_SHARE
from htareport.job.matching import clocks_note
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.report.number_lists import listed
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence
from htareport.rules.engine.recording import is_npu, joined_words, profiler_call


@dataclass(frozen=True, kw_only=True)
class MixedDevicesEvidence(Evidence):
    """Names of the devices of one rank."""

    devices: list[str]


@dataclass(frozen=True)
class MixedDevices(Rule[MixedDevicesEvidence]):
    """The ranks run on different devices.

    ## When it speaks
    The traces of the ranks name different devices. The notes on the quality of the data report other differences:
    missing ranks, and different steps, options or software.

    ## What it could save
    Nothing by itself. Where ranks wait for each other, the slower device sets the pace.

    ## What to do
    Compare only ranks that run on the same kind of device. Where ranks wait for each other, use equal devices, or give
    the faster ones more work.

    ## How to verify
    All ranks run on the same kind of device.
    """

    code, title, family = "Q7", "The ranks run on different devices", Family.QUALITY
    section, confidence = "temporal_breakdown", "high"
    requires = frozenset({Capability.GPU})

    def look(self, rank: Rank) -> MixedDevicesEvidence | None:
        names = {rank.device_name(device) for device, _ in rank.lanes} - {""}
        return MixedDevicesEvidence(devices=sorted(names)) if names else None

    def tell(self, job: JobEvidence[MixedDevicesEvidence]) -> Finding | None:
        by_name = dict[str, list[int]]()
        for rank, evidence in sorted(job.by_rank.items()):
            for name in evidence.devices:
                by_name.setdefault(name, []).append(rank)
        if len(by_name) < 2:  # noqa: PLR2004  one kind of device
            return None
        devices = [
            f"{name} on rank{'s' * (len(ranks) > 1)} {listed(ranks, max_ranges=8)}"
            for name, ranks in sorted(by_name.items())
        ]
        return self.finding(
            job,
            f"The ranks run on {len(by_name)} kinds of devices",
            evidence=f"{joined_words(devices)}.",
            severity=Severity.LOW,
        )


@dataclass(frozen=True)
class Clocks(Rule[Evidence]):
    """The clocks of the ranks differ.

    ## When it speaks
    All ranks leave a collective together, but their traces show different ends. Between the two ranks that are farthest
    apart, the difference (median over collectives) is more than 50 µs and more than 5 % of a collective's duration. The
    report corrects for it (see *Stragglers*).

    ## What it could save
    Nothing. The finding says how far times of different ranks can be compared.

    ## What to do
    Synchronise the clocks of the nodes with chrony or PTP. Compare ranks in this report, which corrects for the
    difference, and not in the traces side by side.

    ## How to verify
    The offsets of the clocks are below 50 µs.
    """

    code, title, family = "Q8", "The ranks' clocks differ", Family.QUALITY
    section, confidence = "stragglers", "high"
    requires = frozenset({Capability.GPU, Capability.COMM})

    def look(self, rank: Rank) -> Evidence | None:
        del rank  # The facts of the job have the clocks of all ranks.
        return Evidence()

    def tell(self, job: JobEvidence[Any]) -> Finding | None:
        matching = job.facts.matching
        offset = matching.clocks.offset
        if not offset:
            return None
        usual = float(np.median(np.concatenate([(group.end - group.start).ravel() for group in matching.together])))
        apart = max(offset.values()) - min(offset.values())
        if apart <= max(AGREED_NS, AGREED_SHARE * usual):
            return None
        middle = float(np.median(list(offset.values())))
        farthest = max(sorted(offset), key=lambda rank: abs(offset[rank] - middle))
        return self.finding(
            job,
            f"The clocks of the ranks are up to {job.time(apart)} apart",
            evidence=f"{clocks_note(matching)} Rank {farthest} is farthest off.",
            snippet="chronyc tracking",
            ranks=(farthest,),
            severity=Severity.LOW,
        )


@dataclass(frozen=True, kw_only=True)
class MissingOptionsEvidence(Evidence):
    """Options that were not recorded on one rank."""

    missing: list[str]


@dataclass(frozen=True)
class MissingOptions(Rule[MissingOptionsEvidence]):
    """Options were not recorded that would allow more findings.

    ## When it speaks
    Some rank lacks input shapes, memory, operators of the CPU, or Python stacks. Stacks count only where the device is
    idle for at least `late` of the time.

    ## What it could save
    Nothing. The finding says how to record what is missing.

    ## What to do
    Record once more with these options.

    - **stacks**: Record stacks in a separate run, because they slow the CPU.

    ## How to verify
    The next report checks the rules that this one could not check.
    """

    code, title, family = "Q9", "Options that were not recorded", Family.QUALITY
    confidence = "high"

    late: float = 0.1

    def look(self, rank: Rank) -> MissingOptionsEvidence | None:
        tables = rank.loaded.tables
        has_shapes = any((np.asarray(table["shapes"]) >= 0).any() for table in tables.values() if "shapes" in table)
        idle_share = rank.share(rank.idle) if rank.lanes else 0.0
        is_missing = {
            "cpu": Capability.HOST_OPS not in rank.capabilities,
            "shapes": not has_shapes,
            "memory": Capability.MEMORY not in rank.capabilities,
            "stacks": idle_share >= self.late and "python_function" not in tables,
        }
        missing = [name for name in is_missing if is_missing[name]]
        return MissingOptionsEvidence(missing=missing) if missing and not is_npu(rank) else None

    def tell(self, job: JobEvidence[MissingOptionsEvidence]) -> Finding:
        on_some_rank = {name for evidence in job.by_rank.values() for name in evidence.missing}
        missing = [name for name in _OPTIONS if name in on_some_rank]
        arguments = [_OPTIONS[name][0] for name in missing if name != "cpu"]  # The call records that anyway.
        return self.finding(
            job,
            f"More findings are possible with {joined_words([f'`{_OPTIONS[name][0]}`' for name in missing])}",
            evidence=" ".join(f"`{_OPTIONS[name][0]}` shows {_OPTIONS[name][1]}." for name in missing),
            cases=("stacks",) if "stacks" in missing else (),
            snippet=profiler_call(job, *arguments),
            severity=Severity.LOW,
        )


_OPTIONS = {  # Each with what it shows.
    "cpu": ("ProfilerActivity.CPU", "operators, launches and causes of idle time"),
    "shapes": ("record_shapes=True", "how far matrix products and attention are from what the device can do"),
    "memory": ("profile_memory=True", "peaks, growth and fragmentation of memory"),
    "stacks": ("with_stack=True", "the lines of Python behind idle time"),
}
