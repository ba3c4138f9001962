"""The analysis of step time: how long a training step takes, how much that varies, and which rank is slowest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank.capability import Capability
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, chart_of, key
from htareport.report.rank_charts import every_nth, rank_heatmap
from htareport.report.units import text

_NS = Unit.NANOSECONDS
_MIN_STEP_EXCESS = 0.15  # A slowest step is named if it is longer than the median by this share,
_MIN_STEPS = 3  # of so many steps.
_MIN_LED_SHARE = 2 / 3  # A slowest rank is named if it is slowest in this share of the steps,
_MIN_RANK_EXCESS = 0.02  # and longer than the median by this share.
_SLOWEST = "Time of the slowest rank, which is what the job takes for the step."
_OVER = "over the steps, of the slowest rank's time in each."


class StepTime(Analysis):
    """How long a step takes, how much that varies, and which steps and ranks are the slow ones.

    ## How it is computed
    A step lasts from the start of its `ProfilerStep#` row on the host (CPU) to the start of the next one; the last, and
    one before a gap in the numbers, to its own end. A host that runs ahead ends a step before its GPU does. The job's
    time for a step is that of the slowest rank, and the job's step time is the median of that over the steps.
    Percentiles are interpolated linearly.

    ## What to do
    - A few slow steps: see in *Annotations* and the trace what only they do: validation, logging, checkpoints, waiting
      for input (more `DataLoader` workers), garbage collection (`gc.freeze()` once the model is built).
    - One rank slowest in most steps: compare it in *Idle time by cause* (late host) and *Kernel duration distribution*
      (slow GPU). Ranks that communicate wait for each other and so take the same time: compare their own time per step
      in the temporal breakdown.
    - The first step slow: it still compiles and allocates. Raise `warmup=` of `torch.profiler.schedule`, or leave it
      out with `--steps`.
    """

    title = "Step time"
    group = Group.TIME
    order = 10
    requires = frozenset({Capability.STEPS})
    tables = (
        TableSpec(
            "summary",
            "Over steps",
            (
                Column("steps", "Steps", Unit.COUNT, "Steps that count: all recorded, or those of --steps."),
                Column("median", "Median", _NS, f"Median {_OVER}", better=Better.LOWER),
                Column("mean", "Mean", _NS, f"Mean {_OVER}", better=Better.LOWER),
                Column("p5", "p5", _NS, f"5th percentile {_OVER}"),
                Column("p95", "p95", _NS, f"95th percentile {_OVER}", better=Better.LOWER),
                Column("min", "Fastest", _NS, f"Smallest {_OVER}"),
                Column("max", "Slowest", _NS, f"Largest {_OVER}", better=Better.LOWER),
            ),
        ),
        TableSpec(
            "steps",
            "By step, over ranks",
            (
                key("step", "Step"),
                Column("start", "Start", _NS, "Earliest start on any rank, since the run's first event."),
                Column("slowest", "Slowest rank's time", _NS, _SLOWEST, better=Better.LOWER),
                Column("slowest_rank", "Slowest rank", Unit.ID, "The rank with that time."),
                Column("median", "Median", _NS, "Median over the ranks of their times for the step."),
                Column("p5", "p5", _NS, "5th percentile over the ranks of their times for the step."),
                Column("p95", "p95", _NS, "95th percentile over the ranks of their times for the step."),
            ),
        ),
        TableSpec(
            "ranks",
            "By rank, over steps",
            (
                key("rank", "Rank"),
                Column("median", "Median", _NS, "Median over this rank's steps.", better=Better.LOWER),
                Column("mean", "Mean", _NS, "Mean over this rank's steps.", better=Better.LOWER),
                Column("max", "Slowest", _NS, "Time of this rank's slowest step."),
                Column("slowest_step", "In step", Unit.ID, "The number of that step."),
                Column(
                    "times_slowest",
                    "Times slowest",
                    Unit.COUNT,
                    "Steps in which this rank takes longest; 0 with one rank.",
                ),
            ),
            is_detail=True,
        ),
        TableSpec(
            "per_step",
            "By rank and step",
            (
                key("rank", "Rank"),
                key("step", "Step"),
                Column("time", "Step time", _NS, "Length of the step on this rank's host."),
            ),
            is_detail=True,
        ),
    )

    def map(self, rank: Rank) -> Frames:
        steps = rank.steps
        frame = pd.DataFrame({"step": steps["number"], "start": steps["start"], "time": steps["end"] - steps["start"]})
        waits = pd.DataFrame([{"waits": Capability.COMM in rank.capabilities}])
        return {"per_step": frame, "own": _rank_summary(frame), "waits": waits}

    def combine(self, frames: Frames, job: Job) -> Frames:
        per_step = frames["per_step"]
        slowest = per_step.loc[per_step.groupby("step")["time"].idxmax()].sort_values("step")
        by_step = per_step.groupby("step")["time"]
        steps = pd.DataFrame(
            {
                "step": slowest["step"].to_numpy(),
                "start": (per_step.groupby("step")["start"].min() - job.zero_ns).to_numpy(),
                "slowest": slowest["time"].to_numpy(),
                "slowest_rank": slowest["rank"].to_numpy(),
                "median": by_step.quantile(0.5).to_numpy(),
                "p5": by_step.quantile(0.05).to_numpy(),
                "p95": by_step.quantile(0.95).to_numpy(),
            }
        )
        ranks = frames["own"][["rank", "median", "mean", "max", "slowest_step"]].sort_values("rank", ignore_index=True)
        counts = slowest["rank"].value_counts() if per_step["rank"].nunique() > 1 else pd.Series(dtype="int64")
        ranks["times_slowest"] = ranks["rank"].map(counts).fillna(0).astype("int64")
        return {
            "summary": _job_summary(frames["own"], steps["slowest"].to_numpy()),
            "steps": steps,
            "ranks": ranks,
            "per_step": per_step,
            "waits": frames["waits"],
            "salvaged": pd.DataFrame({"rank": job.salvaged}),
        }

    def facts(self, frames: Frames) -> Iterator[Fact]:
        row = frames["summary"].iloc[0]
        count = int(row["steps"])
        spread = f"p95 {text(row['p95'], _NS)} · {count} steps" if count > 1 else "1 step"
        words = f"Median {_OVER}"
        yield Fact("step_time", "step time", row["median"], _NS, spread, words, Better.LOWER, order=0)
        steps = frames["steps"]
        if count >= _MIN_STEPS and row["max"] > (1 + _MIN_STEP_EXCESS) * row["median"]:
            slow = steps.sort_values("slowest", ascending=False).iloc[0]
            detail = f"{text(slow['slowest'], _NS)}, +{text(slow['slowest'] - row['median'], _NS)} over the median"
            words = "The step that takes longest on its slowest rank, where it is well above the median."
            yield Fact("slow_step", "slowest step", slow["step"], Unit.STEP, detail, words, order=20)
        yield from _slowest_rank(frames)

    def charts(self, frames: Frames) -> Iterator[Chart]:
        steps, ranks = every_nth(frames["steps"], "step"), frames["ranks"]
        if len(steps) > 1:
            yield self._over_steps(steps, several=len(ranks) > 1)
        if len(ranks) > 1 and len(steps) > 1:
            yield rank_heatmap(
                "heatmap",
                "Step time by rank and step",
                frames["per_step"],
                "step",
                "time",
                x_label="step",
                caption="A bright row is a slow rank, a bright column a slow step.",
            )

    def _over_steps(self, steps: pd.DataFrame, *, several: bool) -> Chart:
        spec = self.tables[-1]
        if not several:
            return chart_of(
                spec,
                "steps",
                "Step time",
                Mark.LINE,
                steps,
                "step",
                "slowest",
                y_label="step time",
                caption="Length of each step on the only rank.",
            )
        median = steps[["step", "median", "p5", "p95"]].rename(columns={"median": "time"}).assign(series="median")
        slowest = steps[["step", "slowest"]].rename(columns={"slowest": "time"}).assign(series="slowest rank")
        return chart_of(
            spec,
            "steps",
            "Step time over ranks",
            Mark.LINE,
            pd.concat([median, slowest], ignore_index=True),
            "step",
            "time",
            "series",
            low="p5",
            high="p95",
            caption="Median over the ranks with the band from p5 to p95, and the slowest rank of each step.",
        )


def _slowest_rank(frames: Frames) -> Iterator[Fact]:
    """Yield the rank that is slowest in most steps, where ranks do not wait for each other in communication."""
    ranks, steps = frames["ranks"], len(frames["steps"])
    ranks = ranks[~ranks["rank"].isin(frames["salvaged"]["rank"])]
    if not len(ranks):
        return
    worst = ranks.sort_values("median", ascending=False).iloc[0]
    excess = worst["median"] - ranks["median"].median()
    leads = steps >= _MIN_STEPS and worst["times_slowest"] >= _MIN_LED_SHARE * steps
    if leads and excess > _MIN_RANK_EXCESS * ranks["median"].median() and not frames["waits"]["waits"].any():
        words = "The rank with the longest median step, and by how much it is longer than the median over the ranks."
        detail = f"+{text(excess, _NS)} over the median rank"
        yield Fact("slowest_rank", "slowest rank", worst["rank"], Unit.RANK, detail, words, order=40)


def _rank_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return statistics of all steps of a rank, which may send rows of some only."""
    if not len(frame):
        return _summary(np.zeros(1)).iloc[:0].assign(slowest_step=0)
    times = frame["time"].to_numpy()
    return _summary(times).assign(slowest_step=int(frame["step"].iloc[int(times.argmax())]))


def _job_summary(by_rank: pd.DataFrame, slowest: np.ndarray) -> pd.DataFrame:
    """Return statistics of the slowest rank's time in each step; number and longest of all steps, sent or not."""
    if len(by_rank) == 1:
        return by_rank
    summary = _summary(slowest)
    return summary.assign(
        steps=np.maximum(summary["steps"], by_rank["steps"].max()), max=np.maximum(summary["max"], by_rank["max"].max())
    )


def _summary(times: np.ndarray) -> pd.DataFrame:
    p5, median, p95 = np.percentile(times, [5, 50, 95])
    row = {"steps": len(times), "median": median, "mean": times.mean(), "p5": p5, "p95": p95}
    return pd.DataFrame([row | {"min": times.min(), "max": times.max()}])
