"""What a critical path consists of: its time by what bounds it and by name, its slack, and what could be gained."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.critical_path import lengths_without
from htareport.algorithms.distinct import unique_sorted
from htareport.rank.critical_path.activity import NONE
from htareport.rank.critical_path.graph import ActivityGraph, Kind
from htareport.rank.events import KIND_DTYPE

Numbers = NDArray[np.int64]


class Bound(StrEnum):
    """What time on the path is spent on."""

    HOST = "host"
    PYTHON = "python"
    LOADING = "data_loading"
    LAUNCH = "launch"
    COMPUTE = "compute"
    COMM = "comm"
    MEMORY = "memory"
    GAP = "gap"
    EARLIER = "earlier"


LABELS = {
    Bound.HOST: "host operators",
    Bound.PYTHON: "Python",
    Bound.LOADING: "data loading",
    Bound.LAUNCH: "launch overhead",
    Bound.COMPUTE: "compute",
    Bound.COMM: "communication",
    Bound.MEMORY: "copies and fills",
    Bound.GAP: "kernel gaps",
    Bound.EARLIER: "earlier device work",
}
MEANINGS = {
    Bound.HOST: "Operators and runtime calls at work on the host.",
    Bound.PYTHON: "Between operators on the main thread: Python, or anything else that is not traced.",
    Bound.LOADING: "Host rows that load data, by their names.",
    Bound.LAUNCH: "From the start of a launch to that of its kernel, which found its stream free.",
    Bound.COMPUTE: "Kernels at work.",
    Bound.COMM: "Collectives and transfers between ranks, the wait for other ranks in them too.",
    Bound.MEMORY: "Memory copies and fills of the device.",
    Bound.GAP: "From the end of a kernel to the start of the one that waited for it, on any stream.",
    Bound.EARLIER: "From the step's start until the device is done with what earlier steps launched.",
}
BOUNDS = tuple(Bound)
_OF_KIND = np.array([BOUNDS.index(Bound(str(kind))) for kind in KIND_DTYPE.categories], np.int8)


def bounds_of(found: ActivityGraph) -> NDArray[np.int8]:
    """Position in BOUNDS for each edge of the graph."""
    graph, activity = found.graph, found.activity
    hosts, owner, kind = len(activity.host), graph.owner, graph.kind
    bounds = np.full(len(kind), BOUNDS.index(Bound.HOST), np.int8)
    bounds[kind == Kind.BETWEEN] = BOUNDS.index(Bound.PYTHON)
    bounds[kind == Kind.LAUNCH] = BOUNDS.index(Bound.LAUNCH)
    bounds[kind == Kind.EARLIER] = BOUNDS.index(Bound.EARLIER)
    to_device = found.points[graph.dst] // 2 >= hosts
    bounds[(kind == Kind.GAP) | ((kind == Kind.SYNC) & to_device)] = BOUNDS.index(Bound.GAP)
    host = np.flatnonzero((kind == Kind.HOST) & (owner != NONE))
    loading, collective = activity.host["is_loading"].to_numpy(), activity.is_collective
    bounds[host[loading[owner[host]]]] = BOUNDS.index(Bound.LOADING)
    bounds[host[collective[owner[host]]]] = BOUNDS.index(Bound.COMM)
    device = np.flatnonzero(kind == Kind.DEVICE)
    bounds[device] = _OF_KIND[activity.device["kind"].cat.codes.to_numpy()[owner[device] - hosts]]
    return bounds


def by_bound(found: ActivityGraph, bounds: NDArray[np.int8]) -> pd.DataFrame:
    """Time and edges of the path by bound, and by how much the path gets shorter if that took no time at all.

    Columns: bound, time (ns), count, gain (ns); every bound that the graph has edges of, in their fixed order.
    """
    graph, path = found.graph, found.graph.path
    on_path, weight = bounds[path.edges], graph.weight[path.edges]
    time = np.bincount(on_path, weight, len(BOUNDS)).astype(np.int64)
    count = np.bincount(on_path[weight > 0], minlength=len(BOUNDS))
    there = [number for number in range(len(BOUNDS)) if (bounds == number).any()]
    gain = path.length - np.array(lengths_without(graph, bounds, there), np.int64)
    names = [str(BOUNDS[number]) for number in there]
    return pd.DataFrame({"bound": names, "time": time[there], "count": count[there], "gain": gain})


def by_name(found: ActivityGraph, bounds: NDArray[np.int8]) -> pd.DataFrame:
    """Operators, calls and device events by name and bound: name, bound, time (on the path), total (ns), count, slack.

    `total` is the time of all of them in the window, `count` how many have time on the path; `slack` is by how much
    half of them could be longer without making the path longer (ns).
    """
    graph = found.graph
    edges = np.flatnonzero(np.isin(graph.kind, (Kind.HOST, Kind.DEVICE)) & (graph.owner != NONE))
    on_path = np.zeros(len(graph.src), np.bool_)
    on_path[graph.path.edges] = True
    weight, owner = graph.weight[edges], graph.owner[edges]
    frame = pd.DataFrame(
        {
            "code": _name_codes(found)[owner],
            "bound": bounds[edges],
            "time": np.where(on_path[edges], weight, 0),
            "total": weight,
            "owner": np.where(on_path[edges] & (weight > 0), owner, NONE),
            "slack": graph.slack[edges],
        }
    )
    groups = frame.groupby(["code", "bound"])
    table = groups.agg(time=("time", "sum"), total=("total", "sum"), slack=("slack", "median"))
    table["count"] = frame[frame["owner"] != NONE].groupby(["code", "bound"])["owner"].nunique()
    table = table.fillna({"count": 0}).astype({"count": "int64"}).reset_index()
    names = found.activity.host["name"].cat.categories
    table["name"] = names[table.pop("code")].astype(object)
    table["bound"] = [str(BOUNDS[number]) for number in table["bound"]]
    return table.sort_values(["time", "total", "name"], ascending=[False, False, True], ignore_index=True)


def path_edges(found: ActivityGraph, bounds: NDArray[np.int8]) -> pd.DataFrame:
    """The edges of the path that take time, in order: start, end (ns), bound, name, lane.

    `name` is whose time it is; that of what comes next for a launch, a gap, and Python (what was last, at the end).
    """
    graph, activity, hosts = found.graph, found.activity, len(found.activity.host)
    edges = graph.path.edges[graph.weight[graph.path.edges] > 0]
    src, dst, kind = (values[edges] for values in (graph.src, graph.dst, graph.kind))
    begin, finish = found.points[src] // 2, found.points[dst] // 2
    owner = np.where(np.isin(kind, (Kind.LAUNCH, Kind.GAP)), finish, graph.owner[edges])
    owner = np.where((kind == Kind.SYNC) & (finish >= hosts), finish, owner)
    following = np.where(finish < activity.size, finish, begin)
    owner = np.where((owner == NONE) & (following < activity.size), following, owner)
    codes, categories = _name_codes(found), activity.host["name"].cat.categories
    names = (
        np.where(owner == NONE, "", categories[codes[owner]].astype(object)) if len(codes) else np.full(len(edges), "")
    )
    place = np.where(kind == Kind.HOST, np.where(owner == NONE, begin, owner), finish)
    place = np.where((kind == Kind.BETWEEN) & (finish >= activity.size), begin, place)
    stamps = found.stamps
    return pd.DataFrame(
        {
            "start": stamps[dst] - graph.weight[edges],
            "end": stamps[dst],
            "bound": [str(BOUNDS[number]) for number in bounds[edges].tolist()],
            "name": names,
            "lane": _lane_names(found, place),
        }
    )


def _name_codes(found: ActivityGraph) -> NDArray[Any]:
    activity = found.activity
    return np.concatenate([activity.host["name"].cat.codes.to_numpy(), activity.device["name"].cat.codes.to_numpy()])


def _lane_names(found: ActivityGraph, events: Numbers) -> list[str]:
    """Where each event runs: main thread, backward thread, another thread, a stream."""
    activity, hosts = found.activity, len(found.activity.host)
    devices = activity.device["device"].nunique()
    threads, lanes = activity.trace.loaded.threads, activity.trace.loaded.lanes
    thread_of, lane_of = activity.host["thread"].tolist(), activity.device["lane"].tolist()

    def name(event: int) -> str:
        if event >= activity.size or (event < hosts and activity.groups[event] == activity.main_group):
            return "main thread"
        if event < hosts:
            tid = threads[thread_of[event]][1]
            return f"backward thread {tid}" if activity.groups[event] in backward else f"thread {tid}"
        lane = lanes[lane_of[event - hosts]]
        stream = str(lane[1]).removeprefix("stream ")
        return f"stream {lane[0]}/{stream}" if devices > 1 else f"stream {stream}"

    backward = set(activity.backward_groups)
    places = {event: name(event) for event in unique_sorted(events).tolist()}
    return [places[event] for event in events.tolist()]


def marks(edges: pd.DataFrame, most: int) -> pd.DataFrame:
    """Edges of the path joined to at most so many marks: lane, bound, start, end, name (of the longest in the mark).

    Edges shorter than a pixel that begin in the same one become one mark of what most of their time is spent on; marks
    of one bound that follow each other on a lane are joined where less than a pixel is between them.
    """
    if not len(edges):
        return edges
    pixel = max(1, (int(edges["end"].max()) - int(edges["start"].min())) // most)
    rows = edges.assign(place=pd.factorize(edges["lane"])[0], length=edges["end"] - edges["start"])
    cell = (rows["start"] - rows["start"].min()) // pixel * (rows["place"].max() + 1) + rows["place"]
    by_itself = rows["length"] >= pixel
    joined = _joined(rows, np.where(by_itself, -1 - np.arange(len(rows)), cell))
    joined = joined.sort_values(["place", "start"], ignore_index=True)
    same = (joined["place"].diff() == 0) & (joined["bound"] == joined["bound"].shift())
    joined = _joined(joined, (~(same & (joined["start"] - joined["end"].shift() <= pixel))).cumsum().to_numpy())
    if len(joined) > most:
        joined = joined.loc[joined["length"].nlargest(most).index]
    return joined.sort_values(["place", "start"])[["lane", "bound", "start", "end", "name"]].reset_index(drop=True)


def _joined(rows: pd.DataFrame, group: NDArray[Any]) -> pd.DataFrame:
    """One row per group: lane and place, the bound with most time, the name of its longest part, start, end, length."""
    shares = rows.assign(group=group, row=np.arange(len(rows)))
    shares["share"] = shares.groupby(["group", "bound"])["length"].transform("sum")
    order = shares.sort_values(["group", "share", "bound", "length", "row"], ascending=[True, False, True, False, True])
    chosen = order.drop_duplicates("group").set_index("group")[["lane", "place", "bound", "name"]]
    ends = shares.groupby("group").agg(start=("start", "min"), end=("end", "max"), length=("length", "sum"))
    return chosen.join(ends).reset_index(drop=True)
