"""What a trace says about the run: rank, devices, versions, capture options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from htareport.errors import printable

COPY_KEY = "htareportCopy"  # In copies of traces with something added: what, and the rank that the trace was taken for.
_MAX_RANKS = 2**31  # A larger number in a file or its name is something else than a rank.
_HOST_KEYS = {"host", "hostname", "host_name", "node", "nodename", "node_name"}
_HOST_IN_FILE_NAME = re.compile(r"(.+)_\d+\.\d{10,}(?:\.pt)?\.trace\.json")
CAPTURE_OPTIONS = ("record_shapes", "with_stack", "with_flops", "with_modules", "profile_memory")
SOFTWARE = {
    "cuda_runtime_version": "CUDA runtime",
    "cuda_driver_version": "CUDA driver",
    "hip_runtime_version": "HIP runtime",
    "hip_driver_version": "HIP driver",
    "cupti_version": "CUPTI",
    "roctracer_version": "roctracer",
    "pytorch_version": "PyTorch",
    "torch_version": "PyTorch",
}


def as_int(value: Any) -> int | None:
    """Return an integer given as number or text, None if it is neither."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def distributed(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part about the process group, empty if there is none."""
    info = metadata.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def rank_of(metadata: Mapping[str, Any]) -> int | None:
    """Return the rank that the file gives itself."""
    return plausible_rank(distributed(metadata).get("rank"))


def is_copy(metadata: Mapping[str, Any]) -> bool:
    """Whether a trace is a copy of another with something added, and so no rank of its own."""
    return COPY_KEY in metadata


def copied_rank(metadata: Mapping[str, Any]) -> int | None:
    """Return the rank of the trace that a copy was made of."""
    about = metadata.get(COPY_KEY)
    return plausible_rank(about.get("rank")) if isinstance(about, dict) else None


def salvage_of_copy(metadata: Mapping[str, Any]) -> str:
    """Return why the trace that a copy was made of had to be salvaged, empty if it had not."""
    about = metadata.get(COPY_KEY)
    return str(about.get("salvaged", "")) if isinstance(about, dict) else ""


def plausible_rank(value: Any) -> int | None:
    """Return a rank given as number or text, None if it is none."""
    rank = as_int(value)
    return rank if rank is not None and 0 <= rank < _MAX_RANKS else None


def world_size_of(metadata: Mapping[str, Any]) -> int | None:
    """Return how many ranks the job has."""
    return as_int(distributed(metadata).get("world_size"))


def group_descriptions(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the description of each process group by its name; those without one are left out."""
    groups, descriptions = distributed(metadata).get("pg_config"), dict[str, str]()
    for group in groups if isinstance(groups, list) else ():
        if isinstance(group, dict):
            name, description = group.get("pg_name"), group.get("pg_desc")
            if isinstance(description, str) and described(description):
                descriptions[str(name)] = description
    return descriptions


def described(description: str) -> bool:
    """Whether a process group's description says anything: PyTorch writes *undefined* where none was given."""
    return description not in {"", "undefined"}


def host_of(file_name: str, metadata: Mapping[str, Any]) -> str:
    """Return the host that a trace was recorded on, as its metadata or the profiler's file name tell; else nothing."""
    for key, value in metadata.items():
        if isinstance(value, str) and value and key.lower() in _HOST_KEYS:
            return value
    match = _HOST_IN_FILE_NAME.match(file_name)
    return printable(match[1]) if match else ""


def device_names(metadata: Mapping[str, Any]) -> dict[int, str]:
    """Return the name of each device by its number; devices without a name are left out."""
    devices = metadata.get("deviceProperties")
    device_names = dict[int, str]()
    for position, device in enumerate(devices if isinstance(devices, list) else ()):
        if isinstance(device, dict):
            number, name = as_int(device.get("id")), device.get("name")
            if isinstance(name, str) and name.strip():
                device_names[position if number is None else number] = name.strip()
    return device_names


def software(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return versions as text, by the product's name."""
    software = {label: _version(key, metadata[key]) for key, label in SOFTWARE.items() if metadata.get(key)}
    nccl = distributed(metadata).get("nccl_version")
    if nccl:
        software["NCCL"] = str(nccl)
    return software


def _version(key: str, value: Any) -> str:
    """12040 as 12.4: CUDA and HIP write their versions as one number."""
    number = as_int(value)
    if number is None or number < 1000:  # noqa: PLR2004  not such a number
        return str(value)
    if key.startswith("cuda_"):
        return f"{number // 1000}.{number % 1000 // 10}"
    if key.startswith("hip_") and number >= 10**7:  # major, minor, patch
        return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"
    return str(value)


def capture_options(metadata: Mapping[str, Any]) -> dict[str, bool]:
    """Return which options of torch.profiler were on, as far as the file says."""
    return {name: bool(metadata[name]) for name in CAPTURE_OPTIONS if name in metadata}
