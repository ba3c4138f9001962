"""Host rows as a tree: which call lies within which, and which of them launched device work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.call_tree import nearest_above
from htareport.algorithms.chunks import chunks
from htareport.algorithms.nesting import NO_PARENT, tree
from htareport.rank.launch_links import UNLINKED
from htareport.rows import classify
from htareport.rows.capture import Loaded
from htareport.rows.columns import Columns

OPERATOR_CATEGORIES = ("cpu_op", "Operator")
ANNOTATION_CATEGORY = "user_annotation"
PYTHON_CATEGORY = "python_function"
# The first three from outside to inside, where two rows start and end together; Python is outermost.
LEVELS = ("annotation", "operator", "call", "python")
LEVEL_DTYPE = pd.CategoricalDtype([*LEVELS])
_COLUMNS = (
    "name", "level", "ts", "end", "dur", "thread", "capture", "source", "row", "launch", "parent", "depth",
)  # fmt: skip
_DTYPES: dict[str, Any] = {
    **dict.fromkeys(("ts", "dur", "end"), np.int64),
    **dict.fromkeys(("thread", "row", "launch"), np.int32),
    **dict.fromkeys(("capture", "source"), np.int16),
}
_DEEP = np.iinfo(np.int16).max


class Host:
    """Host rows as a tree, by thread and start; Python functions only if asked for.

    `host[name]` is a column, an array: level (code of LEVELS), ts, end, dur (ns), thread, capture, source and row (of
    the events table), name (code), launch (row of `launches`, -1 for what is no call), parent (row of this table, -1
    for the outermost), depth (0 for those). A row that outlasts the one it starts in still counts as within it.

    These are most rows of a rank. Only what is made for them stays; all else is taken anew from the events.
    """

    def __init__(self, loaded: Loaded, names: pd.CategoricalDtype, launches: pd.DataFrame, *, python: bool) -> None:
        found = [
            (number, level, columns)
            for number, (category, columns) in enumerate(loaded.tables.items())
            if (level := level_of(category, python=python)) is not None
        ]
        self._names = names
        self._sources = np.array([number for number, _, _ in found], np.int16)
        self._tables = [columns | {"launch": _launches_in(launches, number, columns)} for number, _, columns in found]
        sizes = [len(columns["ts"]) for columns in self._tables]
        self._starts = np.cumsum([0, *sizes])
        levels = np.repeat(np.array([LEVELS.index(level) for _, level, _ in found], np.int8), sizes)
        self._made = dict[str, NDArray[Any]]()
        self._order = np.arange(self._starts[-1], dtype=np.int32)
        self._order = self._sorted(levels)
        self._made |= {"level": levels[self._order], "name": self["name"]}
        self._made["parent"], depth = self._tree()
        self._made["depth"] = depth.astype(np.int16) if depth.max(initial=0) <= _DEEP else depth

    def _sorted(self, levels: NDArray[np.int8]) -> NDArray[np.int32]:
        """Places of the rows in the categories one after the other, by thread, capture, start and (descending) end."""
        outside_first = np.where(levels == LEVELS.index("python"), np.int8(-1), levels)
        keys = (self["row"], outside_first, -self["dur"], self["ts"], self["capture"], self["thread"])
        order: NDArray[np.int32] = np.lexsort(keys).astype(np.int32)
        return order

    def _tree(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Parent and depth of the rows, which are nested by thread and capture."""
        thread, capture = self["thread"], self["capture"]
        limits = np.flatnonzero((np.diff(thread) != 0) | (np.diff(capture) != 0)) + 1
        del thread, capture
        starts, ends = self["ts"], self["end"]
        parent, depth = np.full(len(starts), NO_PARENT, np.int32), np.zeros(len(starts), np.int32)
        for first, last in zip(np.append(0, limits).tolist(), np.append(limits, len(starts)).tolist(), strict=True):
            found, depth[first:last] = tree(starts[first:last], ends[first:last])
            found[found != NO_PARENT] += first
            parent[first:last] = found
        return parent, depth

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, column: str) -> NDArray[Any]:
        """A column of all rows."""
        return self._made[column] if column in self._made else self._taken(column, self._order)

    def at(self, column: str, rows: NDArray[Any] | list[int]) -> NDArray[Any]:
        """A column of some rows: less work than all of it, where they are few."""
        made = self._made.get(column)
        return self._taken(column, self._order[rows]) if made is None else made[rows]

    def _taken(self, column: str, order: NDArray[np.int32]) -> NDArray[Any]:
        """A column of the events at some places in the categories one after the other."""
        dtypes = {table[column].dtype for table in self._tables} if column == "name" else {_DTYPES[column]}
        found = np.empty(len(order), np.result_type(*dtypes) if dtypes else np.int8)
        for chunk in chunks(len(order)):
            table = np.searchsorted(self._starts, order[chunk], side="right") - 1
            row = order[chunk] - self._starts[table]
            if column in {"source", "row"}:
                found[chunk] = row if column == "row" else self._sources[table]
                continue
            for number, columns in enumerate(self._tables):
                mine = np.flatnonzero(table == number)
                values = columns["ts" if column == "end" else column][row[mine]]
                found[chunk][mine] = values + columns["dur"][row[mine]] if column == "end" else values
        return found

    def of_level(self, level: str) -> NDArray[np.bool_]:
        """Which rows are of a level: annotation, operator, call or python."""
        return np.asarray(self._made["level"] == LEVELS.index(level))

    def names(self, rows: NDArray[Any] | list[int]) -> pd.Categorical:
        """Names of some rows."""
        return pd.Categorical.from_codes(self.at("name", rows), dtype=self._names)

    def frame(self, rows: NDArray[Any] | list[int] | None = None) -> pd.DataFrame:
        """All columns of all rows, or of some, with names and levels as categories."""
        columns = {name: self[name] if rows is None else self.at(name, rows) for name in _COLUMNS}
        name = pd.Categorical.from_codes(columns["name"], dtype=self._names)
        level = pd.Categorical.from_codes(columns["level"], dtype=LEVEL_DTYPE)
        return pd.DataFrame(columns | {"name": name, "level": level}, copy=False)


