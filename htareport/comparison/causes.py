"""Sentences on what a change comes from: its largest part, and what in that part changed most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from htareport.comparison import changes
from htareport.comparison.metrics import Metric
from htareport.comparison.sides import Side
from htareport.comparison.step_change import Change, Outcome
from htareport.comparison.waterfall import REST, TOTAL
from htareport.report import Unit
from htareport.units import text

_NS = Unit.NANOSECONDS
_WORTH = 0.3  # Of the whole change: a part that is less explains nothing.
_LEADS = 0.5  # Of the part: a kernel or operator that is less is not named.
_SLIGHT = 0.005  # Of the base: a change of the mean that is less needs no cause.
_LONGEST = 80


def causes(
    change: Change,
    falls: pd.DataFrame,
    sides: tuple[Side, Side],
    rows: pd.DataFrame,
    numbers: tuple[Mapping[str, Metric], Mapping[str, Metric]],
) -> Iterator[str]:
    """Say which part of the step changed most, and what in it did, where there is a change to explain."""
    if change.outcome is Outcome.SAME or not len(falls):
        return
    base, new = float(falls["base"].iloc[-1]), float(falls["new"].iloc[-1])
    parts = falls[~falls["part"].isin([REST, TOTAL])].set_index("part")["delta"]
    part = str(parts.abs().idxmax())
    delta = float(parts[part])
    if abs(new - base) < _SLIGHT * base or delta * (new - base) <= 0 or abs(delta) < _WORTH * abs(new - base):
        return
    yield f"In the mean {_signed(new - base)}, mostly {part} {_signed(delta)}{_leader(part, delta, sides, rows)}."
    if part.startswith("idle") and all("idle_of_span_pct" in each for each in numbers):
        before, after = (text(each["idle_of_span_pct"].value, Unit.RATIO) for each in numbers)
        yield f"GPU idle of the span: {before} → {after}."


def _leader(part: str, delta: float, sides: tuple[Side, Side], rows: pd.DataFrame) -> str:
    """What in this part changed most, if it is most of it."""
    if part == "compute":
        mine = changes.summed(rows[rows["kind"] == "compute"], ["kernel"]).rename(columns={"kernel": "name"})
    elif part == "exposed communication":
        mine = changes.by_name(sides[0].collectives, sides[1].collectives, ["collective"])
        mine = mine.rename(columns={"collective": "name"})
    elif part == "exposed memory":
        mine = changes.by_name(sides[0].copies, sides[1].copies, ["kind"]).rename(columns={"kind": "name"})
    else:
        mine = changes.by_name(sides[0].operators, sides[1].operators, ["name"])
    mine = mine[mine["delta"] * delta > 0]
    if not len(mine) or abs(float(mine["delta"].iloc[0])) < _LEADS * abs(delta):
        return ""
    row = mine.iloc[0]
    name = str(row["name"])
    short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    where = "on the host " if part.startswith("idle") else ""
    return f"; {where}{short}: {row['change']}, {text(row['base_time'], _NS)} → {text(row['new_time'], _NS)} per step"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{text(value, _NS)}"
