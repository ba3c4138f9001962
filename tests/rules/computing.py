"""Device work that is launched well ahead, so that the step hangs on it; an A100 does 312 TFLOP/s and 1,555 GB/s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from builder import TraceBuilder

A100, H100, V100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB"
BF16, HALF, FLOAT, DOUBLE = "c10::BFloat16", "c10::Half", "float", "double"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor>"
SHAPES = [[1000, 1200], [1200, 1300]]  # 3.12e9 operations: 10 µs at the peak of an A100; their bytes take 5.2 µs.


class Work(TraceBuilder):
    """A step of `length` µs on one rank; kernels follow each other from 200 µs on, operators from 10 µs on."""

    def __init__(self, length: int = 1000, name: str = A100, rank: int = 0, **options: Any) -> None:
        device = {"id": 0, "name": name, "numSms": 108}
        super().__init__(rank, deviceProperties=[device], **options)
        self.host, self.device = 10, 200
        if length:
            self.step(1, 0, length)

    def run(
        self, name: str, kernels: Sequence[tuple[str, int]], shapes: Sequence[Any] = (), dtype: str = BF16,
        grid: Sequence[int] = (4096, 1, 1), launch_name: str = "cudaLaunchKernel", **args: Any,
    ) -> Work:  # fmt: skip
        """Add an operator of 2 µs and its kernels (name, duration), one right behind the other."""
        told = {"Input Dims": list(shapes), "Input type": [dtype] * len(shapes), **args} if shapes else args
        self.cpu_op(name, self.host, 2, **told)
        for number, (kernel, dur) in enumerate(kernels):
            launch = (self.host + 0.5 + number / 100, "0.005")
            self.kernel(kernel, self.device, dur, launch=launch, launch_name=launch_name, grid=list(grid))
            self.device += dur
        self.host += 2
        return self

    def mm(self, dur: int, shapes: Sequence[Any] = SHAPES, kernel: str = GEMM, **options: Any) -> Work:
        """Add a product of matrices."""
        return self.run("aten::mm", [(kernel, dur)], shapes, **options)

    def busy(self, dur: int) -> Work:
        """Add a kernel of no operator."""
        return self.run("aten::custom", [("custom", dur)])


def states(section: Any) -> Mapping[str, str]:
    """How rules came out."""
    return dict(section.table("checked")[["code", "state"]].to_numpy().tolist())
