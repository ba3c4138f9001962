"""The analysis of host operators: calls, total and self time by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.call_tree import self_times
from htareport.algorithms.nesting import NO_PARENT
from htareport.analyses import Analysis, Frames, Group, Job
from htareport.rank.budget import at_most
from htareport.rank.capability import Capability
from htareport.rank.host_calls import nearest
from htareport.rank.rank import Rank
from htareport.rank.steps import OUTSIDE, step_of
from htareport.rank.window import ALL
from htareport.report import Better, Chart, Column, Fact, Mark, TableSpec, Unit, chart_of, key
from htareport.report.rank_charts import cut_note

_NS = Unit.NANOSECONDS
_MAX_NAMES = 2_000
_MAX_BARS = 15


class Operators(Analysis):
    """Which operators the host runs, and where its time goes.

    ## How it is computed
    Operators (such as `aten::linear`) nest on their thread of the host (CPU). *Total* is the sum of a name's durations,
    in which an operator that calls another of the same name counts twice; *self* is the time outside the operators that
    it calls directly, launches and waits for the GPU included. Calls and times are sums over ranks, threads and steps;
    if steps are chosen, of the operators that start in them. *Per rank and step* is what one rank does in one step: the
    calls that start within steps, summed over all ranks and divided by the number of steps on all ranks together;
    without steps it is what one rank does: everything recorded divided by the number of ranks; ranks without steps do
    not count where others have some. GPU work runs elsewhere: a launch returns at once.

    ## What to do
    - On CPU-only runs: start with the operator of largest self time. `torch.set_num_threads` (torchrun sets 1),
      `torch.compile`, `torch.autocast("cpu", dtype=torch.bfloat16)` where the CPU has it, `channels_last` for
      convolutions.
    - On GPU runs this matters where idle time is host wait: fewer and larger operators, or
      `torch.compile(mode="reduce-overhead")`. Self time of `aten::_local_scalar_dense` (`.item()`) is a wait for the
      GPU.
    - A change has helped if self time (on a GPU: host wait) and step time are smaller.
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
                key("name", "Operator", Unit.NAME, "Name in the trace."),
                Column("share", "Share", Unit.RATIO, "Self time as a share of that of all operators."),
                Column(
                    "self",
                    "Self time",
                    _NS,
                    "Time outside the operators that it calls, summed over calls.",
                    better=Better.LOWER,
                ),
                Column("total", "Total time", _NS, "Sum of the durations of its calls.", better=Better.LOWER),
                Column("count", "Calls", Unit.COUNT, "Number of calls.", better=Better.LOWER),
                Column("mean", "Mean", _NS, "Mean duration of a call."),
                Column("max", "Max", _NS, "Longest call."),
                Column(
                    "step_count",
                    "Calls per rank and step",
                    Unit.COUNT,
                    "Calls that start within steps / steps, both on all ranks together; without steps, calls / ranks.",
                    better=Better.LOWER,
                ),
                Column(
                    "step_self",
                    "Self per rank and step",
                    _NS,
                    "Self time of the calls that start within steps / steps, both on all ranks together; "
                    "without steps, self time / ranks.",
                    better=Better.LOWER,
                ),
            ),
        ),
    )

    def map(self, rank: Rank) -> Frames:
        host = rank.host
        is_operator = host.of_level("operator")
        operator_around = nearest(host, "operator")
        operator_around[~is_operator] = NO_PARENT
        self_ns = self_times(host["ts"], host["end"], operator_around)
        in_steps = step_of(rank.steps, host["ts"]) != OUTSIDE
        if rank.window != ALL and rank.all_step_numbers:
            is_operator = is_operator & in_steps
        if not len(rank.steps):  # Then numbers per step are per rank.
            in_steps[:] = True
        durations, self_ns, in_steps = host.at("dur", is_operator), self_ns[is_operator], in_steps[is_operator]
        names = host["name"][is_operator]
        table = _by_code(names, durations, self_ns, in_steps, len(rank.loaded.strings))
        table = table.sort_values(["self", "total"], ascending=False, kind="stable", ignore_index=True)
        table["name"] = [rank.loaded.strings[code] for code in table["name"]]
        size = {
            "names": len(table),
            "self": int(self_ns.sum()),
            "calls": len(names),
            "steps": len(rank.steps),
            "gpu": Capability.GPU in rank.capabilities,
        }
        return {"operators": table.head(at_most(_MAX_NAMES, len(table))), "size": pd.DataFrame([size])}

    def combine(self, frames: Frames, job: Job) -> Frames:
        del job
        operators, size = frames["operators"], frames["size"]
        if size["steps"].any():  # What ranks without steps do is no part of a step.
            outside = ~operators["rank"].isin(size.loc[size["steps"] > 0, "rank"])
            operators = operators.assign(**operators[["step_count", "step_self"]].mask(outside, 0))
        groups = operators.groupby("name")
        table = groups[["self", "total", "count", "step_count", "step_self"]].sum().assign(max=groups["max"].max())
        table = table.reset_index()
        table["mean"] = table["total"] / table["count"]
        table["share"] = table["self"] / max(float(size["self"].sum()), 1)
        table[["step_count", "step_self"]] /= int(size["steps"].sum()) or len(size)
        table = table.sort_values(["self", "total", "name"], ascending=[False, False, True], ignore_index=True)
        return {"operators": table.head(_MAX_NAMES), "size": size, "joined": pd.DataFrame([{"names": len(table)}])}

    def facts(self, frames: Frames) -> Iterator[Fact]:
        size = frames["size"]
        # With a GPU the host is not what counts, and synchronising calls lead the list.
        if not len(frames["operators"]) or size["gpu"].any():
            return
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
        top = frames["operators"].head(_MAX_BARS)
        yield chart_of(
            self.tables[0],
            "top",
            "Operators by self time",
            Mark.BAR,
            top,
            "self",
            "name",
            caption="Time outside the operators called directly; all ranks and steps together.",
        )

    def notes(self, frames: Frames) -> Iterator[str]:
        size, joined = (frames[name]["names"] for name in ("size", "joined"))
        yield from cut_note("by operator", size, _MAX_NAMES, "of largest self time", joined)


def _by_code(
    codes: NDArray[np.integer[Any]],
    durations: NDArray[np.int64],
    self_ns: NDArray[np.int64],
    in_steps: NDArray[np.bool_],
    num_codes: int,
) -> pd.DataFrame:
    """Return calls and times by code of the name (below `num_codes`), in a fraction of the memory of groupby."""
    count = np.bincount(codes, minlength=num_codes)
    total, longest, self_time, step_self_time = (np.zeros(num_codes, np.int64) for _ in range(4))
    np.add.at(total, codes, durations)
    np.maximum.at(longest, codes, durations)
    np.add.at(self_time, codes, self_ns)
    np.add.at(step_self_time, codes[in_steps], self_ns[in_steps])
    step_count = np.bincount(codes[in_steps], minlength=num_codes)
    used_codes = np.flatnonzero(count)
    columns = {"total": total, "count": count, "max": longest, "self": self_time}
    columns |= {"step_count": step_count, "step_self": step_self_time}
    return pd.DataFrame({"name": used_codes} | {name: values[used_codes] for name, values in columns.items()})
