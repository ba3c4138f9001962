"""A table of the names and categories of a trace. As frames hold text, the id of a symbol is its text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, SupportsIndex, overload

import pandas as pd

from htareport.hta.common import types
from htareport.hta.common.types import GroupingPattern
from htareport.hta.utils.utils import shorten_name
from htareport.rows.classify import launching_calls


class Symbols(list[str]):
    """Names in order; indexed by position, or by the name itself, so that `table[id]` is the name."""

    @overload
    def __getitem__(self, key: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> list[str]: ...
    @overload
    def __getitem__(self, key: str) -> str: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> str | list[str]:
        return key if isinstance(key, str) else super().__getitem__(key)


class TraceSymbolTable:
    """The distinct names and categories of a trace, in order of first occurrence."""

    NULL = ""

    def __init__(self, symbols: Iterable[str] = ()) -> None:
        self._symbols: dict[str, None] = {}
        self.add_symbols(symbols)

    def is_empty(self) -> bool:
        """Whether the table has no symbols."""
        return not self._symbols

    def add_symbols(self, symbols: Iterable[str]) -> None:
        """Add symbols that the table lacks."""
        self._symbols.update(dict.fromkeys(map(str, symbols)))

    def add_symbols_mp(self, symbols_list: list[Iterable[str]]) -> None:
        """Add several collections."""
        for symbols in symbols_list:
            self.add_symbols(symbols)

    # --- look-ups ---------------------------------------------------------------------------

    @property
    def sym_table(self) -> Symbols:
        """The symbols."""
        return Symbols(self._symbols)

    @property
    def sym_index(self) -> dict[str, str]:
        """Id of each symbol: itself."""
        return {symbol: symbol for symbol in self._symbols}

    def get_sym_table(self) -> Symbols:
        """Return the symbols."""
        return self.sym_table

    def get_sym_id_map(self) -> dict[str, str]:
        """Return the id of each symbol: itself."""
        return self.sym_index

    get_sym_index = get_sym_id_map

    def get_sym_table_series(self) -> pd.Series[Any]:
        """Return the symbol of each id."""
        return pd.Series(self.sym_index, dtype=object)

    get_sym_index_series = get_sym_table_series

    def find_matches(self, patterns: list[str]) -> list[str]:
        """Return the ids that match one of some regular expressions."""
        compiled = [re.compile(pattern) for pattern in patterns]
        return [symbol for symbol in self._symbols if any(pattern.search(symbol) for pattern in compiled)]

    find_matched_symbols = find_matches

    def get_symbol_ids(self, symbol_pattern: GroupingPattern) -> dict[str, str]:
        """Return the symbols that a pattern matches, with their ids."""
        return {symbol: symbol for symbol in self._symbols if symbol_pattern.match(symbol)}

    def get_symbol_names(self, symbol_ids: Iterable[str]) -> dict[str, str]:
        """Return the symbols of some ids, without those that the table lacks."""
        return {symbol: symbol for symbol in symbol_ids if symbol in self._symbols}

    def get_cpu_event_cat_ids(self) -> list[str]:
        """Return the categories of operators and annotations of the host."""
        return list(self.get_symbol_ids(types.CPU_OP_CATEGORY_PATTERN))

    def get_gpu_kernel_cat_ids(self) -> list[str]:
        """Return the categories of device work."""
        return list(self.get_symbol_ids(types.KERNEL_CATEGORY_PATTERN))

    def get_profiler_step_ids(self) -> list[str]:
        """Return the names of profiler steps."""
        return list(self.get_symbol_ids(types.ProfilerStepGroupingPattern))

    def get_memory_name_ids(self) -> list[str]:
        """Return the names of copies and fills."""
        return list(self.get_symbol_ids(types.MemoryKernelGroupingPattern))

    def get_kernel_launch_ids(self) -> list[str]:
        """Return the names of calls that launch kernels."""
        return list(self.get_symbol_ids(types.KERNEL_LAUNCH_CATEGORY_PATTERN))

    # --- masks of frames --------------------------------------------------------------------

    def get_operator_or_cuda_runtime_mask(self, df: pd.DataFrame) -> pd.Series[bool]:
        """Which rows are operators, or calls of a runtime or driver."""
        return _matching(df["cat"], types.to_grouping_pattern(["^cpu_op$", "^Operator$", "runtime", "driver"]))

    def get_runtime_launch_events_mask(self, df: pd.DataFrame) -> pd.Series[bool]:
        """Which rows are calls that start device work: launches, copies, fills."""
        names = df["name"].unique().tolist()
        starting = [name for name, starts in zip(names, launching_calls(names), strict=True) if starts]
        return df["name"].isin(starting) & _matching(df["cat"], types.DEVICE_RUNTIME_CATEGORY_PATTERN)

    def get_events_mask(self, df: pd.DataFrame, events: list[str] | None) -> pd.Series[bool]:
        """Which rows have a name that matches one of some regular expressions."""
        return df["name"].isin(self.find_matches(events or []))

    # --- frames -----------------------------------------------------------------------------

    def encode_df(self, df: pd.DataFrame) -> None:
        """Make names and categories of a frame ids of this table, in place, and add those that it lacks."""
        for column in ("cat", "name"):
            df[column] = df[column].astype(object)
            self.add_symbols(df[column].unique())

    def decode_df(self, df: pd.DataFrame, create_new_columns: bool = True) -> None:
        """Write names and categories as text, in place: into s_name and s_cat, or over the ids."""
        for column in ("cat", "name"):
            df[f"s_{column}" if create_new_columns else column] = df[column].astype(object)

    def update_encoded_df(self, df: pd.DataFrame, old_symbol_table: TraceSymbolTable) -> None:
        """Make ids of another table ids of this one: they are the same text."""
        self.add_symbols(old_symbol_table.get_sym_table())
        self.encode_df(df)

    def add_symbols_to_trace_df(self, trace_df: pd.DataFrame, col: str) -> None:
        """Add the text of a column as s_<column>, in place."""
        trace_df[f"s_{col}"] = trace_df[col].astype(object)

    # --- making one -------------------------------------------------------------------------

    def to_csv_file(self, file_path: str | Path) -> None:
        """Write the symbols as a CSV file with a column `symbol`."""
        pd.DataFrame({"symbol": self.sym_table}).to_csv(file_path, index_label="id")

    _to_csv_file = to_csv_file  # HTA's name.

    @staticmethod
    def from_csv_file(file_path: str | Path) -> TraceSymbolTable:
        """Read what `to_csv_file` wrote, or any CSV file with a column `symbol`."""
        return TraceSymbolTable(pd.read_csv(file_path, dtype=str, keep_default_na=False)["symbol"])

    @staticmethod
    def combine_symbol_tables(tables: list[TraceSymbolTable]) -> TraceSymbolTable:
        """Return the symbols of several tables."""
        return TraceSymbolTable(symbol for table in tables for symbol in table.get_sym_table())

    @staticmethod
    def clone(symbol_table: TraceSymbolTable) -> TraceSymbolTable:
        """Return a copy."""
        return TraceSymbolTable(symbol_table.get_sym_table())

    @staticmethod
    def create_from_df(df: pd.DataFrame) -> TraceSymbolTable:
        """Return the names and categories of a frame. ValueError if it lacks these columns, or they are no text."""
        columns = [df[name] for name in ("name", "cat") if name in df]
        if len(columns) < 2 or any(pd.api.types.is_numeric_dtype(column) for column in columns):  # noqa: PLR2004
            raise ValueError("a symbol table is made of the columns name and cat, as text")
        return TraceSymbolTable(symbol for column in columns for symbol in column.unique())

    @staticmethod
    def create_from_symbol_id_map(symbol_id_map: dict[str, Any]) -> TraceSymbolTable:
        """Return the symbols of a map, in order of their ids."""
        return TraceSymbolTable(sorted(symbol_id_map, key=lambda symbol: symbol_id_map[symbol]))


def decode_symbol_id_to_symbol_name(df: pd.DataFrame, symbol_table: TraceSymbolTable, use_shorten_name: bool) -> None:
    """Write names and categories as text into s_name and s_cat, in place; names short or whole."""
    symbol_table.decode_df(df)
    if use_shorten_name:
        df["s_name"] = df["name"].map({name: shorten_name(str(name)) for name in df["name"].unique()}).astype(object)


def _matching(column: pd.Series[Any], pattern: GroupingPattern) -> pd.Series[bool]:
    return column.isin([name for name in column.unique() if pattern.match(str(name))])
