"""What launched the kernels, and sequences of kernels as text: shared by the analyses of operators and sequences."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import intervals
from htareport.rank.cached import cached_on_rank
from htareport.rank.host_calls import launching_rows, nearest
from htareport.rank.rank import Rank
from htareport.rank.window import ALL

ARROW = " → "
NONE = -1
_US = 1000
_MOST_NAMES = 32  # In the text of a sequence.
_MOST_SHAPES = 6  # In that of an operator's inputs: those of fused optimizers are thousands.

SEQUENCE_HELP = (
    f"Kernels, copies and fills in order of start, the first {_MOST_NAMES} written out; ×n: n times in a row."
)
SHAPES_HELP = f"Shapes of its tensor inputs, the first {_MOST_SHAPES}; empty unless recorded with record_shapes=True."


@cached_on_rank
def operator_rows(trace: Rank) -> NDArray[np.int64]:
    """Row of the host table of the innermost operator around the launch of each device event, -1 for none."""
    return around(trace, nearest(trace.host, "operator"))


def around(trace: Rank, nearest_rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """What `nearest` found for the launch of each device event, -1 for none."""
    around = launching_rows(trace.host, trace.device_events["launch"].to_numpy())
    there = around != NONE
    around[there] = nearest_rows[around[there]]
    return around


def names_of(trace: Rank, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Name codes of rows of the host table."""
    codes: NDArray[np.int64] = trace.host["name"][rows].astype(np.int64)
    return codes


def texts(trace: Rank, codes: Iterable[int]) -> list[str]:
    """Names of name codes."""
    strings = trace.loaded.strings
    return [strings[code] for code in codes]


def names_or_none(trace: Rank, rows: NDArray[np.int64]) -> list[str | None]:
    """Names of rows of the host table, None for row -1."""
    there = iter(texts(trace, names_of(trace, rows[rows >= 0])))
    return [next(there) if row >= 0 else None for row in rows.tolist()]


