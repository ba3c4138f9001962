"""Call stacks of a frame of events, for all threads at once: the parent of each call, and the device work below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.call_tree import NEVER, around_points, depths, work_under
from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.nesting import NO_PARENT, tree
from htareport.hta.common.trace_df import host_rows
from htareport.hta.common.types import DeviceType
from htareport.hta.units import PER_US, nanoseconds
from htareport.rank.host_calls import LEVEL_DTYPE, level_of
from htareport.rows.classify import step_number

NULL_NODE_INDEX, NON_EXISTENT_NODE_INDEX = -1, -2
_AUTOGRAD, _BACKWARD_ANNOTATION = "autograd::", "## backward ##"


def stack_columns(df: pd.DataFrame) -> pd.DataFrame:
    """Return parent, depth and device work of each row in its call stack, by the frame's own index.

    Columns: parent (index of the enclosing row, of the launch for device work; -1: none), depth (0: outermost; -1:
    device work without a launch), height (0: device work, 1: a call without calls below), num_kernels,
    kernel_dur_sum, kernel_span, first_kernel_start, last_kernel_end (µs; -1 without device work). If one thread has the
    profiler's steps and one other the backward pass, the outermost rows of the latter become children of the former's
    row "## backward ##", or else of its step.
    """
    host = _nested(df)
    parent = _parents(host)
    device = df[df["stream"] >= 0]
    index = pd.Index(host["index"])
    launched_by = index.get_indexer(pd.Index(device.get("index_correlation", pd.Series(-1, device.index))))
    starts = nanoseconds(device["ts"])
    work = work_under(parent, launched_by, starts, starts + nanoseconds(device["dur"]))
    columns = pd.DataFrame(_DEFAULTS, index=df.index)
    depth = depths(parent)
    indices = host["index"].to_numpy()
    columns.loc[host.index, "parent"] = np.where(parent == NO_PARENT, NULL_NODE_INDEX, indices[parent])
    columns.loc[host.index, "depth"] = depth
    columns.loc[host.index, "height"] = work.height
    columns.loc[host.index, "num_kernels"] = work.num_kernels
    for name in ("kernel_dur_sum", "kernel_span"):
        columns.loc[host.index, name] = getattr(work, name) / PER_US
    for name in ("first_kernel_start", "last_kernel_end"):
        values = getattr(work, name)
        columns.loc[host.index, name] = np.where(work.num_kernels == 0, float(NEVER), values / PER_US)
    is_linked = launched_by >= 0
    columns.loc[device.index, "height"] = 0
    columns.loc[device.index[is_linked], "parent"] = indices[launched_by[is_linked]]
    columns.loc[device.index[is_linked], "depth"] = depth[launched_by[is_linked]] + 1
    return columns


_DEFAULTS: dict[str, int | float] = {
    "parent": NULL_NODE_INDEX, "depth": -1, "height": 1, "num_kernels": 0, "kernel_dur_sum": 0.0, "kernel_span": 0.0,
    "first_kernel_start": -1.0, "last_kernel_end": -1.0,
}  # fmt: skip
STACK_COLUMNS = tuple(_DEFAULTS)


def _nested(df: pd.DataFrame) -> pd.DataFrame:
    """Annotations, operators, runtime calls and Python functions, in the order in which their threads enter them."""
    host, order = host_rows(df), np.zeros(0)
    if "cat" in host:
        levels = {category: level_of(str(category), python=True) for category in host["cat"].unique()}
        host = host[host["cat"].map(levels).notna()]
        level_order = {"python": -1, **{level: number for number, level in enumerate(LEVEL_DTYPE.categories[:-1])}}
        order = (
            host["cat"].map({category: level_order[level] for category, level in levels.items() if level}).to_numpy()
        )
    thread = host.groupby(["pid", "tid"], sort=False, dropna=False).ngroup().to_numpy()
    starts = nanoseconds(host["ts"])
    keys = (host["index"].to_numpy(), order, -(starts + nanoseconds(host["dur"])), starts, thread)
    sorted_rows = np.lexsort([key for key in keys if len(key) == len(host)])
    return host.iloc[sorted_rows].assign(_thread=thread[sorted_rows], _start=starts[sorted_rows])


def _parents(host: pd.DataFrame) -> NDArray[np.int64]:
    """The enclosing row of each row, -1 for the outermost."""
    starts, thread = host["_start"].to_numpy(), host["_thread"].to_numpy()
    ends = starts + nanoseconds(host["dur"])
    parent = np.full(len(host), NO_PARENT, np.int64)
    limits = np.flatnonzero(np.diff(thread)) + 1
    for begin, end in zip([0, *limits.tolist()], [*limits.tolist(), len(host)], strict=True):
        parents = tree(starts[begin:end], ends[begin:end])[0]
        parent[begin:end] = np.where(parents == NO_PARENT, NO_PARENT, parents + begin)
    _attach_backward(host, ends, parent)
    return parent


def _attach_backward(host: pd.DataFrame, ends: NDArray[np.int64], parent: NDArray[np.int64]) -> None:
    """Make rows of the main thread the parents of the backward thread's outermost rows, in place."""
    names, thread = host["name"].astype(str), host["_thread"].to_numpy()
    is_step = names.map({name: step_number(name) is not None for name in names.unique()}).to_numpy(np.bool_)
    is_backward = names.map({name: _AUTOGRAD in name for name in names.unique()}).to_numpy(np.bool_)
    main, backward = unique_sorted(thread[is_step]), np.setdiff1d(thread[is_backward], thread[is_step])
    if len(main) != 1 or len(backward) != 1:
        return
    is_on_main = thread == main[0]
    outer = np.flatnonzero(is_on_main & (names == _BACKWARD_ANNOTATION).to_numpy())
    outer = outer if len(outer) else np.flatnonzero(is_on_main & is_step)
    inner = np.flatnonzero((thread == backward[0]) & (parent == NO_PARENT))
    starts, same = host["_start"].to_numpy(), np.zeros(len(host), np.int64)  # One thread for the search.
    around = around_points(starts[outer], ends[outer], same[: len(outer)], starts[inner], same[: len(inner)])
    parent[inner[around >= 0]] = outer[around[around >= 0]]


