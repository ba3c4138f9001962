"""Peak FLOP/s, memory bandwidth and memory of GPUs, from their makers' data sheets.

Peaks are dense: where a sheet gives numbers with sparsity, they are halved. Where a device has tensor or matrix cores
for a type, theirs is the peak; those of consumer cards accumulate in float32, as PyTorch does. A device whose name is
not listed has no roof: nothing is guessed from its family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

_TERA, _GIGA = 10**12, 10**9


class Precision(StrEnum):
    """The arithmetic in which an operator runs."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"


@dataclass(frozen=True, slots=True)
class Device:
    """A device's limits: `peaks` in operations per second, `bandwidth` in bytes per second, `memory` in bytes.

    `generation` is the major compute capability of NVIDIA's, 0 for others; `source` names the data sheet.
    """

    name: str
    vendor: str
    generation: int
    peaks: Mapping[Precision, float]
    bandwidth: float
    memory: float
    source: str


# Pattern for the name in the trace; name; compute capability (0: AMD); memory in GB; GB/s; TFLOP/s in fp64, fp32, tf32,
# fp16, bf16, fp8 and TOP/s in int8 (0: the device or its sheet has none); data sheet. The first that matches counts.
_ROWS: tuple[tuple[str, str, int, float, float, tuple[float, ...], str], ...] = (
    (r"V100S", "V100S PCIe", 7, 32, 1134, (8.2, 16.4, 0, 130, 0, 0, 0), "NVIDIA V100 data sheet, 2020"),
    (r"V100-PCIE", "V100 PCIe", 7, 32, 900, (7, 14, 0, 112, 0, 0, 0), "NVIDIA V100 data sheet, 2020"),
    (r"V100-(?:SXM|DGXS)", "V100 SXM", 7, 32, 900, (7.8, 15.7, 0, 125, 0, 0, 0), "NVIDIA V100 data sheet, 2020"),
    (r"\bT4\b", "T4", 7, 16, 320, (0.253, 8.1, 0, 65, 0, 0, 130), "NVIDIA T4 product brief PB-09256-001"),
    (r"A100-SXM4-40GB", "A100 40 GB SXM", 8, 40, 1555, (19.5, 19.5, 156, 312, 312, 0, 624), "NVIDIA A100 data sheet"),
    (r"A100-PCIE-40GB", "A100 40 GB PCIe", 8, 40, 1555, (19.5, 19.5, 156, 312, 312, 0, 624), "NVIDIA A100 data sheet"),
    (r"A100-SXM4-80GB", "A100 80 GB SXM", 8, 80, 2039, (19.5, 19.5, 156, 312, 312, 0, 624), "NVIDIA A100 data sheet"),
    (r"A100 80GB PCIe|A100-PCIE-80GB", "A100 80 GB PCIe", 8, 80, 1935, (19.5, 19.5, 156, 312, 312, 0, 624),
     "NVIDIA A100 data sheet"),
    (r"\bA10\b", "A10", 8, 24, 600, (0.488, 31.2, 62.5, 125, 125, 0, 250), "NVIDIA A10 data sheet"),
    (r"\bA30\b", "A30", 8, 24, 933, (10.3, 10.3, 82, 165, 165, 0, 330), "NVIDIA A30 data sheet"),
    (r"\bA40\b", "A40", 8, 48, 696, (0.584, 37.4, 74.8, 149.7, 149.7, 0, 299.3), "NVIDIA A40 data sheet"),
    (r"RTX A6000", "RTX A6000", 8, 48, 768, (0.605, 38.7, 77.4, 154.8, 154.8, 0, 309.7),
     "NVIDIA Ampere GA102 architecture white paper"),
    (r"\bL4\b", "L4", 8, 24, 300, (0.473, 30.3, 60, 121, 121, 242.5, 242.5), "NVIDIA L4 data sheet"),
    (r"\bL40\b", "L40", 8, 48, 864, (1.41, 90.5, 90.5, 181.05, 181.05, 362, 362), "NVIDIA L40 data sheet"),
    (r"\bL40S\b", "L40S", 8, 48, 864, (1.43, 91.6, 183, 362.05, 362.05, 733, 733), "NVIDIA L40S data sheet"),
    (r"RTX 6000 Ada", "RTX 6000 Ada", 8, 48, 960, (1.42, 91.1, 182.1, 364.2, 364.2, 728.5, 728.5),
     "NVIDIA Ada GPU architecture white paper"),
    (r"H100 NVL", "H100 NVL", 9, 94, 3900, (60, 60, 417.5, 835.5, 835.5, 1670.5, 1670.5), "NVIDIA H100 data sheet"),
    (r"H100 PCIe", "H100 PCIe", 9, 80, 2000, (51, 51, 378, 756.5, 756.5, 1513, 1513), "NVIDIA H100 data sheet, 2023"),
    (r"H100 80GB HBM3$|H100 SXM", "H100 SXM", 9, 80, 3350, (67, 67, 494.5, 989.5, 989.5, 1979, 1979),
     "NVIDIA H100 data sheet"),
    (r"H200 NVL", "H200 NVL", 9, 141, 4800, (60, 60, 417.5, 835.5, 835.5, 1670.5, 1670.5), "NVIDIA H200 data sheet"),
    (r"\bH200\b", "H200 SXM", 9, 141, 4800, (67, 67, 494.5, 989.5, 989.5, 1979, 1979), "NVIDIA H200 data sheet"),
    (r"GH200 144G", "GH200 144 GB", 9, 144, 4900, (67, 67, 494.5, 989.5, 989.5, 1979, 1979), "NVIDIA GH200 data sheet"),
    (r"GH200 (?:480GB|120GB)", "GH200 96 GB", 9, 96, 4000, (67, 67, 494.5, 989.5, 989.5, 1979, 1979),
     "NVIDIA GH200 data sheet"),
    (r"GB200", "GB200", 10, 186, 8000, (40, 80, 1250, 2500, 2500, 5000, 5000), "NVIDIA Blackwell data sheet, NVL72"),
    (r"\bB200\b", "B200", 10, 180, 7700, (37, 75, 1100, 2250, 2250, 4500, 4500), "NVIDIA Blackwell data sheet, HGX"),
    (r"RTX 2080 Ti", "RTX 2080 Ti", 7, 11, 616, (0.444, 14.2, 0, 56.9, 0, 0, 227.7),
     "NVIDIA Turing GPU architecture white paper, Founders Edition"),
    (r"RTX 3090$", "RTX 3090", 8, 24, 936, (0.556, 35.6, 35.6, 71, 71, 0, 284),
     "NVIDIA Ampere GA102 architecture white paper"),
    (r"RTX 4090$", "RTX 4090", 8, 24, 1008, (1.29, 82.6, 82.6, 165.2, 165.2, 330.3, 660.6),
     "NVIDIA Ada GPU architecture white paper"),
    (r"RTX 5090$", "RTX 5090", 12, 32, 1792, (1.64, 104.8, 104.8, 209.5, 209.5, 419, 838),
     "NVIDIA RTX Blackwell GPU architecture white paper"),
    (r"\bMI50\b", "MI50", 0, 32, 1024, (6.6, 13.3, 0, 26.5, 0, 0, 53), "AMD Radeon Instinct MI50 data sheet"),
    (r"\bMI100\b", "MI100", 0, 32, 1228.8, (11.5, 46.1, 0, 184.6, 92.3, 0, 184.6), "AMD Instinct MI100 brochure"),
    (r"\bMI210\b", "MI210", 0, 64, 1638.4, (45.3, 45.3, 0, 181, 181, 0, 181), "AMD Instinct MI210 brochure"),
    (r"\bMI250X\b", "MI250X (one of two dies)", 0, 64, 1638.4, (47.85, 47.85, 0, 191.5, 191.5, 0, 191.5),
     "AMD Instinct MI250X data sheet, halved"),
    (r"\bMI250\b", "MI250 (one of two dies)", 0, 64, 1638.4, (45.25, 45.25, 0, 181.05, 181.05, 0, 181.05),
     "AMD Instinct MI250 data sheet, halved"),
    (r"\bMI300A\b", "MI300A", 0, 128, 5300, (122.6, 122.6, 490.3, 980.6, 980.6, 1961.2, 1961.2),
     "AMD Instinct MI300A data sheet"),
    (r"\bMI300X\b", "MI300X", 0, 192, 5300, (163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9),
     "AMD Instinct MI300X data sheet"),
    (r"\bMI325X\b", "MI325X", 0, 256, 6000, (163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9),
     "AMD Instinct MI325X data sheet"),
    (r"\bMI350X\b", "MI350X", 0, 288, 8000, (72.1, 144.2, 0, 2309.6, 2309.6, 4614, 4614),
     "AMD Instinct MI350X brochure"),
    (r"\bMI355X\b", "MI355X", 0, 288, 8000, (78.6, 157.3, 0, 2516.6, 2516.6, 5033.2, 5033.2),
     "AMD Instinct MI355X brochure"),
    (r"RX 7900 XTX", "RX 7900 XTX", 0, 24, 960, (1.92, 61.4, 0, 122.8, 122.8, 0, 122.8),
     "AMD RDNA 3 architecture guide"),
)  # fmt: skip
_PARTITION = re.compile(r"\bMIG\b|\bvGPU\b|\bGRID\b", re.IGNORECASE)  # Has only a part of a device's limits.


@cache
def device_of(name: str) -> Device | None:
    """Return the limits of the device with this name in the trace; None if it is not listed, or a part of a device."""
    if _PARTITION.search(name):
        return None
    for pattern, model, generation, memory, bandwidth, rates, source in _ROWS:
        if re.search(pattern, name.strip()):
            peaks = {precision: rate * _TERA for precision, rate in zip(Precision, rates, strict=True) if rate}
            vendor = "NVIDIA" if generation else "AMD"
            return Device(model, vendor, generation, peaks, bandwidth * _GIGA, memory * _GIGA, source)
    return None
