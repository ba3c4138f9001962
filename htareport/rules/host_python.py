"""A rule about Python code in which the host launches nothing: hooks, custom backward functions, wrappers, loops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.intervals import Intervals
from htareport.algorithms.nesting import NO_PARENT, own_pieces
from htareport.findings import Finding
from htareport.rules.base import Evidence, Family, Found, Rule
from htareport.rules.host_rows import IDLE, frame_in, per, short
from htareport.rules.rank import Lane, Rank, Sets, common, joined
from htareport.trace import Capability, classify
from htareport.trace.host import PYTHON_CATEGORY, innermost
from htareport.trace.idle import Cause

_OWN = (Cause.OPERATING, Cause.ANNOTATED, Cause.NOTHING)  # All others have something more telling than Python.
_FUNCTION = re.compile(r"\(\d+\): ")  # file(line): name. What is built in has none, and belongs to who calls it.
_BUILT_IN = re.compile(r"^<built-in ")
_LIBRARY = re.compile(r"(?:^|/)torch/|^<|(?:^|/)(?:contextlib|functools|threading)\.py")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$|\): \w*(?:backward|hook)\w*$")
_OTHERS = r"^Python GC|gc\.collect|function collect>|dataloader\.py|_next_data|empty_cache|(?:^|/)torch/profiler/"
_CLAIMED = {  # What other rules have said already.
    "H12": r"torch/_(?:dynamo|inductor|functorch)/|triton/",
    "H19": r"torch/optim/|Optimizer\.step",
}
_MOST_NAMED = 3


@dataclass(frozen=True)
class PythonOverhead(Rule):
    """Python functions take time themselves while the device is idle: hooks, `Function.backward`, wrappers, loops.

    ## When it speaks
    Python stacks are recorded, and one function (file and line) fills at least `least` of the step with time in which
    the device is idle, the host is late, and the thread that launches next is in that function itself: in no operator,
    runtime call or function that it calls. What is built in counts for the function that calls it. Data loaders,
    garbage collection and the profiler don't count, nor do optimizers (H19) and compilation (H12) where these rules
    speak.

    ## What it could save
    The idle time that such functions fill; half of it is the lower estimate. Recording stacks slows Python itself.

    ## What to do
    In the backward pass: fewer hooks, custom functions that `torch.compile` traces (compiled autograd), or operators
    in C++ or Triton. Elsewhere: `torch.compile` runs without Python between operators; take loops over tensors, logging
    and bookkeeping out of the step.

    ## How to verify
    The functions are gone from the idle time, and the step is shorter without stacks, too.
    """

    code, title, family, section = "H22", "Python code keeps the device waiting", Family.HOST, IDLE
    requires = frozenset({Capability.GPU, Capability.LAUNCHES})
    about_idle = True

    least: float = 0.02

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        found = super().lacking(rank)
        stacks = () if PYTHON_CATEGORY in rank.trace.loaded.tables else ("no Python stacks: profile with_stack=True",)
        return (*found, *stacks)

    def look(self, rank: Rank) -> Evidence | None:
        if rank.share(rank.idle_by(*_OWN)) < self.least:
            return None
        parts = list(_parts(rank))
        time = pd.concat([part.times() for part in parts]).groupby("code").sum() if parts else pd.DataFrame()
        time = time[time["time"] >= self.least * rank.whole] if len(time) else time
        if not len(time):
            return None
        time = time.sort_values("time", ascending=False, kind="stable")
        sets = [_sets(parts, code) for code in time.index.tolist()]
        strings, every = rank.trace.loaded.strings, per(rank)
        columns = (time.index.tolist(), time["time"].tolist(), time["backward"].tolist())
        frames = [
            {
                "name": strings[code],
                "time": idle / every,
                "backward": back / idle,
                "built_in": _built_in(rank, parts, code),
            }
            for code, idle, back in list(zip(*columns, strict=True))[:_MOST_NAMED]
        ]
        name = str(frames[0]["name"])
        spans = rank.spans(sets[0], name=short(name))
        caller = frame_in(rank, spans)
        numbers = {"frames": frames, "number": len(time), "caller": caller if caller != name else ""}
        return Evidence(joined(*sets), numbers, spans)

    def tell(self, found: Found) -> Finding:
        frames, number = found.numbers["frames"], found.numbers["number"]
        first = frames[0]
        what = f"`{short(first['name'])}`" if number == 1 else f"{number} functions"
        said = ", ".join(_words(each, found) for each in frames)
        kind, caller = _kind(first), found.numbers["caller"]
        within = f" The longest such time is in `{short(caller)}`." if caller else ""
        return self.finding(
            found,
            f"Python code keeps the GPU waiting {found.time(found.most)} {found.per}, in {what}",
            evidence=f"The device is idle while the host runs {said} {found.per}: in the function itself, in no "
            f"operator or call of the runtime.{within}",
            advice=_ADVICE[kind],
            assumption="That Python takes no time any more. Recording stacks slows Python itself: it is less without.",
            verify="The function is gone from the idle time, and the step is shorter without stacks, too.",
            snippet=_SNIPPETS[kind],
        )


_BACK, _WRAPPER, _CODE = "backward", "wrapper", "code"
_ADVICE = {
    _BACK: "Take Python out of the backward pass: remove hooks or let one do the work of many, and let `torch.compile` "
    "trace custom functions (compiled autograd), or write them as operators in C++ or Triton.",
    _WRAPPER: "These are PyTorch's own functions around modules and operators: `torch.compile` or CUDA graphs run "
    "without them. Fewer, larger modules help as well.",
    _CODE: "Take what it does out of the step, do it every n steps or for all tensors at once; or let `torch.compile` "
    "trace it, or write it in C++.",
}
_SNIPPETS = {
    _BACK: "torch._dynamo.config.compiled_autograd = True\nmodel = torch.compile(model)  # Its backward pass, too.",
    _WRAPPER: 'model = torch.compile(model, mode="reduce-overhead")',
    _CODE: "model = torch.compile(model)  # Or py-spy record -- python train.py, to see more of it.",
}


def _kind(frame: dict[str, Any]) -> str:
    if 2 * frame["backward"] >= 1:
        return _BACK
    return _WRAPPER if _LIBRARY.search(frame["name"]) else _CODE


def _words(frame: dict[str, Any], found: Found) -> str:
    details = list[str]()
    if 2 * frame["backward"] >= 1:
        details.append("in the backward pass")
    if frame["built_in"]:
        details.append(f"mostly in `{short(frame['built_in'])}`")
    told = f"`{short(frame['name'])}` {found.time(frame['time'])}"
    return f"{told} ({', '.join(details)})" if details else told


class _Part(NamedTuple):
    """Idle time of a lane that Python functions of one thread fill: pieces, each with its function's name code.

    `inner` is the code of what is built in and runs then, -1 for the function itself.
    """

    lane: Lane
    pool: Intervals
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    code: NDArray[np.int64]
    inner: NDArray[np.int64]
    backward: NDArray[np.bool_]

    def times(self) -> pd.DataFrame:
        """Idle time by code, and what of it is in the backward pass."""
        idle = intervals.covered(self.pool, self.start, self.end)
        return pd.DataFrame({"code": self.code, "time": idle, "backward": np.where(self.backward, idle, 0)})


def _sets(parts: list[_Part], code: int) -> Sets:
    """The idle time of one function."""
    found = [
        {part.lane: intervals.intersection(part.pool, intervals.union(part.start[mine], part.end[mine]))}
        for part in parts
        if (mine := part.code == code).any()
    ]
    return joined(*found)


def _built_in(rank: Rank, parts: list[_Part], code: int) -> str:
    """What is built in and takes at least half of a function's idle time, empty without."""
    chosen = [(part, part.code == code) for part in parts]
    inner = np.concatenate([part.inner[mine] for part, mine in chosen])
    idle = np.concatenate([intervals.covered(part.pool, part.start[mine], part.end[mine]) for part, mine in chosen])
    sums = np.bincount(inner + 1, idle)  # The first is the function itself.
    most = int(sums[1:].argmax()) if len(sums) > 1 else -1
    return rank.trace.loaded.strings[most] if most >= 0 and 2 * sums[most + 1] >= idle.sum() else ""


