"""What the length of a step hangs on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from htareport.analyses import path_summary, path_window
from htareport.analyses.activity import Activity, Span
from htareport.analyses.activity_graph import ActivityGraph, Rules, activity_graph
from htareport.analyses.base import Analysis, Frames, Group, Job
from htareport.analyses.path_summary import BOUNDS, LABELS, Bound
from htareport.analyses.scale import by_rank, ranks_note, worst_ranks
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, key
from htareport.trace import Capability, RankTrace
from htareport.units import text

_NS = Unit.NANOSECONDS
_ON_PATH = 25  # Names, and edges, in the tables.
_OFF_PATH = 10
_MARKS = 800
_UNSET = -1
_HOST_BOUNDS = [Bound.HOST, Bound.PYTHON, Bound.LAUNCH]
_MEANINGS = {
    Bound.HOST: "Operators and runtime calls at work on the host.",
    Bound.PYTHON: "Between operators on the main thread: Python, or anything else that is not traced.",
    Bound.LOADING: "Within data loading on the host.",
    Bound.LAUNCH: "From the start of a launch to that of its kernel, with nothing before it on the stream.",
    Bound.COMPUTE: "Kernels at work.",
    Bound.COMM: "Collectives and transfers between ranks.",
    Bound.MEMORY: "Memory copies and fills of the device.",
    Bound.GAP: "From the end of a kernel to the start of the one that waited for it.",
    Bound.EARLIER: "From the step's start until the device is done with what earlier steps launched.",
}
_NAMES = " ".join(f"{LABELS[bound]}: {words}" for bound, words in _MEANINGS.items())


@dataclass(frozen=True)
class CriticalPath(Analysis):
    """What the length of a step hangs on: the chain of operators, launches, kernels and waits without any slack.

    ## How it is computed
    Every operator, runtime call and device event has a start and an end. Edges say what must come before what, and
    weigh the time between: along each thread; from a launch to its kernel if the stream was empty; from kernel to
    kernel on a stream; from a kernel to what waits for it (`cuda_sync` rows where the trace has them, else
    synchronising calls return when what was launched before has ended). Time that a call only waits weighs nothing,
    nor does a pause of a thread that waits for work; time between operators of the main thread counts as *Python*.
    The backward pass, on its own thread, takes the place of the main thread's wait for it. The path is the longest one.
    By default it is that of each rank's step of median length, shown for the lowest rank; without steps, of everything
    recorded. It starts with the step's host work and ends with the last device work launched in it, which may run on
    while the next step has begun; where the device is still busy with what earlier steps launched, and this step's work
    waits for it, that time counts as *earlier device work*.

    ## What to do
    - Host operators, Python, launch overhead: the device waits for the host. `torch.compile`, CUDA graphs, larger
      batches, fewer small operators and synchronisations.
    - Compute, communication, earlier device work: the device is what limits. The named kernels are what to make faster;
      what is not on the path only helps once its slack is used up.
    - *Gain* says what the best possible change would bring: the path if that part took no time at all.
    """

    title = "Critical path"
    group = Group.TIME
    order = 30
    requires = frozenset({Capability.HOST_OPS})
    tables = (
        TableSpec(
            "bounds",
            "By what bounds it",
            (
                key("bound", "Bound by", Unit.TEXT, _NAMES),
                Column("time", "On the path", _NS, "Time of the path spent on it.", better=Better.LOWER),
                Column("share", "Share", Unit.RATIO, "Share of the path's length."),
                Column("count", "Pieces", Unit.COUNT, "Edges of the path that take time."),
                Column("gain", "Gain", _NS, "How much shorter the path would be if this took no time at all."),
            ),
        ),
        TableSpec(
            "names",
            "Operators and kernels",
            (
                key("name", "Name", Unit.NAME, "Operator, runtime call or kernel; those with most time on the path."),
                key("bound", "Bound by", Unit.TEXT, "Class of its time."),
                Column("time", "On the path", _NS, "Time of the path within it.", better=Better.LOWER),
                Column("share", "Share", Unit.RATIO, "Share of the path's length."),
                Column("count", "Calls on it", Unit.COUNT, "Calls with time on the path."),
                Column("total", "Total", _NS, "Time of all its calls in the window, without what they call."),
                Column(
                    "slack",
                    "Median slack",
                    _NS,
                    "Half of its calls could take this much longer, one at a time, and the path would not.",
                ),
            ),
        ),
        TableSpec(
            "edges",
            "Longest pieces of the path",
            (
                key("place", "No.", Unit.ID, "From the longest."),
                Column("start", "At", _NS, "From the zero of the report."),
                Column("duration", "Duration", _NS, "Time that it takes on the path."),
                Column("bound", "Bound by", Unit.TEXT, "What the time is spent on."),
                Column("name", "Name", Unit.NAME, "Whose time it is; of a launch, a gap or Python, what comes next."),
                Column("lane", "Where", Unit.TEXT, "Thread or stream."),
            ),
        ),
        TableSpec(
            "ranks",
            "By rank",
            (
                key("rank", "Rank"),
                Column("step", "Step", Unit.ID, "The step whose path it is; none without steps."),
                Column("window", "Window", _NS, "Length of the step, or of what was recorded."),
                Column("path", "Path", _NS, "Length of the longest path.", better=Better.LOWER),
                *(Column(str(bound), LABELS[bound], _NS, _MEANINGS[bound]) for bound in BOUNDS),
            ),
            is_detail=True,
        ),
    )

    rank: int = _UNSET  # -1: every rank, the lowest shown.
    step: int = _UNSET  # -1: the one of median length.
    annotation: str = ""  # Instead of a step: host rows whose name contains this …
    instance: int = 0  # … and which of them, by start.
    data_loading: str = "DataLoader,dataloader,data_load"  # Parts of names of rows that load data.
    python_time: bool = True  # False: time between operators is free, as in HTA.
    max_events: int = 1_000_000  # Without steps: no more than this many, from the start.

    def map(self, trace: RankTrace) -> Frames:
        # Which rank is the lowest no worker knows; a step's path costs a few per cent of loading, so each rank has its.
        span, step = self.span(trace) if self.rank in {_UNSET, trace.rank} else (None, None)
        if span is None:
            return {name: frame.iloc[:0] for name, frame in self._frames(trace, Span(0, 0), None).items()}
        return self._frames(trace, span, step)

    def span(self, trace: RankTrace) -> tuple[Span | None, int | None]:
        """The window on a rank and its step, if it is one. ValueError if what was asked for is not there."""
        if self.annotation:
            rows = path_window.annotation_rows(trace, self.annotation)
            if not 0 <= self.instance < len(rows):
                raise ValueError(f"no instance {self.instance} of {self.annotation!r} (there are {len(rows)})")
            row = rows.iloc[self.instance]
            return Span(int(row["ts"]), int(row["end"]), int(row["capture"]), int(row["thread"])), None
        step = path_window.median_step(trace) if self.step == _UNSET else self.step
        if step is None:
            return path_window.whole_span(trace, self.max_events), None
        span = path_window.step_span(trace, step)
        if span is None:
            raise ValueError(f"no step {step} (there are {', '.join(map(str, trace.steps['number'])) or 'none'})")
        return span, step

    def graph(self, trace: RankTrace, span: Span) -> ActivityGraph:
        """The graph of a window under these options."""
        loading = tuple(part.strip() for part in self.data_loading.split(",") if part.strip())
        return activity_graph(Activity(trace, span, loading), Rules(self.python_time))

    def _frames(self, trace: RankTrace, span: Span, step: int | None) -> Frames:
        found = self.graph(trace, span)
        bounds, path = path_summary.bounds_of(found), found.graph.path
        table = path_summary.by_bound(found, bounds)
        names = path_summary.by_name(found, bounds)
        edges = path_summary.path_edges(found, bounds)
        on_path = (names["time"] > 0).to_numpy()
        longest = edges.assign(duration=edges["end"] - edges["start"]).sort_values(
            ["duration", "start"], ascending=[False, True]
        )
        times = dict(zip(table["bound"], table["time"], strict=True))
        rank = {
            "step": step,
            "window": span.end - span.start,
            "path": path.length,
            "shifted": found.shifted,
            **{str(bound): times.get(str(bound), 0) for bound in BOUNDS},
        }
        return {
            "bounds": table[table["time"] > 0] if path.length else table,
            "names": pd.concat([names[on_path][:_ON_PATH], names[~on_path][:_OFF_PATH]], ignore_index=True),
            "edges": longest[:_ON_PATH].drop(columns="end").reset_index(drop=True),
            "marks": path_summary.marks(edges, _MARKS),
            "ranks": pd.DataFrame([rank]).astype({"step": object}),
        }

    def combine(self, frames: Frames, job: Job) -> Frames:
        ranks = frames["ranks"]
        if not len(ranks):
            raise ValueError(f"no rank {self.rank}, or nothing on it")
        shown = ranks["rank"].min()
        parts = {name: frame[frame["rank"] == shown].drop(columns="rank") for name, frame in frames.items()}
        whole = int(ranks["path"][ranks["rank"] == shown].iloc[0]) or None
        labels = {str(bound): label for bound, label in LABELS.items()}
        for name in ("bounds", "names", "edges", "marks"):
            parts[name] = parts[name].assign(bound=parts[name]["bound"].map(labels))
        for name in ("bounds", "names"):
            share = parts[name]["time"] / whole if whole else float("nan")
            parts[name] = parts[name].assign(share=share).astype({"share": "float64"})
        for name in ("edges", "marks"):
            parts[name] = parts[name].assign(start=parts[name]["start"] - job.zero_ns)
        parts["marks"] = parts["marks"].assign(end=parts["marks"]["end"] - job.zero_ns)
        parts["edges"] = parts["edges"].assign(place=range(1, len(parts["edges"]) + 1))
        return {**parts, "ranks": worst_ranks(ranks, "path"), "size": pd.DataFrame([{"ranks": len(ranks)}])}

    def notes(self, frames: Frames) -> Iterator[str]:
        ranks = frames["ranks"]
        row = ranks.sort_values("rank").iloc[0]
        where = f"step {row['step']}" if row["step"] is not None else "what was recorded"
        yield (
            f"Rank {row['rank']}, {where}: a path of {text(row['path'], _NS)} "
            f"through a window of {text(row['window'], _NS)}."
        )
        if row["step"] is not None and row["path"] > row["window"]:
            late = text(row["path"] - row["window"], _NS)
            yield f"The device is behind the host: what the step launches ends {late} or more after the step does."
        if row["shifted"]:
            yield f"{row['shifted']} device events start before their launch; here they start with it."
        there = int(frames["size"]["ranks"].iloc[0])
        yield from ranks_note("by rank", ranks, there, "those with the longest paths")

    def facts(self, frames: Frames) -> Iterator[Fact]:
        row = frames["ranks"].sort_values("rank").iloc[0]
        if row["path"]:
            share = sum(row[str(bound)] for bound in _HOST_BOUNDS) / row["path"]
            words = "Share of host operators, Python and launch overhead in the length of the critical path."
            yield Fact(
                "critical_path_host_share",
                "of the critical path is the host",
                share,
                Unit.RATIO,
                "operators, Python, launches",
                words,
                Better.LOWER,
            )

    def charts(self, frames: Frames) -> Iterator[Chart]:
        ranks = frames["ranks"]
        there = {str(bound): LABELS[bound] for bound in BOUNDS if ranks[str(bound)].any()}
        if there:
            yield by_rank(
                "bounds",
                "Critical path by what bounds it",
                ranks,
                there,
                caption="Time on the longest path through the window, by what it is spent on.",
            )
        marks = frames["marks"].assign(order=frames["marks"]["bound"].map(list(LABELS.values()).index))
        marks = marks.sort_values("order", kind="stable").drop(columns="order")  # Colours in the order of the bars.
        yield Chart(
            "timeline",
            f"The path over time, rank {ranks['rank'].min()}",
            Mark.TIMELINE,
            marks,
            "start",
            "lane",
            "bound",
            x2="end",
            text="name",
            x_label="time",
            y_label="",
            x_unit=_NS,
            y_unit=Unit.TEXT,
            caption="Where the path runs: host threads and streams. Neighbouring pieces of one kind are joined.",
        )
