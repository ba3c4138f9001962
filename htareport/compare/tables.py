"""Makes the tables and charts of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from htareport.compare import changes
from htareport.compare.environment import Difference
from htareport.compare.gates import Verdict
from htareport.compare.metrics import Metric, absolute_interval, relative_interval
from htareport.compare.waterfall import REMAINDER, TOTAL, Waterfall
from htareport.compare.words import between, changed
from htareport.report import Better, Chart, Column, Mark, Table, TableSpec, Unit, key
from htareport.report.units import MISSING, text

_NS, _CHANGE = Unit.NANOSECONDS, Unit.TIME_CHANGE
_MAX_ROWS, _MAX_BARS = 2_000, 12
_OF_SPAN = "_of_span"  # In names of metrics.
_MIN_CHANGE = 0.0005  # Of the base: parts that change less are no bar.
_REMAINDER_NOTE = " The rest: how far the slowest rank, whose time counts, is behind the mean of the ranks."
_SLOWEST_NOTE = " The ranks differ: the parts are those of the slowest one in each step."
_EFFECT_COLUMNS = {
    "by_calls": ("By calls", "What of the change comes from the number of calls."),
    "by_duration": ("By duration", "What of it comes from the mean duration of a call."),
    "by_swap": ("By swap", "What of it comes from other kernels for the same operator."),
    "by_new": ("New", "What of it is on the new side only."),
    "by_gone": ("Gone", "What of it is on the base side only."),
}


def environment_table(differences: Sequence[Difference]) -> Table:
    """Return the table of what differs besides the numbers."""
    spec = TableSpec(
        "environment",
        "What else differs",
        (
            key("what", "What", Unit.TEXT),
            Column("base", "Base", Unit.TEXT, "As the base run tells it."),
            Column("new", "New", Unit.TEXT, "As the new run tells it."),
            Column(
                "like",
                "Like for like",
                Unit.TEXT,
                "no: times may differ for this reason alone; unknown: a run does not tell.",
            ),
        ),
    )
    words = {True: "no", False: "yes", None: "unknown"}
    rows = [(row.what, row.base, row.new, words[row.matters]) for row in differences]
    return Table(spec, pd.DataFrame(rows, columns=["what", "base", "new", "like"]))


def gates_table(verdicts: Sequence[Verdict]) -> Table:
    """Return the table of the outcomes of gates."""
    spec = TableSpec(
        "gates",
        "Gates",
        (
            key("gate", "Gate", Unit.TEXT, "What is too much."),
            Column("state", "Outcome", Unit.TEXT, "inconclusive: there is no interval, so nothing can be said."),
            Column("reason", "Value", Unit.TEXT),
        ),
    )
    rows = [(verdict.gate, str(verdict.state), verdict.reason) for verdict in verdicts]
    return Table(spec, pd.DataFrame(rows, columns=["gate", "state", "reason"]).drop_duplicates("gate"))


def metrics_table(base: Mapping[str, Metric], new: Mapping[str, Metric]) -> Table:
    """Return key numbers of both runs, as text since units differ; shares of the span where there are no steps."""
    spec = TableSpec(
        "metrics",
        "Key numbers",
        (
            key("metric", "Number", Unit.TEXT),
            Column("base", "Base", Unit.TEXT),
            Column("new", "New", Unit.TEXT),
            Column("change", "Change", Unit.TEXT, "Of the base; of shares, percentage points."),
            Column("interval", "95 % interval", Unit.TEXT, "Of the change, by resampling the steps."),
            Column("name", "For gates", Unit.TEXT, "What it is called in --fail-on."),
        ),
    )
    both = base.keys() & new.keys()
    shown = (name for name in dict.fromkeys((*new, *base))
             if _OF_SPAN not in name or name.replace(_OF_SPAN, "") not in both)  # fmt: skip
    metrics = [(base.get(name), new.get(name)) for name in shown]
    rows = [_metric_row(*sides) for sides in metrics if any(metric and metric.value for metric in sides)]
    frame = pd.DataFrame(rows, columns=[column.name for column in spec.columns])
    return Table(spec, frame.drop_duplicates("metric"))


def _metric_row(base: Metric | None, new: Metric | None) -> tuple[str | None, ...]:
    metric = new or base
    if metric is None:
        raise ValueError("a metric that neither run has")
    values = [text(side.value if side else None, metric.unit) for side in (base, new)]
    change, interval = (change_text(base, new), interval_text(base, new)) if base and new else (MISSING, None)
    return (metric.label, *values, change, interval, metric.name)


def change_text(base: Metric, new: Metric) -> str:
    """Return the change of a number as text: in per cent of the base, of shares in percentage points."""
    is_share = _is_share(base, new)
    value = new.value / base.value - 1 if is_share else new.value - base.value
    return changed(value, new.unit, is_share=is_share)


def interval_text(base: Metric, new: Metric) -> str | None:
    """Return the interval of the change as text, None where there is none."""
    is_share = _is_share(base, new)
    interval = None if base.is_exact else (relative_interval if is_share else absolute_interval)(base, new)
    return between(interval, new.unit, is_share=is_share) if interval else None


def _is_share(base: Metric, new: Metric) -> bool:
    """Return whether a change is shown in per cent of the base."""
    return new.unit is not Unit.RATIO and base.value > 0


def waterfall_table(step_parts: Waterfall) -> Table:
    """Return the table of the mean step time by part, on both sides."""
    mean = "Mean over steps, ranks, devices."
    if step_parts.is_slowest:
        mean = "Mean over the steps, of the slowest rank in each."
    spec = TableSpec(
        "waterfall",
        "Where the change comes from",
        (
            key("part", "Part", Unit.TEXT, "The rest: how far the slowest rank is behind the mean of the ranks."),
            Column("base", "Base", _NS, mean),
            Column("new", "New", _NS, mean),
            Column("delta", "Change", _CHANGE, "New - base.", better=Better.LOWER),
        ),
    )
    return Table(spec, step_parts.rows)


def waterfall_chart(step_parts: Waterfall, what: str) -> Chart:
    """Return the chart of the change, part by part."""
    rows = step_parts.rows
    is_total, delta = rows["part"] == TOTAL, rows["delta"]
    kinds = delta.gt(0).map({True: "longer", False: "shorter"}).mask(is_total, TOTAL)
    shown = rows.assign(kind=kinds)[is_total | (delta.abs() > _MIN_CHANGE * rows["base"].iloc[-1])]
    note = _REMAINDER_NOTE if REMAINDER in set(shown["part"]) else ""
    note = _SLOWEST_NOTE if step_parts.is_slowest else note
    return Chart(
        "waterfall",
        f"What the mean {what} changed by",
        Mark.BAR,
        shown,
        "to",
        "part",
        "kind",
        low="from",
        x_label=f"change of the {what}",
        x_unit=_NS,
        y_unit=Unit.TEXT,
        caption=f"Each bar starts where the one above it ends. Parts that hardly change are left out.{note}",
    )


def steps_chart(times: Sequence[Sequence[float]]) -> Chart:
    """Return the chart of the step times of both runs, one after the other."""
    rows = [(number, time, name) for name, side in zip(("base", "new"), times, strict=True)
            for number, time in enumerate(side, 1)]  # fmt: skip
    return Chart(
        "steps",
        "Step times of both runs",
        Mark.SCATTER,
        pd.DataFrame(rows, columns=["step", "time", "run"]),
        "step",
        "time",
        "run",
        x_label="step of the recording",
        y_label="step time",
        caption="The slowest rank's time for each step.",
    )


def work_table(  # noqa: PLR0913  what a table is made of
    name: str, title: str, keys: Sequence[Column], rows: pd.DataFrame, per_step_label: str, *,
    is_detail: bool = False,
) -> Table:  # fmt: skip
    """Return the changes of kernels, operators, collectives or copies, the largest first; for the label see Side."""
    columns = (
        *keys,
        Column("change", "What happened", Unit.TEXT, "The largest part of the change."),
        Column("delta", "Change", _CHANGE, f"New - base, {per_step_label}.", better=Better.LOWER),
        Column("base_time", "Base", _NS, f"Sum of durations {per_step_label}."),
        Column("new_time", "New", _NS, f"Sum of durations {per_step_label}."),
        Column("base_count", "Base calls", Unit.COUNT, f"Calls {per_step_label}."),
        Column("new_count", "New calls", Unit.COUNT, f"Calls {per_step_label}."),
        Column("base_mean", "Base mean", _NS, "Mean duration of a call."),
        Column("new_mean", "New mean", _NS, "Mean duration of a call."),
        *(Column(name, label, _CHANGE, words) for name, (label, words) in _EFFECT_COLUMNS.items()),
    )
    note = f"The {_MAX_ROWS} rows that changed most, of {len(rows)}." if len(rows) > _MAX_ROWS else ""
    return Table(TableSpec(name, title, columns, is_detail=is_detail), rows.head(_MAX_ROWS), note)


def movers_chart(  # noqa: PLR0913  what a chart is made of
    name: str, title: str, rows: pd.DataFrame, label: str, per_step_label: str, *, value: str = "delta",
    caption: str = "",
) -> Chart:  # fmt: skip
    """Return the chart of the rows that changed most, if any did. Bars begin at 0, so that their labels have signs."""
    moved = rows[(rows["change"] != changes.UNCHANGED) & (rows[value] != 0)]
    shown = moved.reindex(moved[value].abs().sort_values(ascending=False, kind="stable").index).head(_MAX_BARS)
    return Chart(
        name,
        title,
        Mark.BAR,
        shown[[label, value, "change"]].assign(zero=0.0),
        value,
        label,
        "change",
        low="zero",
        x_label=f"change {per_step_label}",
        x_unit=_NS if value == "delta" else Unit.COUNT,
        y_unit=Unit.NAME,
        caption=caption,
    )
