"""Calls of operators with the kernels that they launch, and with those of their backward pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.call_tree import grafted, sums_under
from htareport.algorithms.sequences import numbers_of
from htareport.rank import kernel_launches
from htareport.rank.host_calls import backward_links, launching_rows, nearest
from htareport.rank.rank import Rank


class Calls(NamedTuple):
    """Operators that launch device work, as codes of names and rows of the host table.

    `kernels` (operator, kernel, dur) by device event, `launches` (operator, op_delay, launch_delay) by launch,
    `sequences` by call of an operator: row, operator, number (equal for equal kernels), first and stop (within `codes`,
    the names of the kernels in order of launch), device, and the delays of the first launch.
    """

    kernels: pd.DataFrame
    launches: pd.DataFrame
    sequences: pd.DataFrame
    codes: NDArray[np.integer[Any]]


def operator_calls(trace: Rank, operators: NDArray[np.int64], events_wanted: NDArray[np.bool_] | None = None) -> Calls:
    """What operators launch; `operators` is the host row of the operator of each device event, -1 for none."""
    events, host = trace.device_events, trace.host
    wanted = operators >= 0 if events_wanted is None else (operators >= 0) & events_wanted
    picked = np.flatnonzero(wanted)
    rows = launching_rows(host, events["launch"].to_numpy()[picked])
    order = np.lexsort((picked, rows, operators[picked]))  # Rows of the host are in order of launch, events of start.
    picked, rows = picked[order], rows[order]
    operator = operators[picked]
    duration, codes = events["dur"].to_numpy()[picked], events["name"].cat.codes.to_numpy()[picked]
    name = kernel_launches.names_of(trace, operator)
    kernels = pd.DataFrame({"operator": name, "kernel": codes, "dur": duration}, copy=False)
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    called = host.at("ts", rows[first])
    op_delay = called - host.at("ts", operator[first])
    launch_delay = np.maximum(events["ts"].to_numpy()[picked[first]] - called, 0)
    launches = pd.DataFrame({"operator": name[first], "op_delay": op_delay, "launch_delay": launch_delay})
    begin = np.flatnonzero(np.diff(operator, prepend=-1))
    at = np.searchsorted(first, begin)
    del picked, rows, order, called, first  # These are as long as the table of device events.
    stop = np.append(begin[1:], len(operator))[: len(begin)]
    owner = np.repeat(np.arange(len(begin)), stop - begin)
    sequences = pd.DataFrame(
        {
            "row": operator[begin],
            "operator": name[begin],
            "number": numbers_of(begin, stop, codes),
            "first": begin,
            "stop": stop,
            "device": kernel_launches.summed(owner, duration, len(begin)),
            "op_delay": op_delay[at],
            "launch_delay": launch_delay[at],
        },
        copy=False,
    )
    return Calls(kernels, launches, sequences, codes)


def backward_work(trace: Rank) -> pd.DataFrame:
    """Device time of forward operators and of their backward pass, by name: operator, calls, forward, backward, total.

    An operator that holds no more work than one directly around it is left out.
    """
    host, events = trace.host, trace.device_events
    branches, onto = backward_links(trace.loaded, host)
    parent = host["parent"]
    rows = launching_rows(host, events["launch"].to_numpy())
    durations = events["dur"].to_numpy()
    if not len(branches):
        return pd.DataFrame({name: np.zeros(0, np.int64) for name in ("operator", *_SUMS)})
    num_forward, forward = sums_under(parent, rows, durations)
    num_both, both = sums_under(grafted(parent, branches, onto), rows, durations)
    around = nearest(host, "operator")
    alike = (around >= 0) & (num_both == num_both[around]) & (num_forward == num_forward[around])
    chosen = np.flatnonzero(host.of_level("operator") & (num_both > num_forward) & ~alike)
    frame = pd.DataFrame(
        {
            "operator": kernel_launches.names_of(trace, chosen),
            "calls": 1,
            "forward": forward[chosen],
            "backward": both[chosen] - forward[chosen],
            "total": both[chosen],
        }
    )
    return frame.groupby("operator")[list(_SUMS)].sum().reset_index()


_SUMS = ("calls", "forward", "backward", "total")
