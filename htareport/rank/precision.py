"""In which precision kernels compute, by the type of their inputs and by their names."""

from __future__ import annotations

import re

from htareport.rank.device_peaks import Precision

_BY_TYPE = {
    "double": Precision.FP64,
    "c10::Half": Precision.FP16,
    "at::Half": Precision.FP16,
    "c10::BFloat16": Precision.BF16,
    "signed char": Precision.INT8,
}
_TF32 = re.compile(r"tf32|xf32|s1688|tensorop", re.IGNORECASE)
PLAIN = re.compile(
    r"(?<![a-z])[sh]gemm|_simt_|ffma|(?<![a-z])scudnn|f32f32_f32f32|gemmSN|gemmk1|gemv|implicit_convolve_sgemm|"
    r"conv2d_c1_k1|Cijk_\w*_TT\d+_\d+"
)
"""Kernels of matrix products and convolutions that use no tensor or matrix cores."""
_AMD_SINGLE = re.compile(r"Cijk_\w*_SB_")


def precision_of(dtype: str, kernel: str) -> Precision | None:
    """Return the precision of a kernel whose inputs are of this type; None where it can't be told.

    For float32 inputs PyTorch may compute in TF32, which only the kernel's name tells.
    """
    if dtype.startswith("c10::Float8"):
        return Precision.FP8
    if dtype != "float":
        return _BY_TYPE.get(dtype)
    if _TF32.search(kernel):
        return Precision.TF32
    return Precision.FP32 if PLAIN.search(kernel) or _AMD_SINGLE.search(kernel) else None
