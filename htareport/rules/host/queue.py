"""The launch queue is full: the CPU waits for the GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.rank.capability import Capability
from htareport.rank.host_rows import by_lane, kernel_launch_mask, per, rows_in
from htareport.rank.interval_sets import joined, total
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_FULL = re.compile(r"^Command Buffer Full$")  # What CUPTI calls it.
_LONG_NS = 20_000  # A launch call that takes less waits for nothing.


@dataclass(frozen=True, kw_only=True)
class FullQueueEvidence(Evidence):
    """Launch calls that wait for room in the queue, per step; times in ns."""

    waiting_calls: float
    waiting_ns: float
    launches_before: int  # Median, of those that have not started when a waiting call begins.
    reported_ns: float  # For how long the driver reports a full command buffer.
    full_share: float  # Of the windows.
    idle_share: float


@dataclass(frozen=True)
class FullQueue(Rule[FullQueueEvidence]):
    """The CPU is so far ahead that its launch calls wait for room in the launch queue: the GPU sets the pace.

    ## When it speaks
    For at least `least` of the step, launch calls are in progress that take 20 µs or more and `ratio` times the median
    of the others, while at least `queue` earlier launches on their stream have not started; or the driver reports that
    its command buffer is full (`overhead` rows of that name).

    ## What it could save
    Nothing: the CPU would wait elsewhere. A faster CPU gains nothing while the queue is full, so advice to launch more
    at once (H1) is rated low where the CPU waits this way for longer than the GPU waits for the CPU.

    ## What to do
    Do not make the CPU faster: work on kernels and communication. Move other work of the launching thread, such as
    loading data or checking results, to another thread or process. Where the GPU is idle at times nonetheless, look for
    what stops the CPU, such as synchronisation and input.

    ## How to verify
    *Blocked* in *Queue length* goes down. The step gets shorter with faster kernels only.
    """

    code, title, family, section = "H24", "The launch queue is full", Family.HOST, "queue_length"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})

    least: float = 0.05
    queue: int = 1000
    ratio: float = 3.0

    def look(self, rank: Rank) -> FullQueueEvidence | None:
        calls, reported = self._waiting(rank), by_lane(rank, *rows_in(rank, "overhead", _FULL))
        waits = by_lane(rank, *(calls[name].to_numpy() for name in ("ts", "end", "capture")))
        full = rank.clipped(joined(waits, reported))
        if rank.share(full) < self.least:
            return None
        return FullQueueEvidence(
            waiting_calls=len(calls) / per(rank),
            waiting_ns=total(rank.clipped(waits)) / per(rank),
            launches_before=int(calls["queued"].median()) if len(calls) else 0,
            reported_ns=total(rank.clipped(reported)) / per(rank),
            full_share=rank.share(full),
            idle_share=rank.share(rank.idle),
            queue_wait_ns=total(full) / per(rank),
            spans=rank.spans(full, name="the queue is full"),
        )

    def _waiting(self, rank: Rank) -> pd.DataFrame:
        """Launches of kernels that take long while the queue is full: ts, end, capture, and what is `queued`."""
        calls, events = rank.launches, rank.device_events
        single, dur = kernel_launch_mask(rank), calls["dur"].to_numpy()
        if dur[single & (dur >= _LONG_NS)].sum() < self.least * rank.whole / max(len(rank.lanes), 1):
            return calls.iloc[:0].assign(queued=0)
        launch = events["launch"].to_numpy()
        first = np.flatnonzero((launch >= 0) & single[launch] & ~events["launch"].duplicated().to_numpy())
        launch, dur = launch[first], dur[launch[first]]
        started, lane = (events[name].to_numpy()[first] for name in ("ts", "lane"))
        queued = _queued(calls["ts"].to_numpy()[launch], started, lane, dur >= _LONG_NS)
        is_full = queued >= self.queue
        usual = float(np.median(dur[~is_full])) if not is_full.all() else 0.0
        is_waiting = is_full & (dur >= self.ratio * usual)
        waiting: pd.DataFrame = calls.iloc[launch[is_waiting]]
        return waiting.assign(queued=queued[is_waiting])

    def tell(self, job: JobEvidence[FullQueueEvidence]) -> Finding:
        rank = max(job.by_rank, key=lambda number: (job.by_rank[number].full_share, -number))
        worst, sentences = job.by_rank[rank], list[str]()
        if worst.waiting_calls:
            sentences.append(
                f"{worst.waiting_calls:,.3g} launch calls {job.per_step} wait for {job.time(worst.waiting_ns)}, "
                f"behind some {worst.launches_before:,} launches in the queue."
            )
        if worst.reported_ns:
            reported = job.time(worst.reported_ns)
            sentences.append(f"The driver reports a full command buffer for {reported} {job.per_step}.")
        sentences.append(f"The GPU is idle for {job.percent(worst.idle_share)} of {job.window}.")
        return self.finding(
            job,
            f"The CPU waits for room in the launch queue for {job.percent(worst.full_share)} of {job.window}",
            evidence=" ".join(sentences),
            severity=Severity.LOW,
            spans=worst.spans,
        )


def _queued(
    launched: NDArray[np.int64], started: NDArray[np.int64], lane: NDArray[np.int64], wanted: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """How many earlier launches on its stream have not started when each wanted one begins; 0 for the others."""
    # Launches before a stamp, less starts before it, are those that still wait; each lane is sorted once.
    queued = np.zeros(len(launched), np.int64)
    for number in unique_sorted(lane[wanted]).tolist():
        rows = np.flatnonzero(lane == number)
        launches, starts = np.sort(launched[rows]), np.sort(np.maximum(started[rows], launched[rows]))
        wanted_rows = rows[wanted[rows]]
        stamps = launched[wanted_rows]
        queued[wanted_rows] = np.searchsorted(launches, stamps) - np.searchsorted(starts, stamps, side="right")
    return queued
