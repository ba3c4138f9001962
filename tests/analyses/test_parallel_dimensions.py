"""Which parallel dimension a collective serves: told by its group's name, inferred from its call, or unknown."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.analyses.communication.comm_overlap import CommOverlap
from htareport.rank.parallel_dimensions import named_dimension

US = 1000
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SEND = "ncclDevKernel_SendRecv"
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


@pytest.mark.parametrize(
    ("name", "dimension"),
    [
        ("mesh_tp", "tensor"),
        ("MESH_tp", "tensor"),
        ("tp:0", "tensor"),
        ("tp0", "tensor"),
        ("dp_shard", "data"),
        ("mesh_dp_replicate", "data"),
        ("fsdp", "data"),
        ("mesh_dp_shard_cp", "data + context"),
        ("DATA_PARALLEL_GROUP", "data"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "data + context"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"),
        ("MODEL_PARALLEL_GROUP", "tensor + pipeline"),
        ("EMBEDDING_GROUP", "pipeline"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "expert"),
        ("EXPERT_DATA_PARALLEL_GROUP", "data"),
        ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "tensor + expert"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", "data + tensor"),
        ("tensorParallel", "tensor"),
        ("default_pg", ""),
        ("undefined", ""),
        ("mesh_dim_0", ""),
        ("group_7", ""),
        ("http", ""),
        ("metadata", ""),
        ("7f3a9c", ""),
    ],
)
def test_names(name, dimension):
    """PyTorch's meshes, Megatron's groups, and what says nothing."""
    assert named_dimension(name) == dimension


def dimensions(run, *traces: TraceBuilder):
    """The table by dimension."""
    return run(CommOverlap(), *traces).table("dimensions").set_index("dimension")


def test_a_dimension_is_a_union_and_all_is_none_twice(run):
    """Tensor [0, 30] and [20, 50] in two kinds of calls: 50, not 60. Data [40, 70]. Together 70; compute [60, 70]."""
    trace = TraceBuilder(0, world_size=4).kernel("gemm", 60, 10)
    trace.collective(REDUCE, "allreduce", 0, 30, group_name="1", **{"Process Group Description": "tp"})
    trace.collective("ncclDevKernel_AllGather_RING_LL", "_allgather_base", 20, 30, stream=21, group_name="1",
                     **{"Process Group Description": "tp"})  # fmt: skip
    trace.collective(REDUCE, "allreduce", 40, 30, stream=22, group_name="2", **{"Process Group Description": "dp"})
    table = dimensions(run, trace)
    assert table["time"].to_dict() == {"tensor": 50 * US, "data": 30 * US, "all": 70 * US}
    assert table["exposed"].to_dict() == {"tensor": 50 * US, "data": 20 * US, "all": 60 * US}
    assert set(table["told_by"]) == {"group's name"}
    assert table.loc["all", "groups"] == "dp, tp"


def test_gradients_that_ddp_reduces_are_data(run):
    """Known by the call, and said to be inferred; a reduction elsewhere in the default group stays unknown."""
    trace = TraceBuilder(0, world_size=2).cpu_op(ACCUMULATE, 0, 10).cpu_op("my_loss", 20, 10)
    trace.collective(REDUCE, "allreduce", 12, 5, launch=(2, 3)).collective(REDUCE, "allreduce", 32, 4, launch=(22, 3))
    table = dimensions(run, trace)
    assert table["told_by"].to_dict() == {"data": "inferred", "unknown": "", "all": "inferred"}
    assert table["time"].to_dict() == {"data": 5 * US, "unknown": 4 * US, "all": 9 * US}


def test_what_is_inferred_of_a_group_of_its_own_holds_for_all_its_calls(run):
    """Group 3 has no description, but gradients are reduced in it."""
    trace = TraceBuilder(0, world_size=4).cpu_op(ACCUMULATE, 0, 10).cpu_op("my_norm", 20, 10)
    for start, launch in ((12, 2), (32, 22)):
        trace.collective(REDUCE, "allreduce", start, 5, group_name="3", launch=(launch, 3),
                         **{"Process Group Description": "undefined"})  # fmt: skip
    table = dimensions(run, trace)
    assert table["count"].to_dict() == {"data": 2}
    assert table.loc["data", "groups"] == "3"


@pytest.mark.parametrize(
    ("kernel", "collective", "around", "dimension"),
    [
        (SEND, "send", "PipelineStage", "pipeline"),
        (SEND, "recv", "RingAttention", "unknown"),  # A ring of context parallelism sends to neighbours, too.
        (SEND, "all_to_allv", "MoELayer", "expert"),
        (SEND, "all_to_allv", "Removes", "unknown"),
        (SEND, "all_to_allv", "moe::dispatch", "expert"),
        (SEND, "all_to_allv", "embedding", "unknown"),
        ("void deep_ep::intranode::dispatch<1>", "dispatch", "layer", "expert"),
        (REDUCE, "allreduce", "FSDP::post_backward_reduce", "data"),
        (REDUCE, "allreduce", "FullyShardedDataParallel.forward", "unknown"),  # The model itself runs in it.
        (REDUCE, "allreduce", "DistributedDataParallel.forward", "unknown"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast", "DistributedDataParallel.forward", "data"),
    ],
)
def test_what_a_call_makes_certain(run, kernel, collective, around, dimension):
    """By the operators and annotations around it; else unknown."""
    trace = TraceBuilder(0, world_size=4).annotation(around, 0, 10)
    trace.collective(kernel, collective, 20, 5, group_name="5", launch=(2, 3),
                     **{"Process Group Description": "undefined"})  # fmt: skip
    assert list(dimensions(run, trace).index) == [dimension]


def test_a_description_from_the_metadata(run):
    """The kernel names its group only; the trace's head says what it is for."""
    trace = TraceBuilder(0, world_size=2)
    trace.metadata["distributedInfo"]["pg_config"] = [{"pg_name": "4", "pg_desc": "mesh_pp"}, "damaged"]
    trace.collective(REDUCE, "allreduce", 0, 5, group_name="4", **{"Process Group Description": ""})
    assert dimensions(run, trace)["told_by"].to_dict() == {"pipeline": "group's name"}


def test_without_arguments_a_kernel_of_send_and_recv_is_unknown(run):
    """An all-to-all runs as that, too."""
    assert list(dimensions(run, TraceBuilder(0).kernel(SEND, 0, 5)).index) == ["unknown"]