def level_of(category: str, *, python: bool) -> str | None:
    """What rows of a category are in a call tree: annotation, operator, call or python; None: no part of it."""
    if category in OPERATOR_CATEGORIES:
        return "operator"
    if category == ANNOTATION_CATEGORY:
        return "annotation"
    if category == PYTHON_CATEGORY:
        return "python" if python else None
    return "call" if classify.is_runtime(category) else None


def _launches_in(launches: pd.DataFrame, number: int, columns: Columns) -> NDArray[np.int32]:
    """Row of `launches` of each row of a category, -1 for what is no call."""
    found = np.full(len(columns["ts"]), UNLINKED, np.int32)
    there = np.flatnonzero(launches["source"].to_numpy() == number)
    found[launches["row"].to_numpy()[there]] = there
    return found if len(there) else np.broadcast_to(np.int32(UNLINKED), len(found))


def nearest(host: Host, level: str) -> NDArray[np.int32]:
    """Row of the innermost row of a level around each row, -1 for none. Chains of other rows are skipped."""
    return innermost(host, host.of_level(level))


def innermost(host: Host, wanted: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Row of the innermost of some rows around each row, -1 for none."""
    return nearest_above(host["parent"], wanted)


def launching_rows(host: Host, launches: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row of the host table for each row of `launches`, -1 for none."""
    launch = host["launch"]
    calls = np.flatnonzero(launch != UNLINKED)
    rows = np.full(int(launch.max(initial=UNLINKED)) + 2, UNLINKED, np.int64)  # The last is for those of no launch.
    rows[launch[calls]] = calls
    return rows[launches]


def backward_links(loaded: Loaded, host: Host) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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


def _numbered_operators(loaded: Loaded, host: Host) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Operators with a sequence number, in order: host row, number, and number of the forward thread."""
    sources, rows = host["source"], host["row"]
    is_operator = host.of_level("operator")
    parts = [np.zeros((3, 0), np.int64)]
    for number, table in enumerate(loaded.tables.values()):
        if "sequence" in table:
            mine = np.flatnonzero(is_operator & (sources == number))
            mine = mine[table["sequence"][rows[mine]] >= 0]
            parts.append(np.stack([mine, *(table[name][rows[mine]] for name in ("sequence", "forward_thread"))]))
    found = np.concatenate(parts, axis=1)
    row, sequence, forward_thread = found[:, np.argsort(found[0], kind="stable")]
    return row, sequence, forward_thread


def _calls(host: Host, rows: NDArray[np.int64], numbers: dict[str, NDArray[np.int64]]) -> pd.DataFrame:
    """What matching forward and backward operators needs to know of some of them."""
    taken = {"capture": "capture", "thread": "thread", "start": "ts", "end": "end"}
    return pd.DataFrame({"row": rows} | {name: host.at(key, rows) for name, key in taken.items()} | numbers)
