"""Reads PyTorch's execution traces (schemas 1.0.1 to 1.1.1-chakra), and finds the node of each event of a trace."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from htareport.errors import TraceFileError
from htareport.hta.common.trace import Trace

EXECUTION_TRACE_SUPPORTED_EVENTS = ["cpu_op", "user_annotation"]
_NODE, _MISSING = "et_node", -1
_ATTRIBUTES = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")
_COLUMNS = {
    "op_schema": "op_schema",
    "input_shapes": "input_shapes",
    "input_types": "input_types",
    "output_shapes": "output_shapes",
    "output_types": "output_types",
    "et_node_name": "name",
}


@dataclass(frozen=True)
class Node:
    """One operator or annotation of an execution trace; ids are -1 where the file gives none."""

    name: str
    id: int
    parent_id: int = _MISSING
    rf_id: int = _MISSING
    fw_parent_id: int = _MISSING
    seq_id: int = _MISSING
    scope: int = _MISSING
    tid: int = _MISSING
    fw_tid: int = _MISSING
    op_schema: str = ""
    inputs: list[Any] = field(default_factory=list)
    input_shapes: list[Any] = field(default_factory=list)
    input_types: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    output_shapes: list[Any] = field(default_factory=list)
    output_types: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class ExecutionTrace:
    """The nodes of an execution trace by id."""

    schema: str
    nodes: Mapping[int, Node]
    pid: int = _MISSING
    start_ts: int | None = None
    finish_ts: int | None = None

    @cached_property
    def by_rf_id(self) -> dict[int, int]:
        """Id of the node of each record function."""
        return {node.rf_id: node.id for node in self.nodes.values() if node.rf_id >= 0}


def load_execution_trace(et_file: str | Path) -> ExecutionTrace:
    """Read an execution trace, plain or gzip. TraceFileError (naming the file) if it is none."""
    path = Path(et_file).expanduser()
    try:
        data = path.read_bytes()
        raw = orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        nodes = [_node(raw_node) for raw_node in raw["nodes"]]
        times = {name: raw.get(name) for name in ("start_ts", "finish_ts")}
        return ExecutionTrace(
            str(raw["schema"]), {node.id: node for node in nodes}, int(raw.get("pid", _MISSING)), **times
        )
    except OSError as error:
        raise TraceFileError(f"{path}: {error.strerror or error}") from error
    except (EOFError, zlib.error, orjson.JSONDecodeError) as error:
        raise TraceFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceFileError(f"{path}: no execution trace (an object with schema and nodes): {error!r}") from error


def _node(raw: Mapping[str, Any]) -> Node:
    """Read a node of either layout: attributes as keys (1.0.1), or as a list of names and values (chakra)."""
    attributes = {attribute["name"]: attribute.get("value") for attribute in raw.get("attrs", ())}
    values = {name: raw.get(name, attributes.get(name)) for name in _ATTRIBUTES}
    fields: dict[str, Any] = {name: _number(value) for name, value in values.items()}
    fields |= {"fw_parent_id": fields.pop("fw_parent"), "op_schema": str(values["op_schema"] or "")}
    fields |= _tensors(raw, "input") | _tensors(raw, "output")
    return Node(str(raw["name"]), int(raw["id"]), _number(raw.get("parent", raw.get("ctrl_deps"))), **fields)


def _tensors(raw: Mapping[str, Any], side: str) -> dict[str, list[Any]]:
    tensors = raw.get(f"{side}s", [])
    kinds = ("shapes", "types")
    if isinstance(tensors, Mapping):  # chakra
        return {f"{side}s": tensors.get("values", []), **{f"{side}_{kind}": tensors.get(kind, []) for kind in kinds}}
    return {f"{side}s": tensors, **{f"{side}_{kind}": raw.get(f"{side}_{kind}", []) for kind in kinds}}


def _number(value: Any) -> int:
    """Return a whole number, -1 for others and for the largest id of 64 bits, which means none."""
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 2**63 else _MISSING


def correlate_execution_trace(trace: Trace, rank: int, et: ExecutionTrace) -> None:
    """Add the column et_node to a rank's frame: id of the node with the same record function, missing for none.

    Rows of operators and annotations have that as their External id. ValueError if no row and node have the same:
    the two were not recorded together.
    """
    df = trace.get_trace(rank)
    if "external_id" not in df:
        raise ValueError("the frame has no External ids: the parser configuration leaves them out")
    is_supported = df["cat"].isin(EXECUTION_TRACE_SUPPORTED_EVENTS) & (df["external_id"] >= 0)
    nodes = df["external_id"].where(is_supported).map(et.by_rf_id).astype("Int64")
    if not nodes.notna().any():
        raise ValueError(f"rank {rank}: no event has the id of a node: the traces were not recorded together")
    df[_NODE] = nodes


def add_et_column(trace_df: pd.DataFrame, et: ExecutionTrace, column: str) -> None:
    """Add a field of each row's node to a frame, in place, as a column of that name: None for rows without a node.

    `column` is op_schema, input_shapes, input_types, output_shapes, output_types or et_node_name. ValueError for
    another, or before `correlate_execution_trace`.
    """
    if _NODE not in trace_df:
        raise ValueError("no column et_node: call correlate_execution_trace first")
    if column not in _COLUMNS:
        raise ValueError(f"{column}: there are {', '.join(_COLUMNS)}")
    values = [None if pd.isna(node) else getattr(et.nodes[int(node)], _COLUMNS[column]) for node in trace_df[_NODE]]
    trace_df[column] = pd.Series(values, index=trace_df.index, dtype=object)
