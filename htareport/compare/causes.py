"""Says where a change of the step time comes from: its largest part, the kernels or operators in it, single ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from htareport.compare import changes
from htareport.compare.metrics import Metric
from htareport.compare.sides import Sides
from htareport.compare.step_change import Change, Outcome
from htareport.compare.waterfall import REMAINDER, TOTAL, Waterfall
from htareport.compare.words import listed, shortened, signed
from htareport.report import Unit
from htareport.report.units import text

_NS = Unit.NANOSECONDS
_MIN_SHARE = 0.3  # Of the total change: a part that is less explains nothing.
_MAIN_SHARE = 0.5  # Of the total change: what is more is most of it; of a part: a kernel that is less is not named.
_MIN_CHANGE = 0.005  # Of the base: a change of the mean that is less needs no cause.
_MAX_RATIO = 0.3  # Of the other ranks' change to that of the ranks that changed alone; of gone to new work.
_MAX_NAME, _MAX_RANKS, _MAX_NAMES = 80, 3, 2
_WAITS = {"aten::_local_scalar_dense", "aten::item", "cudaDeviceSynchronize"}  # For the device: no cause of its idling.


def causes(
    change: Change,
    step_parts: Waterfall,
    sides: Sides,
    rows: pd.DataFrame,
    numbers: tuple[Mapping[str, Metric], Mapping[str, Metric]],
) -> Iterator[str]:
    """Say which part of the step changed most, and what in it did, where there is a change to explain."""
    part_rows = step_parts.rows
    if change.outcome is Outcome.SAME or not len(part_rows):
        return
    base, new = float(part_rows["base"].iloc[-1]), float(part_rows["new"].iloc[-1])
    total, deltas = new - base, part_rows[part_rows["part"] != TOTAL].set_index("part")["delta"]
    if abs(total) < _MIN_CHANGE * base:
        return
    yield from _changed_alone(total, sides)
    label = str(deltas.abs().idxmax())
    delta = float(deltas[label])
    if delta * total > 0 and abs(delta) >= _MIN_SHARE * abs(total):
        extent = "mostly" if abs(delta) >= _MAIN_SHARE * abs(total) else "the largest part"
        is_spread = label == REMAINDER
        what = "how far the slowest rank is behind the mean of the ranks:" if is_spread else label
        leader = "" if is_spread else _leader(label, delta, sides, rows)
        whose = " of the slowest rank" if step_parts.is_slowest else ""
        yield f"In the mean{whose} {signed(total, _NS)}, {extent} {what} {signed(delta, _NS)}{leader}."
    share = "idle_pct" if change.outcome is not Outcome.NO_STEPS else "idle_of_span_pct"
    if label.startswith("idle") and all(share in number for number in numbers):
        before, after = (text(number[share].value, Unit.RATIO) for number in numbers)
        yield f"GPU idle: {before} → {after}."


def _changed_alone(total: float, sides: Sides) -> Iterator[str]:
    """Say which ranks changed by themselves, if a few did: that the others wait longer for them is no cause."""
    both = sides[0].ranks.merge(sides[1].ranks, on="rank", suffixes=("_base", "_new"))
    changed = (both["own_new"] - both["own_base"]).set_axis(both["rank"]).dropna()
    same_way = changed[changed * total > 0]
    largest = float(same_way.abs().max())  # nan if no rank changed in that direction.
    moved = same_way[same_way.abs() >= _MAIN_SHARE * largest].sort_values(key=abs, ascending=False, kind="stable")
    other_ranks = changed.drop(moved.index)
    typical = float(other_ranks.median())
    if not largest >= _MAIN_SHARE * abs(total) or len(moved) > len(other_ranks) or abs(typical) > _MAX_RATIO * largest:
        return
    ranks = listed([str(rank) for rank in moved.index], _MAX_RANKS)
    yield (
        f"Rank{'s' if len(moved) > 1 else ''} {ranks} alone became {'slower' if total > 0 else 'faster'}: own "
        f"time, without exposed communication, {signed(float(moved.mean()), _NS)}; the others' {signed(typical, _NS)}."
    )


def _leader(label: str, delta: float, sides: Sides, rows: pd.DataFrame) -> str:
    """Name what changed most in a part of the step, if it is most of it; else say if calls are more, or slower."""
    work = _work_of(label, sides, rows)
    same_way = work[work["delta"] * delta > 0]
    if not len(same_way):
        return ""
    row, where = same_way.iloc[0], "on the host " if label.startswith("idle") else ""
    if abs(float(row["delta"])) < _MAIN_SHARE * abs(delta):
        kinds = same_way.groupby("change")["delta"].sum()
        kind = str(kinds.abs().idxmax())
        return f"; {kind} of many kernels" if label == "compute" and kinds[kind] / delta >= _MAIN_SHARE else ""
    replaced = [work[work["change"] == change] for change in ("gone", "new")]
    sums = [float(side["delta"].sum()) for side in replaced]
    sizes = sorted(map(abs, sums))
    if row["change"] in {"gone", "new"} and sizes[0] > _MAX_RATIO * sizes[1]:  # As where one fused kernel does it all.
        names = [_named(side) for side in replaced]
        return f"; {where}{names[0]} gone ({signed(sums[0], _NS)}), {names[1]} new ({signed(sums[1], _NS)})"
    times = f"{text(row['base_time'], _NS)} → {text(row['new_time'], _NS)} {sides[0].per_step_label}"
    return f"; {where}{shortened(str(row['name']), _MAX_NAME)}: {row['change']}, {times}"


def _named(work: pd.DataFrame) -> str:
    return listed([shortened(str(name), _MAX_NAME) for name in work["name"]], _MAX_NAMES, " and ")


def _work_of(label: str, sides: Sides, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the work that may cause a part of the step, by name: where both runs tell it; of idle time the host's."""
    base, new = sides
    is_idle = label.startswith("idle")
    if not all(side.tells_operators if is_idle else side.tells_kernels for side in sides):
        return rows[:0].assign(delta=0.0)
    if label == "compute":
        return changes.summed(rows[rows["kind"] == "compute"], ["kernel"]).rename(columns={"kernel": "name"})
    if label == "exposed communication":
        work = changes.by_name(base.collectives, new.collectives, ["collective"])
        return work.rename(columns={"collective": "name"})
    if label == "exposed memory":
        return changes.by_name(base.copies, new.copies, ["kind"]).rename(columns={"kind": "name"})
    work = changes.by_name(base.operators, new.operators, ["name"])
    return work[~work["name"].isin(_WAITS)] if label in {"idle", "idle: host wait"} else work[:0]
