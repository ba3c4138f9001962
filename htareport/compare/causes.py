"""Sentences on what a change comes from: its largest part, what in that part changed most, and which ranks did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from htareport.compare import changes
from htareport.compare.metrics import Metric
from htareport.compare.sides import Side
from htareport.compare.step_change import Change, Outcome
from htareport.compare.waterfall import REST, TOTAL, Waterfall
from htareport.compare.words import shortened, signed
from htareport.report import Unit
from htareport.report.units import text

_NS = Unit.NANOSECONDS
_WORTH = 0.3  # Of the whole change: a part that is less explains nothing.
_MOSTLY = 0.5  # Of the whole change: what is more is most of it; of a part: a kernel that is less is not named.
_SLIGHT = 0.005  # Of the base: a change of the mean that is less needs no cause.
_ALIKE = 0.3  # Of what one rank changed by: if the others changed by less, it changed alone.
_LONGEST, _MOST_RANKS, _MOST_NAMED = 80, 3, 2
_WAITS = {"aten::_local_scalar_dense", "aten::item", "cudaDeviceSynchronize"}  # For the device: no cause of its idling.


def causes(
    change: Change,
    falls: Waterfall,
    sides: tuple[Side, Side],
    rows: pd.DataFrame,
    numbers: tuple[Mapping[str, Metric], Mapping[str, Metric]],
) -> Iterator[str]:
    """Say which part of the step changed most, and what in it did, where there is a change to explain."""
    fallen = falls.rows
    if change.outcome is Outcome.SAME or not len(fallen):
        return
    base, new = float(fallen["base"].iloc[-1]), float(fallen["new"].iloc[-1])
    total, parts = new - base, fallen[fallen["part"] != TOTAL].set_index("part")["delta"]
    if abs(total) < _SLIGHT * base:
        return
    yield from _alone(total, sides)
    part = str(parts.abs().idxmax())
    delta = float(parts[part])
    if delta * total > 0 and abs(delta) >= _WORTH * abs(total):
        most = "mostly" if abs(delta) >= _MOSTLY * abs(total) else "the largest part"
        what = "how far the slowest rank is behind the mean of the ranks:" if part == REST else part
        led = "" if part == REST else _leader(part, delta, sides, rows)
        whose = " of the slowest rank" if falls.is_slowest else ""
        yield f"In the mean{whose} {signed(total, _NS)}, {most} {what} {signed(delta, _NS)}{led}."
    share = "idle_pct" if change.outcome is not Outcome.NO_STEPS else "idle_of_span_pct"
    if part.startswith("idle") and all(share in number for number in numbers):
        before, after = (text(number[share].value, Unit.RATIO) for number in numbers)
        yield f"GPU idle: {before} → {after}."


def _alone(total: float, sides: tuple[Side, Side]) -> Iterator[str]:
    """Say which ranks changed by themselves, if a few did: that the others wait longer for them is no cause."""
    both = sides[0].ranks.merge(sides[1].ranks, on="rank", suffixes=("_base", "_new"))
    changed = (both["own_new"] - both["own_base"]).set_axis(both["rank"]).dropna()
    along = changed[changed * total > 0]
    largest = float(along.abs().max())  # nan if no rank changed in that direction.
    moved = along[along.abs() >= _MOSTLY * largest].sort_values(key=abs, ascending=False, kind="stable")
    rest = changed.drop(moved.index)
    others = float(rest.median())
    if not largest >= _MOSTLY * abs(total) or len(moved) > len(rest) or abs(others) > _ALIKE * largest:
        return
    names = ", ".join(str(rank) for rank in moved.index[:_MOST_RANKS])
    more = f" and {len(moved) - _MOST_RANKS} more" if len(moved) > _MOST_RANKS else ""
    yield (
        f"Rank{'s' if len(moved) > 1 else ''} {names}{more} alone became {'slower' if total > 0 else 'faster'}: own "
        f"time, without exposed communication, {signed(float(moved.mean()), _NS)}; the others' {signed(others, _NS)}."
    )


def _leader(part: str, delta: float, sides: tuple[Side, Side], rows: pd.DataFrame) -> str:
    """What in this part changed most, if it is most of it; else whether there are more calls, or slower ones."""
    work = _work_of(part, sides, rows)
    along = work[work["delta"] * delta > 0]
    if not len(along):
        return ""
    row, where = along.iloc[0], "on the host " if part.startswith("idle") else ""
    if abs(float(row["delta"])) < _MOSTLY * abs(delta):
        kinds = along.groupby("change")["delta"].sum()
        kind = str(kinds.abs().idxmax())
        return f"; {kind} of many kernels" if part == "compute" and kinds[kind] / delta >= _MOSTLY else ""
    replaced = [work[work["change"] == change] for change in ("gone", "new")]
    sums = [abs(float(each["delta"].sum())) for each in replaced]
    if row["change"] in {"gone", "new"} and min(sums) > _ALIKE * max(sums):  # As where one fused kernel does it all.
        told = (f"{_named(each)} {each['change'].iloc[0]} ({signed(each['delta'].sum(), _NS)})" for each in replaced)
        return f"; {where}{', '.join(told)}"
    times = f"{text(row['base_time'], _NS)} → {text(row['new_time'], _NS)} {sides[0].per}"
    return f"; {where}{shortened(str(row['name']), _LONGEST)}: {row['change']}, {times}"


def _named(work: pd.DataFrame) -> str:
    names = [shortened(str(name), _LONGEST) for name in work["name"].head(_MOST_NAMED)]
    return " and ".join(names) + (f" and {len(work) - _MOST_NAMED} more" if len(work) > _MOST_NAMED else "")


def _work_of(part: str, sides: tuple[Side, Side], rows: pd.DataFrame) -> pd.DataFrame:
    """The work that may be behind a part of the step, by name: where both runs tell it, and idle time is the host's."""
    is_idle, both = part.startswith("idle"), sides
    if not all(side.tells_operators if is_idle else side.tells_kernels for side in both):
        return rows[:0].assign(delta=0.0)
    if part == "compute":
        return changes.summed(rows[rows["kind"] == "compute"], ["kernel"]).rename(columns={"kernel": "name"})
    if part == "exposed communication":
        work = changes.by_name(both[0].collectives, both[1].collectives, ["collective"])
        return work.rename(columns={"collective": "name"})
    if part == "exposed memory":
        return changes.by_name(both[0].copies, both[1].copies, ["kind"]).rename(columns={"kind": "name"})
    work = changes.by_name(both[0].operators, both[1].operators, ["name"])
    return work[~work["name"].isin(_WAITS)] if part in {"idle", "idle: host wait"} else work[:0]
