"""Kernels with few warps on each processor, and why: an A100 holds 64 warps, 65,536 registers and 164 KB on each."""

from __future__ import annotations

from typing import Any

import pytest
from rules.computing import SHAPES, Work, states
from rules.test_compute_waves import LIMITS

from htareport.rules.compute.occupancy import LowOccupancy, OccupancyLimit
from htareport.rules.compute.waves import WaveTail

RULES = [LowOccupancy(), OccupancyLimit()]
FINE = {"C11": "fine", "C12": "fine"}


def kernel(
    name: str = "triton_red_fused_sum_3", dur: int = 200, registers: int = 200, shared_memory: int = 0,
    occupancy: int = 12, operator: str = "triton_red_fused_sum_3", blocks: int = 4096, threads: int = 256,
    launch_name: str = "cuLaunchKernel",
) -> Work:  # fmt: skip
    """Blocks of 256 threads; with 200 registers of each, one warp of 6,400 fits twice into a quarter: 8 warps."""
    trace = Work()
    trace.metadata["deviceProperties"][0] |= LIMITS
    trace.run(operator, [(name, dur)], grid=(blocks, 1, 1), launch_name=launch_name)
    told: dict[str, Any] = {"block": [threads, 1, 1], "registers per thread": registers}
    trace.events[-1]["args"] |= told | {"shared memory": shared_memory, "est. achieved occupancy %": occupancy}
    return trace.busy(300)


def test_few_warps_and_why(findings):
    """A fifth of 200 µs; the limit is told right behind, without a saving of its own."""
    told = findings(RULES, kernel())
    assert list(told) == ["C11", "C12"]
    assert (told["C11"].saving_ns, told["C11"].low_ns, told["C11"].confidence) == (40_000, 0, "low")
    assert told["C11"].title.startswith("Kernels with an occupancy of 12.0\u202f% may cost up to 40.0\u202fµs")
    assert "40.0\u202f% of compute" in told["C11"].evidence
    limit = told["C12"]
    assert (limit.saving_ns, limit.severity) == (None, "low")
    assert limit.title == "Only 1 block of `triton_red_fused_sum_3` fits on a processor, because of registers"
    assert (
        "The limit is registers: 200 per thread. 8 warps fit, 12.5\u202f% of what a processor holds" in limit.evidence
    )


def test_shared_memory(findings):
    """100 KB of 164: a second block does not fit. Where the profiler writes 0, 4 of 64 warps are 6.25 %."""
    told = findings(RULES, kernel(registers=32, shared_memory=100_000, occupancy=0, threads=128))
    assert told["C11"].title.startswith("Kernels with an occupancy of 6.25\u202f% may cost")
    assert "The limit is shared memory: 100,000 bytes per block" in told["C12"].evidence
    assert "`num_stages`" in told["C12"].advice


@pytest.mark.parametrize(
    ("trace", "codes"),
    [
        (kernel(registers=32, occupancy=95), []),
        (kernel(occupancy=26, registers=120), []),
        (kernel(dur=9), []),
        (kernel(dur=3), []),
        (kernel("triton_tem_fused_mm_1"), []),
        (kernel("void flash_fwd_kernel<1>", operator="mine::forward"), []),
        (kernel("_kernel_aligned_0d1d2d", operator="mine::custom_flash_aligned"), []),
        (kernel("_fwd_kernel_aligned_0d1d2d", operator="mine::forward"), []),
        (kernel(blocks=108, threads=64, occupancy=3), []),
        (kernel(blocks=107, threads=1024, registers=64, occupancy=20), []),
        (kernel("void at::native::reduce_kernel<512>", operator="aten::sum", launch_name="cudaLaunchKernel"), ["C11"]),
        (kernel("reduce_mine", operator="mine::reduce", launch_name="cudaLaunchKernel"), ["C11", "C12"]),
        (kernel("reduce_mine", operator="aten::sum", launch_name="cudaLaunchKernel"), ["C11"]),
        (kernel(registers=127, occupancy=20), ["C11"]),
    ],
    ids=["many warps", "a quarter", "short", "very short", "product", "attention", "by its operator", "by custom",
         "small grid", "few large blocks", "a library's", "an operator of one's own", "no operator of one's own",
         "not so many registers"],
)  # fmt: skip
def test_who_speaks(findings, trace, codes):
    assert list(findings(RULES, trace)) == codes


def test_a_last_wave_is_another_cause(findings):
    """One block fits on each of 108 processors: of 230 the last 14 run alone."""
    trace = kernel(blocks=230)
    assert list(findings([WaveTail(), *RULES], trace)) == ["C10", "C12"]
    assert list(findings(RULES, trace)) == ["C11", "C12"]


def test_known_work_is_another_matter(tell):
    trace = Work()
    trace.metadata["deviceProperties"][0] |= LIMITS
    trace.mm(200, SHAPES, "triton_mine")
    trace.events[-1]["args"] |= {"block": [256, 1, 1], "registers per thread": 200, "shared memory": 0}
    assert states(tell(RULES, trace)) == FINE


def test_what_is_not_recorded_is_said(tell):
    trace = Work(name="AMD Instinct MI300X").run("aten::sum", [("reduce", 200)])
    assert not tell(RULES, trace).findings
