"""How many blocks of a kernel a multiprocessor of NVIDIA's holds at once, and what stands in the way of more.

Sizes in which registers and shared memory are given out, and how many blocks there may be, are those of the tables of
compute capabilities in the CUDA C++ programming guide. The rest of the limits stands in the traces themselves.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

WARP = 32
_PARTITIONS = 4  # Of a multiprocessor, each with a quarter of the registers.
_REGISTERS, _WARP_REGISTERS = 8, 256  # Steps in which they are given out, to a thread and to a warp.
_MOST_BLOCKS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24, (12, 0): 24, (12, 1): 24}
_OTHER_BLOCKS = 32
_OLDEST = 7  # Generation: of those before, other rules hold.
_RESERVED = 1024  # Bytes of shared memory that the system takes of each block, from generation 8 on.


class Limiter(StrEnum):
    """What keeps a multiprocessor from holding more blocks."""

    REGISTERS = "registers"
    SHARED_MEMORY = "shared memory"
    BLOCK_SIZE = "the size of blocks"
    BLOCKS = "the number of blocks that it may hold"


class Processor(NamedTuple):
    """Limits of one multiprocessor: compute capability, threads, registers and bytes of shared memory."""

    capability: tuple[int, int]
    threads: int
    registers: int
    shared_memory: int


class Resident(NamedTuple):
    """How many blocks there is room for, at most, with how many warps, and what the limit is."""

    blocks: int
    warps: int
    limiter: Limiter


def resident(processor: Processor, threads: int, registers: int, shared_memory: int) -> Resident | None:
    """Return how many blocks of so many threads, registers per thread and bytes fit; None where it can't be told.

    It is the most there may be: how the driver divides what the multiprocessor has between shared memory and cache is
    not in the trace.
    """
    if processor.capability[0] < _OLDEST or threads <= 0 or registers < 0 or shared_memory < 0:
        return None
    is_new = processor.capability[0] > _OLDEST
    warps = -(-threads // WARP)
    per_warp = -(-max(registers, 1) // _REGISTERS) * _REGISTERS * WARP
    per_warp = -(-per_warp // _WARP_REGISTERS) * _WARP_REGISTERS
    of_registers = processor.registers // _PARTITIONS // per_warp * _PARTITIONS // warps
    step = 128 if is_new else 256
    per_block = -(-(shared_memory + _RESERVED * is_new) // step) * step
    room = {
        Limiter.REGISTERS: of_registers,
        Limiter.SHARED_MEMORY: processor.shared_memory // per_block if per_block else of_registers,
        Limiter.BLOCK_SIZE: processor.threads // (warps * WARP),
        Limiter.BLOCKS: _MOST_BLOCKS.get(processor.capability, _OTHER_BLOCKS),
    }
    limiter = min(room, key=lambda each: room[each])  # The first of several.
    return Resident(room[limiter], room[limiter] * warps, limiter) if room[limiter] > 0 else None
