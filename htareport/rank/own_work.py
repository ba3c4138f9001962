"""What a rank does with its own time: compute, copies, and idle time by cause."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from htareport.algorithms import intervals
from htareport.algorithms.frame_packing import Packed, pack
from htareport.algorithms.intervals import EMPTY
from htareport.rank.cached import cached_until_release
from htareport.rank.communication import compute, steps_of
from htareport.rank.equal_work import EqualWork, equal_work
from htareport.rank.host_rows import per
from htareport.rank.idle import Cause
from htareport.rank.interval_sets import minus, total
from htareport.rank.rank import Rank

SLOWER, MORE, COPIES, HOST = "slower kernels", "more kernels", "copies", "host"
IDLE_CAUSES: dict[str, tuple[Cause, ...]] = {
    **{str(cause): (cause,) for cause in (Cause.LOADING, Cause.COMPILING, Cause.COLLECTING, Cause.ALLOCATING)},
    HOST: (
        Cause.SYNCHRONISING, Cause.COPYING, Cause.LAUNCHING, Cause.CALLING, Cause.OPERATING, Cause.ANNOTATED,
        Cause.NOTHING,
    ),
}  # fmt: skip
_MAX_NAMES, _MAX_CHARACTERS = 40, 160
_MIN_STEPS = 3
OTHER_KERNELS = "(other kernels)"


@dataclass(frozen=True)
class OwnWork:
    """Where the time of a rank goes apart from communication, in ns per step and device.

    `names` are the host rows that fill most idle time of each cause, with their time. `kernels` is a packed frame of
    that name: name, count, time, of those of most time and of the rest together.
    """

    compute_ns: float
    compute_error_ns: float  # Standard error over the steps; inf where there are too few to tell.
    copies_ns: float
    idle_ns: dict[str, float]  # By cause.
    names: dict[str, list[tuple[str, float]]]
    kernels: Packed
    equal_work: EqualWork

    def kernel_table(self) -> pd.DataFrame:
        """Compute kernels per step by name: count and time."""
        return self.kernels.frames()["kernels"].set_index("name")


@cached_until_release
def own_work(rank: Rank) -> OwnWork:
    """Where the time of a rank goes apart from communication; and its kernels of most time."""
    divisor, busy = per(rank), rank.busy("comm", "compute")
    return OwnWork(
        compute_ns=total(compute(rank)) / divisor,
        compute_error_ns=_compute_error(rank),
        copies_ns=total(minus(rank.busy("memory"), busy)) / divisor,
        idle_ns={name: total(rank.idle_by(*causes)) / divisor for name, causes in IDLE_CAUSES.items()},
        names={
            name: [(row, time / divisor) for row, time in rank.idle_names(*causes)]
            for name, causes in IDLE_CAUSES.items()
        },
        kernels=pack({"kernels": _kernels(rank, divisor).reset_index()}),
        equal_work=equal_work(rank),
    )


def _compute_error(rank: Rank) -> float:
    """Standard error of compute per step and device, ns; inf where there are too few steps to tell."""
    steps = [steps_of(rank, lane) for lane in rank.lanes]
    by_lane = [
        intervals.covered(compute(rank).get(lane, EMPTY), windows[:, 0], windows[:, 1])
        for lane, windows in zip(rank.lanes, steps, strict=True)
    ]
    times = np.concatenate(by_lane or [np.zeros(0, np.int64)])
    if not len(rank.steps) or len(times) < _MIN_STEPS:
        return float("inf")
    return float(times.std(ddof=1) / np.sqrt(len(times)))


def _kernels(rank: Rank, divisor: int) -> pd.DataFrame:
    events = rank.device_events
    computing = (events["kind"] == "compute").to_numpy()
    codes = events["name"].cat.codes.to_numpy()[computing]
    strings = rank.loaded.strings
    count = np.bincount(codes, minlength=len(strings))
    time = np.bincount(codes, events["dur"].to_numpy()[computing].astype(np.float64), minlength=len(strings))
    top = np.argsort(-time, kind="stable")[:_MAX_NAMES]
    top = top[count[top] > 0]
    names = [*(strings[code][:_MAX_CHARACTERS] for code in top.tolist()), OTHER_KERNELS]
    counts = [*count[top].tolist(), int(count.sum() - count[top].sum())]
    times = [*time[top].tolist(), float(time.sum() - time[top].sum())]
    table = pd.DataFrame({"name": names, "count": counts, "time": times}).groupby("name", sort=False).sum()
    return table / divisor
