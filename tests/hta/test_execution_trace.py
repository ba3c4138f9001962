"""Execution traces of either layout, joined with a Kineto trace by record function."""

from __future__ import annotations

import gzip
import json

import pytest

from htareport.errors import TraceFileError
from htareport.hta.common.execution_trace import add_et_column, correlate_execution_trace, load_execution_trace
from htareport.hta.common.trace import Trace
from htareport.hta.configs.parser_config import ParserConfig


def old_node(number, name, rf_id, parent=1) -> dict:
    """As schema 1.0.1 has it."""
    return {
        "name": name, "id": number, "rf_id": rf_id, "parent": parent, "fw_parent": 0, "seq_id": -1, "scope": 7,
        "tid": 1, "fw_tid": 0, "op_schema": f"{name}(Tensor a) -> Tensor", "inputs": [[1, 0]], "input_shapes": [[2, 3]],
        "input_types": ["Tensor(float)"], "outputs": [[2, 0]], "output_shapes": [[3, 2]],
        "output_types": ["Tensor(float)"],
    }  # fmt: skip


def new_node(number, name, rf_id, parent=1) -> dict:
    """As those of 1.0.2-chakra.0.0.4 to 1.1.1-chakra.0.0.4 have it."""
    old = old_node(number, name, rf_id, parent)
    attributes = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")
    types = {"op_schema": "string", "rf_id": "uint64", "seq_id": "int64"}
    return {
        "id": number, "name": name, "ctrl_deps": parent,
        "inputs": {"values": old["inputs"], "shapes": old["input_shapes"], "types": old["input_types"],
                   "strides": [[3, 1]]},
        "outputs": {"values": old["outputs"], "shapes": old["output_shapes"], "types": old["output_types"]},
        "attrs": [{"name": key, "type": types.get(key, "uint64"), "value": old[key]} for key in attributes],
    }  # fmt: skip


NODES = ((2, "aten::linear", 40), (3, "aten::mm", 41), (4, "aten::linear", 50))
LAYOUTS = {"1.0.1": old_node, "1.0.2-chakra.0.0.4": new_node, "1.1.0-chakra.0.0.4": new_node,
           "1.1.1-chakra.0.0.4": new_node}  # fmt: skip


@pytest.fixture(params=LAYOUTS)
def written(request, tmp_path):
    """A file of each schema."""
    made = LAYOUTS[request.param]
    root = {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1, "parent": 1, "inputs": [],
            "attrs": []}  # fmt: skip
    content = {
        "schema": request.param,
        "pid": 5,
        "time": "…",
        "start_ts": 3,
        "nodes": [root, *(made(*n) for n in NODES)],
    }
    path = tmp_path / "et.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path, request.param


def test_nodes(written):
    path, schema = written
    found = load_execution_trace(path)
    assert (found.schema, found.pid, found.start_ts, found.finish_ts) == (schema, 5, 3, None)
    node = found.nodes[3]
    assert (node.name, node.parent_id, node.rf_id, node.seq_id, node.scope) == ("aten::mm", 1, 41, -1, 7)
    assert (node.input_shapes, node.output_types) == ([[2, 3]], ["Tensor(float)"])
    assert node.op_schema == "aten::mm(Tensor a) -> Tensor"
    assert found.nodes[1].rf_id == -1


def test_joined(written, run):
    """Operators of the same record function; others have no node."""
    path, _ = written
    trace, found = Trace(trace_dir=run), load_execution_trace(path)
    correlate_execution_trace(trace, 0, found)
    df = trace.get_trace(0)
    assert df["et_node"].dropna().to_dict() == {1: 2, 2: 3, 10: 4}
    for column in ("op_schema", "input_shapes", "input_types", "output_shapes", "output_types", "et_node_name"):
        add_et_column(df, found, column)
    assert df.loc[2, "et_node_name"] == "aten::mm"
    assert df.loc[2, "input_shapes"] == [[2, 3]]
    assert df.loc[0, "op_schema"] is None
    with pytest.raises(ValueError, match="there are op_schema"):
        add_et_column(df, found, "other")


def test_not_together(written, run):
    """Ids that never meet; a frame without ids; columns before the join."""
    path, _ = written
    found = load_execution_trace(path)
    other = Trace(trace_dir=run)
    other.get_trace(0)["external_id"] += 1000
    with pytest.raises(ValueError, match="not recorded together"):
        correlate_execution_trace(other, 0, found)
    with pytest.raises(ValueError, match="correlate_execution_trace first"):
        add_et_column(other.get_trace(0), found, "op_schema")
    bare = Trace(trace_dir=run, parser_config=ParserConfig(ParserConfig.ARGS_MINIMUM))
    with pytest.raises(ValueError, match="no External ids"):
        correlate_execution_trace(bare, 0, found)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"schema": 1, "nodes": [{}]}', '{"nodes": 5}'])
def test_files_that_are_none(tmp_path, text):
    path = tmp_path / "et.json"
    path.write_text(text)
    with pytest.raises(TraceFileError, match=r"et.json: "):
        load_execution_trace(path)
    with pytest.raises(TraceFileError, match=r"no.json"):
        load_execution_trace(tmp_path / "no.json")
