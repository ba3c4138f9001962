"""Launch configurations of kernels (grid, block, registers, shared memory) and the processors of their devices."""

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

_CONFIG_COLUMNS = ("grid", "block", "registers", "shared_memory")


def _column(rank: Rank, name: str, event_rows: NDArray[np.int64] | None = None, missing: float = NONE) -> NDArray[Any]:
    """Return a column of the trace's tables for these device events, or for all; `missing` where they have none."""
    events = rank.device_events
    source, row = (events[key].to_numpy() for key in ("source", "row"))
    if event_rows is not None:
        source, row = source[event_rows], row[event_rows]
    column = np.full(len(source), missing, np.float64 if isinstance(missing, float) else np.int64)
    for number, table in enumerate(rank.loaded.tables.values()):
        if name in table:
            is_of_table = source == number
            column[is_of_table] = table[name][row[is_of_table]]
    return column


@cached_until_release
def grid_codes(rank: Rank) -> NDArray[np.int64]:
    """Code of the grid of each device event, -1 where it has none."""
    return _column(rank, "grid")


def blocks(rank: Rank) -> NDArray[np.int64]:
    """Number of blocks of each device event, -1 where it is not known."""
    distinct, inverse = np.unique(grid_codes(rank), return_inverse=True)
    return np.array([_product(rank, code) for code in distinct.tolist()], np.int64)[inverse]


def occupancy(rank: Rank, event_rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Recorded occupancy of these device events, as a share of a processor's warps; nan where they have none.

    The profiler writes 0 where it could not tell, as for kernels that opt in to more shared memory.
    """
    occupancy = _column(rank, "occupancy", event_rows, np.nan) / 100
    return np.where(occupancy > 0, occupancy, np.nan)


def _product(rank: Rank, code: int) -> int:
    """Multiply the sizes of a grid or block; -1 without a code or sizes."""
    try:
        sizes = json.loads(rank.loaded.strings[code]) if code != NONE else []
    except ValueError:
        return NONE
    is_size = isinstance(sizes, list) and sizes and all(type(size) is int and size > 0 for size in sizes)
    return prod(sizes) if is_size else NONE


def processors(rank: Rank) -> dict[Any, int]:
    """Number of multiprocessors (compute units) of each device whose number the trace records."""
    return {device: as_int(properties["numSms"]) or 0 for device, properties in _device_properties(rank).items()}


def _device_properties(rank: Rank) -> dict[Any, Mapping[str, Any]]:
    """Recorded properties of each device with a number of processors; if all have as many, those of any for each."""
    recorded = dict[int, Mapping[str, Any]]()
    for capture in rank.captures:
        listed = capture.meta.get("deviceProperties")
        for index, properties in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(properties, dict) and (as_int(properties.get("numSms")) or 0) > 0:
                number = as_int(properties.get("id"))
                recorded[index if number is None else number] = properties
    counts = {as_int(properties["numSms"]) for properties in recorded.values()}
    common = next(iter(recorded.values())) if len(counts) == 1 else None
    by_device = {device: recorded.get(device, common) for device in rank.devices}
    return {device: properties for device, properties in by_device.items() if properties is not None}


def _processor(properties: Mapping[str, Any]) -> Processor | None:
    """The limits of one multiprocessor; None where the trace does not record all, as for AMD's."""
    keys = ("computeMajor", "computeMinor", "maxThreadsPerMultiprocessor", "regsPerMultiprocessor",
            "sharedMemPerMultiprocessor")  # fmt: skip
    major, minor, threads, registers, shared_memory = (as_int(properties.get(key)) for key in keys)
    if major is None or minor is None or not threads or not registers or not shared_memory:
        return None
    return Processor((major, minor), threads, registers, shared_memory)


def unknown_processors(rank: Rank) -> tuple[str, ...]:
    """Words for what the trace lacks to tell how many blocks fit on a processor; empty where it lacks nothing."""
    if not any(_processor(properties) for properties in _device_properties(rank).values()):
        return ("the trace does not tell what a processor of its devices holds (deviceProperties)",)
    if not any((table["registers"] >= 0).any() for table in rank.loaded.tables.values() if "registers" in table):
        return ("the trace does not tell of kernels how many registers they take",)
    return ()


class LaunchConfig(NamedTuple):
    """Launch configuration of a kernel (-1 unknown), the blocks that fit on a processor, and the device's limits."""

    resident: Resident | None  # None: unknown.
    blocks: int
    threads: int
    registers: int
    shared_memory: int
    processors: int  # 0: unknown.
    max_warps: int  # That a processor holds; 0: unknown.

    @property
    def blocks_per_processor(self) -> float:
        """Blocks of the grid for each processor, nan where that is not known."""
        return self.blocks / self.processors if self.blocks > 0 and self.processors else np.nan

    @property
    def waves(self) -> float:
        """How often its blocks fill the device, at least; nan where that is not known."""
        return self.blocks_per_processor / self.resident.blocks if self.resident else np.nan


def launch_configs(rank: Rank, event_rows: NDArray[np.int64]) -> tuple[list[LaunchConfig], NDArray[np.int64]]:
    """Return the distinct launch configurations of these device events, and the number of the one that each has."""
    device_codes, devices = pd.factorize(rank.device_events["device"].to_numpy()[event_rows])
    columns = [_column(rank, name, event_rows) for name in _CONFIG_COLUMNS]
    first, number = kernel_launches.distinct(*columns, device_codes)
    by_device = _device_properties(rank)
    configs = (
        _launch_config(rank, by_device.get(devices[device_codes[row]], {}), [int(column[row]) for column in columns])
        for row in first.tolist()
    )
    return list(configs), number


def _launch_config(rank: Rank, properties: Mapping[str, Any], config: list[int]) -> LaunchConfig:
    grid, block, registers, shared_memory = config
    processor, blocks, threads = _processor(properties), _product(rank, grid), _product(rank, block)
    fitting = resident(processor, threads, registers, shared_memory) if processor else None
    max_warps = processor.threads // WARP if processor else 0
    num_processors = as_int(properties.get("numSms")) or 0
    return LaunchConfig(fitting, blocks, threads, registers, shared_memory, num_processors, max_warps)
