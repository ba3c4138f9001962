"""How many blocks kernels have, and how many processors a device has for them."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.analyses.modelled import NONE
from htareport.rules.rank import Rank
from htareport.trace.kept import kept
from htareport.trace.metadata import as_int


@kept
def grid_codes(rank: Rank) -> NDArray[np.int64]:
    """Code of the grid of each device event, -1 where it has none."""
    events = rank.trace.device_events
    source, row = events["source"].to_numpy(), events["row"].to_numpy()
    codes = np.full(len(events), NONE, np.int64)
    for number, table in enumerate(rank.trace.loaded.tables.values()):
        if "grid" in table:
            mine = source == number
            codes[mine] = table["grid"][row[mine]]
    return codes


def blocks(rank: Rank) -> NDArray[np.int64]:
    """Number of blocks of each device event, -1 where it is not known."""
    distinct, inverse = np.unique(grid_codes(rank), return_inverse=True)
    strings = rank.trace.loaded.strings
    counts = [_blocks(strings[code]) if code != NONE else NONE for code in distinct.tolist()]
    return np.array(counts, np.int64)[inverse]


def _blocks(written: str) -> int:
    try:
        sizes = json.loads(written)
    except ValueError:
        return NONE
    is_grid = isinstance(sizes, list) and sizes and all(type(size) is int and size > 0 for size in sizes)
    return prod(sizes) if is_grid else NONE


def processors(rank: Rank) -> dict[Any, int]:
    """Number of multiprocessors (compute units) of each device; without those for which the trace does not tell."""
    told = dict[int, int]()
    for capture in rank.trace.captures:
        listed = capture.meta.get("deviceProperties")
        for place, device in enumerate(listed if isinstance(listed, list) else ()):
            count = as_int(device.get("numSms")) if isinstance(device, dict) else None
            number = as_int(device.get("id")) if isinstance(device, dict) else None
            if count is not None and count > 0:
                told[place if number is None else number] = count
    alike = next(iter(told.values())) if len(set(told.values())) == 1 else None
    each = {device: told.get(device, alike) for device in rank.trace.devices}
    return {device: count for device, count in each.items() if count is not None}
