"""The analysis of repeated kernel sequences, which one fused kernel or a CUDA graph could replace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.sequences import leading, repeats
from htareport.analyses import Analysis, Frames, Group, Job, Range
from htareport.errors import UsageError
from htareport.rank import kernel_launches
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.operator_sequences import under_operators
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Mark, TableSpec, Unit, chart_of, key, stacked_rows
from htareport.report.rank_charts import cut_note

_NS = Unit.NANOSECONDS
_MAX_SENT = {"streams": 30, "operators": 80}  # Rows that a rank sends of each.
_MAX_ROWS = 200
_MAX_CANDIDATES = 1000  # Repeated runs, of most idle time, of which those that overlap a longer one are left out.
_MAX_BARS = 12
_GAPS_HELP = "Time between the kernels in which their stream runs nothing, summed."
_TIME_LABELS = {"device": "kernels", "idle": "device idle in between", "hidden": "other streams run in between"}


@dataclass(frozen=True)
class KernelSequences(Analysis):
    """Which kernels come after each other again and again: what one fused kernel or a CUDA graph could replace.

    ## How it is computed
    Table *On streams*: runs of `shortest` to `longest` device events (kernels, copies and fills) with the same names in
    the same order on a stream, that occur at least `fewest` times on a rank. A pause of more than `pause` µs ends a
    run, since there something else is waited for. A run that occurs only within one longer run is left out, and so is
    one of which most occurrences lie in those of a run further up. Occurrences do not overlap. *Idle* is the time
    between the kernels in which nothing runs on the device: the most that fusing or a graph can gain. The list is in
    its order. The runs are chosen on each rank by itself, and those of all ranks added up.

    Table *Under operators*: calls of an operator with the same input shapes and the same kernels, in order of start,
    launched by it or by what it calls; `shortest` to `longest` of them. Of operators that hold the same kernels, the
    outermost is listed.

    ## What to do
    - Much idle time within a sequence: `torch.compile(mode="reduce-overhead")`, or capture it with `torch.cuda.graph`;
      both work on NVIDIA and AMD.
    - Many short elementwise kernels in a row: `torch.compile` the module around them, or use a fused one
      (`torch.nn.RMSNorm`, `torch.nn.functional.scaled_dot_product_attention`, `fused=True` for the optimizer).
    - Copies and fills in between: build masks and constants once (`register_buffer`); avoid casts and `.contiguous()`.
    - A change has helped if the idle part of the temporal breakdown is smaller.
    """

    title = "Repeated sequences of kernels"
    group = Group.KERNELS
    order = 30
    requires = frozenset({Capability.GPU})
    tables = (
        TableSpec(
            "streams",
            "On streams, all ranks together",
            (
                key("sequence", "Kernels", Unit.NAME, kernel_launches.SEQUENCE_HELP),
                Column("length", "Length", Unit.COUNT, "Kernels, copies and fills of one occurrence."),
                Column(
                    "count",
                    "Occurrences",
                    Unit.COUNT,
                    "How often it occurs, without overlap, on the ranks that list it.",
                ),
                Column(
                    "idle",
                    "Idle",
                    _NS,
                    "Time between the kernels in which nothing runs on the device, summed: what could be gained.",
                    better=Better.LOWER,
                ),
                Column("gaps", "Gaps", _NS, _GAPS_HELP, better=Better.LOWER),
                Column("device", "Device time", _NS, "Sum of the durations of its kernels.", better=Better.LOWER),
                Column("mean", "Mean", _NS, "Device time of one occurrence."),
                Column("share", "Share", Unit.RATIO, "Device time as a share of that of all device events."),
                Column(
                    "operator",
                    "Example: operator",
                    Unit.NAME,
                    "Innermost operator that launched the first kernel of the example.",
                ),
                Column("rank", "Rank", Unit.ID, "Rank of the example."),
                Column("stream", "Stream", Unit.ID, "Stream of the example."),
                Column("step", "Step", Unit.ID, "Step of the example, where there are steps."),
                Column("start", "Start", _NS, "Start of the example, since the run's first event."),
            ),
        ),
        TableSpec(
            "operators",
            "Under operators, all ranks together",
            (
                key("operator", "Operator", Unit.NAME, "Outermost operator that holds just these kernels."),
                key("shapes", "Input shapes", Unit.TEXT, kernel_launches.SHAPES_HELP),
                key("sequence", "Kernels", Unit.NAME, kernel_launches.SEQUENCE_HELP),
                Column("length", "Length", Unit.COUNT, "Kernels, copies and fills under one call."),
                Column("count", "Calls", Unit.COUNT, "Calls with just these kernels."),
                Column("device", "Device time", _NS, "Sum of the durations of its kernels.", better=Better.LOWER),
                Column("mean", "Mean", _NS, "Device time of one call."),
                Column(
                    "gaps",
                    "Gaps",
                    _NS,
                    "Time between the first start and the last end in which none of them runs, summed over calls.",
                ),
                Column("host", "Host time", _NS, "Sum of the durations of the calls on the host.", better=Better.LOWER),
            ),
        ),
    )

    shortest: Annotated[int, Range(minimum=1)] = 2
    longest: Annotated[int, Range(minimum=1)] = 24
    fewest: Annotated[int, Range(minimum=2)] = 3
    pause: Annotated[float, Range(minimum=0)] = 1000.0  # µs

    def __post_init__(self) -> None:
        if self.longest < self.shortest:
            raise UsageError(f"{self.name}.longest: {self.longest} is less than {self.name}.shortest, {self.shortest}")

    def map(self, rank: Rank) -> Frames:
        max_rows = _MAX_SENT["operators"] + 1  # One more than is ever sent, to know whether there are more.
        sequences = {"operators": under_operators(rank, self.shortest, self.longest, max_rows)}
        sequences["streams"] = self._on_streams(rank)
        rows = {name: frame.head(at_most(_MAX_SENT[name], len(frame))) for name, frame in sequences.items()}
        size = {name: len(frame) for name, frame in sequences.items()}
        return rows | {
            "names": kernel_launches.names_frame(rank, [text for frame in rows.values() for text in frame["sequence"]]),
            "size": pd.DataFrame([{"device": int(rank.device_events["dur"].sum()), **size}]),
        }

    def _on_streams(self, rank: Rank) -> pd.DataFrame:
        """Return repeated runs on streams, of most idle time: one more than is sent."""
        operators = kernel_launches.operator_rows(rank)
        events, gaps, idle, stretches = kernel_launches.lanes(rank, self.pause)
        codes, durations = events["name"].cat.codes.to_numpy(), events["dur"].to_numpy()
        runs = repeats(codes, stretches, shortest=self.shortest, longest=self.longest, fewest=self.fewest)
        run_limits = np.searchsorted(runs.run, np.arange(len(runs.lengths) + 1))
        ends = runs.starts + runs.lengths[runs.run]
        sums = {
            "idle": _sums_before(idle)[ends - 1] - _sums_before(idle)[runs.starts],
            "gaps": _sums_before(gaps)[ends - 1] - _sums_before(gaps)[runs.starts],
            "device": _sums_before(durations)[ends] - _sums_before(durations)[runs.starts],
        }
        table = pd.DataFrame({"length": runs.lengths, "count": np.diff(run_limits)})
        for name, times in sums.items():
            table[name] = kernel_launches.summed(runs.run, times, len(table))
        order = table.sort_values(["idle", "device", "length"], ascending=False, kind="stable").index[:_MAX_CANDIDATES]
        leading_runs = leading(runs, order.to_numpy(), len(events), _MAX_SENT["streams"] + 1)
        table = table.iloc[leading_runs].reset_index(drop=True)
        example_starts = runs.starts[run_limits[leading_runs]]
        examples = zip(example_starts, table["length"], strict=True)
        names = kernel_launches.packed(codes[start : start + length] for start, length in examples)
        first_events = events.iloc[example_starts]
        operator = kernel_launches.names_or_none(rank, operators[first_events.index.to_numpy()])
        return table.assign(
            sequence=pd.Series(names, dtype=object),
            operator=pd.Series(operator, dtype=object),
            stream=first_events["stream"].to_numpy(),
            step=first_events["step"].where(first_events["step"] >= 0).to_numpy("float64"),
            start=first_events["ts"].to_numpy(),
        )

    def combine(self, frames: Frames, job: Job) -> Frames:
        total = max(float(frames["size"]["device"].sum()), 1)
        stream_rows = frames["streams"].assign(sequence=kernel_launches.unpacked(frames["streams"], frames["names"]))
        stream_rows = stream_rows.sort_values(["start", "rank"], kind="stable")
        example = ["length", "operator", "rank", "stream", "step", "start"]
        streams = stream_rows.drop_duplicates("sequence")[["sequence", *example]]
        sums = stream_rows.groupby("sequence")[["count", "idle", "gaps", "device"]].sum().reset_index()
        streams = streams.merge(sums, on="sequence")
        streams["mean"], streams["share"] = streams["device"] / streams["count"], streams["device"] / total
        streams["start"] -= job.zero_ns
        sequence = kernel_launches.unpacked(frames["operators"], frames["names"])
        groups = frames["operators"].assign(sequence=sequence).groupby(["operator", "shapes", "sequence"])
        pooling = {"length": "first", **dict.fromkeys(("count", "device", "gaps", "host"), "sum")}
        operators = groups.agg(pooling).reset_index()
        operators["mean"] = operators["device"] / operators["count"]
        return {
            "streams": _ordered(streams, ["idle", "device"], ["sequence"]).head(_MAX_ROWS),
            "operators": _ordered(operators, ["device"], ["operator", "shapes", "sequence"]).head(_MAX_ROWS),
            "size": frames["size"],
            "joined": pd.DataFrame([{"streams": len(streams), "operators": len(operators)}]),
        }

    def notes(self, frames: Frames) -> Iterator[str]:
        for name, order in (("streams", "of most idle time"), ("operators", "of most device time")):
            words = f"{'on' if name == 'streams' else 'under'} {name}"
            notes = cut_note(words, frames["size"][name], _MAX_SENT[name], order)
            yield from notes or cut_note(words, frames["joined"][name], _MAX_ROWS, order)

    def charts(self, frames: Frames) -> Iterator[Chart]:
        streams = frames["streams"].head(_MAX_BARS)
        if len(streams):
            rows = streams.assign(hidden=streams["gaps"] - streams["idle"])
            yield chart_of(
                self.tables[0],
                "streams",
                "Repeated sequences on streams",
                Mark.STACKED_BAR,
                stacked_rows(rows, "sequence", _TIME_LABELS),
                "sequence",
                "value",
                "part",
                x_label="sequence",
                caption="All occurrences on all ranks; those with most idle time between their kernels first.",
            )
        operators = frames["operators"].head(_MAX_BARS)
        if len(operators):
            yield chart_of(
                self.tables[1],
                "operators",
                "Sequences under operators",
                Mark.BAR,
                operators.assign(label=_labels(operators)),
                "count",
                "label",
                y_unit=Unit.NAME,
                caption="Calls of the operators whose sequences of kernels take most device time, that one first.",
            )


def _sums_before(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of the values before each, and of all."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(values)))


def _ordered(frame: pd.DataFrame, by: list[str], then: list[str]) -> pd.DataFrame:
    ascending = [*(False for _ in by), *(True for _ in then)]
    return frame.sort_values([*by, *then], ascending=ascending, ignore_index=True)


def _labels(rows: pd.DataFrame) -> pd.Series[Any]:
    """Return a label per row: the operator, its input shapes where they differ, and a number where it repeats."""
    has_shapes = (rows.groupby("operator")["shapes"].transform("nunique") > 1) & (rows["shapes"] != "")
    named = rows["operator"] + np.where(has_shapes, " (" + rows["shapes"] + ")", "")
    number, is_repeated = named.groupby(named).cumcount() + 1, named.groupby(named).transform("size") > 1
    return named + np.where(is_repeated, " #" + number.astype(str), "")
