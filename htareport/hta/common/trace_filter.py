"""Filters of a trace's frame: called with it, they return some of its rows. Times are µs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from htareport.hta.common.trace_df import get_iterations
from htareport.hta.common.trace_symbol_table import TraceSymbolTable
from htareport.rows.classify import copy_kind

AnyFilter = Callable[..., pd.DataFrame]


class Filter(ABC):
    """Selects rows of a frame. The symbol table that HTA's filters take is not needed: names are text."""

    @abstractmethod
    def __call__(self, df: pd.DataFrame, symbol_table: TraceSymbolTable | None = None) -> pd.DataFrame:
        """Return the selected rows."""


class RowFilter(Filter):
    """A filter that needs no symbol table."""

    def __call__(self, df: pd.DataFrame, symbol_table: TraceSymbolTable | None = None) -> pd.DataFrame:
        """Return the selected rows."""
        del symbol_table
        return self._rows(df)

    @abstractmethod
    def _rows(self, df: pd.DataFrame) -> pd.DataFrame: ...


class IterationFilter(RowFilter):
    """Rows of some profiler steps, by number."""

    def __init__(self, iterations: int | Iterable[int]) -> None:
        self.iterations = _numbers(iterations)

    def _rows(self, df: pd.DataFrame) -> pd.DataFrame:
        return df[df["iteration"].isin(self.iterations)]


class IterationIndexFilter(RowFilter):
    """Rows of some profiler steps, by position among those of the frame; -1 is the last. All rows without steps."""

    def __init__(self, iteration_index: int | Iterable[int]) -> None:
        self.iteration_index = _numbers(iteration_index)

    def _rows(self, df: pd.DataFrame) -> pd.DataFrame:
        steps = get_iterations(df)
        if not steps:
            return df
        return df[df["iteration"].isin([steps[i] for i in self.iteration_index if -len(steps) <= i < len(steps)])]


class FirstIterationFilter(IterationIndexFilter):
    """Rows of the first profiler step; all rows if there are no steps."""

    def __init__(self) -> None:
        super().__init__(0)


class RankFilter(RowFilter):
    """Rows of some ranks; all of a frame that has no column `rank`."""

    def __init__(self, ranks: int | Iterable[int]) -> None:
        self.ranks = _numbers(ranks)

    def _rows(self, df: pd.DataFrame) -> pd.DataFrame:
        return df[df["rank"].isin(self.ranks)] if "rank" in df else df


class TimeRangeFilter(RowFilter):
    """Rows that start and end within (begin, end)."""

    def __init__(self, time_range: tuple[float, float]) -> None:
        self.time_start, self.time_end = time_range

    def _rows(self, df: pd.DataFrame) -> pd.DataFrame:
        return df[(df["ts"] >= self.time_start) & (df["ts"] + df["dur"] <= self.time_end)]


class NameFilter(RowFilter):
    """Rows whose name begins with a match of a regular expression.

    `name_column` is the column of names: by default s_name if there is one, else name.
    """

    def __init__(
        self, name_pattern: str, symbol_table: TraceSymbolTable | None = None, name_column: str | None = None
    ) -> None:
        self.name_pattern, self.symbol_table, self.name_column = name_pattern, symbol_table, name_column

    def _rows(self, df: pd.DataFrame) -> pd.DataFrame:
        names = df[self.name_column or ("s_name" if "s_name" in df else "name")]
        return df[names.astype(str).str.match(self.name_pattern)]


class NameStringColumnFilter(NameFilter):
    """Rows whose s_name begins with a match of a regular expression."""

    def __init__(self, name_pattern: str) -> None:
        super().__init__(name_pattern, name_column="s_name")


class NameIdColumnFilter(NameFilter):
    """Rows whose name begins with a match of a regular expression."""

    def __init__(self, name_pattern: str) -> None:
        super().__init__(name_pattern, name_column="name")


class QueryFilter(RowFilter):
    """Rows that an expression of DataFrame.query selects."""

    def __init__(self, query_str: str) -> None:
        self.filter_query = query_str

    def _rows(self, df: pd.DataFrame) -> pd.DataFrame:
        return df.query(self.filter_query)


ZeroDurationFilter = QueryFilter("dur > 0")


class GPUKernelFilter(RowFilter):
    """Device work: rows with a stream; waits and annotations have none."""

    def _rows(self, df: pd.DataFrame) -> pd.DataFrame:
        return df[df["stream"] >= 0]


class CPUOperatorFilter(RowFilter):
    """Rows of the host: those without a stream."""

    def _rows(self, df: pd.DataFrame) -> pd.DataFrame:
        return df[df["stream"] < 0]


class CompositeFilter(Filter):
    """Applies several filters one after the other."""

    def __init__(self, filters: Sequence[AnyFilter]) -> None:
        self.filters = filters

    def __call__(self, df: pd.DataFrame, symbol_table: TraceSymbolTable | None = None) -> pd.DataFrame:
        """Return the rows that all filters select."""
        for row_filter in self.filters:
            df = row_filter(df, symbol_table)
        return df


class MemCopyEventFilter(RowFilter):
    """Copies of a kind: its whole name, or its direction such as `Memcpy HtoD`."""

    def __init__(self, memory_copy_type: str, symbol_table: TraceSymbolTable | None = None) -> None:
        self.memory_copy_type, self.symbol_table = memory_copy_type, symbol_table

    def _rows(self, df: pd.DataFrame) -> pd.DataFrame:
        kind = self.memory_copy_type
        names = [name for name in df["name"].unique() if kind in (name, copy_kind(str(name)))]
        return df[df["name"].isin(names) & df["cat"].isin(["gpu_memcpy", "Memcpy"])]


def _numbers(numbers: Any) -> list[int]:
    return [int(numbers)] if not isinstance(numbers, Iterable) else [int(number) for number in numbers]