def _parts(rank: Rank) -> Iterator[_Part]:
    """Pieces by lane and by the thread that launches what ends the gap."""
    unfilled, filled = rank.idle_by(Cause.NOTHING), rank.idle_by(Cause.OPERATING, Cause.ANNOTATED)
    for lane in rank.lanes:
        gaps, events = rank.gaps[lane], rank.events[lane]
        launch = events["launch"].to_numpy()[np.searchsorted(events["ts"].to_numpy(), gaps[:, 1])]
        thread = np.where(launch >= 0, rank.trace.launches["thread"].to_numpy()[launch], -1)
        for number in unique_sorted(thread[thread >= 0]).tolist():
            host = _host_rows(rank, lane[1], number)
            runs = {lane: intervals.union(host["ts"].to_numpy(), host["end"].to_numpy())}
            there = joined(unfilled, common(filled, runs))  # Not what only other threads fill.
            pool = intervals.intersection(there.get(lane, intervals.EMPTY), gaps[thread == number])
            if len(pool):
                yield _pieces(rank, lane, number, pool, host)


def _host_rows(rank: Rank, capture: int, thread: int) -> pd.DataFrame:
    """Operators and annotations of a thread, but for steps: name code, level, start and end."""
    host = rank.trace.host
    rows = np.flatnonzero((host["thread"] == thread).to_numpy() & (host["capture"] == capture).to_numpy())
    rows = rows[host["level"].isin(["operator", "annotation"]).to_numpy()[rows]]
    code, strings = host["name"].array.codes[rows], rank.trace.loaded.strings
    steps = [each for each in unique_sorted(code).tolist() if classify.step_number(strings[each]) is not None]
    rows, code = rows[keep := ~np.isin(code, steps)], code[keep]
    taken = {name: host[name].to_numpy()[rows] for name in ("level", "ts", "end")}
    return pd.DataFrame({"code": code, **taken})


