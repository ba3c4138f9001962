"""Charts and tables over ranks that stay readable from one rank to thousands.

Up to 256 ranks each has its bar. More are shown as quantiles, and heatmaps are binned by their maximum, which keeps a
single straggler visible.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htareport.report import Chart, Column, Mark, Table, TableSpec, Unit

MOST_BARS = 256
_MAX_HEATMAP_ROWS = 128
_MAX_HEATMAP_COLUMNS = 128
_MAX_POINTS = 400
MOST_ROWS = 12_000  # Of a table with rows for each of several ranks.
MANY_RANKS = 1_024  # In a job of more ranks,
MOST_ROWS_OF_MANY = 5_000  # such a table has only so many, so that all tables fit into a report.


def rank_labels(frame: pd.DataFrame) -> pd.Series[Any]:
    """Return the label of each row's rank: the rank, or rank/device where a rank drives several devices."""
    ranks = frame["rank"].astype(int).astype(str)
    if "device" not in frame or frame.groupby("rank")["device"].nunique().max() <= 1:
        return ranks
    return ranks + "/" + frame["device"].astype(str)


def by_rank(  # noqa: PLR0913  what a chart is made of
    name: str, title: str, frame: pd.DataFrame, series: dict[str, str], *, caption: str, unit: Unit = Unit.NANOSECONDS
) -> Chart:
    """Return stacked bars of some columns (column: series name) per rank, or their quantiles over very many ranks."""
    if len(frame) <= MOST_BARS:
        labelled = frame.assign(label=rank_labels(frame))
        long = labelled.melt("label", list(series), var_name="part", value_name="value")
        long["part"] = long["part"].map(series)
        return Chart(
            name, title, Mark.STACKED_BAR, long, "label", "value", "part", x_label="rank", y_unit=unit, caption=caption
        )
    percentiles = np.linspace(0, 100, 101)
    frames = [
        pd.DataFrame(
            {
                "percentile": percentiles,
                "value": np.percentile(frame[column].dropna(), percentiles),
                "part": series_name,
            }
        )
        for column, series_name in series.items()
        if frame[column].notna().any()
    ]
    sentence = f"Over {len(frame):,} ranks: each line shows a part's values from the smallest to the largest rank."
    return Chart(
        name, f"{title}, {len(frame):,} ranks", Mark.LINE, pd.concat(frames, ignore_index=True), "percentile", "value",
        "part", x_label="percentile of ranks", x_unit=Unit.COUNT, y_unit=unit, caption=f"{caption} {sentence}",
    )  # fmt: skip


def rank_heatmap(  # noqa: PLR0913  what a chart is made of
    name: str, title: str, frame: pd.DataFrame, x: str, value: str, *, x_label: str, caption: str
) -> Chart:
    """Return a heatmap of rank by another column; both are binned by maximum when there are too many."""
    grid = frame.pivot_table(index="rank", columns=x, values=value, aggfunc="max", sort=True)
    row_bins, note = _bins(len(grid.index), _MAX_HEATMAP_ROWS), ""
    column_bins = _bins(len(grid.columns), _MAX_HEATMAP_COLUMNS)
    if len(set(row_bins)) < len(row_bins) or len(set(column_bins)) < len(column_bins):
        note = " Each cell shows the largest value of the ranks and steps that fall into it."
        row_labels, column_labels = _first_labels(grid.index, row_bins), _first_labels(grid.columns, column_bins)
        grid = grid.groupby(np.array(row_bins)).max().T.groupby(np.array(column_bins)).max().T
        grid.index, grid.columns = row_labels, column_labels
    long = grid.rename_axis(index="rank", columns=x).reset_index().melt("rank", value_name="value").dropna()
    return Chart(
        name, title, Mark.HEATMAP, long, x, "rank", "value",
        x_label=x_label, y_label="rank", y_unit=Unit.ID, caption=caption + note,
    )  # fmt: skip


