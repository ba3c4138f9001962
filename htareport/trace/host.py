"""Host rows as a tree: which call lies within which, and which of them launched device work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.nesting import NO_PARENT, tree
from htareport.trace import classify
from htareport.trace.capture import Loaded
from htareport.trace.links import UNLINKED

OPERATOR_CATEGORIES = ("cpu_op", "Operator")
ANNOTATION_CATEGORY = "user_annotation"
PYTHON_CATEGORY = "python_function"
_LEVELS = ("annotation", "operator", "call")  # From outside to inside where two rows start and end together.
LEVEL_DTYPE = pd.CategoricalDtype([*_LEVELS, "python"])


def host_table(loaded: Loaded, names: pd.CategoricalDtype, launches: pd.DataFrame, *, python: bool) -> pd.DataFrame:
    """Annotations, operators and runtime calls by thread and start; Python functions only if asked for.

    Columns: name, level (annotation, operator, call, python), ts, end, dur (ns), thread, capture, source and row (of
    the events table), launch (row of `launches`, -1 for what is no call), parent (row of this table, -1 for the
    outermost), depth (0 for those). A row that outlasts the one it starts in still counts as within it.
    """
    tables = [
        (number, within, columns)
        for number, (category, columns) in enumerate(loaded.tables.items())
        if (within := level_of(category, python=python)) is not None
    ]
    sizes = [len(columns["ts"]) for _, _, columns in tables]

    def stacked(key: str) -> NDArray[Any]:
        parts = [columns[key] for _, _, columns in tables]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    # Small keys and one column at a time: this table is the largest that analyses make.
    level = np.repeat(np.array([LEVEL_DTYPE.categories.get_loc(within) for _, within, _ in tables], np.int8), sizes)
    row = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes] or [np.zeros(0, np.int32)])
    outside_first = np.where(level == len(_LEVELS), np.int8(-1), level)  # Python is outermost.
    ts, thread, capture = stacked("ts"), stacked("thread").astype(np.int32), stacked("capture").astype(np.int16)
    end = ts + stacked("dur")
    order = np.lexsort((row, outside_first, -end, ts, capture, thread))
    ts, end, thread, capture = ts[order], end[order], thread[order], capture[order]
    parent, depth = _tree(ts, end, (np.diff(thread) != 0) | (np.diff(capture) != 0))
    source = np.repeat(np.array([number for number, _, _ in tables], np.int16), sizes)[order]
    row = row[order]
    return pd.DataFrame(
        {
            "name": pd.Categorical.from_codes(stacked("name")[order], dtype=names),
            "level": pd.Categorical.from_codes(level[order], dtype=LEVEL_DTYPE),
            "ts": ts,
            "end": end,
            "dur": end - ts,
            "thread": thread,
            "capture": capture,
            "source": source,
            "row": row,
            "launch": _launch_of(source, row, launches),
            "parent": parent,
            "depth": depth,
        },
        copy=False,
    )


def level_of(category: str, *, python: bool) -> str | None:
    """What rows of a category are in a call tree: annotation, operator, call or python; None: no part of it."""
    if category in OPERATOR_CATEGORIES:
        return "operator"
    if category == ANNOTATION_CATEGORY:
        return "annotation"
    if category == PYTHON_CATEGORY:
        return "python" if python else None
    return "call" if classify.is_runtime(category) else None


def _tree(
    starts: NDArray[np.int64], ends: NDArray[np.int64], breaks: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Parent and depth of rows that are sorted by thread, start and (descending) end; a new one begins at breaks."""
    parent, depth = np.full(len(starts), NO_PARENT, np.int32), np.zeros(len(starts), np.int32)
    limits = np.flatnonzero(breaks) + 1
    for first, last in zip(np.append(0, limits).tolist(), np.append(limits, len(starts)).tolist(), strict=True):
        found, depth[first:last] = tree(starts[first:last], ends[first:last])
        found[found != NO_PARENT] += first
        parent[first:last] = found
    return parent, depth


def _launch_of(source: NDArray[np.int16], row: NDArray[np.int32], launches: pd.DataFrame) -> NDArray[np.int32]:
    found = np.full(len(row), UNLINKED, np.int32)
    sources, rows = launches["source"].to_numpy(), launches["row"].to_numpy()
    for number in unique_sorted(sources).tolist():
        there = np.flatnonzero(sources == number)
        position = np.empty(len(there), np.int64)
        position[rows[there]] = there
        mine = source == number
        found[mine] = position[row[mine]]
    return found


