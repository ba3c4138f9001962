"""Rules about generating tokens: bound by launches, bound by memory bandwidth, or delayed by prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from htareport.algorithms.work import Kind
from htareport.rank.capability import Capability
from htareport.rank.compute_time import compute_time, unknown_limits, work
from htareport.rank.host_rows import DISPATCH
from htareport.rank.inference_steps import annotated_ranges, decode_ranges, is_vllm, range_sets
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
    """Ranges that generate tokens, and for how much of them the GPU waits for launches."""

    num_ranges: int
    median_ns: float
    num_launched: float  # Kernels and copies in a range.
    idle_share: float  # Of the ranges.
    window_share: float  # That idle time, of the windows.
    requests: list[int]  # Numbers of requests at once.
    is_vllm: bool


@dataclass(frozen=True)
class LaunchBoundDecode(Rule[LaunchBoundDecodeEvidence]):
    """Tokens are generated kernel by kernel, and the GPU waits for each launch.

    ## When it speaks
    At least `repeated` ranges generate tokens. Their annotations say so (vLLM's `execute_context_…_generation_…`, or
    *decode* in the name), or they are profiler steps whose products have at most 16 rows and whose attention has one
    query. They contain no backward pass and no graph launch. The GPU is idle for at least `idle` of them while the CPU
    dispatches, and H2 or H3 has found that the GPU waits for launches.

    ## What it could save
    Nothing beyond what H2 or H3 counts.

    ## What to do
    Let CUDA graphs replay the generation. In vLLM, remove `--enforce-eager`, and capture all batch sizes that occur. In
    SGLang, remove `--disable-cuda-graph`. Elsewhere use `torch.compile(mode="reduce-overhead")` with a static key-value
    cache.

    ## How to verify
    Each token has one graph launch. Steps are shorter.
    """

    code, title, family, section = "I1", "Generating tokens is bound by launches", Family.INFERENCE, "launch_stats"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle, follows = True, "H2"

    repeated: int = 3
    idle: float = 0.2

    def look(self, rank: Rank) -> LaunchBoundDecodeEvidence | None:
        if context_of(rank).found.isdisjoint(("H2", "H3")):
            return None
        ranges = decode_ranges(rank)
        if len(ranges.start) < self.repeated:
            return None
        calls = rank.launches
        order = np.argsort(ranges.start, kind="stable")
        index = np.searchsorted(ranges.start[order], calls["ts"].to_numpy(), side="right") - 1
        is_inside = (index >= 0) & (calls["ts"].to_numpy() < ranges.end[order][np.maximum(index, 0)])
        if (is_inside & calls["graph"].to_numpy()).any():
            return None
        num_launched = int(np.append(is_inside, False)[rank.device_events["launch"].to_numpy()].sum())
        times = range_sets(rank, ranges)
        idle = common(rank.idle_by(*DISPATCH), times)
        share = total(idle) / max(total(times), 1)
        if share < self.idle or not num_launched:
            return None
        return LaunchBoundDecodeEvidence(
            spans=rank.spans(idle),
            num_ranges=len(ranges.start),
            median_ns=float(np.median(ranges.end - ranges.start)),
            num_launched=num_launched / len(ranges.start),
            idle_share=share,
            window_share=rank.share(idle),
            requests=sorted(set(ranges.decodes.tolist()))[:8],
            is_vllm=is_vllm(rank),
        )

    def tell(self, job: JobEvidence[LaunchBoundDecodeEvidence]) -> Finding:
        rank, worst = max(job.by_rank.items(), key=lambda item: (item[1].window_share, -item[0]))
        sizes = ", ".join(map(str, worst.requests))
        batch = f" Requests at once: {sizes}." if worst.requests != [1] else ""
        return self.finding(
            job,
            f"While generating tokens, the GPU waits for launches {job.percent(worst.idle_share)} of the time",
            severity=severity_of(worst.window_share),
            evidence=f"On rank {rank}, {worst.num_ranges} ranges generate tokens, with a median of "
            f"{job.time(worst.median_ns)}. Each launches {worst.num_launched:,.0f} kernels and copies, none of them by "
            f"a CUDA graph.{batch} The finding about launches counts this time.",
            snippet=_GRAPHS.format(sizes=worst.requests) if worst.is_vllm else _COMPILED,
        )


@dataclass(frozen=True, kw_only=True)
class PrefillBetweenEvidence(Evidence):
    """Intervals from token to token, and those of them that are long because a prompt is processed."""

    num_intervals: int
    median_ns: float
    p95_ns: float
    num_slow: int
    excess_share: float  # What these take above the median, of all intervals.
    longest_ns: int
    is_vllm: bool


@dataclass(frozen=True)
class PrefillBetween(Rule[PrefillBetweenEvidence]):
    """Prompts are processed between tokens (prefill), which delays the next token of all other requests.

    ## When it speaks
    Annotated ranges that generate tokens follow each other at least `repeated` times. The 95th percentile of the
    intervals from one to the next is at least `ratio` times the median. In at least `caused` of the intervals that are
    at least that long a prompt is processed: in the same range (vLLM's `execute_context_…_generation_…`), or in one
    between (*prefill* in its name).

    ## What it could save
    Nothing is claimed, because prompts have to be processed. The time between tokens could vary less.

    ## What to do
    Process prompts in smaller chunks together with the tokens (chunked prefill), or on other devices.

    ## How to verify
    The 95th percentile of the time between tokens is closer to the median.
    """

    code, title, family, section = "I2", "Prompts delay tokens", Family.INFERENCE, "annotations"
    requires = frozenset({Capability.ANNOTATIONS})
    confidence = "high"

    repeated: int = 10
    ratio: float = 2.0
    caused: float = 0.8

    def look(self, rank: Rank) -> PrefillBetweenEvidence | None:
        ranges = annotated_ranges(rank)
        rows = np.flatnonzero(ranges.decodes > 0)
        is_same_thread = (np.diff(ranges.thread[rows]) == 0) & (np.diff(ranges.capture[rows]) == 0)
        first, following = rows[:-1][is_same_thread], rows[1:][is_same_thread]
        if len(first) < self.repeated:
            return None
        intervals = ranges.start[following] - ranges.start[first]
        num_before = np.append(0, np.cumsum(ranges.prefills))
        has_prompt = num_before[following] > num_before[first]  # In the range itself, or up to the next token.
        median, p95 = np.percentile(intervals, [50, 95]).tolist()
        is_slow = intervals >= self.ratio * median
        if p95 < self.ratio * median or has_prompt[is_slow].mean() < self.caused:
            return None
        slow = intervals[is_slow & has_prompt]
        longest = first[np.argsort(-intervals, kind="stable")[:5]]
        sets = {lane: np.column_stack((ranges.start[longest], ranges.end[longest])) for lane in rank.lanes[:1]}
        return PrefillBetweenEvidence(
            spans=rank.spans(sets),
            num_intervals=len(intervals),
            median_ns=median,
            p95_ns=p95,
            num_slow=len(slow),
            excess_share=float((slow - median).sum()) / float(intervals.sum()),
            longest_ns=int(slow.max()),
            is_vllm=is_vllm(rank),
        )

    def tell(self, job: JobEvidence[PrefillBetweenEvidence]) -> Finding:
        rank, worst = max(job.by_rank.items(), key=lambda item: (item[1].p95_ns / item[1].median_ns, -item[0]))
        return self.finding(
            job,
            "Prompts between tokens delay them: the 95th percentile of the time per token is "
            f"{worst.p95_ns / worst.median_ns:.3g} times the median",
            severity=Severity.LOW,
            evidence=f"On rank {rank}, {worst.num_intervals:,} intervals from token to token have a median of "
            f"{job.time(worst.median_ns)} and a 95th percentile of {job.time(worst.p95_ns)}. Prompts are processed in "
            f"{worst.num_slow} long ones, of which the longest takes {job.time(worst.longest_ns)}. What these take "
            f"above the median is {job.percent(worst.excess_share)} of the time.",
            snippet=_CHUNKED if worst.is_vllm else "",
        )


@dataclass(frozen=True, kw_only=True)
class BandwidthBoundDecodeEvidence(Evidence):
    """Products of few rows and attention that are bound by memory."""

    reached: float  # Share of the device's bandwidth.
    share: float  # Of the compute time.
    rate: float  # Bytes per second.
    num_bytes: float  # Per step.
    groups: list[GroupSummary]
    is_vllm: bool


@dataclass(frozen=True)
class BandwidthBoundDecode(Rule[BandwidthBoundDecodeEvidence]):
    """Generating tokens reads weights, keys and values about as fast as memory allows.

    ## When it speaks
    There is no backward pass. Memory-bound products of at most `rows` rows and memory-bound attention take at least
    `least` of the compute time, and together reach at least `reached` of the bandwidth on the device's data sheet.

    ## What it could save
    Nothing is claimed, because other kernels would not be faster.

    ## What to do
    Read less per token: quantize weights and the key-value cache to 8 or 4 bits. Or use what is read for more tokens:
    serve more sequences at once, or use speculative decoding.

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
        products = [signature.work.product if signature.work else None for signature in work(rank).signatures]
        is_wide = np.array([bool(p and p.batch == 1 and min(p.m, p.n) > self.rows) for p in products], np.bool_)
        mask = of_kind(rank, Kind.PRODUCT, Kind.ATTENTION) & ~is_wide[work(rank).calls["signature"].to_numpy()]
        bound = [group for group in groups(rank, mask) if group.by_memory >= group.by_compute]
        time, memory_time = sum(group.time for group in bound), sum(group.by_memory for group in bound)
        reached = memory_time / max(time, 1)
        if time < self.least * compute_time(rank) or not self.reached <= reached:
            return None
        longest = sorted(bound, key=lambda group: -group.time)
        limits = limits_of(rank, [longest[0].device])[longest[0].device]
        bandwidth = limits.bandwidth if limits else 0.0
        return BandwidthBoundDecodeEvidence(
            reached=reached,
            share=time / compute_time(rank),
            rate=reached * bandwidth,
            num_bytes=memory_time * bandwidth / 1e9 / rank.num_steps,
            groups=[group.summary(rank.num_steps) for group in longest[:3]],
            is_vllm=is_vllm(rank),
        )

    def tell(self, job: JobEvidence[BandwidthBoundDecodeEvidence]) -> Finding:
        rank, worst = max(job.by_rank.items(), key=lambda item: (item[1].share, -item[0]))
        listed = "; ".join(f"`{g.name}` {g.shapes}: {counted(g.calls, 'call')}, {job.time(g.time_ns)}"
                           for g in worst.groups)  # fmt: skip
        return self.finding(
            job,
            f"Generating tokens reads memory at {job.percent(worst.reached)} of its bandwidth, so other kernels would "
            "not be faster",
            severity=Severity.LOW,
            evidence=f"On rank {rank}, such kernels take {job.percent(worst.share)} of compute. They "
            f"read {text(worst.num_bytes, Unit.BYTES)} {job.per_step} at {text(worst.rate, Unit.BYTES_PER_SECOND)}: "
            f"{listed}.",
            snippet=_QUANTISED if worst.is_vllm else _FEWER_BITS,
        )
