"""The analysis of idle time of devices and streams, by whether the launch came late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd

from htareport.algorithms import histograms
from htareport.analyses import Analysis, Frames, Group, Job, Range
from htareport.rank import idle_gaps, idle_steps
from htareport.rank.capability import Capability
from htareport.rank.idle_gaps import CAUSES
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, chart_of, key
from htareport.report.rank_charts import by_rank

_NS = Unit.NANOSECONDS
_CATEGORY_HELP = (
    "host wait: launched late; kernel wait: launched in time, short gap; other: launched in time, longer gap, or the "
    "launch is not in the trace."
)
_STATISTICS = {"mean": "Mean", "std": "Std", "min": "Min", "p25": "p25", "p50": "p50", "p75": "p75", "max": "Max"}
_SINGLE_HELP = {"std": "; 0 for one gap"}  # As in the tables of kernels.
_STEP_HELP = (
    "Idle time of the devices within the step's window. Before the first event of a capture it is host wait if that is "
    "launched after the step's start; behind the last it is other."
)
_MAX_GAPS = 20


def _category() -> Column:
    return key("category", "Cause", Unit.TEXT, _CATEGORY_HELP)


@dataclass(frozen=True)
class IdleTime(Analysis):
    """Why GPUs are idle: the host launches late, the device pauses between kernels, or something else holds it up.

    ## How it is computed
    A gap is the time from the latest end so far to the start of the next device event (kernel, copy or fill), on a
    whole device or on one stream; before the first and after the last event of a file is no gap. The launch of that
    next event (a runtime call such as `cudaLaunchKernel`) tells the cause of the whole gap. *Host wait*: it starts
    after the gap began, so the host (CPU) was late. *Kernel wait*: launched in time, and the gap is shorter than
    `consecutive_kernel_delay` µs: the device's own delay between kernels. *Other*: launched in time but a longer gap,
    or the launch is not in the trace. While one stream waits another may run: only gaps of the device are lost time.
    Std is the sample standard deviation, 0 for one gap; percentiles are interpolated linearly.

    ## What to do
    - Host wait: see in the trace what the host does in the largest gaps. Input: more `DataLoader` workers. `.item()`,
      `.cpu()`, printing a tensor: `torch.cuda.set_sync_debug_mode("warn")` names the lines. Many small operators:
      `torch.compile(mode="reduce-overhead")`.
    - Kernel wait: fuse short kernels with `torch.compile`, or replay them as one CUDA or HIP graph.
    - Other: a wait for another GPU or a host callback, a slow launch call (see *Launches*), or events that the profiler
      lost. On NVIDIA `torch.profiler._ExperimentalConfig(enable_cuda_sync_events=True)` as `experimental_config=`
      records what streams wait for.
    - A change has helped if the idle part of the temporal breakdown is smaller.
    """

    title = "Idle time by cause"
    group = Group.TIME
    order = 20
    requires = frozenset({Capability.GPU})
    tables = (
        TableSpec(
            "devices",
            "By device",
            (
                key("rank", "Rank"),
                key("device", "Device"),
                _category(),
                Column("idle", "Idle", _NS, "Sum of the gaps: nothing runs on the device.", better=Better.LOWER),
                Column("ratio", "Share of idle", Unit.RATIO, "Share of the device's idle time; none if it has none."),
                Column("count", "Gaps", Unit.COUNT, "Number of gaps."),
            ),
        ),
        TableSpec(
            "streams",
            "By stream",
            (
                key("rank", "Rank"),
                key("device", "Device"),
                key("stream", "Stream"),
                _category(),
                Column("idle", "Idle", _NS, "Sum of the gaps of the stream; others may run.", better=Better.LOWER),
                Column("ratio", "Share of idle", Unit.RATIO, "Share of the stream's idle time."),
                Column("count", "Gaps", Unit.COUNT, "Number of gaps."),
            ),
            "Streams and causes without gaps have no row.",
            is_detail=True,
        ),
        TableSpec(
            "steps",
            "By step, mean over ranks and devices",
            (
                key("step", "Step"),
                *(Column(cause, cause.capitalize(), _NS, _STEP_HELP, better=Better.LOWER) for cause in CAUSES),
            ),
            is_detail=True,
        ),
        TableSpec(
            "gaps",
            "Largest gaps of the devices",
            (
                key("rank", "Rank"),
                key("device", "Device"),
                key("start", "At", _NS, "Start of the gap, since the run's first event."),
                Column("duration", "Gap", _NS, "Time in which nothing runs on the device."),
                Column("category", "Cause", Unit.TEXT, _CATEGORY_HELP),
                Column("step", "Step", Unit.ID, "Step in which the next event is launched."),
                Column("before", "Ran before", Unit.NAME, "What ended last before the gap."),
                Column("after", "Runs next", Unit.NAME, "What ends the gap; its launch tells the cause."),
            ),
        ),
        TableSpec(
            "intervals",
            "Statistics of the gaps by stream",
            (
                key("rank", "Rank"),
                key("device", "Device"),
                key("stream", "Stream"),
                _category(),
                Column("count", "Gaps", Unit.COUNT, "Number of gaps."),
                *(
                    Column(name, label, _NS, f"{label} of the lengths of these gaps{_SINGLE_HELP.get(name, '')}.")
                    for name, label in _STATISTICS.items()
                ),
            ),
            is_detail=True,
        ),
    )

    consecutive_kernel_delay: Annotated[float, Range(minimum=0)] = 30.0  # µs

    def map(self, rank: Rank) -> Frames:
        events = rank.device_events
        devices = self.gaps(rank, "device")
        streams = self.gaps(rank, "lane").assign(stream=lambda f: events["stream"].to_numpy()[f["event"]])
        keys = ["device", "stream"]
        all_streams = events[keys].drop_duplicates()
        positive = devices["gap"][devices["gap"] > 0]
        lasting = devices[devices["gap"] > idle_gaps.ROUNDING]
        largest = lasting.nlargest(_MAX_GAPS, "gap")
        steps = idle_steps.by_step(rank, devices)
        bins = histograms.bins_of(lasting["gap"].to_numpy()) // histograms.COARSE
        histogram = lasting.assign(bin=bins).groupby(["category", "bin"], observed=True).size()
        return {
            "devices": idle_gaps.sums(devices, all_streams[["device"]].drop_duplicates()),
            "streams": idle_gaps.sums(streams, all_streams),
            "intervals": idle_gaps.statistics(streams, keys),
            "gaps": idle_gaps.with_neighbours(largest, events),
            "steps": steps.reindex(columns=["device", "step", *CAUSES]),
            "histogram": histogram.rename("count").reset_index().astype({"category": str}),
            "rounded": pd.DataFrame([{"gaps": len(positive), "rounded": int((positive <= idle_gaps.ROUNDING).sum())}]),
        }

    def gaps(self, rank: Rank, by: str) -> pd.DataFrame:
        """Return each gap of a device or lane, even of no length: device, gap, begin (ns), category, event, previous.

        `event` and `previous` are rows of `device_events`: what follows the gap, and what ended last before it.
        """
        events = rank.device_events
        groups = pd.factorize(events[by])[0] * len(rank.captures) + events["capture"].to_numpy()
        order = np.lexsort((np.arange(len(events)), groups))
        group, start, end = groups[order], events["ts"].to_numpy()[order], events["end"].to_numpy()[order]
        zero = start.min()
        lift = group.astype(np.int64) * (end.max() - zero + 1)  # Keeps the running maximum within its group.
        lifted = end - zero + lift
        reach = np.maximum.accumulate(lifted)
        last = np.maximum.accumulate(np.where(lifted == reach, np.arange(len(order)), 0))
        rows = np.flatnonzero(np.diff(group) == 0) + 1
        latest = reach[rows - 1] - lift[rows] + zero
        launch = events["launch"].to_numpy()[order][rows]
        launched = rank.launches["ts"].to_numpy()[launch] if len(rank.launches) else np.zeros(len(rows), np.int64)
        gap = np.maximum(start[rows] - latest, 0)
        short = gap < round(self.consecutive_kernel_delay * 1000)
        cause = np.where(launch < 0, 2, np.where(launched > latest, 0, np.where(short, 1, 2)))
        return pd.DataFrame(
            {
                "device": events["device"].to_numpy()[order][rows],
                "gap": gap,
                "begin": latest,
                "category": pd.Categorical.from_codes(cause, pd.Index(CAUSES)),
                "event": order[rows],
                "previous": order[last[rows - 1]],
            }
        )

    def combine(self, frames: Frames, job: Job) -> Frames:
        gaps = frames["gaps"].sort_values(["duration", "rank", "start"], ascending=[False, True, True]).head(_MAX_GAPS)
        gaps = gaps.assign(start=gaps["start"] - job.zero_ns)
        histogram = frames["histogram"].groupby(["category", "bin"])["count"].sum().reset_index()
        by_lane = ("rank", "device", "stream")
        streams, intervals = (idle_gaps.in_order(frames[name], *by_lane) for name in ("streams", "intervals"))
        with_gaps = streams[streams["count"] > 0]
        by_stream = streams.groupby(["stream", "category"], sort=False)["idle"].mean().reset_index()
        return {
            **frames,
            "gaps": gaps,
            "histogram": histogram,
            "streams": with_gaps,
            "steps": frames["steps"].groupby("step")[list(CAUSES)].mean().reset_index(),
            "intervals": intervals,
            "by_stream": idle_gaps.in_order(by_stream, "stream"),
        }

    def notes(self, frames: Frames) -> Iterator[str]:
        gaps, rounded = (int(frames["rounded"][name].sum()) for name in ("gaps", "rounded"))
        if rounded:
            yield (
                f"{rounded:,} of the devices' {gaps:,} gaps last 1 ns, which is how the profiler writes events that "
                "follow each other directly. They are counted; the chart and the list of the largest leave them out."
            )

    def facts(self, frames: Frames) -> Iterator[Fact]:
        sums = frames["devices"].groupby("category")["idle"].sum()
        total = float(sums.sum())
        if sums.get("host wait", 0) + sums.get("kernel wait", 0) > 0:  # Else no launch is known, and so no cause.
            words = "Share of the devices' idle time in gaps whose next launch starts after the gap began."
            yield Fact(
                "host_wait_share",
                "of idle is host wait",
                sums["host wait"] / total,
                Unit.RATIO,
                "idle because the launch came late",
                words,
                Better.LOWER,
            )

    def charts(self, frames: Frames) -> Iterator[Chart]:
        devices, means = frames["devices"], frames["by_stream"]
        wide = devices.pivot_table(index=["rank", "device"], columns="category", values="idle", sort=False)
        wide = wide.reset_index().reindex(columns=["rank", "device", *CAUSES], fill_value=0)
        yield by_rank(
            "devices",
            "Idle time of the devices",
            wide,
            {cause: cause for cause in CAUSES},
            caption="Time in which nothing runs on the device, by cause.",
        )
        means = means[means.groupby("stream")["idle"].transform("sum") > 0]
        if len(means):
            means["stream"] = "stream " + means["stream"].astype(str).str.removeprefix("stream ")
            yield Chart(
                "streams",
                "Idle time of the streams",
                Mark.STACKED_BAR,
                means,
                "stream",
                "idle",
                "category",
                x_label="stream",
                x_unit=Unit.TEXT,
                caption="Mean over ranks and devices; another stream may run meanwhile.",
            )
        if len(histogram := frames["histogram"]):
            left, right = histograms.coarse_edges(histogram["bin"].to_numpy())
            yield chart_of(
                self.tables[0],
                "histogram",
                "Lengths of the gaps",
                Mark.HISTOGRAM,
                histogram.assign(left=left, right=right),
                "left",
                "count",
                "category",
                x2="right",
                x_label="gap",
                x_unit=_NS,
                log_x=True,
                caption="Gaps of the devices, all ranks together; the scale is logarithmic.",
            )