def nearest(host: pd.DataFrame, level: str) -> NDArray[np.int32]:
    """Row of the innermost row of a level around each row, -1 for none. Chains of other rows are skipped."""
    return innermost(host, (host["level"] == level).to_numpy())


def innermost(host: pd.DataFrame, wanted: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Row of the innermost of some rows around each row, -1 for none."""
    parent = host["parent"].to_numpy()
    reached = np.full(len(host) + 1, NO_PARENT, np.int32)  # The last is what -1 takes: no row leads to none.
    reached[:-1] = parent
    reached[:-1][wanted] = np.flatnonzero(wanted)
    while True:
        further = reached[reached]  # Twice as far in each round.
        if (further == reached).all():
            found: NDArray[np.int32] = reached[parent]
            return found
        reached = further


def launching_rows(host: pd.DataFrame, launches: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row of the host table for each row of `launches`, -1 for none."""
    launch = host["launch"].to_numpy()
    calls = np.flatnonzero(launch != UNLINKED)
    rows = np.full(int(launch.max(initial=UNLINKED)) + 2, UNLINKED, np.int64)  # The last is for those of no launch.
    rows[launch[calls]] = calls
    return rows[launches]


def backward_links(loaded: Loaded, host: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Outermost operators of the backward pass, and the forward operator that each undoes: two arrays of host rows.

    They share the sequence number, which counts by thread; the trace names the forward thread by a number of its own,
    taken to be the thread on which most of the numbers are found. Of several operators of one number the last to start
    is it, as for PyTorch's own arrows.
    """
    rows, sequence, forward_thread = _numbered_operators(loaded, host)
    is_back = forward_thread > 0
    back = _calls(host, rows[is_back], {"sequence": sequence[is_back], "forward_thread": forward_thread[is_back]})
    around = nearest(host, "operator")[back["row"].to_numpy()]
    back = back[~np.isin(around, back["row"].to_numpy())]
    undone = ~is_back & np.isin(sequence, sequence[is_back])
    forward = _calls(host, rows[undone], {"sequence": sequence[undone]}).sort_values(["start", "row"])
    forward = forward.drop_duplicates(["capture", "thread", "sequence"], keep="last")
    pairs = back.merge(forward, on=["capture", "sequence"], suffixes=("", "_forward"))
    sizes = pairs.groupby(["capture", "forward_thread", "thread_forward"]).size().reset_index(name="size")
    sizes = sizes.sort_values("size", ascending=False, kind="stable").drop_duplicates(["capture", "forward_thread"])
    pairs = pairs.merge(sizes, on=["capture", "forward_thread", "thread_forward"])
    pairs = pairs[(pairs["end_forward"] <= pairs["start"]) & (pairs["start_forward"] < pairs["start"])]
    return pairs["row"].to_numpy(np.int64), pairs["row_forward"].to_numpy(np.int64)


def _numbered_operators(
    loaded: Loaded, host: pd.DataFrame
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Operators with a sequence number, in order: host row, number, and number of the forward thread."""
    sources, rows = host["source"].to_numpy(), host["row"].to_numpy()
    is_operator = (host["level"] == "operator").to_numpy()
    parts = [np.zeros((3, 0), np.int64)]
    for number, table in enumerate(loaded.tables.values()):
        if "sequence" in table:
            mine = np.flatnonzero(is_operator & (sources == number))
            mine = mine[table["sequence"][rows[mine]] >= 0]
            parts.append(np.stack([mine, *(table[name][rows[mine]] for name in ("sequence", "forward_thread"))]))
    found = np.concatenate(parts, axis=1)
    row, sequence, forward_thread = found[:, np.argsort(found[0], kind="stable")]
    return row, sequence, forward_thread


def _calls(host: pd.DataFrame, rows: NDArray[np.int64], numbers: dict[str, NDArray[np.int64]]) -> pd.DataFrame:
    """What matching forward and backward operators needs to know of some of them."""
    taken = {"capture": "capture", "thread": "thread", "start": "ts", "end": "end"}
    return pd.DataFrame({"row": rows} | {name: host[key].to_numpy()[rows] for name, key in taken.items()} | numbers)
