"""How kernels were launched, and what a device has for them: grids, blocks, registers, shared memory, processors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.occupancy import WARP, Processor, Resident, resident
from htareport.rank import kernel_launches
from htareport.rank.cached import cached_until_release
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank
from htareport.rows.metadata import as_int

_SIZES = ("grid", "block", "registers", "shared_memory")


def _column(rank: Rank, name: str, mine: NDArray[np.int64] | None = None, missing: float = NONE) -> NDArray[Any]:
    """What device events (by their places, or all) have in a column of their table, `missing` where they have none."""
    events = rank.device_events
    source, row = (events[key].to_numpy() for key in ("source", "row"))
    if mine is not None:
        source, row = source[mine], row[mine]
    column = np.full(len(source), missing, np.float64 if isinstance(missing, float) else np.int64)
    for number, table in enumerate(rank.loaded.tables.values()):
        if name in table:
            there = source == number
            column[there] = table[name][row[there]]
    return column


@cached_until_release
def grid_codes(rank: Rank) -> NDArray[np.int64]:
    """Code of the grid of each device event, -1 where it has none."""
    return _column(rank, "grid")


def blocks(rank: Rank) -> NDArray[np.int64]:
    """Number of blocks of each device event, -1 where it is not known."""
    distinct, inverse = np.unique(grid_codes(rank), return_inverse=True)
    strings = rank.loaded.strings
    counts = [_product(strings[code]) if code != NONE else NONE for code in distinct.tolist()]
    return np.array(counts, np.int64)[inverse]


def occupancy(rank: Rank, mine: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of a processor's warps that device events (by their places) take as recorded, nan where they have none.

    The profiler writes 0 where it could not tell, as for kernels that opt in to more shared memory.
    """
    occupancy = _column(rank, "occupancy", mine, np.nan) / 100
    return np.where(occupancy > 0, occupancy, np.nan)


def _product(written: str) -> int:
    try:
        sizes = json.loads(written)
    except ValueError:
        return NONE
    is_size = isinstance(sizes, list) and sizes and all(type(size) is int and size > 0 for size in sizes)
    return prod(sizes) if is_size else NONE


def processors(rank: Rank) -> dict[Any, int]:
    """Number of multiprocessors (compute units) of each device; without those for which the trace does not tell."""
    counts = {device: as_int(told.get("numSms")) for device, told in _told(rank, "numSms").items()}
    return {device: count for device, count in counts.items() if count is not None and count > 0}


def _told(rank: Rank, needed: str) -> dict[Any, Mapping[str, Any]]:
    """What the trace tells of each device, as far as it tells that; where all are alike, of each the same."""
    told = dict[int, Mapping[str, Any]]()
    for capture in rank.captures:
        listed = capture.meta.get("deviceProperties")
        for place, device in enumerate(listed if isinstance(listed, list) else ()):
            number = as_int(device.get("id")) if isinstance(device, dict) else None
            if isinstance(device, dict) and (as_int(device.get(needed)) or 0) > 0:
                told[place if number is None else number] = device
    alike = next(iter(told.values())) if len({as_int(each[needed]) for each in told.values()}) == 1 else None
    each = {device: told.get(device, alike) for device in rank.devices}
    return {device: properties for device, properties in each.items() if properties is not None}


def _processor(told: Mapping[str, Any]) -> Processor | None:
    """The limits of one multiprocessor; None where the trace does not tell all, as for AMD's."""
    keys = ("computeMajor", "computeMinor", "maxThreadsPerMultiprocessor", "regsPerMultiprocessor",
            "sharedMemPerMultiprocessor")  # fmt: skip
    major, minor, threads, registers, shared_memory = (as_int(told.get(key)) for key in keys)
    if major is None or minor is None or not threads or not registers or not shared_memory:
        return None
    return Processor((major, minor), threads, registers, shared_memory)


def unknown_processors(rank: Rank) -> tuple[str, ...]:
    """Words for a rank of which the trace does not tell what fits on a processor; nothing where it does."""
    if not any(_processor(told) for told in _told(rank, "numSms").values()):
        return ("the trace does not tell what a processor of its devices holds (deviceProperties)",)
    if not any((table["registers"] >= 0).any() for table in rank.loaded.tables.values() if "registers" in table):
        return ("the trace does not tell of kernels how many registers they take",)
    return ()


class Launched(NamedTuple):
    """How a kernel was launched: what fits on a processor (None unknown), what it asks for (-1 unknown), on what."""

    held: Resident | None
    blocks: int
    threads: int
    registers: int
    shared_memory: int
    processors: int  # 0: unknown.
    most_warps: int  # That a processor holds; 0: unknown.

    @property
    def per_processor(self) -> float:
        """Blocks for each processor, nan where that is not known."""
        return self.blocks / self.processors if self.blocks > 0 and self.processors else np.nan

    @property
    def waves(self) -> float:
        """How often it fills the device with blocks, at least; nan where that is not known."""
        return self.per_processor / self.held.blocks if self.held else np.nan


def launches_of(rank: Rank, mine: NDArray[np.int64]) -> tuple[list[Launched], NDArray[np.int64]]:
    """The distinct ways in which device events (by their places) were launched, and which each has."""
    device_of, devices = pd.factorize(rank.device_events["device"].to_numpy()[mine])
    columns = [_column(rank, name, mine) for name in _SIZES]
    first, number = kernel_launches.distinct(*columns, device_of)
    told = _told(rank, "numSms")
    rows = (
        _launched(rank, told.get(devices[device_of[at]], {}), [int(column[at]) for column in columns])
        for at in first.tolist()
    )
    return list(rows), number


def _launched(rank: Rank, told: Mapping[str, Any], row: list[int]) -> Launched:
    grid, block, registers, shared_memory = row
    strings, processor = rank.loaded.strings, _processor(told)
    blocks, threads = (_product(strings[code]) if code != NONE else NONE for code in (grid, block))
    held = resident(processor, threads, registers, shared_memory) if processor else None
    most = processor.threads // WARP if processor else 0
    return Launched(held, blocks, threads, registers, shared_memory, as_int(told.get("numSms")) or 0, most)
