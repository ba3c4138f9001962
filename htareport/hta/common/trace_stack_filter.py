"""Filters by time relative to an operator or annotation: rows under, before or after it. Times are µs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import pandas as pd

from htareport.hta.common.trace_df import find_op_occurrence, host_rows
from htareport.hta.common.trace_filter import FirstIterationFilter, RowFilter


class OperatorFilterMethod(Enum):
    """Which rows are selected: those under, after or before an operator, its ancestors, or its whole stack."""

    Under = 0
    After = 1
    Before = 2
    Ancestors = 3
    Stack = 4


def get_matching_kernels(df_ops: pd.DataFrame, df_both: pd.DataFrame, cat_column: str = "cat") -> pd.DataFrame:
    """Return the rows of `df_both` that are device work launched by rows of `df_ops`."""
    del cat_column  # Whatever its category, a call that is linked to device work launches it.
    return df_both[(df_both["stream"] >= 0) & df_both["index_correlation"].isin(df_ops["index"])]


class OperatorFilter(RowFilter):
    """Rows of the host by their time relative to the nth operator of a name (0: the first, -1: the last).

    `Ancestors` and `Stack` look at the operator's own thread. `include_gpu_kernels` adds device work that the selected
    rows launch. Without such an operator no rows are selected.
    """

    def __init__(
        self,
        op_name: str,
        position: int,
        method: OperatorFilterMethod,
        include_gpu_kernels: bool = False,
        name_column: str | None = None,
    ) -> None:
        self.op_name, self.position, self.method = op_name, position, method
        self.include_gpu_kernels, self.name_column = include_gpu_kernels, name_column

    def _rows(self, df: pd.DataFrame) -> pd.DataFrame:
        column = self.name_column or ("s_name" if "s_name" in df else "name")
        exists, op = find_op_occurrence(df, self.op_name, self.position, column)
        if not exists:
            return df.iloc[:0]
        begin, end = op["ts"], op["ts"] + op["dur"]
        host = host_rows(df)
        starts, ends = host["ts"], host["ts"] + host["dur"]
        on_thread = (host["pid"] == op["pid"]) & (host["tid"] == op["tid"])
        under, around = (starts >= begin) & (ends <= end), (starts <= begin) & (ends >= end)
        rows = host[
            {
                OperatorFilterMethod.Under: under,
                OperatorFilterMethod.After: starts >= end,
                OperatorFilterMethod.Before: ends <= begin,
                OperatorFilterMethod.Ancestors: around & on_thread,
                OperatorFilterMethod.Stack: (under | around) & on_thread,
            }[self.method]
        ]
        return _with_kernels(rows, df) if self.include_gpu_kernels else rows


def _with_kernels(host: pd.DataFrame, df: pd.DataFrame) -> pd.DataFrame:
    """Rows of the host and the device work that they launch, in the order of the frame."""
    index = [*host.index, *get_matching_kernels(host, df).index]
    return df[df.index.isin(index)]


class UnderOperatorFilter(OperatorFilter):
    """Rows within an operator's time."""

    def __init__(
        self, op_name: str, position: int, include_gpu_kernels: bool = False, name_column: str | None = None
    ) -> None:
        super().__init__(op_name, position, OperatorFilterMethod.Under, include_gpu_kernels, name_column)


class AfterOperatorFilter(OperatorFilter):
    """Rows that start when an operator has ended."""

    def __init__(
        self, op_name: str, position: int, include_gpu_kernels: bool = False, name_column: str | None = None
    ) -> None:
        super().__init__(op_name, position, OperatorFilterMethod.After, include_gpu_kernels, name_column)


class BeforeOperatorFilter(OperatorFilter):
    """Rows that have ended when an operator starts."""

    def __init__(
        self, op_name: str, position: int, include_gpu_kernels: bool = False, name_column: str | None = None
    ) -> None:
        super().__init__(op_name, position, OperatorFilterMethod.Before, include_gpu_kernels, name_column)


class CombinedOperatorFilter(RowFilter):
    """Rows of the first profiler step under the first `root_op_name`, between two operators.

    They come after the last `preceding_op_name` there, and before the first `following_op_name` after that; a name that
    is not there sets no bound. `stack_depths` chooses depths of the call stack, from the frame's column `depth`.
    """

    def __init__(
        self,
        root_op_name: str,
        preceding_op_name: str,
        following_op_name: str,
        include_gpu_kernels: bool = False,
        stack_depths: Iterable[int] | None = None,
    ) -> None:
        self.root_op_name, self.preceding_op_name = root_op_name, preceding_op_name
        self.following_op_name, self.include_gpu_kernels = following_op_name, include_gpu_kernels
        self.stack_depths = None if stack_depths is None else list(stack_depths)

    def _rows(self, df: pd.DataFrame) -> pd.DataFrame:
        rows = UnderOperatorFilter(self.root_op_name, 0)(FirstIterationFilter()(df))
        column = "s_name" if "s_name" in df else "name"
        for bound in (AfterOperatorFilter(self.preceding_op_name, -1), BeforeOperatorFilter(self.following_op_name, 0)):
            if find_op_occurrence(rows, bound.op_name, bound.position, column)[0]:
                rows = bound(rows)
        if self.stack_depths is not None:
            rows = rows[rows["depth"].isin(self.stack_depths)]
        return _with_kernels(rows, df) if self.include_gpu_kernels else rows
