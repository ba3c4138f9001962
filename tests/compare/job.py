"""A small training job whose parts can be changed one by one: what a comparison has to find."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from builder import TraceBuilder

from htareport.analyses.host.operators import Operators
from htareport.analyses.kernels.step_work import StepWork
from htareport.analyses.time.idle_time import IdleTime
from htareport.analyses.time.step_time import StepTime
from htareport.analyses.time.temporal_breakdown import TemporalBreakdown
from htareport.report import Report
from htareport.run.runner import analyze

ANALYSES = (StepTime(), TemporalBreakdown(), IdleTime(), StepWork(), Operators())
GEMM, RELU, SOFTMAX = "sm80_gemm_f32_128x64", "relu_kernel<float>", "softmax_kernel<float>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
LAYERS = (("aten::addmm", GEMM, 400), ("aten::relu", RELU, 60), ("aten::_softmax", SOFTMAX, 90))


@dataclass(frozen=True)
class Job:
    """Times are µs. `noise` is the relative spread of every duration, `factors` slow kernels down by name."""

    seed: int = 0
    ranks: int = 2
    steps: int = 14
    layers: int = 6
    noise: float = 0.01
    load: float = 300.0
    all_reduces: int = 2
    factors: dict[str, float] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    slow_ranks: dict[int, float] = field(default_factory=dict)
    shape: int = 64
    metadata: dict[str, object] = field(default_factory=dict)

    def write(self, folder) -> None:
        """Write the traces into a folder."""
        for rank in range(self.ranks):
            self._rank(rank).write(folder / f"rank{rank}.json")

    def report(self, folder, analyses=ANALYSES) -> Report:
        """Write the traces into a folder and analyse them."""
        self.write(folder)
        return analyze(folder, analyses=analyses)

    def _rank(self, rank: int) -> TraceBuilder:
        source = np.random.default_rng([self.seed, rank])
        trace = TraceBuilder(rank, self.ranks, **self.metadata)

        def lasting(mean: float) -> float:
            return round(float(mean * (1 + self.noise * source.standard_normal())), 3)

        now = 1000.0
        for number in range(self.steps):
            now = self._step(trace, number, now, lasting, self.slow_ranks.get(rank, 1.0))
        return trace

    def _step(self, trace: TraceBuilder, number: int, start: float, lasting, slowness: float) -> float:
        load = lasting(self.load)
        trace.cpu_op(LOADER, start, load)
        host, device = start + load + 5, 0.0
        for layer in range(self.layers):
            for operator, kernel, mean in LAYERS:
                wanted = lasting(mean * self.factors.get(kernel, 1.0) * slowness)
                shapes = [[self.shape, 8 * (layer + 1)]]
                trace.cpu_op("aten::layer", host, 20, **{"Input Dims": shapes})
                trace.cpu_op(operator, host + 1, 18, **{"Input Dims": shapes})
                device = max(device, host + 12)
                trace.kernel(self.renamed.get(kernel, kernel), device, wanted, launch=(host + 5, 6))
                host, device = host + 22, device + wanted
        for _ in range(self.all_reduces):
            trace.cpu_op("c10d::allreduce_", host, 20)
            device, wanted = max(device, host + 12), lasting(250)
            trace.collective(ALL_REDUCE, "allreduce", device, wanted, nelems=65536, launch=(host + 5, 6))
            host, device = host + 22, device + wanted
        end = max(host, device) + 10  # The host waits for the device.
        trace.step(number, start, end - start)
        return round(end, 3)
