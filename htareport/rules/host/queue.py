"""A rule about a host that is so far ahead that its launches wait for room in the queue."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.rank.capability import Capability
from htareport.rank.host_rows import by_lane, per, rows_in
from htareport.rank.interval_sets import joined, total
from htareport.rank.rank import Rank
from htareport.report.findings import Finding, Severity
from htareport.rows import classify
from htareport.rules.engine.base import AHEAD, Family, Rule
from htareport.rules.engine.evidence import Evidence, JobEvidence

_FULL = re.compile(r"^Command Buffer Full$")  # What CUPTI calls it.
_LONG_NS = 20_000  # A launch call that takes less waits for nothing.


@dataclass(frozen=True)
class FullQueue(Rule[Evidence]):
    """The host is so far ahead that its launch calls wait for room in the queue: the device sets the pace.

    ## When it speaks
    For at least `least` of the step launch calls are in progress that take 20 µs or more, and `ratio` times the median
    of the others, while at least `queue` launches before them on their stream have not started; or the driver reports
    that its command buffer is full (`overhead` rows of that name).

    ## What it could save
    Nothing: the host would wait elsewhere. A faster host gains nothing while the queue is full, so advice to launch
    more at once (H1) is for information only where the host waits so for longer than the device waits for the host.

    ## What to do
    Look at the kernels and at communication. A thread that loads data or checks results between launches is better off
    in another thread or process, since it waits here. Where the device is idle at times nonetheless, something makes
    the host stop: synchronisation, input, pauses.

    ## How to verify
    *Blocked* in *Queue length* says how long calls wait; the step gets shorter with faster kernels only.
    """

    code, title, family, section = "H24", "The queue of launches is full", Family.HOST, "queue_length"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})

    least: float = 0.05
    queue: int = 1000
    ratio: float = 3.0

    def look(self, rank: Rank) -> Evidence | None:
        calls, reported = self._waiting(rank), by_lane(rank, *rows_in(rank, "overhead", _FULL))
        waits = by_lane(rank, *(calls[name].to_numpy() for name in ("ts", "end", "capture")))
        full = rank.clipped(joined(waits, reported))
        if rank.share(full) < self.least:
            return None
        waiting = rank.clipped(waits)
        numbers = {
            "waiting": total(waiting) / per(rank),
            "share": rank.share(full),
            "calls": len(calls) / per(rank),
            "queued": int(calls["queued"].median()) if len(calls) else 0,
            "reported": total(rank.clipped(reported)) / per(rank),
            "idle": rank.share(rank.idle),
            AHEAD: total(full) / per(rank),
        }
        return Evidence(numbers=numbers, spans=rank.spans(full, name="the queue is full"))

    def _waiting(self, rank: Rank) -> pd.DataFrame:
        """Launches of kernels that take long while the queue is full: ts, end, capture, and what is `queued`."""
        calls, events = rank.launches, rank.device_events
        is_kernel = np.array([classify.is_kernel_launch(str(name)) for name in calls["name"].cat.categories], np.bool_)
        single, dur = is_kernel[calls["name"].cat.codes.to_numpy()], calls["dur"].to_numpy()
        if dur[single & (dur >= _LONG_NS)].sum() < self.least * rank.whole / max(len(rank.lanes), 1):
            return calls.iloc[:0].assign(queued=0)
        launch = events["launch"].to_numpy()
        first = np.flatnonzero((launch >= 0) & single[launch] & ~events["launch"].duplicated().to_numpy())
        launch, dur = launch[first], dur[launch[first]]
        started, lane = (events[name].to_numpy()[first] for name in ("ts", "lane"))
        queued = _queued(calls["ts"].to_numpy()[launch], started, lane, dur >= _LONG_NS)
        is_full = queued >= self.queue
        usual = float(np.median(dur[~is_full])) if not is_full.all() else 0.0
        chosen = is_full & (dur >= self.ratio * usual)
        waiting: pd.DataFrame = calls.iloc[launch[chosen]]
        return waiting.assign(queued=queued[chosen])

    def tell(self, job: JobEvidence[Any]) -> Finding:
        rank = max(job.by_rank, key=lambda each: (job.by_rank[each].numbers["share"], -each))
        n, said = job.by_rank[rank].numbers, list[str]()
        if n["calls"]:
            said.append(
                f"{n['calls']:,.3g} launch calls {job.per_step_label} wait for {job.time(n['waiting'])}, with some "
                f"{n['queued']:,} launches before them in the queue"
            )
        if n["reported"]:
            said.append(f"the driver reports a full command buffer for {job.time(n['reported'])} {job.per_step_label}")
        words = "; ".join(said)
        return self.finding(
            job,
            f"The host waits for room in the queue for {job.percent(n['share'])} of {job.window_label}: the GPU sets the pace",
            evidence=f"{words[:1].upper()}{words[1:]}. The device is idle for {job.percent(n['idle'])} of {job.window_label}.",
            advice="Do not make the host faster: work on kernels and communication. What the launching thread does "
            "besides, such as loading data, waits here: give it to another thread or process. Where the device is "
            "idle at times, look for what stops the host, such as synchronisation and input.",
            verify="*Blocked* under *Queue length*; the step gets shorter with faster kernels only.",
            severity=Severity.LOW,
            spans=job.by_rank[rank].spans,
        )


def _queued(
    launched: NDArray[np.int64], started: NDArray[np.int64], lane: NDArray[np.int64], wanted: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """How many launches before it have not started on its stream when each wanted one begins; 0 for the others."""
    found = np.zeros(len(launched), np.int64)
    for number in unique_sorted(lane[wanted]).tolist():
        mine = np.flatnonzero(lane == number)
        begun, stamps = np.sort(launched[mine]), np.sort(np.maximum(started[mine], launched[mine]))
        some = mine[wanted[mine]]
        at = launched[some]
        found[some] = np.searchsorted(begun, at) - np.searchsorted(stamps, at, side="right")
    return found
