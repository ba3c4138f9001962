"""Kinds of devices and copies, and patterns for names and categories, by the definitions of the report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import pandas as pd

from htareport.rows import classify


class DeviceType(Enum):
    """Where events run."""

    UNKNOWN = 0
    CPU = 1
    GPU = 2
    ALL = 3


def infer_device_type(df: pd.DataFrame) -> DeviceType:
    """Return where the rows of one thread or stream run: those with a stream are the device's."""
    if df.empty or "stream" not in df:
        return DeviceType.UNKNOWN
    streams = df["stream"].unique()
    return DeviceType.CPU if (streams < 0).all() else DeviceType.GPU if (streams >= 0).all() else DeviceType.UNKNOWN


class MemcpyType(Enum):
    """Direction of a copy."""

    DTOD = 0
    DTOH = 1
    HTOD = 2
    UNKNOWN = 3


MEMCPY_TYPE_TO_STR = {
    MemcpyType.DTOD: "memcpy_dtod",
    MemcpyType.DTOH: "memcpy_dtoh",
    MemcpyType.HTOD: "memcpy_htod",
    MemcpyType.UNKNOWN: "memcpy_type_unknown",
}


@dataclass(frozen=True)
class GroupingPattern:
    """A pattern that names must have, or must not have; and the name of the group of those that match."""

    pattern: re.Pattern[str]
    inverse_match: bool = False
    group_name: str = ""

    def match(self, name: str) -> bool:
        """Whether a name matches."""
        return (self.pattern.search(name) is not None) != self.inverse_match


Pattern = str | list[str] | re.Pattern[str] | GroupingPattern


def to_grouping_pattern(
    pattern: Pattern, group_name: str | None = None, inverse_match: bool | None = None
) -> GroupingPattern:
    """Return a GroupingPattern of a regular expression, or of several of which one must match."""
    if isinstance(pattern, GroupingPattern):
        return pattern
    if isinstance(pattern, list):
        pattern = "|".join(f"(?:{alternative})" for alternative in pattern)
    compiled = re.compile(pattern) if isinstance(pattern, str) else pattern
    return GroupingPattern(compiled, bool(inverse_match), group_name or "")


def _group(group: str, patterns: Iterable[str], *, inverse: bool = False) -> GroupingPattern:
    return to_grouping_pattern(list(patterns), group, inverse)


def _categories(names: Iterable[str]) -> list[str]:
    return [f"^{re.escape(name)}$" for name in sorted(names)]


_RUNTIME = ["runtime", "driver"]
_HOST = ["^cpu_op$", "^Operator$", "^user_annotation$"]
_DEVICE = _categories(classify.KERNEL_CATEGORIES | classify.COPY_CATEGORIES)
ProfilerStepGroupingPattern = _group("Profiler Step", [r"^ProfilerStep#(\d+)"])
MemoryKernelGroupingPattern = _group("Memory", classify.MEMORY_NAMES)
MTIAMemoryKernelGroupingPattern = _group("MTIA Memory", ["^dma_"])
CommunicateKernelGroupingPattern = _group("Communicate", classify.COMMUNICATION_NAMES)
ComputeKernelGroupingPattern = _group("Compute", [*classify.COMMUNICATION_NAMES, *classify.MEMORY_NAMES], inverse=True)
KERNEL_CATEGORY_PATTERN = _group("GPU Kernels", _DEVICE)
KERNEL_LAUNCH_CATEGORY_PATTERN = _group("Kernel Launch", [r"Launch(?!HostFunc)", "^runFunction"])
CPU_OP_CATEGORY_PATTERN = _group("CPU Ops", _HOST)
DEVICE_RUNTIME_CATEGORY_PATTERN = _group("Device Runtimes", _RUNTIME)
MEMORY_CATEGORY_PATTERN = _group("Memory", _categories(classify.COPY_CATEGORIES))
GPU_EVENT_CATEGORY_PATTERN = _group("GPU Events", [*_DEVICE, "^cuda_sync$"])
CPU_EVENTS_CATEGORY_PATTERN = _group("CPU Events", [*_HOST, *_RUNTIME])
CPU_AND_GPU_EVENTS_CATEGORY_PATTERN = _group("CPU/GPU Events", [*_HOST, *_RUNTIME, *_DEVICE, "^cuda_sync$"])
PYTHON_FUNCTION_PATTERN = _group("Python Functions", ["^python_function$"])
ALL_CATEGORY_PATTERN = _group("All", [""])
CUDA_SYNC_PATTERN = _group("CUDA Sync", ["^cuda_sync$"])
common_grouping_patterns = {
    "memory_kernels": MemoryKernelGroupingPattern,
    "compute_kernels": ComputeKernelGroupingPattern,
    "communicate_kernels": CommunicateKernelGroupingPattern,
}