def _pieces(rank: Rank, lane: Lane, thread: int, pool: Intervals, host: pd.DataFrame) -> _Part:
    """Cut the idle time of a thread by the innermost of its Python functions and operators."""
    rows = _calls(rank, lane[1], thread, pool, host)
    code, is_python = rows["code"].to_numpy(), rows["python"].to_numpy()
    names = _Names(rank, code)
    own = own_pieces(rows["ts"].to_numpy(), rows["end"].to_numpy())
    tree = pd.DataFrame({"parent": own.parent})
    function = _at_or_around(tree, ~is_python | names.match(_FUNCTION))
    others = "|".join([_OTHERS, *(pattern for claimed, pattern in _CLAIMED.items() if claimed in rank.found)])
    left_out = _at_or_around(tree, names.match(re.compile(others))) != NO_PARENT
    keep = (function != NO_PARENT) & is_python[function] & ~left_out
    backward = _at_or_around(tree, names.match(_BACKWARD)) != NO_PARENT
    inner = np.where(is_python & names.match(_BUILT_IN), code, -1)
    used = keep[own.row]
    row = own.row[used]
    return _Part(lane, pool, own.start[used], own.end[used], code[function[row]], inner[row], backward[row])


def _calls(rank: Rank, capture: int, thread: int, pool: Intervals, host: pd.DataFrame) -> pd.DataFrame:
    """Python functions and operators of a thread that share time with the pool, outside first."""
    table = rank.trace.loaded.tables[PYTHON_CATEGORY]
    mine = np.flatnonzero((table["thread"] == thread) & (table["capture"] == capture))
    ts = table["ts"][mine]
    found = {"code": table["name"][mine], "ts": ts, "end": ts + table["dur"][mine], "python": True}
    operators = host.loc[(host["level"] == "operator").to_numpy(), ["code", "ts", "end"]].assign(python=False)
    both = [each[intervals.touching(pool, each["ts"].to_numpy(), each["end"].to_numpy())]
            for each in (pd.DataFrame(found), operators)]  # fmt: skip
    rows = pd.concat(both, ignore_index=True)
    order = np.lexsort((~rows["python"].to_numpy(), -rows["end"].to_numpy(), rows["ts"].to_numpy()))
    return rows.iloc[order]


def _at_or_around(tree: pd.DataFrame, wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The row itself, if it is wanted, else the innermost wanted one around it, -1 for none."""
    return np.where(wanted, np.arange(len(wanted)), innermost(tree, wanted))


class _Names:
    """Names of rows, each of which is looked at once."""

    def __init__(self, rank: Rank, code: NDArray[Any]) -> None:
        codes = unique_sorted(code)
        self.names = [rank.trace.loaded.strings[each] for each in codes.tolist()]
        self.place = np.searchsorted(codes, code)

    def match(self, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
        """Which rows have a name that matches."""
        return np.fromiter((pattern.search(name) is not None for name in self.names), np.bool_, len(self.names))[
            self.place
        ]
