"""Charts over ranks that stay readable from one rank to thousands.

Up to 256 ranks each has its bar. Beyond that ranks are sorted by value and shown as quantiles, and heatmaps are binned
by their maximum, which keeps a single straggler visible.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htareport.report import Chart, Column, Mark, Table, TableSpec, Unit

MOST_BARS = 256
MOST_HEATMAP_ROWS = 128
MOST_HEATMAP_COLUMNS = 128
MOST_POINTS = 400
MOST_ROWS = 12_000  # Of a table with rows for each rank, if there are several;
MANY_RANKS = 1_024  # of a job of more ranks than these
MOST_ROWS_OF_MANY = 5_000  # only so many, which keeps all tables together within what a report may have.


def rank_labels(frame: pd.DataFrame) -> pd.Series[Any]:
    """Label of each row's rank: the rank, or rank/device where a rank drives several devices."""
    ranks = frame["rank"].astype(int).astype(str)
    if "device" not in frame or frame.groupby("rank")["device"].nunique().max() <= 1:
        return ranks
    return ranks + "/" + frame["device"].astype(str)


def by_rank(  # noqa: PLR0913  what a chart is made of
    name: str, title: str, frame: pd.DataFrame, parts: dict[str, str], *, caption: str, unit: Unit = Unit.NANOSECONDS
) -> Chart:
    """Stacked bars of some columns (column: series name) per rank, or their quantiles over very many ranks."""
    if len(frame) <= MOST_BARS:
        labelled = frame.assign(label=rank_labels(frame))
        long = labelled.melt("label", list(parts), var_name="part", value_name="value")
        long["part"] = long["part"].map(parts)
        return Chart(
            name, title, Mark.STACKED_BAR, long, "label", "value", "part", x_label="rank", y_unit=unit, caption=caption
        )
    percentiles = np.linspace(0, 100, 101)
    pieces = [
        pd.DataFrame(
            {"percentile": percentiles, "value": np.percentile(frame[column].dropna(), percentiles), "part": part}
        )
        for column, part in parts.items()
        if frame[column].notna().any()
    ]
    over = f"Over {len(frame):,} ranks: each line shows a part's values from the smallest to the largest rank."
    return Chart(
        name,
        f"{title}, {len(frame):,} ranks",
        Mark.LINE,
        pd.concat(pieces, ignore_index=True),
        "percentile",
        "value",
        "part",
        x_label="percentile of ranks",
        x_unit=Unit.COUNT,
        y_unit=unit,
        caption=f"{caption} {over}",
    )


def rank_heatmap(  # noqa: PLR0913  what a chart is made of
    name: str, title: str, frame: pd.DataFrame, x: str, value: str, *, x_label: str, caption: str
) -> Chart:
    """A heatmap of rank by another column; both are binned by maximum when there are too many."""
    grid = frame.pivot_table(index="rank", columns=x, values=value, aggfunc="max", sort=True)
    rows, note = _bins(len(grid.index), MOST_HEATMAP_ROWS), ""
    columns = _bins(len(grid.columns), MOST_HEATMAP_COLUMNS)
    if len(set(rows)) < len(rows) or len(set(columns)) < len(columns):
        note = " Each cell shows the largest value of the ranks and steps that fall into it."
        row_labels, column_labels = _first_of(grid.index, rows), _first_of(grid.columns, columns)
        grid = grid.groupby(np.array(rows)).max().T.groupby(np.array(columns)).max().T
        grid.index, grid.columns = row_labels, column_labels
    long = grid.rename_axis(index="rank", columns=x).reset_index().melt("rank", value_name="value").dropna()
    return Chart(
        name,
        title,
        Mark.HEATMAP,
        long,
        x,
        "rank",
        "value",
        x_label=x_label,
        y_label="rank",
        y_unit=Unit.ID,
        caption=caption + note,
    )


def _worst_ranks(frame: pd.DataFrame, by: str, most: int) -> pd.DataFrame:
    """Rows of as many ranks as a table may hold, at least one: those with the largest sums of a column."""
    order = frame.groupby("rank")[by].sum().sort_values(ascending=False, kind="stable").index
    return frame[frame["rank"].isin(order[: max(1, most * len(order) // len(frame))])]


def table_of(spec: TableSpec, frame: pd.DataFrame, ranks: int, worst: str = "") -> Table:
    """A table; where each rank no longer has its bar, the worst ranks come first, and of very many only these are kept.

    The worst have the largest sums of the column `worst`, else of the first time, else of the first number. This is the
    only place where tables lose ranks, so that the note is true of what is there, and charts are of all ranks.
    """
    measure = _measure(spec, frame, worst)
    if "rank" not in spec.keys or measure is None:
        return Table(spec, frame)
    there, most = frame["rank"].nunique(), MOST_ROWS_OF_MANY if ranks > MANY_RANKS else MOST_ROWS
    cut = len(frame) > most and there > 1
    kept = _worst_ranks(frame, measure.name, most) if cut else frame
    has_order = ranks <= MOST_BARS or there == 1 or not frame["rank"].is_monotonic_increasing  # One of its own.
    if not has_order or (cut and ranks > MANY_RANKS):
        order = -kept.groupby("rank")[measure.name].transform("sum")
        kept = kept.assign(order=order).sort_values(["order", "rank"], kind="stable").drop(columns="order")
        if not cut:
            return Table(spec, kept, f"The ranks with the largest “{measure.label}” come first.")
    if not cut:
        return Table(spec, frame)
    shown = kept["rank"].nunique()
    return Table(spec, kept, f"Holds {shown:,} of {there:,} ranks: those with the largest “{measure.label}”.")


def _measure(spec: TableSpec, frame: pd.DataFrame, worst: str) -> Column | None:
    there = [column for column in spec.measures if column.name in frame and _adds_up(column, frame)]
    return min(there, key=lambda column: (column.name != worst, column.unit != Unit.NANOSECONDS), default=None)


def _adds_up(column: Column, frame: pd.DataFrame) -> bool:
    return not column.unit.is_id and not column.unit.is_text and frame[column.name].dtype.kind in "iuf"


def cut_note(table: str, sizes: pd.Series[int], most: int, which: str) -> list[str]:
    """Say what a table lacks whose rows are sums over ranks, of which each rank sends no more than `most`; or nothing.

    `sizes` has the number of rows of each rank before the cut; `which` says which of them are kept.
    """
    cut, ranks = int((sizes > most).sum()), len(sizes)
    if cut and ranks > 1:
        return [
            (
                f"The table {table} adds up, of each rank, the {most:,} rows {which}; {cut:,} of {ranks:,} ranks have "
                "more, and what they leave out is missing from the sums."
            )
        ]
    return [f"The table {table} holds the {most:,} rows {which}; there are more."] if cut else []


def _bins(count: int, most: int) -> list[int]:
    return (np.arange(count) * min(count, most) // max(count, 1)).tolist()


def _first_of(labels: pd.Index[Any], bins: list[int]) -> pd.Index[Any]:
    return labels[np.flatnonzero(np.diff([-1, *bins]))]


def every_nth(frame: pd.DataFrame, column: str, most: int = MOST_POINTS) -> pd.DataFrame:
    """Rows of evenly chosen values of a column, for lines over very many steps."""
    values = np.sort(frame[column].unique())
    if len(values) <= most:
        return frame
    chosen = values[np.linspace(0, len(values) - 1, most).round().astype(int)]
    return frame[frame[column].isin(chosen)]
