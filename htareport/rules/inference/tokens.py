"""Rules about generating tokens: launches that bound it, bandwidth that does, and prompts that come between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from htareport.algorithms.work import Kind
from htareport.rank.capability import Capability
from htareport.rank.compute_time import calls_in_steps, compute_time, unknown_limits, work
from htareport.rank.host_rows import DISPATCH
from htareport.rank.inference_steps import annotated, by_engine, decoding, windows
from htareport.rank.interval_sets import common, total
from htareport.rank.operator_groups import GroupSummary, groups, of_kind
from htareport.rank.operator_work import limits_of
from htareport.rank.rank import Rank
from htareport.rank.training import trains
from htareport.report import Unit
from htareport.report.findings import Finding, Severity
from htareport.report.units import counted, text
from htareport.rules.engine.base import Family, Rule, severity_of
from htareport.rules.engine.context import context_of
from htareport.rules.engine.evidence import Evidence, JobEvidence

_GRAPHS = "vllm serve … --compilation-config '{{\"cudagraph_capture_sizes\": {sizes}}}'  # Without --enforce-eager."
_COMPILED = 'model.forward = torch.compile(model.forward, mode="reduce-overhead")  # With a static key-value cache.'
_CHUNKED = "vllm serve … --enable-chunked-prefill --max-num-batched-tokens 2048"
_QUANTISED = "vllm serve … --quantization fp8 --kv-cache-dtype fp8"
_FEWER_BITS = (
    "from torchao.quantization import Int8WeightOnlyConfig, quantize_\nquantize_(model, Int8WeightOnlyConfig())"
)


@dataclass(frozen=True, kw_only=True)
class LaunchBoundDecodeEvidence(Evidence):
    """What was seen on one rank: generating tokens is bound by launches."""

    ranges: int
    length: float
    launched: float
    idle: float
    of_step: float
    requests: list[int]
    engine: bool


@dataclass(frozen=True)
class LaunchBoundDecode(Rule[LaunchBoundDecodeEvidence]):
    """Tokens are generated kernel by kernel, and the device waits for each launch.

    ## When it speaks
    At least `repeated` ranges generate tokens: annotated so (vLLM's `execute_context_…_generation_…`, or *decode* in
    the name), or profiler steps whose products have at most 16 rows and whose attention has one query. There is no
    backward pass and no graph launch in them, H2 or H3 has found that launches hold up the device, and it is idle for
    at least `idle` of them while the host dispatches.

    ## What it could save
    What H2 or H3 says: the time is claimed there and only once.

    ## What to do
    Let CUDA graphs replay the generation: no `--enforce-eager` in vLLM and capture sizes that hold the batch sizes that
    occur, no `--disable-cuda-graph` in SGLang, `torch.compile(mode="reduce-overhead")` with a static key-value cache
    elsewhere.

    ## How to verify
    One graph launch per token, and shorter steps.
    """

    code, title, family, section = "I1", "Generating tokens is bound by launches", Family.INFERENCE, "launch_stats"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, follows = True, "H2"

    repeated: int = 3
    idle: float = 0.2

    def look(self, rank: Rank) -> LaunchBoundDecodeEvidence | None:
        if context_of(rank).found.isdisjoint(("H2", "H3")):
            return None
        ranges = decoding(rank)
        if len(ranges.start) < self.repeated:
            return None
        calls, events = rank.launches, rank.device_events
        order = np.argsort(ranges.start, kind="stable")
        place = np.searchsorted(ranges.start[order], calls["ts"].to_numpy(), side="right") - 1
        inside = (place >= 0) & (calls["ts"].to_numpy() < ranges.end[order][np.maximum(place, 0)])
        if (inside & calls["graph"].to_numpy()).any():
            return None
        launch = events["launch"].to_numpy()
        launched = int(np.append(inside, False)[launch].sum())
        whole, idle = windows(rank, ranges), common(rank.idle_by(*DISPATCH), windows(rank, ranges))
        share = total(idle) / max(total(whole), 1)
        if share < self.idle or not launched:
            return None
        return LaunchBoundDecodeEvidence(
            spans=rank.spans(idle),
            ranges=len(ranges.start),
            length=float(np.median(ranges.end - ranges.start)),
            launched=launched / len(ranges.start),
            idle=share,
            of_step=rank.share(idle),
            requests=sorted(set(ranges.decodes.tolist()))[:8],
            engine=by_engine(rank),
        )

    def tell(self, job: JobEvidence[LaunchBoundDecodeEvidence]) -> Finding:
        rank, evidence = max(job.by_rank.items(), key=lambda item: (item[1].of_step, -item[0]))
        worst = evidence
        sizes = ", ".join(map(str, worst.requests))
        batch = f" Requests at once: {sizes}." if worst.requests != [1] else ""
        return self.finding(
            job,
            f"Generating tokens, the GPU is idle for {job.percent(worst.idle)} of the time, waiting for launches",
            severity=severity_of(worst.of_step),
            evidence=f"On rank {rank}, {worst.ranges} ranges of {job.time(worst.length)} (median) that generate tokens "
            f"launch {worst.launched:,.0f} kernels and copies each, none of them by a graph.{batch} The time itself is "
            "claimed by the finding about launches.",
            snippet=_GRAPHS.format(sizes=worst.requests) if worst.engine else _COMPILED,
        )


@dataclass(frozen=True, kw_only=True)
class PrefillBetweenEvidence(Evidence):
    """What was seen on one rank: prompts delay tokens."""

    intervals: int
    median: float
    high: float
    slow: int
    excess: float
    longest: int
    engine: bool


@dataclass(frozen=True)
class PrefillBetween(Rule[PrefillBetweenEvidence]):
    """Prompts are read between tokens, and those who wait for a token wait for that as well.

    ## When it speaks
    Annotated ranges that generate tokens follow each other, at least `repeated` times, in intervals of which the 95th
    percentile is at least `ratio` times the median; and at least `caused` of those that are that long hold the reading
    of a prompt, in the same range (vLLM's `execute_context_…_generation_…`) or in one between (*prefill* in its name).

    ## What it could save
    Nothing is claimed: prompts have to be read. It is the time between tokens that varies less.

    ## What to do
    Read prompts in smaller chunks, beside the tokens, or on other devices.

    ## How to verify
    The 95th percentile of the time between tokens comes nearer to the median.
    """

    code, title, family, section = "I2", "Prompts delay tokens", Family.INFERENCE, "annotations"
    requires = frozenset({Capability.ANNOTATIONS})
    confidence = "high"

    repeated: int = 10
    ratio: float = 2.0
    caused: float = 0.8

    def look(self, rank: Rank) -> PrefillBetweenEvidence | None:
        ranges = annotated(rank)
        mine = np.flatnonzero(ranges.decodes > 0)
        same = (np.diff(ranges.thread[mine]) == 0) & (np.diff(ranges.capture[mine]) == 0)
        first, after = mine[:-1][same], mine[1:][same]
        if len(first) < self.repeated:
            return None
        between = ranges.start[after] - ranges.start[first]
        prompts = np.append(0, np.cumsum(ranges.prefills))
        read = prompts[after] - prompts[first]  # By the range itself, and by those up to the next token.
        middle, high = np.percentile(between, [50, 95]).tolist()
        slow = between >= self.ratio * middle
        if high < self.ratio * middle or (read[slow] > 0).mean() < self.caused:
            return None
        lasting = between[slow & (read > 0)]
        longest = first[np.argsort(-between, kind="stable")[:5]]
        sets = {lane: np.column_stack((ranges.start[longest], ranges.end[longest])) for lane in rank.lanes[:1]}
        return PrefillBetweenEvidence(
            spans=rank.spans(sets),
            intervals=len(between),
            median=middle,
            high=high,
            slow=len(lasting),
            excess=float((lasting - middle).sum()) / float(between.sum()),
            longest=int(lasting.max()),
            engine=by_engine(rank),
        )

    def tell(self, job: JobEvidence[PrefillBetweenEvidence]) -> Finding:
        rank, evidence = max(job.by_rank.items(), key=lambda item: (item[1].high / item[1].median, -item[0]))
        worst = evidence
        return self.finding(
            job,
            f"With prompts read between, tokens take up to {worst.high / worst.median:.3g} times the median (95th "
            "percentile)",
            severity=Severity.LOW,
            evidence=f"On rank {rank}, of {worst.intervals:,} intervals from token to token the median is "
            f"{job.time(worst.median)} and the 95th percentile {job.time(worst.high)}; prompts are read in "
            f"{worst.slow} long ones, the longest of {job.time(worst.longest)}. That is "
            f"{job.percent(worst.excess)} of the time.",
            snippet=_CHUNKED if worst.engine else "",
        )


@dataclass(frozen=True, kw_only=True)
class BandwidthBoundDecodeEvidence(Evidence):
    """What was seen on one rank: generating tokens is bound by memory bandwidth."""

    reached: float
    share: float
    rate: float
    bytes: float
    groups: list[GroupSummary]
    engine: bool


@dataclass(frozen=True)
class BandwidthBoundDecode(Rule[BandwidthBoundDecodeEvidence]):
    """Generating tokens reads weights and keys and values about as fast as memory allows.

    ## When it speaks
    There is no backward pass; products of at most `rows` rows, and attention, that memory bounds take at least `least`
    of the compute time, and together reach at least `reached` of the bandwidth on the device's data sheet.

    ## What it could save
    Nothing is claimed: the kernels are not to blame, other ones would not be faster.

    ## What to do
    Read less per token (weights and key-value cache of 8 or 4 bits), or use what is read for more: more sequences at
    once, speculative decoding.

    ## How to verify
    Tokens per second rise.
    """

    code, title, family = "I3", "Generating tokens is bound by memory bandwidth", Family.INFERENCE
    section: ClassVar[str] = "compute_efficiency"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})
    confidence, follows = "high", "C15"

    rows: int = 16
    reached: float = 0.7
    least: float = 0.2

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def look(self, rank: Rank) -> BandwidthBoundDecodeEvidence | None:
        if trains(rank):
            return None
        found = work(rank)
        products = [signature.work.product if signature.work else None for signature in found.signatures]
        is_wide = np.array([bool(p and p.batch == 1 and min(p.m, p.n) > self.rows) for p in products] or [False])
        wanted = of_kind(rank, Kind.PRODUCT, Kind.ATTENTION) & ~is_wide[found.calls["signature"].to_numpy()]
        chosen = [group for group in groups(rank, wanted & calls_in_steps(rank)) if group.by_memory >= group.by_compute]
        time = sum(each.time for each in chosen)
        reached = sum(each.by_memory for each in chosen) / max(time, 1)
        if time < self.least * compute_time(rank) or not self.reached <= reached:
            return None
        most = sorted(chosen, key=lambda each: -each.time)
        limits = limits_of(rank, [most[0].device])[most[0].device]
        return BandwidthBoundDecodeEvidence(
            reached=reached,
            share=time / compute_time(rank),
            rate=reached * limits.bandwidth if limits else 0.0,
            bytes=sum(each.by_memory for each in chosen) * (limits.bandwidth if limits else 0.0) / 1e9 / rank.num_steps,
            groups=[each.summary(rank.num_steps) for each in most[:3]],
            engine=by_engine(rank),
        )

    def tell(self, job: JobEvidence[BandwidthBoundDecodeEvidence]) -> Finding:
        rank, evidence = max(job.by_rank.items(), key=lambda item: (item[1].share, -item[0]))
        worst = evidence
        listed = "; ".join(f"`{g.name}` {g.shapes}: {counted(g.calls, 'call')}, {job.time(g.time_ns)}"
                           for g in worst.groups)  # fmt: skip
        return self.finding(
            job,
            f"Generating tokens reads memory at {job.percent(worst.reached)} of its bandwidth: the kernels are not to "
            "blame",
            severity=Severity.LOW,
            evidence=f"On rank {rank}, {job.percent(worst.share)} of compute reads {text(worst.bytes, Unit.BYTES)} "
            f"{job.per_step} at {text(worst.rate, Unit.BYTES_PER_SECOND)}: {listed}.",
            snippet=_QUANTISED if worst.engine else _FEWER_BITS,
        )
