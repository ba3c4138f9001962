"""The analysis of allocated memory: over time, its peak, what the peak consists of, and growth from step to step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from htareport.algorithms.live import live_rows, thinned
from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.memory import Series, outermost_operators, series_of
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE, step_of
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, chart_of, key
from htareport.report.rank_charts import MOST_BARS
from htareport.report.units import text

_NS = Unit.NANOSECONDS
_MAX_POINTS = 300
_MIN_PEAK = 1024  # Bytes whose composition is worth a table.
_MIN_STEPS = 4  # That grow one after the other, before it is called growth.
_MIN_GROWTH = 0.005  # Of the peak, in each step.
_MAX_OPERATORS = 20
_MAX_BARS = 12
_CLASS_LIMITS = (1 << 20, 10 << 20, 100 << 20, 1 << 30)
_CLASS_NAMES = ("below 1 MiB", "1 to 10 MiB", "10 to 100 MiB", "100 MiB to 1 GiB", "1 GiB and more")
BEFORE = "allocated before the recording"
_OTHER_OPERATORS = "other operators"
_BYTES = Unit.BYTES


class MemoryTimeline(Analysis):
    """How much memory tensors take over time, how large the peak is, and what it consists of.

    ## How it is computed
    The profiler writes a row for each allocation and each free, mostly with the totals of PyTorch's caching allocator:
    *allocated* is what tensors hold, *reserved* what the allocator has taken from the device. Older traces have no
    totals; then the sizes are summed up, from as much as must have been there before. The composition at the peak
    consists of the allocations that were not freed until then, by the outermost operator that ran on the thread at the
    allocation; what was there before the recording began (weights, optimizer state) is one row. Growth is what is
    allocated at the end of the last step minus that at the end of the first.

    ## What to do
    - Peak near the capacity: recompute activations (`torch.utils.checkpoint`), use a smaller batch, or shard
      (`fully_shard`). *At the peak, by operator* has what takes most.
    - Reserved far above allocated: fragmentation, or kept from an earlier peak. Start with
      `PYTORCH_ALLOC_CONF=expandable_segments:True` (before PyTorch 2.9 `PYTORCH_CUDA_ALLOC_CONF`; on AMD only from ROCm
      7).
    - Growth in every step: something keeps tensors alive, such as a sum of losses without `.detach()`.
      `torch.cuda.memory._record_memory_history()` and `torch.cuda.memory._dump_snapshot()`, opened at
      pytorch.org/memory_viz, show the lines that allocated them.
    """

    title = "Memory over time"
    group = Group.MEMORY
    order = 10
    requires = frozenset({Capability.MEMORY})
    tables = (
        TableSpec(
            "devices",
            "By rank and device",
            (
                key("rank", "Rank"),
                key("device", "Device", Unit.TEXT, "Device of the allocator; CPU is the host's memory."),
                Column("peak", "Peak allocated", _BYTES, "Most that all tensors held at once.", better=Better.LOWER),
                Column("peak_at", "Peak at", _NS, "Time of the peak, since the run's first event."),
                Column("peak_step", "In step", Unit.ID, "The step in which it lies; none outside steps."),
                Column(
                    "reserved",
                    "Peak reserved",
                    _BYTES,
                    "Most that the allocator had taken; none if not recorded.",
                    better=Better.LOWER,
                ),
                Column(
                    "used", "Of capacity", Unit.RATIO, "Peak reserved / memory of the device; none if not recorded."
                ),
                Column("allocations", "Allocations", Unit.COUNT, "Number of allocations."),
                Column("turnover", "Turned over", _BYTES, "Sum of the sizes of all allocations."),
                Column(
                    "growth",
                    "Growth",
                    _BYTES,
                    "From the end of the first step to that of the last; none with less than two steps.",
                    better=Better.LOWER,
                ),
                Column("per_step", "Per step", _BYTES, "Growth / (steps − 1).", better=Better.LOWER),
            ),
        ),
        TableSpec(
            "composition",
            "At the peak, by operator",
            (
                key("rank", "Rank"),
                key("device", "Device", Unit.TEXT),
                key("operator", "Operator", Unit.NAME, "Outermost operator around the allocation."),
                Column("bytes", "Bytes", _BYTES, "Bytes live at the peak."),
                Column("share", "Share", Unit.RATIO, "Share of the peak."),
                Column("count", "Allocations", Unit.COUNT, "Allocations live at the peak; none where not recorded."),
                Column("largest", "Largest", _BYTES, "Largest of these allocations."),
            ),
        ),
        TableSpec(
            "sizes",
            "At the peak, by size of the allocation",
            (
                key("rank", "Rank"),
                key("device", "Device", Unit.TEXT),
                key("size", "Size", Unit.TEXT, "Size class of the allocation."),
                Column("bytes", "Bytes", _BYTES, "Bytes live at the peak."),
                Column("count", "Allocations", Unit.COUNT, "Allocations live at the peak."),
            ),
            is_detail=True,
        ),
    )

    def map(self, rank: Rank) -> Frames:
        rows_by_device = [_device_rows(rank, series) for series in series_of(rank)]
        if not rows_by_device:
            return dict(_EMPTY)
        return {name: pd.concat([rows[name] for rows in rows_by_device], ignore_index=True) for name in _EMPTY}

    def combine(self, frames: Frames, job: Job) -> Frames:
        devices = frames["devices"].sort_values(["rank", "is_cpu", "device"], ignore_index=True)
        largest = devices.sort_values(["is_cpu", "peak", "rank"], ascending=[True, False, True]).head(1)
        main = largest[["rank", "device"]]
        points = frames["points"].merge(main, on=["rank", "device"])
        composition = frames["composition"].assign(is_cpu=frames["composition"]["device"] == "CPU")
        return {
            "devices": devices.assign(peak_at=devices["peak_at"] - job.zero_ns),
            "composition": composition.sort_values(
                ["rank", "is_cpu", "device", "bytes"], ascending=[True, True, True, False], kind="stable"
            ),
            "sizes": frames["sizes"],
            "points": points.assign(ts=points["ts"] - job.zero_ns),
            "main": frames["composition"].merge(main, on=["rank", "device"]),
            "largest": largest,
        }

    def facts(self, frames: Frames) -> Iterator[Fact]:
        for row in frames["largest"].to_dict("records"):
            where = f"allocated on rank {row['rank']}, {row['device']}"
            if not row["has_totals"]:
                where += ", without what was there before"
            elif row["reserved"] == row["reserved"]:
                where += f"; {text(row['reserved'], _BYTES)} reserved"
            words = "Most that all tensors held at once on any rank and device, within what was recorded."
            yield Fact("peak_memory", "peak memory", row["peak"], _BYTES, where, words, Better.LOWER, order=45)

    def charts(self, frames: Frames) -> Iterator[Chart]:
        for row in frames["largest"].to_dict("records"):
            where = f"rank {row['rank']}, {row['device']}"
            yield Chart(
                "series", f"Memory over time, {where}", Mark.LINE,
                frames["points"][["ts", "bytes", "what"]], "ts", "bytes", "what",
                x_label="time", y_label="memory", x_unit=_NS, y_unit=_BYTES,
                caption="The rank and device of the largest peak; the largest value within each point of the line.",
            )  # fmt: skip
            yield chart_of(
                self.tables[1], "composition", f"What the peak consists of, {where}", Mark.BAR,
                frames["main"].nlargest(_MAX_BARS, "bytes")[["bytes", "operator"]], "bytes", "operator",
                x_label="memory",
                caption="Allocations that are live at the peak, by the outermost operator around them.",
            )  # fmt: skip
        devices = frames["devices"]
        if 1 < devices["rank"].nunique() <= MOST_BARS:
            shown = devices[devices["is_cpu"] == devices["is_cpu"].min()]
            yield Chart(
                "ranks", "Peak memory by rank", Mark.STACKED_BAR,
                shown.assign(label=shown["rank"].astype(int).astype(str)), "label", "peak", "device",
                x_label="rank", y_unit=_BYTES, caption="Largest size of all tensors on each rank.",
            )  # fmt: skip

    def notes(self, frames: Frames) -> Iterator[str]:
        devices = frames["devices"]
        if not devices["has_totals"].all():
            yield (
                "The trace has no totals of the allocator: sizes are summed up, and what was allocated before the "
                "recording and never freed is missing."
            )
        if not devices["has_addresses"].all():
            yield "The trace has no addresses, so what is live at the peak cannot be told."
        grown = devices[devices["grows"].astype(bool) & (devices["per_step"] > _MIN_GROWTH * devices["peak"])]
        for row in grown.head(3).to_dict("records"):
            growth = text(row["per_step"], _BYTES)
            yield f"Rank {row['rank']}, {row['device']}: {growth} more are held after every step."


_DEVICE_COLUMNS = [
    *("device", "is_cpu", "has_totals", "has_addresses", "peak", "peak_at", "peak_step", "reserved", "used"),
    *("allocations", "turnover", "growth", "per_step", "grows"),
]
_EMPTY = {
    "devices": pd.DataFrame(columns=_DEVICE_COLUMNS),
    "composition": pd.DataFrame({"device": [], "operator": [], "bytes": [], "share": [], "count": [], "largest": []}),
    "sizes": pd.DataFrame({"device": [], "size": [], "bytes": [], "count": []}),
    "points": pd.DataFrame({"device": [], "ts": [], "bytes": [], "what": []}),
}


def _device_rows(rank: Rank, series: Series) -> Frames:
    """Return what a rank sends of one device."""
    peak_row = int(np.where(series.within, series.allocated, -1).argmax())
    by_operator, by_size = _composition(rank, series, peak_row)
    return {
        "devices": _summary(rank, series, peak_row),
        "composition": by_operator,
        "sizes": by_size,
        "points": _points(series, peak_row),
    }


def _summary(rank: Rank, series: Series, peak_row: int) -> pd.DataFrame:
    """Return the row of the table of devices; `peak_row` is the row of the series at the peak."""
    reserved = float(series.reserved[series.within].max()) if series.reserved is not None else np.nan
    step = int(step_of(rank.steps, series.ts[peak_row : peak_row + 1])[0])
    allocated = series.size[series.within & (series.size > 0)]
    ends = rank.steps["end"].to_numpy()
    levels = series.allocated[np.maximum(np.searchsorted(series.ts, ends, side="right") - 1, 0)] if len(ends) else ends
    is_continuous = series.has_totals or series.capture[0] == series.capture[-1]  # Otherwise each capture begins anew.
    growth = float(levels[-1] - levels[0]) if len(ends) > 1 and is_continuous else np.nan
    row = {
        "device": series.device,
        "is_cpu": series.is_cpu,
        "has_totals": series.has_totals,
        "has_addresses": bool((series.address >= 0).any()),
        "peak": int(series.allocated[peak_row]),
        "peak_at": int(series.ts[peak_row]),
        "peak_step": float(step) if step != OUTSIDE else np.nan,
        "reserved": reserved,
        "used": reserved / series.capacity,
        "allocations": len(allocated),
        "turnover": int(allocated.sum()),
        "growth": growth,
        "per_step": growth / max(len(ends) - 1, 1),
        "grows": bool(len(ends) >= _MIN_STEPS and (np.diff(levels) > 0).all()),
    }
    return pd.DataFrame([row])


def _composition(rank: Rank, series: Series, peak_row: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what is live at the peak, by operator and by size."""
    if not (series.address >= 0).any() or series.allocated[peak_row] < _MIN_PEAK:
        return _EMPTY["composition"], _EMPTY["sizes"]
    first = int(np.searchsorted(series.capture, series.capture[peak_row]))
    live = first + live_rows(series.address[first : peak_row + 1], series.size[first : peak_row + 1])
    sizes, peak = series.size[live], max(int(series.allocated[peak_row]), 1)
    frame = pd.DataFrame({"operator": outermost_operators(rank, series, live), "bytes": sizes})
    table = frame.groupby("operator").agg(bytes=("bytes", "sum"), count=("bytes", "size"), largest=("bytes", "max"))
    table = table.sort_values(["bytes", "operator"], ascending=[False, True]).reset_index()
    pooled, pooled_rows = table.iloc[_MAX_OPERATORS:], []
    if len(pooled):
        pooled_rows.append((_OTHER_OPERATORS, pooled["bytes"].sum(), pooled["count"].sum(), pooled["largest"].max()))
    if (before := int(series.allocated[peak_row]) - int(sizes.sum())) > 0 and series.has_totals:
        pooled_rows.append((BEFORE, before, np.nan, np.nan))
    table = pd.concat([table.head(_MAX_OPERATORS), pd.DataFrame(pooled_rows, columns=table.columns)]).astype(
        {"bytes": "int64", "count": "float64", "largest": "float64"}
    )
    table.insert(0, "device", series.device)
    size_class = np.digitize(sizes, _CLASS_LIMITS)
    counts, totals = (np.bincount(size_class, weights, len(_CLASS_NAMES)) for weights in (None, sizes))
    classes = pd.DataFrame({"device": series.device, "size": _CLASS_NAMES, "bytes": totals, "count": counts})
    classes = classes[classes["count"] > 0].astype({"bytes": "int64", "count": "int64"})
    return table.assign(share=table["bytes"] / peak), classes


def _points(series: Series, peak_row: int) -> pd.DataFrame:
    """Return the points of the chart over time, within the file that holds the peak."""
    rows = np.flatnonzero(series.within & (series.capture == series.capture[peak_row]))
    shown_rows = rows[thinned(series.allocated[rows], at_most(_MAX_POINTS))]
    lines = [pd.DataFrame({"ts": series.ts[shown_rows], "bytes": series.allocated[shown_rows], "what": "allocated"})]
    if series.reserved is not None:
        lines.append(
            pd.DataFrame({"ts": series.ts[shown_rows], "bytes": series.reserved[shown_rows], "what": "reserved"})
        )
    return pd.concat(lines, ignore_index=True).assign(device=series.device)
