"""The analysis of memory copies and fills: bytes, time and bandwidth by direction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank.bandwidth import bandwidth_levels
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Mark, TableSpec, Unit, chart_of, key
from htareport.report.units import text

_NS = Unit.NANOSECONDS
_RATE = Unit.BYTES_PER_SECOND
_MIN_COPY_NS = 10_000  # Rates of shorter copies suffer from the trace's rounded times.
_MAX_RATE_FACTOR = 1.2  # Between a copy's bandwidth in the trace and its bytes / time, by rounding.


class MemoryBandwidth(Analysis):
    """How much memory is copied and filled, in which direction, and how fast.

    ## How it is computed
    Copies and fills (memset) by kind: HtoD is host to device, DtoH device to host, DtoD on a device, PtoP between
    devices. Copies that run as kernels stand among the kernels. *Effective* is the sum of the bytes over the sum of the
    times (GB = 10^9 bytes) of the copies whose size the trace gives. *Mean while busy* and *peak* come from the
    bandwidth that the trace gives for each copy: concurrent copies of a kind add up, the mean is weighted by time over
    the part where it is above zero, and copies of no duration or without a finite value add nothing.

    ## What to do
    - Host to device far below the link (PCIe 4 x16 about 25 GB/s): pin the host memory (`DataLoader(pin_memory=True)`,
      `.to(device, non_blocking=True)`), copy larger pieces.
    - Many small copies: pack them into one tensor, or create the data on the device (`device="cuda"`).
    - Device to host in every step: `.item()`, `.cpu()` or printing; `torch.cuda.set_sync_debug_mode("warn")` names the
      lines. Do it every so many steps.
    """

    title = "Memory copies"
    group = Group.MEMORY
    order = 0
    requires = frozenset({Capability.COPIES})
    tables = (
        TableSpec(
            "kinds",
            "By kind, all ranks together",
            (
                key("kind", "Kind", Unit.TEXT, "Direction of the copy, or Memset for fills."),
                Column("count", "Events", Unit.COUNT, "Number of copies or fills."),
                Column("bytes", "Bytes", Unit.BYTES, "Sum of the sizes; none where the trace gives none."),
                Column(
                    "time", "Time", _NS, "Sum of the durations; copies that overlap count each.", better=Better.LOWER
                ),
                Column(
                    "effective",
                    "Effective",
                    _RATE,
                    "Bytes / time, of the events with a size; none without.",
                    better=Better.HIGHER,
                ),
                Column(
                    "mean",
                    "Mean while busy",
                    _RATE,
                    "Mean over time of the bandwidth in the trace, while it is above zero.",
                ),
                Column("peak", "Peak", _RATE, "Largest sum of the bandwidths of copies that run at once on a rank."),
                Column("without_size", "Without size", Unit.COUNT, "Events whose size the trace does not give."),
            ),
        ),
        TableSpec(
            "ranks",
            "By rank and kind",
            (
                key("rank", "Rank"),
                key("kind", "Kind", Unit.TEXT, "Direction of the copy, or Memset for fills."),
                Column("count", "Events", Unit.COUNT, "Number of copies or fills."),
                Column("bytes", "Bytes", Unit.BYTES, "Sum of the sizes; none where the trace gives none."),
                Column("time", "Time", _NS, "Sum of the durations; copies that overlap count each."),
                Column("effective", "Effective", _RATE, "Bytes / time, of the events with a size; none without."),
            ),
            is_detail=True,
        ),
    )

    def map(self, rank: Rank) -> Frames:
        copies = rank.copies
        rows = []
        for kind, of_kind in copies.groupby("copy_kind", sort=True):
            sized = of_kind[of_kind["bytes"] >= 0]
            moved, implied = _bytes_by_bandwidth(sized)
            areas = [bandwidth_levels(copies_of_capture) for _, copies_of_capture in of_kind.groupby("capture")]
            rows.append(
                {
                    "kind": kind,
                    "count": len(of_kind),
                    "bytes": int(sized["bytes"].sum()) if len(sized) else None,
                    "time": int(of_kind["dur"].sum()),
                    "sized_time": int(sized["dur"].sum()),
                    "moved": moved,
                    "told": implied,
                    "area": sum(area for _, _, area, _ in areas),
                    "busy": sum(busy for *_, busy in areas),
                    "peak": max((float(level.max(initial=0)) for _, level, _, _ in areas), default=0.0),
                    "without_size": len(of_kind) - len(sized),
                }
            )
        return {"ranks": pd.DataFrame(rows)}

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        ranks = frames["ranks"]
        groups = ranks.groupby("kind")
        kinds = groups[["count", "time", "sized_time", "area", "busy", "without_size"]].sum()
        kinds["bytes"] = groups["bytes"].sum(min_count=1)
        kinds["peak"] = groups["peak"].max()
        kinds = kinds.reset_index().sort_values(["time", "kind"], ascending=[False, True])
        kinds["mean"] = kinds["area"] / kinds["busy"].where(kinds["busy"] > 0)
        kinds["peak"] = kinds["peak"].where(kinds["peak"] > 0)
        return {"kinds": kinds.assign(effective=_rate(kinds)), "ranks": ranks.assign(effective=_rate(ranks))}

    def charts(self, frames: Frames) -> Iterator[Chart]:
        kinds = frames["kinds"]
        yield chart_of(
            self.tables[0],
            "time",
            "Time in copies and fills",
            Mark.BAR,
            kinds,
            "time",
            "kind",
            x_label="sum of durations",
            caption="All ranks together.",
        )
        rated = kinds[kinds["effective"].notna()]
        if len(rated):
            yield chart_of(
                self.tables[0],
                "effective",
                "Effective bandwidth",
                Mark.BAR,
                rated,
                "effective",
                "kind",
                x_label="bytes / time",
                caption="Sum of bytes over sum of times, all ranks together.",
            )

    def notes(self, frames: Frames) -> Iterator[str]:
        if frames["kinds"]["effective"].isna().all():
            yield "No data on sizes: the trace gives no bytes for its copies, so no bandwidth is shown."
        moved, implied = (float(frames["ranks"][name].sum()) for name in ("moved", "told"))
        if implied and max(moved / implied, implied / moved) > _MAX_RATE_FACTOR:
            factor = text(max(moved / implied, implied / moved), Unit.NUMBER)
            size = "large" if moved > implied else "small"
            yield (
                f"The bandwidths that the trace gives do not fit its bytes and times: bytes / time is {factor} times "
                f"as {size} (copies of 10 µs and more). The profiler seems to have taken another clock for them. "
                "Effective is bytes / time; mean while busy and peak are as the trace has them."
            )


def _bytes_by_bandwidth(sized: pd.DataFrame) -> tuple[int, float]:
    """Return the bytes of the longer copies for which the trace gives a bandwidth, and bandwidth × time of these."""
    has_bandwidth = np.isfinite(sized["bandwidth"]) & (sized["bandwidth"] > 0)
    rated = sized[has_bandwidth & (sized["dur"] >= _MIN_COPY_NS) & (sized["bytes"] > 0)]
    return int(rated["bytes"].sum()), float((rated["bandwidth"] * rated["dur"]).sum())


def _rate(frame: pd.DataFrame) -> pd.Series:
    time = frame["sized_time"].astype("float64")
    return frame["bytes"].astype("float64") * 10**9 / time.where(time > 0)