def kernels_under(
    trace: Rank, nodes: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Device events launched at or below rows of the host table, in order of start; and of which (by place in `nodes`).

    `counts` says how many there are of each. What lies within a row follows it in the table.
    """
    row = launching_rows(trace.host, trace.device_events["launch"].to_numpy())
    order = np.argsort(row, kind="stable")
    begin = np.searchsorted(row[order], nodes)
    index, owner = runs_of(begin, begin + counts)
    kernels_under = order[index]
    by_start = np.argsort(owner * (len(order) + 1) + kernels_under, kind="stable")
    return kernels_under[by_start], owner


def shapes_of(trace: Rank, rows: NDArray[np.int64]) -> pd.Categorical:
    """Shapes of the inputs of operators (rows of the host table) as text, empty where they were not recorded."""
    inverse, used = pd.factorize(codes_of(trace, rows, "shapes"))
    labels = ["" if code == NONE else shape_text(trace.loaded.strings[code]) for code in used.tolist()]
    merged, distinct = pd.factorize(np.array(labels, object))
    return pd.Categorical.from_codes(merged[inverse], categories=pd.Index(distinct, dtype=object))


def codes_of(trace: Rank, rows: NDArray[np.int64], column: str) -> NDArray[np.int64]:
    """Codes of an argument of operators (rows of the host table), -1 where it was not recorded."""
    source, row = (trace.host.at(name, rows) for name in ("source", "row"))
    codes = np.full(len(rows), NONE, np.int64)
    for number, table in enumerate(trace.loaded.tables.values()):
        if column in table:
            mine = source == number
            codes[mine] = table[column][row[mine]]
    return codes


def distinct(*columns: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows with the first of each combination of values, in order, and the number of the combination of each row."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes, values = pd.factorize(column)
        number = pd.factorize(number * max(len(values), 1) + codes)[0]
    first = np.flatnonzero(~pd.Series(number).duplicated().to_numpy())
    return first, number


def shape_text(written: str) -> str:
    """Shapes of inputs, as text that is read rather than parsed."""
    try:
        shapes = json.loads(written)
    except ValueError:
        return ""
    shape_text = [each for each in map(_one_shape, shapes if isinstance(shapes, list) else []) if each]
    more = f" … {len(shape_text) - _MOST_SHAPES} more" if len(shape_text) > _MOST_SHAPES else ""
    return ", ".join(shape_text[:_MOST_SHAPES]) + more


def _one_shape(shape: Any) -> str:
    if not isinstance(shape, list):
        return ""
    if any(isinstance(each, list) for each in shape):  # A list of tensors.
        inner = [each for each in map(_one_shape, shape) if each]
        return f"[{', '.join(inner[:_MOST_SHAPES])}{' …' if len(inner) > _MOST_SHAPES else ''}]" if inner else ""
    return "×".join(map(str, shape))


def packed(sequences: Iterable[NDArray[Any]]) -> list[str]:
    """Sequences of name codes as short text, to be sent with the names once (see `names_frame`)."""
    return [
        ",".join(map(str, sequence[:_MOST_NAMES].tolist()))
        + (f"+{len(sequence) - _MOST_NAMES}" * (len(sequence) > _MOST_NAMES))
        for sequence in sequences
    ]


def names_frame(trace: Rank, sequences: Iterable[str]) -> pd.DataFrame:
    """The names that packed sequences refer to: code, name."""
    codes = sorted({int(code) for text in sequences for code in text.partition("+")[0].split(",")})
    return pd.DataFrame({"code": np.array(codes, np.int64), "name": pd.Series(texts(trace, codes), dtype=object)})


def unpacked(frame: pd.DataFrame, names: pd.DataFrame) -> pd.Series[Any]:
    """Packed sequences of several ranks as text: names with arrows between."""
    by_rank = {
        rank: dict(zip(map(str, mine["code"].tolist()), mine["name"].tolist(), strict=True))
        for rank, mine in names.groupby("rank")
    }
    out = [
        _text(text, by_rank[rank])
        for rank, text in zip(frame["rank"].tolist(), frame["sequence"].tolist(), strict=True)
    ]
    return pd.Series(out, index=frame.index, dtype=object)


def _text(sequence: str, names: dict[str, str]) -> str:
    codes, _, more = sequence.partition("+")
    runs = ((names[code], len(list(run))) for code, run in groupby(codes.split(",")))
    written = [f"{name} ×{times}" if times > 1 else name for name, times in runs]
    return ARROW.join([*written, *([f"{more} more"] if more else [])])


def runs_of(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices start … stop-1 of each range one after the other, and the number of the range of each."""
    lengths = stops - starts
    owner = np.repeat(np.arange(len(starts)), lengths)
    offsets = np.cumsum(lengths) - lengths
    return np.arange(len(owner)) - (offsets - starts)[owner], owner


def summed(owner: NDArray[np.int64], values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Exact sums of integers by owner (0 to size-1)."""
    out = np.zeros(size, np.int64)
    np.add.at(out, owner, values)
    return out


def lanes(trace: Rank, pause: float) -> tuple[pd.DataFrame, NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Device events by stream and start, the gap behind each, what of it the device is idle, and its stretch.

    A stretch is a stream of a capture up to a pause (µs) or, where only some steps are looked at, the end of a step.
    Gaps are 0 at the ends of stretches.
    """
    taken = ["name", "ts", "end", "dur", "lane", "device", "stream", "step", "capture"]
    events = trace.device_events[taken].sort_values(["capture", "lane"], kind="stable")
    starts = events["ts"].to_numpy()
    reach = events.groupby(["capture", "lane"])["end"].cummax().to_numpy()
    broken = np.ones(len(events), np.bool_)
    broken[:-1] = (np.diff(events["lane"]) != 0) | (np.diff(events["capture"]) != 0)
    gaps, idle = np.zeros(len(events), np.int64), np.zeros(len(events), np.int64)
    gaps[:-1] = np.where(broken[:-1], 0, np.maximum(starts[1:] - reach[:-1], 0))
    broken |= gaps > pause * _US
    if trace.window != ALL:
        broken[:-1] |= np.diff(events["step"]) != 0
    gaps[broken] = 0
    capture, device = events["capture"].to_numpy(), pd.factorize(events["device"])[0]
    for there in trace.devices.values():
        mine = device == device[events.index.get_indexer(there.index[:1])[0]]
        for number, union in enumerate(trace.busy_by_capture(there)):
            at = np.flatnonzero(mine & (capture == number) & (gaps > 0))
            idle[at] = gaps[at] - intervals.covered(union, reach[at], reach[at] + gaps[at])
    return events, gaps, idle, np.cumsum(broken) - broken