@dataclass
class CallStackNode:
    """A row in a call stack: the index of its parent (-1: none), depth, height, and children in order of time."""

    parent: int = NULL_NODE_INDEX
    depth: int = -1
    height: int = -1
    device: DeviceType = DeviceType.CPU
    children: list[int] = field(default_factory=list)


DFSCallback = Callable[[int, CallStackNode], None]


class Stack:
    """Call stacks as a tree of nodes, by the index of the rows; node -1 is the parent of the outermost."""

    def __init__(self, df: pd.DataFrame, columns: pd.DataFrame) -> None:
        """Rows of a frame, and their stack columns."""
        self.df, self._columns = df, columns

    @cached_property
    def nodes(self) -> dict[int, CallStackNode]:
        """The nodes by index."""
        rows = self.df.assign(**{name: self._columns[name] for name in ("parent", "depth", "height")})
        rows = rows.sort_values("ts", kind="stable")
        columns = (rows[name].tolist() for name in ("index", "parent", "depth", "height", "stream"))
        nodes = {NULL_NODE_INDEX: CallStackNode(NULL_NODE_INDEX, -1, 0)}
        for index, parent, depth, height, stream in zip(*columns, strict=True):
            device = DeviceType.GPU if stream >= 0 else DeviceType.CPU
            nodes[index] = CallStackNode(int(parent), int(depth), int(height), device)
        for index, node in nodes.items():
            if index != NULL_NODE_INDEX:
                nodes.get(node.parent, nodes[NULL_NODE_INDEX]).children.append(index)
        nodes[NULL_NODE_INDEX].height = 1 + max(
            (nodes[child].height for child in nodes[NULL_NODE_INDEX].children), default=0
        )
        return nodes

    def get_nodes(self) -> Mapping[int, CallStackNode]:
        """Return the nodes by index."""
        return self.nodes

    def get_dataframe(self) -> pd.DataFrame:
        """Return the rows."""
        return self.df

    def get_depth(self) -> pd.Series[Any]:
        """Return the depth of each row, by index."""
        return pd.Series(self._columns["depth"].to_numpy(), self.df["index"].to_numpy(), name="depth")

    def get_parent(self, idx: int) -> int:
        """Return the parent of a node, -2 if there is no such node."""
        return self.nodes[idx].parent if idx in self.nodes else NON_EXISTENT_NODE_INDEX

    def get_children(self, idx: int) -> list[int]:
        """Return the children of a node, in order of time."""
        return self.nodes[idx].children if idx in self.nodes else []

    def get_path_to_root(self, idx: int) -> list[int]:
        """Return a node and its ancestors, up to -1."""
        path = [idx]
        while path[-1] != NULL_NODE_INDEX and path[-1] in self.nodes:
            path.append(self.nodes[path[-1]].parent)
        return path

    def get_root(self, idx: int) -> int:
        """Return the outermost ancestor of a node."""
        path = self.get_path_to_root(idx)
        return path[-2] if len(path) > 1 else idx

    def _visible_children(self, idx: int, *, kernels: bool) -> list[int]:
        children = self.get_children(idx)
        return children if kernels else [child for child in children if self.nodes[child].device is not DeviceType.GPU]

    def get_descendants(self, idx: int, include_gpu_kernel: bool = False) -> list[int]:
        """Return all descendants of a node, parents first."""
        descendants, queue = list[int](), self._visible_children(idx, kernels=include_gpu_kernel)[::-1]
        while queue:
            descendants.append(queue.pop())
            queue += self._visible_children(descendants[-1], kernels=include_gpu_kernel)[::-1]
        return descendants

    def get_leaf_nodes(self, idx: int, include_gpu_kernel: bool = False) -> list[int]:
        """Return the descendants of a node, or the node itself, that have no children."""
        nodes = [idx, *self.get_descendants(idx, include_gpu_kernel)]
        return [node for node in nodes if not self._visible_children(node, kernels=include_gpu_kernel)]

    def get_paths_to_leaves(self, idx: int, include_cuda_kernel: bool = False) -> list[list[int]]:
        """Return the path from a node to each of its leaf nodes."""
        paths = []
        for leaf in self.get_leaf_nodes(idx, include_cuda_kernel):
            path = self.get_path_to_root(leaf)
            paths.append(path[: path.index(idx) + 1][::-1])
        return paths

    def dfs_traverse(self, enter_func: DFSCallback, exit_func: DFSCallback) -> None:
        """Call one function on entering each node and one on leaving it, from -1 down."""
        enter_func(NULL_NODE_INDEX, self.nodes[NULL_NODE_INDEX])
        open_nodes: list[tuple[int, Iterator[int]]] = [(NULL_NODE_INDEX, iter(self.get_children(NULL_NODE_INDEX)))]
        while open_nodes:
            idx, children = open_nodes[-1]
            child = next(children, None)
            if child is None:
                exit_func(idx, self.nodes[idx])
                open_nodes.pop()
            else:
                enter_func(child, self.nodes[child])
                open_nodes.append((child, iter(self.get_children(child))))

    def stack_of(self, idx: int, *, skip_ancestors: bool = False) -> pd.DataFrame:
        """Return the rows of a node, its descendants and, unless skipped, ancestors. ValueError without it."""
        if idx not in self.nodes or idx == NULL_NODE_INDEX:
            raise ValueError(f"no event {idx} in these call stacks")
        ancestors = [] if skip_ancestors else self.get_path_to_root(idx)[1:-1]
        indices = [*ancestors[::-1], idx, *self.get_descendants(idx, include_gpu_kernel=True)]
        return self.df[self.df["index"].isin(indices)]
