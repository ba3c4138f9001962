"""Call stacks by thread, as HTA's critical path uses them: nested calls of the host, without device work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from htareport.hta.common.stacks import (
    NON_EXISTENT_NODE_INDEX,
    NULL_NODE_INDEX,
    CallStackNode,
    DFSCallback,
    Stack,
    stack_columns,
)
from htareport.hta.common.trace import Trace
from htareport.hta.common.trace_filter import AnyFilter
from htareport.hta.common.types import DeviceType, infer_device_type
from htareport.hta.configs.env_options import disable_call_graph_depth

__all__ = [
    "NON_EXISTENT_NODE_INDEX",
    "NULL_NODE_INDEX",
    "CallGraph",
    "CallStackGraph",
    "CallStackIdentity",
    "CallStackNode",
    "DFSCallback",
    "DeviceType",
    "infer_device_type",
]
_PYTHON_ID, _PYTHON_PARENT = "python_id", "python_parent_id"


class CallStackIdentity(NamedTuple):
    """The thread or stream of a call stack."""

    rank: int = -1
    pid: Any = -1
    tid: Any = -1

    @classmethod
    def for_thread(cls, rank: int, thread: Any) -> Self:
        """Return the identity of a rank's thread (pid, tid)."""
        pid, tid = thread
        return cls(rank, pid, tid)


class CallStackGraph(Stack):
    """The call stack of one thread; `filter_func` leaves rows out of it. Device work is not nested: its depth is -1."""

    def __init__(self, df: pd.DataFrame, identity: CallStackIdentity, filter_func: AnyFilter | None = None) -> None:
        rows = df if filter_func is None else filter_func(df)
        super().__init__(rows, stack_columns(rows))
        self.identity, self.filter_func, self.device_type = identity, filter_func, infer_device_type(df)

    def __repr__(self) -> str:
        return f"CallStackGraph({self.identity}, {len(self.df)} events on {self.device_type.name})"

    @property
    def correlations(self) -> pd.Series[int]:
        """Index of the row that each row is linked to, by index."""
        linked = self.df[self.df["index_correlation"] >= 0]
        return pd.Series(linked["index_correlation"].to_numpy(), linked["index"].to_numpy())


class CallGraph:
    """The call stacks of all threads of some ranks.

    They are written into the ranks' frames: `parent` (index of the enclosing row, of the launch for device work) and
    `depth` (-1 for device work; left out with HTA_DISABLE_CG_DEPTH=1). `remapped_tids` ({rank: {thread: other}}) merges
    threads, which keep their number in the frames; `filter_func` leaves rows out. With `pre_process_trace_data` Python
    functions end with their caller.
    """

    def __init__(
        self,
        trace: Trace,
        ranks: Sequence[int] | None = None,
        filter_func: AnyFilter | None = None,
        remapped_tids: Mapping[int, Mapping[int, int]] | None = None,
        pre_process_trace_data: bool = False,
    ) -> None:
        self.trace_data = trace
        self._threads: list[tuple[CallStackIdentity, pd.Index[Any]]] = []
        self._whole: dict[int, Stack] = {}
        for rank in trace.get_ranks() if ranks is None else ranks:
            df = trace.get_trace(rank)
            if pre_process_trace_data:
                self.constrain_child_time_within_parent(df)
            rows = df if filter_func is None else filter_func(df)
            rows = rows.assign(tid=rows["tid"].replace(dict((remapped_tids or {}).get(rank, {}))))
            self._add(rank, df, rows)
        identities = pd.DataFrame([identity for identity, _ in self._threads], columns=["rank", "pid", "tid"])
        self.mapping = identities.assign(csg_index=range(len(identities)))

    def _add(self, rank: int, df: pd.DataFrame, rows: pd.DataFrame) -> None:
        columns = stack_columns(rows)
        self._whole[rank] = Stack(rows, columns)
        depth = columns["depth"].where(rows["stream"] < 0, -1)
        df["parent"] = columns["parent"].reindex(df.index, fill_value=NULL_NODE_INDEX)
        if not disable_call_graph_depth():
            df["depth"] = depth.reindex(df.index, fill_value=-1)
        for thread, thread_rows in rows.groupby(["pid", "tid"], sort=True):
            self._threads.append((CallStackIdentity.for_thread(rank, thread), thread_rows.index))

    @cached_property
    def call_stacks(self) -> list[CallStackGraph]:
        """The stacks of all threads, by their number in `mapping`."""
        return [CallStackGraph(self._whole[identity.rank].df.loc[rows], identity) for identity, rows in self._threads]

    def get_stack_of_node(self, node_id: int, rank: int, skip_ancestors: bool = False) -> pd.DataFrame:
        """Return the rows of a node, its descendants, with device work, and ancestors. ValueError without it."""
        return self._whole[rank].stack_of(node_id, skip_ancestors=skip_ancestors)

    @staticmethod
    def constrain_child_time_within_parent(df: pd.DataFrame) -> None:
        """Let Python functions end with their caller (by python_id and python_parent_id), in place."""
        python = df[df[_PYTHON_ID] >= 0].sort_values("ts", kind="stable")
        ends = pd.Series((python["ts"] + python["dur"]).to_numpy(), python[_PYTHON_ID].to_numpy())
        ends = ends[~ends.index.duplicated()]
        for label, python_id, parent in zip(python.index, python[_PYTHON_ID], python[_PYTHON_PARENT], strict=True):
            if parent in ends.index and ends[parent] < ends[python_id]:  # Callers come first, so theirs is final.
                ends[python_id] = ends[parent]
                df.loc[label, "dur"] = max(ends[python_id] - df.loc[label, "ts"], 0)
        df["end"] = np.where(df[_PYTHON_ID] >= 0, df["ts"] + df["dur"], df["end"])

    constrain_child_time_withinin_parent = constrain_child_time_within_parent  # HTA's spelling.
