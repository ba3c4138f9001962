"""Sequences of kernels under operators."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.call_tree import sums_under
from htareport.algorithms.sequences import numbers_of
from htareport.rank import kernel_launches
from htareport.rank.host_calls import launching_rows, nearest
from htareport.rank.rank import Rank

_ENGINE = "autograd::engine::evaluate_function"


def under_operators(trace: Rank, shortest: int, longest: int, most: int) -> pd.DataFrame:
    """Calls of operators by the order of all kernels below them: the `most` rows of largest device time.

    Columns: operator, shapes, sequence (packed), length, count, and device, gaps, host (sums over calls, ns). Of
    operators that hold the same kernels the outermost counts; those of fewer or more kernels than asked for do not.
    """
    host, events = trace.host, trace.device_events
    starts, ends = events["ts"].to_numpy(), events["end"].to_numpy()
    rows = launching_rows(host, events["launch"].to_numpy())
    number, total = sums_under(host["parent"], rows, ends - starts)
    around = nearest(host, "operator")
    wanted = host.of_level("operator") & (number >= shortest) & (number <= longest)
    # Not what holds no more than the operator around it; but the engine's wrappers yield to what they wrap.
    alike, wrapper = (around >= 0) & (number == number[around]) & (number > 0), _wrappers(trace)
    wanted &= ~alike | wrapper[around]
    wanted[around[wrapper[around] & alike & host.of_level("operator")]] = False
    nodes = np.flatnonzero(wanted)
    length, device = number[nodes].astype(np.int64), total[nodes]
    del number, total, around, alike, wrapper, wanted
    kernels, owner = kernel_launches.kernels_under(trace, nodes, length)
    stop = np.cumsum(length)
    codes = events["name"].cat.codes.to_numpy()[kernels]
    reach = pd.Series(ends[kernels]).groupby(owner).cummax().to_numpy()
    gaps = np.maximum(starts[kernels][1:] - reach[:-1], 0)[owner[1:] == owner[:-1]]
    calls = pd.DataFrame(
        {
            "operator": kernel_launches.names_of(trace, nodes),
            "shapes": kernel_launches.shapes_of(trace, nodes),
            "number": numbers_of(stop - length, stop, codes),
            "first": stop - length,
            "length": length,
            "device": device,
            "gaps": kernel_launches.summed(owner[1:][owner[1:] == owner[:-1]], gaps, len(nodes)),
            "host": host.at("dur", nodes),
        }
    )
    groups = calls.groupby(["operator", "shapes", "number"], observed=True)
    table = groups.agg(
        first=("first", "first"),
        length=("length", "first"),
        count=("length", "size"),
        device=("device", "sum"),
        gaps=("gaps", "sum"),
        host=("host", "sum"),
    ).reset_index()
    order = ["device", "operator", "shapes", "number"]
    table = table.sort_values(order, ascending=[False, True, True, True], ignore_index=True).head(most)
    texts = kernel_launches.packed(codes[a : a + n] for a, n in zip(table["first"], table["length"], strict=True))
    return table.assign(
        operator=kernel_launches.texts(trace, table["operator"]),
        shapes=table["shapes"].astype(object),
        sequence=pd.Series(texts, dtype=object),
    ).drop(columns=["first", "number"])


def _wrappers(trace: Rank) -> NDArray[np.bool_]:
    """Which rows of the host table are the autograd engine's own around a function of the backward pass."""
    prefix = np.array([name.startswith(_ENGINE) for name in trace.loaded.strings], np.bool_)
    wrapper: NDArray[np.bool_] = prefix[trace.host["name"]]
    return wrapper
