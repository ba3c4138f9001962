"""Saves the graph of a critical path as arrays and JSON, and reads it back without running any code of the file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.critical_path import Graph
from htareport.hta.cp_types import EVENT_COLUMNS

_ARRAYS = ("src", "dst", "weight", "kind", "owner")
_NODES = ("event", "is_start", "ts")
_VERSION = 1


class Saved(NamedTuple):
    """A graph, its nodes, bounds of its edges, events, and their rank, start_ns, capture and first_event."""

    graph: Graph
    nodes: pd.DataFrame
    bounds: NDArray[np.int8]
    events: pd.DataFrame
    location: dict[str, int]


def save(path: Path, saved: Saved) -> None:
    """Write the graph as a zip file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: getattr(saved.graph, name) for name in _ARRAYS} | {"bounds": saved.bounds}
    arrays |= {f"node_{name}": saved.nodes[name].to_numpy() for name in _NODES}
    events = {name: saved.events[name].tolist() for name in EVENT_COLUMNS}
    content = {"version": _VERSION, "nodes": saved.graph.nodes, **saved.location, "events": events}
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr("graph.json", json.dumps(content))
        for name, values in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, values, allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getvalue())


def load(path: str | Path) -> Saved:
    """Read what `save` wrote. ValueError (naming the file) if it is something else."""
    try:
        with ZipFile(path) as archive:
            content = json.loads(archive.read("graph.json"))
            arrays = {
                Path(name).stem: np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        return _checked(content, arrays)
    except (BadZipFile, KeyError, ValueError, TypeError, EOFError) as error:
        raise ValueError(f"{path}: not a saved critical path: {error}") from error


def _checked(content: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Saved:
    if len({len(arrays[name]) for name in (*_ARRAYS, "bounds")}) > 1:
        raise ValueError("its arrays are of different lengths")
    src, dst, weight, kind, owner = (arrays[name] for name in _ARRAYS)
    graph = Graph(int(content["nodes"]), src, dst, weight, kind, owner)
    nodes = pd.DataFrame({name: arrays[f"node_{name}"] for name in _NODES})
    events = pd.DataFrame(content["events"], columns=list(EVENT_COLUMNS))
    location = {name: int(content[name]) for name in ("rank", "start_ns", "capture", "first_event")}
    return Saved(graph, nodes, arrays["bounds"], events, location)
