"""Finds rows of a trace's frame: of the host, of steps, by name."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from htareport.hta.common.trace_symbol_table import TraceSymbolTable

_ON_DEVICE = ("gpu_user_annotation", "cuda_sync", "cuda_event", "cuda_profiler_range")  # Without a stream.


def host_rows(df: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of host threads: no work of devices, nor annotations and waits of their streams."""
    host = df[df["stream"] < 0]
    return host[~host["cat"].isin(_ON_DEVICE)] if "cat" in host else host


def get_iterations(df: pd.DataFrame) -> list[int]:
    """Return the numbers of profiler steps in a frame, in order."""
    numbers = df["iteration"].dropna() if "iteration" in df else pd.Series(dtype="int64")
    return sorted({int(number) for number in numbers.unique() if number >= 0})


def find_op_occurrence(
    df: pd.DataFrame, op_name: str, position: int, name_column: str = "s_name"
) -> tuple[bool, pd.Series[Any]]:
    """Return whether there is an nth row of a name (0: the first in time, -1: the last), and that row."""
    rows = df[df[name_column] == op_name].sort_values("ts", kind="stable")
    if not -len(rows) <= position < len(rows):
        return False, pd.Series(dtype=object)
    return True, rows.iloc[position]


def find_events_by_name_patterns_using_symbol_table(
    df: pd.DataFrame, list_name_patterns: list[str], symbol_table: TraceSymbolTable | None = None
) -> pd.Series[Any]:
    """Return the index of each row whose name matches one of some regular expressions."""
    del symbol_table  # Names are text.
    return find_events_by_name_patterns_using_decoded_names(df, list_name_patterns, "name")


def find_events_by_name_patterns_using_decoded_names(
    df: pd.DataFrame, list_name_patterns: list[str], name_column: str = "s_name"
) -> pd.Series[Any]:
    """Return the index of each row whose text in a column matches one of some regular expressions."""
    patterns = [re.compile(pattern) for pattern in list_name_patterns]
    names = [name for name in df[name_column].unique() if any(pattern.search(str(name)) for pattern in patterns)]
    return df.loc[df[name_column].isin(names), "index"]
