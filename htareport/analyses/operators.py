"""Which operators take the host's time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.call_tree import self_times
from htareport.algorithms.nesting import NO_PARENT
from htareport.analyses.base import Analysis, Frames, Group, Job
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, key
from htareport.trace import ALL, Capability, RankTrace
from htareport.trace.host import nearest
from htareport.trace.steps import OUTSIDE, step_of

_NS = Unit.NANOSECONDS
_MOST_NAMES = 2_000
_SHOWN = 15


class Operators(Analysis):
    """Which operators the host runs, and where its time goes.

    ## How it is computed
    Rows of the host's operators (`cpu_op`) nest on their thread. *Total* is the sum of a name's durations, in which an
    operator that calls another of the same name counts twice; *self* is the time outside the operators that it calls
    directly. Calls and times are sums over ranks, threads and steps; where steps are chosen, of the operators that
    start in them. GPU work runs elsewhere: a launch returns at once.

    ## What to do
    - On CPU-only runs: start with the operator of largest self time (threads, dtype, layout, fusion).
    - On GPU runs this matters where idle time is host wait: few large operators, `torch.compile` or CUDA graphs cost
      the host less.
    """

    title = "Host operators"
    group = Group.HOST
    order = 0
    requires = frozenset({Capability.HOST_OPS})
    tables = (
        TableSpec(
            "operators",
            "By operator, all ranks together",
            (
                key("name", "Operator", Unit.NAME, "Name as traced."),
                Column("share", "Share", Unit.RATIO, "Share of the sum of all self times."),
                Column("self", "Self time", _NS, "Time outside the operators called directly.", better=Better.LOWER),
                Column("total", "Total time", _NS, "Sum of the durations.", better=Better.LOWER),
                Column("count", "Calls", Unit.COUNT, "Rows of this name.", better=Better.LOWER),
                Column("mean", "Mean", _NS, "Mean duration of a call."),
                Column("max", "Max", _NS, "Longest call."),
            ),
        ),
    )

    def map(self, trace: RankTrace) -> Frames:
        host = trace.host
        is_operator = (host["level"] == "operator").to_numpy()
        around = nearest(host, "operator")
        around[~is_operator] = NO_PARENT
        own = self_times(host["ts"].to_numpy(), host["end"].to_numpy(), around)
        if trace.window != ALL and trace.all_step_numbers:
            is_operator = is_operator & (step_of(trace.steps, host["ts"].to_numpy()) != OUTSIDE)
        names = host["name"].array.codes[is_operator]
        table = _by_code(names, host["dur"].to_numpy()[is_operator], own[is_operator], len(trace.loaded.strings))
        table = table.sort_values(["self", "total"], ascending=False, kind="stable", ignore_index=True)
        table["name"] = [trace.loaded.strings[code] for code in table["name"]]
        size = pd.DataFrame(
            [
                {
                    "names": len(table),
                    "self": int(own[is_operator].sum()),
                    "calls": len(names),
                    "gpu": Capability.GPU in trace.capabilities,
                }
            ]
        )
        return {"operators": table.head(_MOST_NAMES), "size": size}

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        groups = frames["operators"].groupby("name")
        table = groups.agg({"self": "sum", "total": "sum", "count": "sum", "max": "max"}).reset_index()
        table["mean"] = table["total"] / table["count"]
        table["share"] = table["self"] / max(float(frames["size"]["self"].sum()), 1)
        table = table.sort_values(["self", "total", "name"], ascending=[False, False, True], ignore_index=True)
        return {"operators": table.head(_MOST_NAMES), "size": frames["size"]}

    def facts(self, frames: Frames) -> Iterator[Fact]:
        if not len(frames["operators"]):
            return
        if frames["size"]["gpu"].any():  # Then the host is not what counts, and synchronising calls lead the list.
            return
        size = frames["size"]
        words = "Sum of the self times of all host operators, over all ranks, threads and steps."
        yield Fact("operator_time", "host operator time", size["self"].sum(), _NS, "all ranks and threads", words)
        words = "Rows of host operators on all ranks."
        yield Fact("operator_calls", "operator calls", size["calls"].sum(), Unit.COUNT, "on all ranks", words)
        row = frames["operators"].iloc[0]
        words = "Self time of the operator with the largest, as a share of the self time of all operators."
        yield Fact(
            "top_operator_share", "of host operator time", float(row["share"]), Unit.RATIO, str(row["name"]), words
        )

    def charts(self, frames: Frames) -> Iterator[Chart]:
        top = frames["operators"].head(_SHOWN)
        yield Chart(
            "top",
            "Operators by self time",
            Mark.BAR,
            top,
            "self",
            "name",
            None,
            x_label="self time",
            x_unit=_NS,
            y_unit=Unit.NAME,
            caption="Time outside the operators called directly; all ranks and steps together.",
        )

    def notes(self, frames: Frames) -> Iterator[str]:
        names = int(frames["size"]["names"].max())
        if names > _MOST_NAMES:
            yield f"The table holds the {_MOST_NAMES} operators of largest self time, of {names}."


def _by_code(
    names: NDArray[np.integer[Any]], durations: NDArray[np.int64], own: NDArray[np.int64], size: int
) -> pd.DataFrame:
    """Calls and times by code of the name (below `size`); sums by hand take a fraction of the room of groupby."""
    count = np.bincount(names, minlength=size)
    total, most, selves = (np.zeros(size, np.int64) for _ in range(3))
    np.add.at(total, names, durations)
    np.maximum.at(most, names, durations)
    np.add.at(selves, names, own)
    used = np.flatnonzero(count)
    columns = {"total": total, "count": count, "max": most, "self": selves}
    return pd.DataFrame({"name": used} | {name: values[used] for name, values in columns.items()})
