"""Hardware counters by kernel, as a class method."""

from __future__ import annotations

from htareport.hta.analyzers.delegate import of_trace
from htareport.hta.trace_analysis import TraceAnalysis

_OPERATIONS = [f"{width}{instruction}" for width in "fhd" for instruction in ("fma", "mul", "add")]
CUDA_SASS_INSTRUCTION_COUNTER_FLOPS = {
    f"smsp__sass_thread_inst_executed_op_{operation}_pred_on.sum": 2.0 if operation.endswith("fma") else 1.0
    for operation in _OPERATIONS
}


class CuptiCounterAnalysis:
    """See the method of TraceAnalysis."""

    cuda_profiler_cat = "cuda_profiler_range"

    get_counter_data_with_operators = of_trace(TraceAnalysis.get_cupti_counter_data_with_operators)
