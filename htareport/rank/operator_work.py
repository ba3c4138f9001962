"""Operator calls whose FLOPs and bytes follow from their arguments, with device time and the limits of the device."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.work import WORKING, Call, Work, work_of
from htareport.rank import kernel_launches
from htareport.rank.cached import cached_on_rank
from htareport.rank.device_peaks import Device, Precision, device_of
from htareport.rank.host_calls import innermost
from htareport.rank.precision import precision_of
from htareport.rank.rank import Rank

NONE = kernel_launches.NONE
_SIDE = re.compile(r"void at::native|Mem(?:cpy|set)\b")  # Casts, copies and sums around a product or convolution.
_NS = 1e9


class Signature(NamedTuple):
    """An operator with its shapes and what it computes, which is None where its arguments do not tell."""

    name: str
    shapes: str
    work: Work | None


@dataclass(frozen=True)
class Modelled:
    """Calls of operators with known arithmetic.

    `calls` has a row per call with device work: row (of the host table), signature (index into `signatures`), device,
    capture, step (-1 outside), event (row of its longest device event; a copy or sum only where there is nothing else)
    and kernel (name code of that), precision (index into Precision, -1 unknown), time (device time of all that it
    launched, ns), by_compute and by_memory (what its arithmetic and its bytes take at the device's peak, ns; nan
    unknown). `owner` is the call of each device event, -1 for none.
    """

    calls: pd.DataFrame
    signatures: tuple[Signature, ...]
    owner: NDArray[np.int64]

    @property
    def roof(self) -> NDArray[np.float64]:
        """The shortest time that its device can take for each call, ns; nan where that is not known."""
        roof: NDArray[np.float64] = np.maximum(self.calls["by_compute"].to_numpy(), self.calls["by_memory"].to_numpy())
        return roof

    def works(self, name: str) -> NDArray[np.float64]:
        """Return the operations (`flops`) or `bytes` of each call; nan where they are not known."""
        by_signature = [getattr(signature.work, name) if signature.work else np.nan for signature in self.signatures]
        works: NDArray[np.float64] = np.array(by_signature, np.float64)[self.calls["signature"].to_numpy()]
        return works


@cached_on_rank
def modelled(rank: Rank) -> Modelled:
    """Calls of operators with known arithmetic, each with all the device work that it launches."""
    events = rank.device_events
    rows = kernel_launches.around(rank, innermost(rank.host, _is_counted(rank)))
    event_rows = np.flatnonzero(rows != NONE)
    used, first, inverse = np.unique(rows[event_rows], return_index=True, return_inverse=True)
    owner = np.full(len(events), NONE, np.int64)
    owner[event_rows] = inverse
    signatures, number = _signatures(rank, used)
    duration, name = events["dur"].to_numpy()[event_rows], events["name"].cat.codes.to_numpy()[event_rows]
    is_side = np.array([_SIDE.match(text) is not None for text in rank.loaded.strings] or [False])[name]
    longest = np.lexsort((event_rows, -duration, is_side, inverse))  # Of each call the longest comes first.
    firsts = np.flatnonzero(np.diff(inverse[longest], prepend=-1))
    calls = pd.DataFrame(
        {
            "row": used,
            "signature": number,
            **{key: events[key].to_numpy()[event_rows[first]] for key in ("device", "capture", "step")},
            "kernel": name[longest][firsts].astype(np.int64),
            "event": event_rows[longest][firsts],
            "time": kernel_launches.summed(inverse, duration, len(used)),
        }
    )
    calls["precision"] = _precisions(rank, signatures, calls)
    calls["by_compute"], calls["by_memory"] = _limits(rank, signatures, calls)
    return Modelled(calls, signatures, owner)


def _is_counted(rank: Rank) -> NDArray[np.bool_]:
    """Which rows of the host table are operators with work.

    Where one calls another (a convolution that multiplies matrices) the outer one counts. But an operator calls itself
    where autocast changes its types: then the inner one counts.
    """
    host = rank.host
    has_work = np.array([name in WORKING for name in rank.loaded.strings] or [False], np.bool_)
    codes = host["name"]
    is_counted: NDArray[np.bool_] = has_work[codes] & host.of_level("operator")
    rows = np.flatnonzero(is_counted)
    around = innermost(host, is_counted)[rows]
    is_counted[around[(around != NONE) & (codes[around] == codes[rows])]] = False
    is_counted[np.flatnonzero(is_counted)[innermost(host, is_counted)[is_counted] != NONE]] = False
    return is_counted


def _signatures(rank: Rank, rows: NDArray[np.int64]) -> tuple[tuple[Signature, ...], NDArray[np.int64]]:
    """Return the distinct signatures of rows of the host table, and the index of that of each row."""
    columns = [kernel_launches.codes_of(rank, rows, column) for column in ("shapes", "types", "inputs")]
    columns = [kernel_launches.names_of(rank, rows), *columns]
    first, number = kernel_launches.distinct(*columns)
    return tuple(_signature(rank, [int(column[row]) for column in columns]) for row in first.tolist()), number


def _signature(rank: Rank, codes: list[int]) -> Signature:
    strings = rank.loaded.strings
    name, shapes = strings[codes[0]], kernel_launches.shape_text(strings[codes[1]]) if codes[1] != NONE else ""
    return Signature(name, shapes, work_of(name, Call(*(_list(strings, code) for code in codes[1:]))))


def _list(strings: list[str], code: int) -> list[Any]:
    try:
        arguments = json.loads(strings[code]) if code != NONE else []
    except ValueError:
        return []
    return arguments if isinstance(arguments, list) else []


def _precisions(rank: Rank, signatures: tuple[Signature, ...], calls: pd.DataFrame) -> NDArray[np.int64]:
    """Return the index into Precision of the arithmetic of each call, -1 unknown."""
    order = list(Precision)
    keys = list(zip(calls["signature"].tolist(), calls["kernel"].tolist(), strict=True))
    by_key = dict[tuple[int, int], int]()
    for signature, kernel in dict.fromkeys(keys):
        work = signatures[signature].work
        precision = precision_of(work.dtype, rank.loaded.strings[kernel]) if work else None
        by_key[signature, kernel] = order.index(precision) if precision else NONE
    return np.array([by_key[key] for key in keys], np.int64)


def _limits(
    rank: Rank, signatures: tuple[Signature, ...], calls: pd.DataFrame
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what the arithmetic and the bytes of each call take at its device's peak, ns; nan unknown."""
    limits, order = limits_of(rank, calls["device"].unique()), list(Precision)
    keys = list(zip(calls["signature"].tolist(), calls["precision"].tolist(), calls["device"].tolist(), strict=True))
    by_key = dict.fromkeys(keys, (np.nan, np.nan))
    for signature, precision, device in by_key:
        work, limit = signatures[signature].work, limits[device]
        peak = limit.peaks.get(order[precision]) if limit and precision != NONE else None
        if work and limit and peak:
            times = work.flops / peak * _NS, work.bytes / limit.bandwidth * _NS
            by_key[signature, precision, device] = times
    times_by_call = np.array([by_key[key] for key in keys], np.float64).reshape(-1, 2)
    return times_by_call[:, 0], times_by_call[:, 1]


def limits_of(rank: Rank, devices: Iterable[Any]) -> dict[Any, Device | None]:
    """Limits of each device of a rank, None where they are not known."""
    return {device: device_of(model_of(rank, device)) for device in devices}


def model_of(rank: Rank, device: Any) -> str:
    """Return the name of a device in the trace. ROCm may number those of kernels otherwise: where all agree, theirs."""
    names = {name for capture in rank.captures for name in capture.devices.values()}
    return rank.device_name(device) or (next(iter(names)) if len(names) == 1 else "")
