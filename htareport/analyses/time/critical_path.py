"""The analysis of the critical path of a step: what bounds it, which operators and kernels lie on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

import pandas as pd

from htareport.analyses import Analysis, Frames, Group, Job, Range
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.critical_path import stretch, summary
from htareport.rank.critical_path.activity import Activity, Span
from htareport.rank.critical_path.graph import ActivityGraph, Rules, activity_graph
from htareport.rank.critical_path.summary import BOUNDS, LABELS, MEANINGS, Bound
from htareport.rank.rank import Rank
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, chart_of, key
from htareport.report.rank_charts import by_rank
from htareport.report.units import counted, text

_NS = Unit.NANOSECONDS
_MAX_ON_PATH = 25  # Names, and edges, in the tables.
_MAX_OFF_PATH = 10
_MAX_MARKS = 800
_UNSET = -1
_HOST_BOUNDS = [Bound.HOST, Bound.PYTHON, Bound.LOADING, Bound.LAUNCH]
_LABELS = {bound: LABELS[bound][0].upper() + LABELS[bound][1:] for bound in BOUNDS}
_BOUND_HELP = " ".join(f"{_LABELS[bound]}: {words}" for bound, words in MEANINGS.items())
_BOUND = key("bound", "Bound by", Unit.TEXT, "What its time counts as.")
_TOTAL = Column(
    "total", "Total", _NS, "Time of all its calls in the window, without what they call and without waiting."
)


@dataclass(frozen=True)
class CriticalPath(Analysis):
    """What decides the length of a step: the longest chain of host work, launches, kernels and waits for one another.

    ## How it is computed
    Each operator, runtime call and device event (kernel, copy or fill) has a start and an end. *Edges* say what had to
    come before what, and are as long as the time between: along a host thread; from a launch to its kernel, if the
    stream was free at the launch; from kernel to kernel on a stream; from a kernel to what waited for it (as
    `cuda_sync` rows say, else a synchronising call returns once what was launched before has ended). Pure waiting has
    no length; the backward pass, on a thread of its own, stands for the main thread's wait for it. Time between
    operators of the main thread is *Python*. The *critical path* is the longest chain of edges; what is not on it has
    *slack*.

    Each rank gets the path of its complete step of median length, and the lowest rank's is shown. A step is complete if
    another follows it and its device work is recorded; steps without device work count only if none has any. Without
    steps, it is the path of everything recorded. It ends with the last device event launched in the step, so it may be
    longer than the step. *Earlier device work* is time in which the step's work waits until the device is done with
    what earlier steps launched.

    Options: `rank` and `step` choose others (-1: as above). `annotation` takes, instead of a step, a host row whose
    name contains that text, `instance` which one (0: the first). Host rows whose names contain one of the texts of
    `data_loading`, separated by commas, are data loading. `python_time=false` leaves *Python* out and follows the rules
    of Holistic Trace Analysis (HTA). Without steps the path covers at most `max_events` rows, from the start.

    ## What to do
    - Data loading, Python, host operators, launch overhead: the GPU waits for the host. More `DataLoader` workers,
      fewer synchronisations (`.item()`), `torch.compile(mode="reduce-overhead")`, larger batches. Without a GPU the
      host operators are the work itself.
    - Compute, copies, earlier device work: the GPU is the limit. Make the kernels named below faster.
    - Communication: overlap it, or speed up the rank that comes last (see *Stragglers*).
    - *Gain* is the most that a change can bring, other chains allowed for. Record again and compare the step time.
    """

    title = "Critical path"
    group = Group.TIME
    order = 30
    requires = frozenset({Capability.HOST_OPS})
    worst = MappingProxyType({"ranks": "path"})
    tables = (
        TableSpec(
            "bounds",
            "By what bounds it",
            (
                key("bound", "Bound by", Unit.TEXT, _BOUND_HELP),
                Column("time", "On the path", _NS, "Time that the path spends on it.", better=Better.LOWER),
                Column("share", "Share", Unit.RATIO, "Share of the path's length."),
                Column("count", "Pieces", Unit.COUNT, "Edges of the path, those of no length left out."),
                Column("gain", "Gain", _NS, "How much shorter the path would be if this took no time anywhere."),
            ),
        ),
        TableSpec(
            "names",
            "Operators and kernels",
            (
                key(
                    "name",
                    "Name",
                    Unit.NAME,
                    f"Operator, call or kernel: the {_MAX_ON_PATH} with most time on the path.",
                ),
                _BOUND,
                Column("time", "On the path", _NS, "Time that the path spends in its calls.", better=Better.LOWER),
                Column("share", "Share", Unit.RATIO, "Share of the path's length."),
                Column("count", "Calls on it", Unit.COUNT, "Number of its calls with time on the path."),
                _TOTAL,
            ),
        ),
        TableSpec(
            "off_path",
            "Largest work off the path",
            (
                key(
                    "name",
                    "Name",
                    Unit.NAME,
                    f"Operator, call or kernel without time on the path: {_MAX_OFF_PATH} of them.",
                ),
                _BOUND,
                _TOTAL,
                Column(
                    "slack",
                    "Median slack",
                    _NS,
                    "How much longer one of its edges could take before the path gets longer; median over its edges.",
                ),
            ),
            "What runs beside the path, least slack first. To make it faster alone gains nothing; once the path is "
            "shorter by its slack, it may be what the step waits for.",
            is_detail=True,
        ),
        TableSpec(
            "edges",
            "Longest pieces of the path",
            (
                key("place", "No.", Unit.ID, "1 is the longest."),
                Column("start", "At", _NS, "Start, since the run's first event."),
                Column("duration", "Duration", _NS, "Length of the edge."),
                Column("bound", "Bound by", Unit.TEXT, "What the time is spent on."),
                Column("name", "Name", Unit.NAME, "Whose time it is; for a launch, a gap or Python what comes next."),
                Column("lane", "Where", Unit.TEXT, "Host thread or stream."),
            ),
        ),
        TableSpec(
            "ranks",
            "By rank",
            (
                key("rank", "Rank"),
                Column("step", "Step", Unit.ID, "The step whose path it is; none where it is not one of a step."),
                Column("window", "Window", _NS, "Length of the step or annotation, or of everything recorded."),
                Column("path", "Path", _NS, "Length of the longest path.", better=Better.LOWER),
                *(Column(str(bound), _LABELS[bound], _NS, MEANINGS[bound]) for bound in BOUNDS),
            ),
            is_detail=True,
        ),
    )

    rank: Annotated[int, Range(minimum=_UNSET)] = _UNSET  # -1: every rank, the lowest shown.
    step: Annotated[int, Range(minimum=_UNSET)] = _UNSET  # -1: the one of median length.
    annotation: str = ""  # Instead of a step: host rows whose name contains this …
    instance: Annotated[int, Range(minimum=0)] = 0  # … and which of them, by start.
    data_loading: str = "DataLoader,dataloader,data_load"  # Parts of names of rows that load data.
    python_time: bool = True  # False: time between operators is free, as in HTA.
    max_events: Annotated[int, Range(minimum=1)] = 1_000_000  # Without steps: no more than this many, from the start.

    def map(self, rank: Rank) -> Frames:
        # Which rank is the lowest no worker knows; a step's path costs a few per cent of loading, so each rank has its.
        span, step = self.span(rank) if self.rank in {_UNSET, rank.rank} else (None, None)
        if span is None:
            return {name: frame.iloc[:0] for name, frame in self._frames(rank, Span(0, 0), None).items()}
        return self._frames(rank, span, step)

    def span(self, rank: Rank) -> tuple[Span | None, int | None]:
        """Return the window on a rank, and its step if it is one. ValueError if the rank lacks what options name."""
        if self.annotation:
            rows = stretch.annotation_rows(rank, self.annotation)
            if not 0 <= self.instance < len(rows):
                raise ValueError(f"no instance {self.instance} of {self.annotation!r} (there are {len(rows)})")
            row = rows.iloc[self.instance]
            return Span(int(row["ts"]), int(row["end"]), int(row["capture"]), int(row["thread"])), None
        step = stretch.median_step(rank) if self.step == _UNSET else self.step
        if step is None:
            return stretch.whole_span(rank, self.max_events), None
        span = stretch.step_span(rank, step)
        if span is None:
            raise ValueError(f"no step {step} (there are {', '.join(map(str, rank.steps['number'])) or 'none'})")
        return span, step

    def graph(self, rank: Rank, span: Span) -> ActivityGraph:
        """Return the graph of a window under these options."""
        loading = tuple(name.strip() for name in self.data_loading.split(",") if name.strip())
        return activity_graph(Activity(rank, span, loading), Rules(self.python_time))

    def _frames(self, rank: Rank, span: Span, step: int | None) -> Frames:
        graph = self.graph(rank, span)
        bounds, path = summary.bounds_of(graph), graph.graph.path
        table = summary.by_bound(graph, bounds)
        names = summary.by_name(graph, bounds)
        edges = summary.path_edges(graph, bounds)
        off_path = names[(names["time"] == 0) & (names["total"] > 0)][:_MAX_OFF_PATH]
        longest = edges.assign(duration=edges["end"] - edges["start"])
        longest = longest.sort_values(["duration", "start"], ascending=[False, True])
        times = dict(zip(table["bound"], table["time"], strict=True))
        row = {
            "step": step,
            "window": span.end - span.start,
            "path": path.length,
            "shifted": graph.shifted,
            "device_events": len(graph.activity.device),
            **{str(bound): times.get(str(bound), 0) for bound in BOUNDS},
        }
        return {
            "bounds": table[table["time"] > 0] if path.length else table,
            "names": names[names["time"] > 0][:_MAX_ON_PATH],
            "off_path": off_path.sort_values(["slack", "total"], ascending=[True, False]),
            "edges": longest[:_MAX_ON_PATH].drop(columns="end").reset_index(drop=True),
            "marks": summary.marks(edges, at_most(_MAX_MARKS, len(edges))),
            "ranks": pd.DataFrame([row]).astype({"step": object}),
        }

    def combine(self, frames: Frames, job: Job) -> Frames:
        ranks = frames["ranks"]
        if not len(ranks):
            raise ValueError(f"no rank {self.rank}, or nothing on it")
        shown = ranks["rank"].min()
        tables = {name: frame[frame["rank"] == shown].drop(columns="rank") for name, frame in frames.items()}
        length = int(ranks["path"][ranks["rank"] == shown].iloc[0]) or None
        labels = {str(bound): label for bound, label in LABELS.items()}
        for name in ("bounds", "names", "off_path", "edges", "marks"):
            tables[name] = tables[name].assign(bound=tables[name]["bound"].map(labels))
        for name in ("bounds", "names"):
            share = tables[name]["time"] / length if length else float("nan")
            tables[name] = tables[name].assign(share=share).astype({"share": "float64"})
        for name in ("edges", "marks"):
            tables[name] = tables[name].assign(start=tables[name]["start"] - job.zero_ns)
        tables["marks"] = tables["marks"].assign(end=tables["marks"]["end"] - job.zero_ns)
        tables["edges"] = tables["edges"].assign(place=range(1, len(tables["edges"]) + 1))
        return {**tables, "ranks": ranks}

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
            early = counted(row["shifted"], "device event starts", "device events start")
            yield f"{early} before the launch; here with it."

    def facts(self, frames: Frames) -> Iterator[Fact]:
        row = frames["ranks"].sort_values("rank").iloc[0]
        if row["path"] and not row["device_events"] and row[str(Bound.COMM)]:
            share, words = row[str(Bound.COMM)] / row["path"], MEANINGS[Bound.COMM]
            name = "critical_path_comm_share"
            yield Fact(name, "of the critical path is communication", share, Unit.RATIO, "on the host", words)
        if row["path"] and row["device_events"]:  # Else there is nothing but the host.
            share = sum(row[str(bound)] for bound in _HOST_BOUNDS) / row["path"]
            words = (
                "Share of operators, Python, data loading and launches on the host in the length of the critical path."
            )
            name, detail = "critical_path_host_share", "operators, Python, loading, launches"
            yield Fact(name, "of the critical path is the host", share, Unit.RATIO, detail, words, Better.LOWER)

    def charts(self, frames: Frames) -> Iterator[Chart]:
        ranks = frames["ranks"]
        if series := {str(bound): LABELS[bound] for bound in BOUNDS if ranks[str(bound)].any()}:
            yield by_rank(
                "bounds",
                "Critical path by what bounds it",
                ranks,
                series,
                caption="Time on the longest path through the window, by what it is spent on.",
            )
        marks = frames["marks"].assign(order=frames["marks"]["bound"].map(list(LABELS.values()).index))
        marks = marks.sort_values("order", kind="stable").drop(columns="order")  # Colours in the order of the bars.
        yield chart_of(
            self.tables[3],
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
            caption="Where the path runs: host threads and streams. Neighbouring pieces of one kind are joined.",
        )
