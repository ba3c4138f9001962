"""The analysis of kernel launches: their calls on the host, and the delay until the device begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import histograms
from htareport.analyses import Analysis, Frames, Group, Job, Range
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Mark, TableSpec, Unit, chart_of, key

_NS = Unit.NANOSECONDS
_US = 1000
_CALL_COLUMNS = ["correlation", "name", "end", "dur", "graph"]
_EVENT_COLUMNS = ["name", "ts", "device", "stream"]
_KINDS = {
    "short": "Short kernels",
    "long_call": "Long launch calls",
    "long_delay": "Excessive launch delays",
}
_CPU_HELP = "duration of a call on the host."
_DELAY_HELP = "time from the end of a call to the start of its first device event, at least 0."


@dataclass(frozen=True)
class LaunchStats(Analysis):
    """What launching GPU work costs the host, and how long the device takes to begin.

    ## How it is computed
    A launch is a runtime or driver call that started device events (kernels, copies and fills) that are in the trace:
    `cudaLaunchKernel`, `hipLaunchKernel`, `cudaMemcpyAsync` and so on; a graph launch is one, whatever the number of
    its kernels. *Delay* is the time from the end of the call to the start of its first device event, at least 0: it
    contains the wait behind earlier work of the stream. A kernel is *short* if its call takes longer than it does, but
    at most `runtime_cutoff` µs; a call is *long* above that; a delay is *excessive* above `launch_delay_cutoff` µs.

    ## What to do
    - Many short kernels on an idle GPU: the host cannot keep it busy. `torch.compile(mode="reduce-overhead")` fuses
      them and replays them as one graph; larger batches make them longer.
    - Long calls: the first ones load modules (raise `warmup=` of the profiler's schedule); later ones wait for a full
      queue (see *Queue length*; harmless), an allocation, or a lock that another thread holds.
    - Excessive delays: work queues behind other work, which is fine while the GPU is busy.
    """

    title = "Launches"
    group = Group.HOST
    order = 10
    requires = frozenset({Capability.LAUNCHES})
    tables = (
        TableSpec(
            "calls",
            "By call, all ranks together",
            (
                key("call", "Call", Unit.NAME, "Runtime or driver call that started device events."),
                Column("count", "Launches", Unit.COUNT, "Number of such calls."),
                Column("events", "Device events", Unit.COUNT, "Kernels, copies and fills that they started."),
                Column("cpu", "Host time", _NS, "Sum of the durations of the calls.", better=Better.LOWER),
                Column("cpu_mean", "Mean call", _NS, f"Mean {_CPU_HELP}", better=Better.LOWER),
                Column("cpu_max", "Longest call", _NS, f"Longest {_CPU_HELP}"),
                Column("delay_mean", "Mean delay", _NS, f"Mean {_DELAY_HELP}"),
                Column("delay_max", "Longest delay", _NS, f"Longest {_DELAY_HELP}"),
                Column("gpu", "Device time", _NS, "Sum of the durations of the device events."),
            ),
        ),
        TableSpec(
            "ranks",
            "By rank",
            (
                key("rank", "Rank"),
                Column(
                    "launches",
                    "Launches",
                    Unit.COUNT,
                    "Calls that started device events, graph launches among them.",
                ),
                Column("graphs", "Graph launches", Unit.COUNT, "Launches of a CUDA or HIP graph."),
                Column("unlinked", "Without launch", Unit.COUNT, "Device events whose launch is not in the trace."),
                Column("cpu", "Host time", _NS, "Sum of the durations of the calls.", better=Better.LOWER),
                Column(
                    "short",
                    "Short kernels",
                    Unit.COUNT,
                    "Launches whose device time is below the call's, which is at most runtime_cutoff.",
                ),
                Column("long_call", "Long calls", Unit.COUNT, "Calls above runtime_cutoff."),
                Column("long_delay", "Excessive delays", Unit.COUNT, "Delays above launch_delay_cutoff."),
            ),
        ),
    )

    runtime_cutoff: Annotated[float, Range(minimum=0)] = 50.0  # µs
    launch_delay_cutoff: Annotated[float, Range(minimum=0)] = 100.0  # µs

    def map(self, rank: Rank) -> Frames:
        launches = launch_rows(rank)
        groups = launches.groupby("call")
        calls = groups.agg(
            count=("cpu", "size"),
            events=("events", "sum"),
            cpu=("cpu", "sum"),
            cpu_max=("cpu", "max"),
            delay=("delay", "sum"),
            delay_max=("delay", "max"),
            gpu=("gpu", "sum"),
        ).reset_index()
        by_kind = self._kinds(launches)
        row = {
            "launches": len(launches),
            "graphs": int(launches["graph"].sum()),
            "unlinked": int((rank.device_events["launch"] < 0).sum()),
            "cpu": int(launches["cpu"].sum()),
            **{name: int(is_kind.sum()) for name, (is_kind, _) in by_kind.items()},
        }
        bins = [_histogram(name, times[is_kind]) for name, (is_kind, times) in sorted(by_kind.items())]
        return {"calls": calls, "ranks": pd.DataFrame([row]), "histogram": pd.concat(bins, ignore_index=True)}

    def _kinds(self, launches: pd.DataFrame) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return for each kind of costly launch a mask of such launches, and the times (ns) that its chart shows."""
        cpu, gpu, delay = (launches[name].to_numpy() for name in ("cpu", "gpu", "delay"))
        is_short_call = cpu <= self.runtime_cutoff * _US
        return {
            "short": (is_short_call & (gpu < cpu), cpu),
            "long_call": (~is_short_call, cpu),
            "long_delay": (delay > self.launch_delay_cutoff * _US, delay),
        }

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        groups = frames["calls"].groupby("call")
        calls = groups[["count", "events", "cpu", "delay", "gpu"]].sum()
        calls[["cpu_max", "delay_max"]] = groups[["cpu_max", "delay_max"]].max()
        calls["cpu_mean"], calls["delay_mean"] = calls["cpu"] / calls["count"], calls["delay"] / calls["count"]
        calls = calls.reset_index().sort_values(["cpu", "call"], ascending=[False, True])
        bins = frames["histogram"].groupby(["kind", "bin"])["count"].sum().reset_index()
        return {"calls": calls, "ranks": frames["ranks"], "histogram": bins}

    def charts(self, frames: Frames) -> Iterator[Chart]:
        call, delay = f"{self.runtime_cutoff:g} µs", f"{self.launch_delay_cutoff:g} µs"
        captions = {
            "short": f"Calls of up to {call} that take longer than their kernel: duration of the call.",
            "long_call": f"Calls that take more than {call}.",
            "long_delay": f"Delays of more than {delay} from the end of the call to the start of the kernel.",
        }
        for kind, title in _KINDS.items():
            rows = frames["histogram"][frames["histogram"]["kind"] == kind]
            if len(rows):
                left, right = histograms.coarse_edges(rows["bin"].to_numpy())
                yield chart_of(
                    self.tables[0],
                    kind,
                    title,
                    Mark.HISTOGRAM,
                    rows.assign(left=left, right=right),
                    "left",
                    "count",
                    x2="right",
                    x_label="delay" if kind == "long_delay" else "duration of the call",
                    x_unit=_NS,
                    log_x=True,
                    caption=f"{captions[kind]} All ranks together; the scale is logarithmic.",
                )


def _histogram(kind: str, values: NDArray[np.int64]) -> pd.DataFrame:
    """Return how many values are in each bin that has any: kind, bin, count."""
    bins, count = np.unique(histograms.bins_of(values) // histograms.COARSE, return_counts=True)
    return pd.DataFrame({"kind": pd.Series(kind, range(len(bins)), "str"), "bin": bins, "count": count})


def launch_rows(rank: Rank) -> pd.DataFrame:
    """Return a row per launch with device work, in order of its start.

    Columns: correlation, call, name (of the first device event), cpu, gpu, delay (ns), device, stream (of the first
    device event), graph (bool), events (how many it started).
    """
    launch = rank.device_events["launch"].to_numpy()
    linked = np.flatnonzero(launch >= 0)
    rows, first_event, call_of_event = np.unique(launch[linked], return_index=True, return_inverse=True)
    calls = rank.launches[_CALL_COLUMNS].iloc[rows]
    # Device events are in order of their start.
    first_events = rank.device_events[_EVENT_COLUMNS].iloc[linked[first_event]]
    durations = rank.device_events["dur"].to_numpy()[linked]
    return pd.DataFrame(
        {
            "correlation": calls["correlation"].to_numpy(),
            "call": calls["name"].astype(object).to_numpy(),
            "name": first_events["name"].astype(object).to_numpy(),
            "cpu": calls["dur"].to_numpy(),
            "gpu": np.bincount(call_of_event, durations).astype(np.int64) if len(rows) else np.zeros(0, np.int64),
            "delay": np.maximum(first_events["ts"].to_numpy() - calls["end"].to_numpy(), 0),
            "device": first_events["device"].to_numpy(),
            "stream": first_events["stream"].to_numpy(),
            "graph": calls["graph"].to_numpy(),
            "events": np.bincount(call_of_event) if len(rows) else np.zeros(0, np.int64),
        },
        copy=False,
    )
