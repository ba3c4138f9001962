"""Reports of one run made from a few numbers, without traces: what a comparison reads, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from htareport.report import Column, Fact, Report, Section, Table, TableSpec, Unit

Parts = tuple[float, float, float]  # Compute, exposed communication and idle of one step, µs.
PARTS = ["compute", "exposed_comm", "exposed_memory", "idle"]


def table(name: str, frame: pd.DataFrame) -> Table:
    """A table whose columns mean nothing."""
    return Table(TableSpec(name, name, tuple(Column(each, each, Unit.TEXT) for each in frame.columns)), frame)


def run(
    steps: Mapping[int, Sequence[Parts]],
    *,
    title: str = "run",
    kernels: Sequence[Sequence[Any]] = (),
    operators: Sequence[Sequence[Any]] = (),
    collectives: Sequence[Sequence[Any]] = (),
    span: float = 0.0,
    facts: Sequence[Fact] = (),
    meta: Mapping[str, Any] | None = None,
) -> Report:
    """A report of ranks by step; times in µs. Without steps: of `span`, all of it compute.

    `kernels` are path, shapes, kernel, kind, count, time; `operators` name, count, self time; `collectives` name,
    count, time.
    """
    rows = [
        (rank, 0, number, 1e3 * sum(parts), 1e3 * parts[0], 1e3 * parts[1], 0.0, 1e3 * parts[2])
        for rank, each in steps.items()
        for number, parts in enumerate(each)
    ]
    every = pd.DataFrame(rows, columns=["rank", "device", "step", "time", *PARTS])
    slowest = every.loc[every.groupby("step")["time"].idxmax()] if rows else every
    means = every.groupby("step")[["time", *PARTS]].mean().reset_index()
    ranks = every.groupby("rank")[["time", *PARTS]].sum().reset_index().rename(columns={"time": "span"})
    count = max(len(means), 1)
    ranks["own_step"] = (ranks["span"] - ranks["exposed_comm"]) / count
    if not rows:
        ranks = pd.DataFrame({"rank": [0], "span": 1e3 * span, "compute": 1e3 * span, "own_step": [None]})
        ranks[["exposed_comm", "exposed_memory", "idle"]] = 0.0
    work = pd.DataFrame(kernels, columns=["path", "shapes", "kernel", "kind", "count", "time"])
    sent = pd.DataFrame(collectives, columns=["collective", "count", "time"]).assign(process_group="", bytes=None)
    hosts = pd.DataFrame(operators, columns=["name", "step_count", "step_self"])
    basis = pd.DataFrame({"ranks": [max(len(steps), 1)], "steps": [float(len(every)) if rows else None]})
    by_rank = every.groupby("rank")["time"].mean().rename("mean").reset_index()
    return Report(
        title,
        meta=dict(meta or {}),
        sections=(
            _section(
                "step_time",
                steps=slowest[["step", "time", "rank"]].rename(columns={"time": "slowest", "rank": "slowest_rank"}),
                ranks=by_rank,
            ),
            _section("temporal_breakdown", ranks=ranks, steps=means, per_step=every),
            _section(
                "step_work",
                kernels=work.assign(time=work["time"] * 1e3),
                collectives=sent.assign(time=sent["time"] * 1e3),
                copies=pd.DataFrame(columns=["kind", "count", "time", "bytes"]),
                basis=basis,
            ),
            _section("operators", operators=hosts.assign(step_self=hosts["step_self"] * 1e3)),
            Section("facts", "Facts", "Time", facts=tuple(facts)),
        ),
    )


def _section(name: str, **frames: pd.DataFrame) -> Section:
    return Section(name, name, "Time", tables=tuple(table(each, frame) for each, frame in frames.items()))


def steps_of(compute: float, exposed: float = 0.0, idle: float = 0.0, *, count: int = 8) -> list[Parts]:
    """So many steps that differ a little, always in the same way."""
    return [(compute + number % 4, exposed, idle) for number in range(count)]
