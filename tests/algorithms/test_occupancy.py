"""Blocks on a multiprocessor, against what the occupancy calculator gives for the same numbers."""

from __future__ import annotations

import pytest

from htareport.algorithms.occupancy import Limiter, Processor, resident

V100 = Processor((7, 0), 2048, 65_536, 98_304)
A100 = Processor((8, 0), 2048, 65_536, 167_936)
H100 = Processor((9, 0), 2048, 65_536, 233_472)
ADA = Processor((8, 9), 1536, 65_536, 102_400)


@pytest.mark.parametrize(
    ("processor", "threads", "registers", "shared_memory", "blocks", "limiter"),
    [
        (A100, 128, 32, 0, 16, Limiter.REGISTERS),  # All 64 warps, with all registers.
        (A100, 128, 24, 0, 16, Limiter.BLOCK_SIZE),
        (A100, 1024, 16, 0, 2, Limiter.BLOCK_SIZE),
        (A100, 32, 16, 0, 32, Limiter.BLOCKS),
        (A100, 256, 238, 147_456, 1, Limiter.REGISTERS),  # 240 registers: 2 warps of 7,680 fit into a quarter.
        (A100, 128, 158, 73_728, 2, Limiter.SHARED_MEMORY),  # 73 KB each, of 164.
        (H100, 384, 168, 231_424, 1, Limiter.REGISTERS),  # 12 warps of 5,376: 3 fit into a quarter.
        (H100, 128, 64, 116_736, 1, Limiter.SHARED_MEMORY),  # 115 KB: a KB for the system makes it more than half.
        (V100, 128, 64, 49_152, 2, Limiter.SHARED_MEMORY),  # Which takes none there.
        (ADA, 32, 16, 0, 24, Limiter.BLOCKS),
        (A100, 33, 16, 0, 32, Limiter.BLOCK_SIZE),  # Two warps.
        (A100, 100, 255, 0, 2, Limiter.REGISTERS),  # 4 warps of 8,192: 2 fit into a quarter.
    ],
)
def test_what_fits(processor, threads, registers, shared_memory, blocks, limiter):
    found = resident(processor, threads, registers, shared_memory)
    assert (found.blocks, found.limiter) == (blocks, limiter)
    assert found.warps == blocks * -(-threads // 32)


@pytest.mark.parametrize(
    ("processor", "threads", "registers", "shared_memory"),
    [
        (Processor((6, 0), 2048, 65_536, 65_536), 128, 32, 0),
        (A100, -1, 32, 0),
        (A100, 128, -1, 0),
        (A100, 128, 32, -1),
        (A100, 128, 32, 200_000),
        (A100, 1024, 255, 0),
    ],
    ids=["old", "block unknown", "registers unknown", "shared memory unknown", "too large", "too many registers"],
)
def test_what_cannot_be_told(processor, threads, registers, shared_memory):
    assert resident(processor, threads, registers, shared_memory) is None
