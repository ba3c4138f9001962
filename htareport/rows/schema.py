"""Which arguments of which events become columns."""

from __future__ import annotations

from typing import NamedTuple

from htareport.rows import classify
from htareport.rows.columns import Arg, declare

CORRELATION = Arg("correlation", "correlation", "int")
LAUNCH = (  # How a kernel was launched, as far as the profiler of its device tells.
    Arg("grid", "grid", "json"),
    Arg("block", "block", "json"),
    Arg("registers", "registers per thread", "int"),
    Arg("shared_memory", "shared memory", "int"),
    Arg("occupancy", "est. achieved occupancy %", "float"),
)
LANE_KEYS = {"device": "device", "stream": "stream", "queue": "sycl queue", "stream_id": "Stream Id"}
COPY = (Arg("bytes", "bytes", "int"), Arg("bandwidth", "memory bandwidth (GB/s)", "float"))
# Only on events of collectives: kept as sparse rows beside the table.
COLLECTIVE = (
    Arg("collective", "Collective name", "text"),
    Arg("in_nelems", "In msg nelems", "int"),
    Arg("out_nelems", "Out msg nelems", "int"),
    Arg("group_size", "Group size", "int"),
    Arg("dtype", "dtype", "text"),
    Arg("group", "Process Group Name", "text"),
    Arg("group_description", "Process Group Description", "text"),
    Arg("group_ranks", "Process Group Ranks", "json"),
    Arg("seq", "Seq", "int"),
    Arg("sender", "Src Rank", "int"),
    Arg("receiver", "Dst Rank", "int"),
)
OPERATOR = (
    Arg("sequence", "Sequence number", "int"),
    Arg("forward_thread", "Fwd thread id", "int"),
    Arg("shapes", "Input Dims", "json"),
    Arg("types", "Input type", "json"),
    Arg("inputs", "Concrete Inputs", "json", only="conv|attention"),  # Strides, paddings, masks.
)
SYNC = (
    Arg("sync_stream", "stream", "int"),
    Arg("wait_stream", "wait_on_stream", "int"),
    Arg("wait_correlation", "wait_on_cuda_event_record_corr_id", "int"),
)
MEMORY = (
    Arg("size", "Bytes", "int"),
    Arg("address", "Addr", "int"),
    Arg("allocated", "Total Allocated", "int"),
    Arg("reserved", "Total Reserved", "int"),
    Arg("device_type", "Device Type", "int"),
    Arg("device_id", "Device Id", "int"),
)
POSITION = "position"  # The place of each event in its file, for those who look at the file again.
WHOLE = Arg("args", "args", "json")  # All arguments together, of events whose arguments have names of their own.
_ARGS = (CORRELATION, *LAUNCH, *COPY, *COLLECTIVE, *OPERATOR, *SYNC, *MEMORY, WHOLE)
CODED_COLUMNS = frozenset({"name", *(arg.column for arg in _ARGS if arg.kind in {"text", "json"})})  # Of Strings.
declare(_ARGS)


class Family(NamedTuple):
    """What is kept of the events of a category."""

    args: tuple[Arg, ...] = ()
    on_device: bool = False
    has_rows: bool = True  # Otherwise only counted.
    phase: str = "X"  # "i" for instants, which have no duration.


HOST = Family()
RUNTIME = Family((CORRELATION,))
OPERATORS = Family(OPERATOR)
SYNCS = Family((CORRELATION, *SYNC))
MEMORY_INSTANTS = Family(MEMORY, phase="i")
COUNTERS = Family((WHOLE,))
KERNEL = Family((CORRELATION, *LAUNCH), on_device=True)
COPIES = Family((CORRELATION, *COPY), on_device=True)
COUNTED = Family(has_rows=False)

# The categories that PyTorch writes; others join as they are met.
FAMILIES: dict[str, Family] = {
    "cpu_op": OPERATORS,
    "cuda_sync": SYNCS,
    "cuda_profiler_range": COUNTERS,
    classify.MEMORY_CATEGORY: MEMORY_INSTANTS,
    **dict.fromkeys(("user_annotation", "gpu_user_annotation", "python_function"), HOST),
    **dict.fromkeys(("overhead", "Operator", "cuda_event"), HOST),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "Runtime"), RUNTIME),
    **dict.fromkeys(sorted(classify.KERNEL_CATEGORIES), KERNEL),
    **dict.fromkeys(sorted(classify.COPY_CATEGORIES), COPIES),
    **dict.fromkeys(("ac2g", "fwdbwd", "async_cpu_to_gpu", "async_gpu", "forward_backward"), COUNTED),
    **dict.fromkeys(("async", "async_npu", "HostToDevice", classify.PROFILER_CATEGORY), COUNTED),
}


def family_of(category: str) -> Family:
    """Return what is kept of a category that PyTorch does not write, or of rows without one."""
    if not category:
        return KERNEL  # Device rows of torch_npu have no category; whether they are is known once all is read.
    return RUNTIME if classify.is_runtime(category) else HOST
