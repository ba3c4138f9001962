r"""What is device work, and of which class. Category first, then the kernel's own arguments, then its name.

The tables are public, so that users can add patterns: `COMMUNICATION_NAMES.append(r"\bmy_allreduce")`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class Kind(StrEnum):
    """Class of a device event."""

    COMPUTE = "compute"
    COMM = "comm"
    MEMORY = "memory"


KINDS = tuple(Kind)
COMPUTE, COMM, MEMORY = range(3)  # Positions in KINDS, as stored in columns.

KERNEL_CATEGORIES = frozenset({"kernel", "Kernel", "mtia_ccp_events"})
COPY_CATEGORIES = frozenset({"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"})
ANNOTATION_CATEGORIES = frozenset({"gpu_user_annotation"})
PROFILER_CATEGORY = "Trace"
MEMORY_CATEGORY = "cpu_instant_event"  # Instants named [memory]; those of 2021 have no category.
MEMORY_NAME = "[memory]"
NPU_PROCESS = "Ascend Hardware"  # Device rows of torch_npu have no category, but this name of their process.

COMMUNICATION_NAMES = [
    r"(?<![A-Za-z])(?i:[nr]ccl)\w*",  # NCCL, RCCL
    r"^[Hh]ccl\w*",  # HCCL (Ascend, MTIA)
    r"(?<![A-Za-z])hcom_\w+",  # HCCL operators
    r"(?<![A-Za-z])(?:oneccl|ccl_|ccl::)\w*",  # oneCCL
    r"\b(?:deep_ep|dpsk::ep)::",  # DeepEP dispatch and combine
    r"::cross_device_reduce_\w+",  # custom all-reduce of vLLM and AITER
    r"\btensorrt_llm::.*(?i:(?:one|two)_?shot_?all_?reduce|allReduceKernel)",
    r"\ballreduce_fusion",  # FlashInfer and TensorRT-LLM
    r"(?<![A-Za-z])nvshmem\w*",
    r"\bsymmetric_memory::",  # PyTorch's one-shot, two-shot and multimem collectives
    r"\bmultimem_all_(?:reduce|gather)",
    r"\bmscclpp::",
]
MEMORY_NAMES = [
    r"^Mem(?:cpy|set)\b",
    r"^__amd_rocclr_(?:copy|fill)",  # copies and fills that ROCm runs as kernels
    r"^MEMORY_COPY_",  # ROCm 7, in the category of kernels
    r"^dma_",  # MTIA
    r"^MEMCPY_ASYNC",  # Ascend
]
NO_WORK_NAMES = [
    r"^event_(?:record|wait)$",  # MTIA, in the category of kernels
    r"^(?:EVENT|NOTIFY)_(?:RECORD|WAIT)(?:_SQE)?$",  # Ascend
]
_MOST_SEARCHED = 32 << 10  # Characters of a name: a pattern with .* takes time by the square of the length.
_RUNTIME = re.compile(r"runtime|driver", re.IGNORECASE)
_COPY_KIND = re.compile(r"Memcpy \w+")
_ROCM_COPY = re.compile(r"(?:Copy|MEMORY_COPY_)(H|D)(?i:ost|evice)(?:To|_TO_)(H|D)(?i:ost|evice)\b")
_STEP = re.compile(r"ProfilerStep#(\d{1,9})(?!\d)", re.ASCII)  # A number within 31 bits.


def is_runtime(category: str) -> bool:
    """Whether rows of a category are calls of a runtime or driver, which launch device work."""
    return _RUNTIME.search(category) is not None


def copy_kind(name: str) -> str:
    """Direction of a copy (Memcpy HtoD of "Memcpy HtoD (Pinned -> Device)" or "CopyHostToDevice"), or Memset."""
    if name.startswith("Memset"):
        return "Memset"
    if copy_kind := _COPY_KIND.match(name):
        return copy_kind[0]
    if copy_kind := _ROCM_COPY.match(name):
        return f"Memcpy {copy_kind[1]}to{copy_kind[2]}"
    return "Memcpy Unknown"


def is_graph_launch(name: str) -> bool:
    """Whether one call of this name starts many device events."""
    return "GraphLaunch" in name


def is_kernel_launch(name: str) -> bool:
    """Whether a runtime call of this name starts one kernel."""
    return "Launch" in name and "LaunchHostFunc" not in name and not is_graph_launch(name)


def step_number(name: str) -> int | None:
    """Return the N of a row named ProfilerStep#N."""
    match = _STEP.match(name)
    return int(match[1]) if match else None


def kinds_of_names(names: Iterable[str]) -> NDArray[np.int8]:
    """Class of each kernel name, going by the tables."""
    is_comm = re.compile("|".join(COMMUNICATION_NAMES)).search
    is_memory = re.compile("|".join(MEMORY_NAMES)).search
    searched = (name[:_MOST_SEARCHED] for name in names)
    kinds = (COMM if is_comm(name) else MEMORY if is_memory(name) else COMPUTE for name in searched)
    return np.fromiter(kinds, np.int8)


def no_work(names: Iterable[str]) -> NDArray[np.bool_]:
    """Which names are records and waits among the device rows."""
    matches = re.compile("|".join(NO_WORK_NAMES)).search
    return np.fromiter((matches(name) is not None for name in names), np.bool_)


_LAUNCHING = re.compile(r"Launch(?!HostFunc)|Memcpy|Memset|memcpy|memset")


def launching_calls(names: Iterable[str]) -> NDArray[np.bool_]:
    """Which runtime calls start device work, so that one without any has lost it."""
    return np.fromiter((_LAUNCHING.search(str(name)) is not None for name in names), np.bool_)
