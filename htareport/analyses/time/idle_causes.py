"""The analysis of GPU idle time by its cause on the host: what the CPU did meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.idle import Cause, attribute
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, chart_of, key
from htareport.report.rank_charts import by_rank, cut_note

_NS = Unit.NANOSECONDS
_MAX_NAMES, _MAX_BARS = 200, 12
_MEANINGS = {
    Cause.LOADING: "The data loader runs: the device waits for the next batch.",
    Cause.COMPILING: "Code is compiled, looked up or loaded: Dynamo, Inductor, Triton, modules of the driver.",
    Cause.COLLECTING: "Python's garbage collector runs.",
    Cause.ALLOCATING: "Memory is asked from the driver or given back: cudaMalloc, cudaFree and the like.",
    Cause.SYNCHRONISING: "The host waits in a synchronising call, and the device has nothing left.",
    Cause.COPYING: "Calls that copy or fill, outside their launch.",
    Cause.LAUNCHING: "Launch calls themselves: the next event's, and those of other work.",
    Cause.CALLING: "Other calls of the runtime or driver.",
    Cause.OPERATING: "Operators prepare work: dispatch, shapes, allocation from the cache.",
    Cause.ANNOTATED: "Code within annotations, but in no operator: Python, and what is not recorded.",
    Cause.NOTHING: "No thread has anything recorded: Python outside of operators, or another process.",
    Cause.LATENCY: "The work was launched in time and starts within 30 µs: the device's own delay between kernels.",
    Cause.WAITING: "The work was launched in time and starts later: it waits for another stream, an event, or a rank.",
    Cause.UNKNOWN: "The trace has no launch of what comes next, so nothing can be said.",
}


class IdleCauses(Analysis):
    """What fills the time in which a device is idle: data loading, synchronisation, operators, or the device itself.

    ## How it is computed
    A gap of a device lasts from the latest end so far to the next start. Until the launch of that event begins, the
    host is late; that part is split by time over what the launching thread does, and where that thread does nothing,
    over what other threads do. At each instant one cause counts: data loading before anything within it, calls of the
    runtime before the operators around them. While the launch call runs, that is it. The rest is the device's: the work
    is there, but not started. The causes of a device add up to its idle time between its first and last event.

    ## What to do
    - Data loading: more workers (`num_workers`, `persistent_workers=True`), `pin_memory=True`, a larger
      `prefetch_factor`; then see whether this time is gone.
    - Synchronisation, copy calls: move `.item()`, `.cpu()` and prints out of the loop, or do them every n steps; copy
      with `non_blocking=True` from and to pinned memory.
    - Memory allocation: `PYTORCH_ALLOC_CONF=expandable_segments:True`, fixed shapes, no `empty_cache()` in the loop.
    - Compilation: more warm-up steps; mark dynamic shapes (`torch._dynamo.mark_dynamic`).
    - Operators, launch calls, annotated code, nothing recorded: the host can't keep up; `torch.compile` or CUDA graphs
      launch more at once. Profile with `with_stack=True` to see which Python code it is.
    - Wait on the device: see which stream or rank the next kernel waits for.
    """

    title = "Idle time by what the host did"
    group = Group.TIME
    order = 25
    requires = frozenset({Capability.GPU})
    tables = (
        TableSpec(
            "causes",
            "By cause, mean over ranks and devices",
            (
                key("cause", "Cause", Unit.TEXT, "What fills the idle time."),
                Column("share", "Share of idle", Unit.RATIO, "Of the idle time between the first and last event."),
                Column("time", "Idle", _NS, "Mean over ranks and devices, everything recorded.", better=Better.LOWER),
                Column("per_step", "Per step", _NS, "The part within steps, per step; none without steps.",
                       better=Better.LOWER),
                Column("meaning", "What it is", Unit.TEXT, "What the cause means."),
            ),
        ),
        TableSpec(
            "names",
            "By cause and name, all ranks and devices together",
            (
                key("cause", "Cause", Unit.TEXT, "What fills the idle time."),
                key("name", "Name", Unit.NAME, "Innermost row of this cause on the host."),
                Column("time", "Idle", _NS, "Idle time of devices that it fills.", better=Better.LOWER),
                Column("share", "Share of idle", Unit.RATIO, "Of the idle time of all devices."),
            ),
        ),
        TableSpec(
            "ranks",
            "By rank, device and cause",
            (
                key("rank", "Rank"),
                key("device", "Device"),
                key("cause", "Cause", Unit.TEXT, "What fills the idle time."),
                Column("time", "Idle", _NS, "Everything recorded.", better=Better.LOWER),
            ),
            is_detail=True,
        ),
    )  # fmt: skip

    def map(self, rank: Rank) -> Frames:
        attribution = attribute(rank)
        times = attribution.times
        times = times.assign(within=times["time"].where(times["step"] >= 0, 0))
        sums = times.groupby(["device", "cause"], sort=False)[["time", "within"]].sum().reset_index()
        names = attribution.names.sort_values(["time", "name"], ascending=[False, True], ignore_index=True)
        names = names[names["time"] > 0]
        return {
            "ranks": sums.astype({"time": "int64", "within": "int64"}),
            "devices": pd.DataFrame({"device": list(rank.devices)}).assign(steps=len(rank.steps)),
            "names": names.head(at_most(_MAX_NAMES, len(names))),
            "size": pd.DataFrame([{"names": len(names)}]),
        }

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        ranks, devices = frames["ranks"], frames["devices"]
        steps = int(devices["steps"].sum())
        sums = ranks.groupby("cause")[["time", "within"]].sum().reindex([str(cause) for cause in Cause]).dropna()
        idle = max(float(sums["time"].sum()), 1.0)
        causes = sums.rename_axis("cause").reset_index()
        causes = causes[causes["time"] > 0].sort_values("time", ascending=False, kind="stable", ignore_index=True)
        causes["share"] = causes["time"] / idle
        causes["per_step"] = causes["within"] / steps if steps else float("nan")
        causes["time"] /= len(devices)
        causes["meaning"] = causes["cause"].map({str(cause): meaning for cause, meaning in _MEANINGS.items()})
        names = frames["names"].groupby(["cause", "name"])["time"].sum().reset_index()
        names = names.sort_values(["time", "cause", "name"], ascending=[False, True, True], ignore_index=True)
        return {
            "causes": causes.astype({"meaning": object}),
            "names": names.assign(share=names["time"] / idle),
            "ranks": ranks[ranks["time"] > 0],
            "size": frames["size"],
        }

    def facts(self, frames: Frames) -> Iterator[Fact]:
        causes = frames["causes"]
        if len(causes) and causes["cause"].iloc[0] != Cause.UNKNOWN:
            row = causes.iloc[0]
            words = "Share of the idle time of all devices that its largest cause fills."
            yield Fact("idle_cause_share", f"of idle is {row['cause']}", row["share"], Unit.RATIO, "the largest cause",
                       words, order=55)  # fmt: skip

    def charts(self, frames: Frames) -> Iterator[Chart]:
        ranks, causes = frames["ranks"], frames["causes"]
        if not len(causes):
            return
        wide = ranks.pivot_table(index=["rank", "device"], columns="cause", values="time", sort=False, fill_value=0)
        wide = wide.reindex(columns=causes["cause"].tolist(), fill_value=0).reset_index()
        yield by_rank(
            "ranks",
            "What fills idle time",
            wide,
            {cause: cause for cause in causes["cause"]},
            caption="Idle time of the devices between their first and last event, by cause.",
        )
        names = frames["names"].head(_MAX_BARS)
        if len(names):
            yield chart_of(
                self.tables[1],
                "names",
                "What the host does meanwhile",
                Mark.BAR,
                names[["name", "time", "cause"]],
                "time",
                "name",
                "cause",
                x_label="idle time",
                caption="Idle time that rows of the host fill; all ranks and devices together.",
            )

    def notes(self, frames: Frames) -> Iterator[str]:
        yield from cut_note("by cause and name", frames["size"]["names"], _MAX_NAMES, "of most time")
