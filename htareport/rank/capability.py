"""What a trace may hold, and what to do where it does not."""

from __future__ import annotations

from enum import StrEnum


class Capability(StrEnum):
    """What a trace holds; the text is what to do about it when it is missing."""

    GPU = "no GPU activity was recorded: profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
    STEPS = "no ProfilerStep# rows: call prof.step() once per iteration"
    COMM = (
        "no communication kernels: the job ran on one rank, no collective ran while the profiler was on, or they ran "
        "on the host (gloo)"
    )
    HOST_OPS = "no host operators: profile with ProfilerActivity.CPU among the activities"
    COPIES = "no memory copies or fills ran while the profiler was on"
    ANNOTATIONS = "no annotations: wrap parts of the step in torch.profiler.record_function(name)"
    SYNC = (
        "no synchronisation rows: profile with experimental_config="
        "torch.profiler._ExperimentalConfig(enable_cuda_sync_events=True)"
    )
    CUPTI = (
        "no CUPTI counters: profile with experimental_config="
        "torch.profiler._ExperimentalConfig(profiler_metrics=[…], profiler_measure_per_kernel=True)"
    )
    MEMORY = "no memory events: profile with profile_memory=True"
    SHAPES = "no shapes of operators' inputs: profile with record_shapes=True"
    LAUNCHES = "no launches are linked to GPU work: profile with ProfilerActivity.CPU as well"
