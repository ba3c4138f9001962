"""Rules about the recording that need all ranks: whether they fit together, and what is missing for other advice."""

from __future__ import annotations

from collections import Counter
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
    """What was seen on one rank: the ranks differ."""

    devices: list[str]


@dataclass(frozen=True)
class MixedDevices(Rule[MixedDevicesEvidence]):
    """The ranks run on different devices.

    ## When it speaks
    The trace gives devices of ranks different names. That ranks are missing, or have different steps, options or
    software, is said in the notes on the quality of the data.

    ## What it could save
    Nothing by itself: in synchronous training the slower device sets the pace.

    ## What to do
    Compare ranks of one kind with each other only. Where all wait for each other, the slower kind sets the pace: use
    equal devices, or give the faster ones more work.

    ## How to verify
    All ranks show one device.
    """

    code, title, family = "Q7", "The ranks differ", Family.QUALITY
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
        places = [
            f"{name} on rank{'s' * (len(ranks) > 1)} {listed(ranks, most=8)}" for name, ranks in sorted(by_name.items())
        ]
        return self.finding(
            job,
            f"The ranks run on {len(by_name)} kinds of devices",
            evidence=f"{joined_words(places)}.",
            severity=Severity.LOW,
        )


@dataclass(frozen=True)
class Clocks(Rule[Evidence]):
    """The clocks of the ranks differ.

    ## When it speaks
    Collectives that all ranks leave together end at different times: by more than 50 µs and 5 % of their duration, in
    the median of the rank that is farthest off. The report corrects for that (see *Stragglers*).

    ## What it could save
    Nothing: it says how far times of different ranks can be compared.

    ## What to do
    Compare ranks in this report, which corrects for it, and not in the traces side by side. Keep the nodes' clocks
    together with chrony or PTP.

    ## How to verify
    The offsets of the clocks are below 50 µs.
    """

    code, title, family = "Q8", "The ranks' clocks differ", Family.QUALITY
    section, confidence = "stragglers", "high"
    requires = frozenset({Capability.GPU, Capability.COMM})

    def look(self, rank: Rank) -> Evidence | None:
        del rank  # What is said of it stands in the facts of the job.
        return Evidence()

    def tell(self, job: JobEvidence[Any]) -> Finding | None:
        matching = job.facts.matching
        offset = matching.clocks.offset
        if not offset:
            return None
        usual = float(np.median(np.concatenate([(one.end - one.start).ravel() for one in matching.together])))
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
    """What was seen on one rank: options that were not recorded."""

    missing: list[str]


@dataclass(frozen=True)
class MissingOptions(Rule[MissingOptionsEvidence]):
    """What was not recorded, and what would be said if it was.

    ## When it speaks
    On some rank input shapes, memory, Python stacks (where the host is late in more than `late` of the time), or the
    host's operators were not recorded.

    ## What it could save
    Nothing: it says how to record what is missing.

    ## What to do
    Record once more with these options.

    - **stacks**: Stacks slow the host: record them apart from what is measured.

    ## How to verify
    The rules that were not checked are.
    """

    code, title, family = "Q9", "Options that were not recorded", Family.QUALITY
    confidence = "high"

    late: float = 0.1

    def look(self, rank: Rank) -> MissingOptionsEvidence | None:
        trace = rank
        shapes = any((np.asarray(t["shapes"]) >= 0).any() for t in trace.loaded.tables.values() if "shapes" in t)
        idle = rank.share(rank.idle) if rank.lanes else 0.0
        missing = {
            "cpu": Capability.HOST_OPS not in trace.capabilities,
            "shapes": not shapes,
            "memory": Capability.MEMORY not in trace.capabilities,
            "stacks": idle >= self.late and "python_function" not in trace.loaded.tables,
        }
        found = [name for name, is_missing in missing.items() if is_missing]
        return MissingOptionsEvidence(missing=found) if found and not is_npu(rank) else None

    def tell(self, job: JobEvidence[MissingOptionsEvidence]) -> Finding:
        counts = Counter(name for each in job.by_rank.values() for name in each.missing)
        there = [name for name in _UNLOCKS if name in counts]
        what = [f"{_UNLOCKS[name][1]}: record with `{_UNLOCKS[name][0]}`" for name in there]
        words = "; ".join(what)
        options = [_UNLOCKS[name][0] for name in there if name not in {"cpu", "stacks"}]
        return self.finding(
            job,
            f"More can be said with {joined_words([f'`{_UNLOCKS[name][0]}`' for name in there])}",
            evidence=f"{words[:1].upper()}{words[1:]}.",
            cases=("stacks",) if "stacks" in there else (),
            snippet=profiler_call(job, *options, *(["with_stack=True"] * ("stacks" in there))),
            severity=Severity.LOW,
        )


_UNLOCKS = {  # Option, and what it is for.
    "cpu": ("ProfilerActivity.CPU", "operators, launches and causes of idle time"),
    "shapes": ("record_shapes=True", "how far matrix products and attention are from what the device can do"),
    "memory": ("profile_memory=True", "peaks, growth and fragmentation of memory"),
    "stacks": ("with_stack=True", "the lines of Python behind idle time"),
}
