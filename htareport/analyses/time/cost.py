"""The analysis of cost and throughput: money per hour and per 1,000 steps, samples and tokens per second."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

import pandas as pd

from htareport.analyses import Analysis, Frames, Group, Job, Range
from htareport.rank.capability import Capability
from htareport.rank.device_time import NO_STEPS, PARTS, busy_sets, shares, step_times, times
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, chart_of, key
from htareport.report.units import text

_NS_PER_SECOND = 10**9
_NS_PER_HOUR = 3600 * _NS_PER_SECOND
_NUM_STEPS = 1000  # The cost of one is a fraction of a cent.
_MONEY = "In the currency of the price."
_Amount: TypeAlias = Annotated[float, Range(minimum=0)]


@dataclass(frozen=True)
class Cost(Analysis):
    """What steps cost, how much of that is not compute, and how many samples or tokens the job handles a second.

    ## How it is computed
    Shown where you give `--gpu-hour PRICE`, `--samples-per-step N` or `--tokens-per-step N`, the last two for the whole
    job (its global batch); 0 means not given. Throughput is N over the job's step time: the mean over the steps of the
    slowest rank's, since slow steps cost what they take. An hour costs the price times the number of GPUs: those with
    work in the traces, or `cost.num_gpus` if the job has more than were traced. The money is divided among compute,
    exposed communication, exposed memory and idle as the temporal breakdown divides the time of all ranks and devices:
    step time, or the recorded span without steps.

    ## What to do
    - What does not go into compute is the most that better overlap and a faster host can save.
    - A change that shortens the step by 10 % saves 10 % of what the rest of the job costs: compare the cost of 1,000
      steps before and after.
    - Compare machines by the cost of 1,000 steps or of a million samples, not by that of an hour.
    """

    samples_per_step: _Amount = 0.0
    tokens_per_step: _Amount = 0.0
    gpu_hour: _Amount = 0.0
    num_gpus: Annotated[int, Range(minimum=0)] = 0

    title = "Cost and throughput"
    group = Group.TIME
    order = 15
    nothing: ClassVar[str] = "needs --gpu-hour PRICE on traces of GPUs, or --samples-per-step N on traces with steps"
    tables = (
        TableSpec(
            "parts",
            "By what the money is spent on",
            (
                key("part", "Part", Unit.TEXT, "What the GPUs do, as in the temporal breakdown."),
                Column(
                    "share", "Share", Unit.RATIO, "Of step time, or without steps of the recorded span, over all GPUs."
                ),
                Column("hour", "Per hour", Unit.NUMBER, f"An hour of the whole job. {_MONEY}", better=Better.LOWER),
                Column("steps", "Per 1,000 steps", Unit.NUMBER, f"None without steps. {_MONEY}", better=Better.LOWER),
            ),
        ),
        TableSpec(
            "throughput",
            "Throughput",
            (
                key("what", "What", Unit.TEXT, "Samples or tokens."),
                Column("per_step", "Per step", Unit.COUNT, "As given, for the whole job."),
                Column(
                    "per_second", "Per second", Unit.NUMBER, "Per step over the job's step time.", better=Better.HIGHER
                ),
                Column(
                    "cost", "Cost of a million", Unit.NUMBER, f"None without a price. {_MONEY}", better=Better.LOWER
                ),
            ),
        ),
    )

    def map(self, rank: Rank) -> Frames:
        has_steps = Capability.STEPS in rank.capabilities
        is_priced = bool(self.gpu_hour) and Capability.GPU in rank.capabilities
        if not is_priced and not (has_steps and (self.samples_per_step or self.tokens_per_step)):
            return {}
        steps = rank.steps
        lengths = pd.DataFrame({"step": steps["number"], "time": steps["end"] - steps["start"]})
        spans, in_steps = list[dict[str, Any]](), [step_times(NO_STEPS, {})]
        for events in rank.devices.values() if is_priced else ():
            sets = busy_sets(rank, events)
            spans.append(times(events, sets))
            in_steps.append(step_times(steps, sets))
        gpus = pd.DataFrame(spans, columns=["span", *PARTS]).astype("int64")
        return {"lengths": lengths, "gpus": gpus, "per_step": pd.concat(in_steps, ignore_index=True)}

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        slowest = frames["lengths"].groupby("step")["time"].max()
        step = float(slowest.mean()) if len(slowest) else None
        gpus = frames["gpus"]
        hour = self.gpu_hour * (self.num_gpus or len(gpus)) if len(gpus) else 0.0
        costs = _money_by_part(shares(gpus, frames["per_step"]).iloc[0], hour, step)
        return {"parts": costs if hour else costs.iloc[:0], "throughput": self._throughput(step, hour)}

    def facts(self, frames: Frames) -> Iterator[Fact]:
        for row in frames["throughput"].to_dict("records"):
            words = "At the job's step time, for the whole job."
            detail = f"{text(row['per_step'], Unit.COUNT)} per step"
            name, label = f"{row['what']}_per_second", f"{row['what']} per second"
            yield Fact(name, label, row["per_second"], Unit.NUMBER, detail, words, Better.HIGHER, 5)
        costs = frames["parts"]
        if len(costs):
            column, label = ("steps", "1,000 steps cost") if costs["steps"].notna().all() else ("hour", "an hour costs")
            total, used = costs[column].sum(), costs.loc[costs["part"] == PARTS["compute"], column].sum()
            detail = f"{text(total - used, Unit.NUMBER)} of it not computing"
            yield Fact("cost", label, total, Unit.NUMBER, detail, _MONEY, Better.LOWER, 6)

    def charts(self, frames: Frames) -> Iterator[Chart]:
        costs = frames["parts"]
        if len(costs):
            yield chart_of(
                self.tables[0],
                "hour",
                "Cost of an hour",
                Mark.BAR,
                costs,
                "hour",
                "part",
                x_label="in the currency of the price",
                caption="All GPUs together, by what they do meanwhile.",
            )

    def _throughput(self, step: float | None, hour: float) -> pd.DataFrame:
        rows = list[tuple[str, float, float, float | None]]()
        for unit, count in (("samples", self.samples_per_step), ("tokens", self.tokens_per_step)):
            if count and step:
                cost = hour * step / _NS_PER_HOUR / count * 1e6 if hour else None
                rows.append((unit, count, count * _NS_PER_SECOND / step, cost))
        columns = ["per_step", "per_second", "cost"]
        return pd.DataFrame(rows, columns=["what", *columns]).astype(dict.fromkeys(columns, "float64"))


def _money_by_part(share: pd.Series[Any], hour: float, step: float | None) -> pd.DataFrame:
    """Return what goes into compute, communication, memory and idle time, of an hour and of 1,000 steps if any."""
    table = pd.DataFrame({"part": list(PARTS.values()), "share": [share[use] for use in PARTS]})
    table["share"] = table["share"].astype("float64")
    table["hour"] = table["share"] * hour
    table["steps"] = table["hour"] * (_NUM_STEPS * step / _NS_PER_HOUR if step else math.nan)
    return table
