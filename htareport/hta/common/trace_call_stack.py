"""The call stack of one thread, with the device work that its calls launch."""

from __future__ import annotations

import pandas as pd

from htareport.hta.common.call_stack import CallStackIdentity
from htareport.hta.common.stacks import (
    NON_EXISTENT_NODE_INDEX,
    NULL_NODE_INDEX,
    STACK_COLUMNS,
    CallStackNode,
    DFSCallback,
    Stack,
    stack_columns,
)
from htareport.hta.common.trace_symbol_table import TraceSymbolTable
from htareport.hta.common.types import DeviceType

__all__ = [
    "NON_EXISTENT_NODE_INDEX",
    "NULL_NODE_INDEX",
    "CallStackGraph",
    "CallStackIdentity",
    "CallStackNode",
    "DFSCallback",
]


class CallStackGraph(Stack):
    """The call stack of a thread whose rows are `df`, in a frame `full_df` that has its device work too.

    The stack columns (see stacks.stack_columns) are taken from `full_df` if it has them, else computed, and written
    into it with `save_call_stack_to_df`. Links between host and device are those of the column index_correlation.
    """

    def __init__(
        self,
        df: pd.DataFrame,
        identity: CallStackIdentity,
        cpu_gpu_correlation: pd.DataFrame | None = None,
        full_df: pd.DataFrame | None = None,
        symbol_table: TraceSymbolTable | None = None,
        use_existing_stack_columns: bool = True,
        save_call_stack_to_df: bool = True,
    ) -> None:
        del symbol_table  # Names are text.
        self.identity, self.device_type = identity, DeviceType.CPU
        self.full_df = df if full_df is None else full_df
        if cpu_gpu_correlation is not None:
            links = cpu_gpu_correlation.drop_duplicates("gpu_index").set_index("gpu_index")["cpu_index"]
            linked = self.full_df["index"].map(links).fillna(-1).astype("int64")
            self.full_df["index_correlation"] = linked.where(linked >= 0, self.full_df.get("index_correlation", -1))
        has_columns = use_existing_stack_columns and set(STACK_COLUMNS) <= set(self.full_df)
        columns = self.full_df[list(STACK_COLUMNS)] if has_columns else stack_columns(self.full_df)
        work = self.full_df[(self.full_df["stream"] >= 0) & columns["parent"].isin(df["index"])]
        rows = pd.concat([df, work[~work["index"].isin(df["index"])]]) if len(work) else df
        super().__init__(rows, columns.loc[rows.index])
        if save_call_stack_to_df:
            self.save_call_stack_to_dataframe()

    def save_call_stack_to_dataframe(self, apply_whole_graph: bool = False) -> None:
        """Write the stack columns into the full frame; these are only rows of this thread."""
        del apply_whole_graph
        for name in STACK_COLUMNS:
            self.full_df.loc[self.df.index, name] = self._columns[name]

    def __repr__(self) -> str:
        return f"CallStackGraph({self.identity}, {len(self.df)} events)"

    @property
    def correlations(self) -> pd.DataFrame:
        """Index of device work (gpu_index) and of its launch (cpu_index)."""
        work = self.df[self.df["stream"] >= 0]
        return pd.DataFrame({"cpu_index": self._columns.loc[work.index, "parent"], "gpu_index": work["index"]})

    def update_parent_of_first_layer_nodes(self, new_parent_index: int) -> None:
        """Make a node, for example of another thread, the parent of the outermost ones."""
        moved = self._columns.index[self._columns["parent"] == NULL_NODE_INDEX]
        self._columns = self._columns.copy()
        self._columns.loc[moved, "parent"] = new_parent_index
        self.full_df.loc[moved, "parent"] = new_parent_index
        self.__dict__.pop("nodes", None)
