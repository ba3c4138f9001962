"""The analysis of where each GPU's time goes: compute, exposed communication and memory, idle."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import pandas as pd

from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank.capability import Capability
from htareport.rank.device_time import NO_STEPS, PARTS, busy_sets, shares, step_times, times
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, chart_of, key, stacked_rows
from htareport.report.rank_charts import by_rank, every_nth, rank_labels
from htareport.report.units import text

_NS = Unit.NANOSECONDS
_PART_HELP = {
    "compute": "Time in which at least one compute kernel runs.",
    "exposed_comm": "Time in which a communication kernel runs and no compute kernel does.",
    "exposed_memory": "Time in which a copy or fill runs, and no compute or communication kernel.",
    "idle": "Time in which nothing runs on the device.",
}
_BETTER = {"compute": None, "exposed_comm": Better.LOWER, "exposed_memory": Better.LOWER, "idle": Better.LOWER}
_MIN_OUTSIDE = 0.05  # Work outside the steps' windows is named from this share of busy time on.
_MIN_EXCESS = 0.02  # A rank is named if its own time is longer than the median by this share,
_MIN_STEPS = 3  # in so many steps,
_MIN_LED_SHARE = 2 / 3  # and longest in this share of them.
_OWN_HELP = (
    "Step time less exposed communication, mean over the rank's steps: what the rank needs by itself. Ranks with less "
    "wait, inside their collectives, for the rank with most. None without steps."
)


def _time_columns() -> tuple[Column, ...]:
    return tuple(
        Column(use, label.capitalize(), _NS, _PART_HELP[use], better=_BETTER[use]) for use, label in PARTS.items()
    )


def _share_columns(base: str) -> tuple[Column, ...]:
    labels = {use: label.capitalize() for use, label in PARTS.items()}
    return tuple(
        Column(f"{use}_share", f"{label} %", Unit.RATIO, f"{label} as a share of {base}.", better=_BETTER[use])
        for use, label in labels.items()
    )


class TemporalBreakdown(Analysis):
    """How each GPU spends its time: in compute, in communication or copies that no compute hides, or idle.

    ## How it is computed
    Device events are kernels, copies and fills (memset). Copies and fills are memory; kernels are communication (NCCL,
    RCCL and the like) or compute. An instant belongs to compute if any compute kernel runs in it, on whatever stream,
    else to communication (*exposed*: nothing hides it), else to memory, else it is idle. So by rank the four parts add
    up to the *span*, from the first start to the last end of device events; several files of one rank (profiler cycles)
    add up, without the time between them. Per step they add up to the step's window on the host, from its
    `ProfilerStep#` row to the next; device work counts where it runs, whichever step launched it.

    ## What to do
    - Idle: *Idle time by cause* says what the GPU waits for.
    - Exposed communication: see *Communication hidden under compute*. Where one rank's own time per step stands out,
      the others wait for it inside their collectives: speed that rank up.
    - Exposed memory: `DataLoader(pin_memory=True)` and `.to(device, non_blocking=True)`, on a stream of its own
      (`torch.cuda.stream`) so that it runs beside compute.
    - Mostly compute: *Kernels by total time* says which kernels to speed up.
    - A change has helped if its part and the step time are both smaller.
    """

    title = "Temporal breakdown"
    group = Group.TIME
    order = 0
    requires = frozenset({Capability.GPU})
    worst = MappingProxyType({"ranks": "idle", "per_step": "time"})
    tables = (
        TableSpec(
            "ranks",
            "By rank and device",
            (
                key("rank", "Rank"),
                key("device", "Device"),
                Column(
                    "span", "Span", _NS, "From the first start to the last end of device events; several files add up."
                ),
                *_time_columns(),
                *_share_columns("the span; none without device events"),
                Column("busy", "Busy", _NS, "Time in which anything runs on the device."),
                Column("comm", "Communication", _NS, "Time in which a communication kernel runs, hidden or not."),
                Column("memory", "Memory", _NS, "Time in which a copy or fill runs, hidden or not."),
                Column("overlap", "Overlap", _NS, "Time in which communication and compute run at once."),
                Column("own_step", "Own time per step", _NS, _OWN_HELP, better=Better.LOWER),
                Column("num_device_events", "Device events", Unit.COUNT, "Number of kernels, copies and fills."),
            ),
        ),
        TableSpec(
            "steps",
            "By step, mean over ranks and devices",
            (
                key("step", "Step"),
                Column("time", "Step time", _NS, "Length of the step's window on the host."),
                *_time_columns(),
            ),
            is_detail=True,
        ),
        TableSpec(
            "per_step",
            "By rank, device and step",
            (
                key("rank", "Rank"),
                key("device", "Device"),
                key("step", "Step"),
                Column("time", "Step time", _NS, "Length of the step's window on this rank's host."),
                *_time_columns(),
            ),
            is_detail=True,
        ),
    )

    def map(self, rank: Rank) -> Frames:
        ranks, steps = [], []
        for device, events in rank.devices.items():
            sets = busy_sets(rank, events)
            row, per_step = times(events, sets), step_times(rank.steps, sets)
            row["in_steps"] = int((per_step["time"] - per_step["idle"]).sum())
            ranks.append({"device": device, **row})
            steps.append(per_step.assign(device=device))
        return {"ranks": pd.DataFrame(ranks), "per_step": pd.concat(steps, ignore_index=True)}

    def without(self, rank: Rank) -> Frames:
        del rank
        zeros = dict.fromkeys(("span", *PARTS, "busy", "comm", "memory", "overlap", "num_device_events", "in_steps"), 0)
        return {
            "ranks": pd.DataFrame([{"device": None, **zeros}]),
            "per_step": step_times(NO_STEPS, {}).assign(device=None),
        }

    def combine(self, frames: Frames, job: Job) -> Frames:
        ranks, per_step = frames["ranks"], frames["per_step"]
        span = ranks["span"].where(ranks["span"] > 0).astype("float64")
        keys = ["rank", "device"]
        own = per_step.assign(own_step=per_step["time"] - per_step["exposed_comm"]).groupby(keys, dropna=False)
        ranks = ranks.assign(**{f"{use}_share": ranks[use] / span for use in PARTS})
        ranks = ranks.merge(own["own_step"].mean().reset_index(), how="left", on=keys)
        communicates = (ranks["comm"] > 0) & ~ranks["rank"].isin(job.salvaged)
        return {
            "ranks": ranks,
            "steps": _means(per_step),
            "per_step": per_step,
            "shares": shares(ranks, per_step),
            "late": _late(per_step.merge(ranks.loc[communicates, keys])),
        }

    def facts(self, frames: Frames) -> Iterator[Fact]:
        row = frames["shares"].iloc[0]
        if not len(frames["per_step"]):
            words = "From the first start to the last end of device events, mean over ranks and devices."
            span = frames["ranks"]["span"]
            mean = span[span > 0].mean() if span.any() else 0
            several = "mean of ranks and devices, " if (span > 0).sum() > 1 else ""
            yield Fact("device_span", "recorded GPU span", mean, _NS, f"{several}without steps", words, order=0)
        for use in ("compute", "exposed_comm", "idle"):
            if use == "exposed_comm" and not frames["ranks"]["comm"].any():
                continue
            words = f"{_PART_HELP[use]} As a share of {row['of']}, over all ranks and devices."
            label = {"compute": "GPU computing", "exposed_comm": "exposed communication", "idle": "GPU idle"}[use]
            better = _BETTER[use] or Better.HIGHER
            yield Fact(f"{use}_share", label, row[use], Unit.RATIO, f"of {row['of']}", words, better, order=10)
        if len(late := frames["late"]):
            detail = f"+{text(late['over'].iloc[0], _NS)} per step over the median"
            rank = late["rank"].iloc[0]
            yield Fact("late_rank", "most own time", rank, Unit.RANK, detail, _OWN_HELP, order=30)

        if (outside := _outside_steps(frames)) > _MIN_OUTSIDE:
            words = "Share of the devices' busy time that no step's window on the host covers."
            detail = "the device runs behind the host"
            yield Fact("outside_steps", "of GPU work outside steps", outside, Unit.RATIO, detail, words, order=60)

    def charts(self, frames: Frames) -> Iterator[Chart]:
        steps, ranks = frames["steps"], frames["ranks"]
        if len(steps):
            yield chart_of(
                self.tables[1],
                "steps",
                "Where each step goes",
                Mark.STACKED_BAR,
                stacked_rows(every_nth(steps, "step"), "step", PARTS),
                "step",
                "value",
                "part",
                caption="Mean over ranks and devices; the parts add up to the step time.",
            )
        with_work = ranks[ranks["span"] > 0]
        yield by_rank(
            "ranks",
            "Where each rank's time goes",
            with_work,
            PARTS,
            caption="Over the whole window, from the first to the last device event of the rank.",
        )

    def notes(self, frames: Frames) -> Iterator[str]:
        ranks = frames["ranks"]
        if len(empty := ranks[ranks["span"] == 0]):
            yield f"No device work was recorded on rank {', '.join(rank_labels(empty).head(10))}."
        if (outside := _outside_steps(frames)) > _MIN_OUTSIDE:
            yield (
                f"{text(outside, Unit.RATIO)} of the busy time of the devices lies outside the windows of the steps, "
                "which are those of the host: the device runs behind it. What is said per step leaves that out; the "
                "table by rank and device has it."
            )


def _outside_steps(frames: Frames) -> float:
    """Return the share of busy time outside the windows of the steps; 0 without steps."""
    ranks = frames["ranks"]
    if not len(frames["per_step"]) or not ranks["busy"].any():
        return 0.0
    return 1 - float(ranks["in_steps"].sum()) / float(ranks["busy"].sum())


def _means(per_step: pd.DataFrame) -> pd.DataFrame:
    """Return the times of each step by part, mean over ranks and devices, in whole ns that add up."""
    groups = per_step.groupby("step")[["time", *PARTS]]
    steps = groups.sum().floordiv(groups.size(), axis=0).reset_index()
    return steps.assign(idle=steps["time"] - steps[[use for use in PARTS if use != "idle"]].sum(axis=1))


def _late(per_step: pd.DataFrame) -> pd.DataFrame:
    """Return the rank that needs most time of its own, if it does so in most steps and notably: rank, over (ns).

    `per_step` is of devices that communicate: for others nobody waits.
    """
    own = per_step.assign(own=per_step["time"] - per_step["exposed_comm"])
    by_rank = own.groupby("rank")["own"].mean()
    steps = own.groupby("step")["own"]
    leaders = own.loc[steps.idxmax(), "rank"].value_counts()
    if len(by_rank) > 1 and steps.ngroups >= _MIN_STEPS:
        worst, excess = by_rank.idxmax(), by_rank.max() - by_rank.median()
        if excess > _MIN_EXCESS * by_rank.median() and leaders.get(worst, 0) >= _MIN_LED_SHARE * steps.ngroups:
            return pd.DataFrame([{"rank": worst, "over": excess}])
    return pd.DataFrame({"rank": [], "over": []})
