"""Calls of operators whose arithmetic is known from their arguments, with the device time that they took."""

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
    """An operator with the arguments that tell its work, which is None where they do not."""

    name: str
    shapes: str
    work: Work | None


@dataclass(frozen=True)
class Modelled:
    """What operators with known arithmetic did on a rank's devices.

    `calls` has a row per call with device work: row (of the host table), signature (place in `signatures`), device,
    capture, step (-1 outside), event (its longest device event, of those that are no copies or sums if there are any)
    and kernel (name code of that), precision (its place in Precision, -1 unknown), time (device time of all that it
    launched, ns), by_compute and by_memory (what its arithmetic and its bytes take at the device's peak, ns; nan
    unknown). `owner` is the call of each device event, -1 for none.
    """

    calls: pd.DataFrame
    signatures: tuple[Signature, ...]
    owner: NDArray[np.int64]

    @property
    def roof(self) -> NDArray[np.float64]:
        """What each call takes at least on its device, ns; nan where that is not known."""
        roof: NDArray[np.float64] = np.maximum(self.calls["by_compute"].to_numpy(), self.calls["by_memory"].to_numpy())
        return roof

    def works(self, name: str) -> NDArray[np.float64]:
        """Operations (`flops`) or `bytes` of each call; nan where its work is not known."""
        each = [getattr(signature.work, name) if signature.work else np.nan for signature in self.signatures]
        works: NDArray[np.float64] = np.array(each, np.float64)[self.calls["signature"].to_numpy()]
        return works


@cached_on_rank
def modelled(trace: Rank) -> Modelled:
    """Find the calls, each with all the device work that it launches."""
    events = trace.device_events
    rows = kernel_launches.around(trace, innermost(trace.host, _counting(trace)))
    there = np.flatnonzero(rows != NONE)
    used, first, inverse = np.unique(rows[there], return_index=True, return_inverse=True)
    owner = np.full(len(events), NONE, np.int64)
    owner[there] = inverse
    signatures, number = _signatures(trace, used)
    duration, name = events["dur"].to_numpy()[there], events["name"].cat.codes.to_numpy()[there]
    is_side = np.array([_SIDE.match(text) is not None for text in trace.loaded.strings] or [False])[name]
    longest = np.lexsort((there, -duration, is_side, inverse))  # Of each call the longest comes first.
    firsts = np.flatnonzero(np.diff(inverse[longest], prepend=-1))
    calls = pd.DataFrame(
        {
            "row": used,
            "signature": number,
            **{key: events[key].to_numpy()[there[first]] for key in ("device", "capture", "step")},
            "kernel": name[longest][firsts].astype(np.int64),
            "event": there[longest][firsts],
            "time": kernel_launches.summed(inverse, duration, len(used)),
        }
    )
    calls["precision"] = _precisions(trace, signatures, calls)
    calls["by_compute"], calls["by_memory"] = _limits(trace, signatures, calls)
    return Modelled(calls, signatures, owner)


def _counting(trace: Rank) -> NDArray[np.bool_]:
    """Which rows of the host table are operators with work.

    Of operators within each other (a convolution that multiplies matrices) the outermost counts; but one that calls
    itself does so with other types, which autocast gives it, and then the inner one counts.
    """
    host = trace.host
    working = np.array([name in WORKING for name in trace.loaded.strings] or [False], np.bool_)
    codes = host["name"]
    counting: NDArray[np.bool_] = working[codes] & host.of_level("operator")
    rows = np.flatnonzero(counting)
    around = innermost(host, counting)[rows]
    counting[around[(around != NONE) & (codes[around] == codes[rows])]] = False
    counting[np.flatnonzero(counting)[innermost(host, counting)[counting] != NONE]] = False
    return counting


def _signatures(trace: Rank, rows: NDArray[np.int64]) -> tuple[tuple[Signature, ...], NDArray[np.int64]]:
    """The distinct ones among rows of the host table, and which each has."""
    columns = [kernel_launches.codes_of(trace, rows, column) for column in ("shapes", "types", "inputs")]
    columns = [kernel_launches.names_of(trace, rows), *columns]
    first, number = kernel_launches.distinct(*columns)
    return tuple(_signature(trace, [int(column[row]) for column in columns]) for row in first.tolist()), number


def _signature(trace: Rank, codes: list[int]) -> Signature:
    strings = trace.loaded.strings
    name, shapes = strings[codes[0]], kernel_launches.shape_text(strings[codes[1]]) if codes[1] != NONE else ""
    return Signature(name, shapes, work_of(name, Call(*(_list(strings, code) for code in codes[1:]))))


def _list(strings: list[str], code: int) -> list[Any]:
    try:
        found = json.loads(strings[code]) if code != NONE else []
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _precisions(trace: Rank, signatures: tuple[Signature, ...], calls: pd.DataFrame) -> NDArray[np.int64]:
    """Place of the arithmetic of each call in Precision, -1 unknown."""
    places = {precision: place for place, precision in enumerate(Precision)}
    pairs = list(zip(calls["signature"].tolist(), calls["kernel"].tolist(), strict=True))
    precisions = dict[tuple[int, int], int]()
    for pair in dict.fromkeys(pairs):
        work = signatures[pair[0]].work
        precision = precision_of(work.dtype, trace.loaded.strings[pair[1]]) if work else None
        precisions[pair] = places[precision] if precision else NONE
    return np.array([precisions[pair] for pair in pairs], np.int64)


def _limits(
    trace: Rank, signatures: tuple[Signature, ...], calls: pd.DataFrame
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    devices = limits_of(trace, calls["device"].unique())
    order, found = list(Precision), dict[tuple[Any, ...], tuple[float, float]]()
    keys = list(zip(calls["signature"].tolist(), calls["precision"].tolist(), calls["device"].tolist(), strict=True))
    for key in dict.fromkeys(keys):
        work, device = signatures[key[0]].work, devices[key[2]]
        peak = device.peaks.get(order[key[1]]) if device and key[1] != NONE else None
        found[key] = (np.nan, np.nan)
        if work and device and peak:
            found[key] = work.flops / peak * _NS, work.bytes / device.bandwidth * _NS
    both = np.array([found[key] for key in keys], np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def limits_of(trace: Rank, devices: Iterable[Any]) -> dict[Any, Device | None]:
    """Limits of each device of a rank, None where they are not known."""
    return {device: device_of(model_of(trace, device)) for device in devices}


def model_of(trace: Rank, device: Any) -> str:
    """What the trace calls a device. ROCm may count devices otherwise for kernels; no matter, if all are alike."""
    names = {name for capture in trace.captures for name in capture.devices.values()}
    return trace.device_name(device) or (next(iter(names)) if len(names) == 1 else "")
