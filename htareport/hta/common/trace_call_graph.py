"""The call stacks of all threads of some ranks, with the device work that each call launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pandas as pd

from htareport.hta.common.call_stack import CallStackIdentity
from htareport.hta.common.stacks import STACK_COLUMNS, Stack, stack_columns
from htareport.hta.common.trace import Trace
from htareport.hta.common.trace_call_stack import CallStackGraph
from htareport.hta.common.trace_df import host_rows
from htareport.hta.common.trace_symbol_table import TraceSymbolTable
from htareport.hta.configs.env_options import disable_call_graph_depth
from htareport.rows.classify import step_number


class CallGraph:
    """Call stacks of some ranks (all by default), written into their frames as the columns `stack_columns`.

    They are parent (index of the enclosing row, of the launch for device work; -1: none), depth, height, num_kernels,
    kernel_dur_sum, kernel_span, first_kernel_start and last_kernel_end (µs; see stacks.stack_columns). `mapping` has
    the thread of each of the `call_stacks`; its label is main (it has the profiler's steps), bwd (the backward pass) or
    the name of its first row.
    """

    stack_columns: ClassVar = list(STACK_COLUMNS)

    def __init__(
        self,
        trace: Trace | None,
        ranks: Sequence[int] | None = None,
        frames: Mapping[int, pd.DataFrame] | None = None,
    ) -> None:
        """`frames` by rank replace a trace."""
        self.trace_data = trace
        if trace is not None:
            frames = {rank: trace.get_trace(rank) for rank in (trace.get_ranks() if ranks is None else ranks)}
        self._build(frames or {})

    @staticmethod
    def from_dataframe(df: pd.DataFrame, symbol_table: TraceSymbolTable | None = None, rank: int = -1) -> CallGraph:
        """Return the call stacks of a frame."""
        del symbol_table  # Names are text.
        return CallGraph(None, frames={rank: df})

    def _build(self, frames: Mapping[int, pd.DataFrame]) -> None:
        self.ranks, self._frames = list(frames), frames
        self._whole: dict[int, Stack] = {}
        self._threads: list[tuple[CallStackIdentity, pd.Index[Any]]] = []
        self._stacks: dict[int, CallStackGraph] = {}
        rows: list[tuple[Any, ...]] = []
        for rank, df in frames.items():
            columns = stack_columns(df)
            for name in STACK_COLUMNS:
                if name != "depth" or not disable_call_graph_depth():
                    df[name] = columns[name]
            self._whole[rank] = Stack(df, columns)
            for thread, thread_rows in host_rows(df).groupby(["pid", "tid"], sort=True):
                identity = CallStackIdentity.for_thread(rank, thread)
                rows.append((*identity, len(rows), _label(thread_rows), len(thread_rows)))
                self._threads.append((identity, thread_rows.index))
        self.mapping = pd.DataFrame(rows, columns=["rank", "pid", "tid", "stack_index", "label", "count"])

    @property
    def call_stacks(self) -> list[CallStackGraph]:
        """The stacks of all threads, by their number in `mapping`."""
        return [self._stack(number) for number in range(len(self._threads))]

    def _stack(self, number: int) -> CallStackGraph:
        """The stack of a thread, made when it is first used."""
        if number not in self._stacks:
            identity, rows = self._threads[number]
            df = self._frames[identity.rank]
            self._stacks[number] = CallStackGraph(df.loc[rows], identity, full_df=df, save_call_stack_to_df=False)
        return self._stacks[number]

    def _rank(self, rank: int | None) -> int:
        return self.ranks[0] if rank is None else rank

    def get_call_stacks(
        self,
        rank: int | None = None,
        pid: int | None = None,
        tid: int | None = None,
        stack_index: int | None = None,
    ) -> Iterator[CallStackGraph]:
        """Yield the stacks of a rank, process or thread, or the one with a number."""
        mapping = self.mapping
        for name, value in (("rank", rank), ("pid", pid), ("tid", tid), ("stack_index", stack_index)):
            if value is not None:
                mapping = mapping[mapping[name] == value]
        yield from map(self._stack, mapping["stack_index"])

    def get_node_attributes(self, index: int, rank: int | None = None) -> pd.Series[Any]:
        """Return the row of an event, of the first rank by default. ValueError if it does not exist."""
        df = self._frames[self._rank(rank)]
        node_attributes = df[df["index"] == index]
        if not len(node_attributes):
            raise ValueError(f"no event {index} on rank {self._rank(rank)}")
        return node_attributes.iloc[0]

    def get_csg_of_node(self, index: int, rank: int | None = None) -> CallStackGraph:
        """Return the stack that an event is on, for device work that of its launch. ValueError if there is none."""
        for stack in self.get_call_stacks(self._rank(rank)):
            if (stack.df["index"] == index).any():
                return stack
        raise ValueError(f"no event {index} in the call stacks of rank {self._rank(rank)}")

    def get_stack_of_node(self, index: int, rank: int | None = None, skip_ancestors: bool = False) -> pd.DataFrame:
        """Return the rows of an event, its descendants, with device work, and ancestors. ValueError without it."""
        return self._whole[self._rank(rank)].stack_of(index, skip_ancestors=skip_ancestors)

    def get_gpu_kernels(self, rank: int | None = None) -> pd.DataFrame:
        """Return the device work of a rank."""
        df = self._frames[self._rank(rank)]
        return df[df["stream"] >= 0]


def _label(rows: pd.DataFrame) -> str:
    names = rows["name"].astype(str)
    unique_names = names.unique().tolist()
    if any(step_number(name) is not None for name in unique_names):
        return "main"
    return "bwd" if any("autograd::" in name for name in unique_names) else unique_names[0]