def _worst_ranks(frame: pd.DataFrame, measure: str, max_rows: int) -> pd.DataFrame:
    """Return the rows of the ranks with the largest sums of a measure, of as many as a table may hold (or of one)."""
    order = frame.groupby("rank")[measure].sum().sort_values(ascending=False, kind="stable").index
    return frame[frame["rank"].isin(order[: max(1, max_rows * len(order) // len(frame))])]


def table_of(spec: TableSpec, frame: pd.DataFrame, ranks: int, worst: str = "") -> Table:
    """Return a table. Of more than 256 ranks the worst come first; of very many the table holds only the worst.

    These have the largest sums of the column `worst`, else of the first time, else of the first number. Tables lose
    ranks only here, so that the note matches the rows, and charts show all ranks.
    """
    measure = _measure(spec, frame, worst)
    if "rank" not in spec.keys or measure is None:
        return Table(spec, frame)
    num_ranks, max_rows = frame["rank"].nunique(), MOST_ROWS_OF_MANY if ranks > MANY_RANKS else MOST_ROWS
    is_cut = len(frame) > max_rows and num_ranks > 1
    shown = _worst_ranks(frame, measure.name, max_rows) if is_cut else frame
    has_order = ranks <= MOST_BARS or num_ranks == 1 or not frame["rank"].is_monotonic_increasing  # Its own order.
    if not has_order or (is_cut and ranks > MANY_RANKS):
        order = -shown.groupby("rank")[measure.name].transform("sum")
        shown = shown.assign(order=order).sort_values(["order", "rank"], kind="stable").drop(columns="order")
        if not is_cut:
            return Table(spec, shown, f"The ranks with the largest “{measure.label}” come first.")
    if not is_cut:
        return Table(spec, frame)
    num_shown = shown["rank"].nunique()
    return Table(spec, shown, f"Holds {num_shown:,} of {num_ranks:,} ranks: those with the largest “{measure.label}”.")


def _measure(spec: TableSpec, frame: pd.DataFrame, worst: str) -> Column | None:
    candidates = [column for column in spec.measures if column.name in frame and _is_additive(column, frame)]
    return min(candidates, key=lambda column: (column.name != worst, column.unit != Unit.NANOSECONDS), default=None)


def _is_additive(column: Column, frame: pd.DataFrame) -> bool:
    return not column.unit.is_id and not column.unit.is_text and frame[column.name].dtype.kind in "iuf"


def cut_note(
    table: str, sizes: pd.Series[int], max_rows: int, order: str, joined_sizes: pd.Series[int] | None = None
) -> list[str]:
    """Return a note on the rows that a sum over ranks lacks if ranks send no more than `max_rows` each; else nothing.

    `sizes` has the number of rows of each rank before the cut, `joined_sizes` that of all ranks together, cut to as
    many; `order` says in words which rows come first.
    """
    num_cut, num_ranks = int((sizes > max_rows).sum()), len(sizes)
    if num_cut and num_ranks > 1:
        cut_ranks = f"{num_cut:,} of {num_ranks:,} ranks have more, and what they leave out is missing from the sums."
        return [f"The table {table} adds up, of each rank, the {max_rows:,} rows {order}; {cut_ranks}"]
    if joined_sizes is not None and not num_cut:
        return cut_note(table, joined_sizes, max_rows, order)
    return [f"The table {table} holds the {max_rows:,} rows {order}; there are more."] if num_cut else []


def _bins(count: int, max_bins: int) -> list[int]:
    return (np.arange(count) * min(count, max_bins) // max(count, 1)).tolist()


def _first_labels(labels: pd.Index[Any], bins: list[int]) -> pd.Index[Any]:
    return labels[np.flatnonzero(np.diff([-1, *bins]))]


def every_nth(frame: pd.DataFrame, column: str, max_points: int = _MAX_POINTS) -> pd.DataFrame:
    """Return the rows of evenly spaced values of a column, for lines over very many steps."""
    values = np.sort(frame[column].unique())
    if len(values) <= max_points:
        return frame
    shown_values = values[np.linspace(0, len(values) - 1, max_points).round().astype(int)]
    return frame[frame[column].isin(shown_values)]
