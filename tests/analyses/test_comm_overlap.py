"""Communication under compute, by rank and by collective."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.analyses.communication.comm_overlap import CommOverlap
from htareport.report import Status

US = 1000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def one_rank(rank: int = 0) -> TraceBuilder:
    """Compute [0, 50] and [80, 100]; communication s20 [40, 90], s21 [45, 60]: merged [40, 90], hidden 10 + 10."""
    trace = TraceBuilder(rank, world_size=2).kernel("gemm", 0, 50).kernel("gemm", 80, 20)
    trace.collective(NCCL, "allreduce", 40, 50, nelems=1000, dtype="Float")
    return trace.collective(NCCL, "_allgather_base", 45, 15, nelems=100, out_nelems=800, dtype="BFloat16", stream=21,
                            group_name="7", group=[0, 1])  # fmt: skip


def test_ranks(run):
    """Hidden + exposed is the communication; the overlap is hidden over it."""
    section = run(CommOverlap(), one_rank())
    row = section.table("ranks").iloc[0]
    assert (row["comm"], row["overlap"], row["exposed"]) == (50 * US, 20 * US, 30 * US)
    assert row["ratio"] == pytest.approx(0.4)
    assert section.fact("overlap_share").value == pytest.approx(0.4)


def test_collectives_from_their_arguments(run):
    """Each by itself: the all-gather [45, 60] shares [45, 50] with compute. Bytes are the larger side's."""
    table = run(CommOverlap(), one_rank()).table("collectives").set_index(["collective", "process_group"])
    gather = table.loc[("all_gather_base", "group_7")]
    assert (gather["count"], gather["time"], gather["overlap"], gather["exposed"]) == (1, 15 * US, 5 * US, 10 * US)
    assert gather["bytes"] == 800 * 2
    reduce = table.loc[("all_reduce", "default_pg")]
    assert (reduce["time"], reduce["overlap"], reduce["bytes"]) == (50 * US, 20 * US, 4000)
    assert table.index[0] == ("all_reduce", "default_pg")  # The most exposed first.


@pytest.mark.parametrize(
    ("kernel", "collective"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclDevKernel_AllGather_RING_LL", "all_gather"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclWorkElem)", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("ncclDevKernel_Generic_1", "other communication"),
        ("void deep_ep::intranode::dispatch<1>", "dispatch"),
        ("void vllm::cross_device_reduce_1stage<float>", "reduce"),
    ],
)
def test_collectives_from_their_names(run, kernel, collective):
    """Without arguments the name tells, and no bytes are made up."""
    row = run(CommOverlap(), TraceBuilder(0).kernel(kernel, 0, 10)).table("collectives").iloc[0]
    assert (row["collective"], row["process_group"]) == (collective, "")
    assert pd.isna(row["bytes"])


def test_collectives_of_all_ranks_are_summed(run):
    """Counts, bytes, times of both; ratios of the sums."""
    other = TraceBuilder(8, world_size=2).kernel("gemm", 0, 5).collective(NCCL, "allreduce", 0, 10, nelems=1000)
    table = run(CommOverlap(), one_rank(3), other).table("collectives").set_index("collective")
    row = table.loc["all_reduce"]
    assert (row["count"], row["bytes"], row["time"]) == (2, 8000, 60 * US)
    assert row["ratio"] == pytest.approx((20 + 5) / 60)


def test_an_unknown_type_has_no_bytes(run):
    """But adds to the others of its collective."""
    trace = TraceBuilder(0).collective(NCCL, "allreduce", 0, 10, dtype="Float7").collective(NCCL, "allreduce", 20, 10)
    row = run(CommOverlap(), trace).table("collectives").iloc[0]
    assert (row["count"], row["bytes"]) == (2, 4096)


def test_every_capture_by_itself(tmp_path):
    """Compute of one capture hides nothing in another."""
    from htareport.run.runner import analyze

    one = TraceBuilder(0).kernel("gemm", 0, 50).kernel(NCCL, 40, 20, stream=20).write(tmp_path / "one.json")
    two = TraceBuilder(0).kernel(NCCL, 900, 20, stream=20).write(tmp_path / "two.json")
    section = analyze({0: (one, two)}, analyses=[CommOverlap()])["comm_overlap"]
    assert section.table().iloc[0][["comm", "overlap"]].tolist() == [40 * US, 10 * US]
    assert section.table("collectives").iloc[0][["count", "time", "overlap"]].tolist() == [2, 40 * US, 10 * US]


def test_devices_apart(run):
    """Compute on one device hides no communication of the other."""
    trace = TraceBuilder(0, devices=2).kernel("gemm", 0, 50).kernel(NCCL, 10, 10, device=1)
    table = run(CommOverlap(), trace).table("ranks").set_index("device")
    assert table.loc[1, ["comm", "overlap", "exposed"]].tolist() == [10 * US, 0, 10 * US]
    assert table.loc[0, "comm"] == 0
    assert pd.isna(table.loc[0, "ratio"])


@pytest.mark.parametrize("with_gpu", [True, False])
def test_a_rank_without_communication_keeps_its_row(run, with_gpu):
    """With zeros and no ratio; a note names it."""
    quiet = TraceBuilder(4, world_size=2).cpu_op("aten::mm", 0, 5)
    if with_gpu:
        quiet.kernel("gemm", 0, 10)
    section = run(CommOverlap(), one_rank(1), quiet)
    table = section.table("ranks").set_index("rank")
    assert table.loc[4, ["comm", "overlap", "exposed"]].tolist() == [0, 0, 0]
    assert pd.isna(table.loc[4, "ratio"])
    assert any("rank 4" in note for note in section.notes)
    assert section.fact("overlap_share").value == pytest.approx(0.4)


def test_not_applicable_without_communication(run):
    """One rank alone does not communicate."""
    section = run(CommOverlap(), TraceBuilder(0).kernel("gemm", 0, 10))
    assert section.status is Status.NOT_APPLICABLE
    assert "no communication kernels" in section.reason


def test_communication_of_no_length(run):
    """Has no ratio, and the fact is left out."""
    section = run(CommOverlap(), TraceBuilder(0).kernel("gemm", 0, 5).kernel(NCCL, 7, 0))
    assert pd.isna(section.table("ranks")["ratio"].iloc[0])
    assert section.fact("overlap_share") is None


def test_look_alikes_are_compute(run):
    """SyncBatchNorm and reduce kernels are not communication."""
    trace = TraceBuilder(0).kernel(NCCL, 0, 10).kernel("batch_norm_SyncBatchNorm_reduce_kernel", 5, 5, stream=9)
    trace.kernel("void at::native::reduce_kernel<512, 1>", 5, 5, stream=10)
    assert run(CommOverlap(), trace).table("ranks").iloc[0][["comm", "overlap"]].tolist() == [10 * US, 5 * US]


def test_charts(run):
    """Hidden and exposed, by rank and by collective with its group."""
    ranks, collectives = run(CommOverlap(), one_rank()).charts
    assert ranks.frame.set_index("part")["value"].to_dict() == {"hidden": 20 * US, "exposed": 30 * US}
    assert set(collectives.frame["label"]) == {"all_reduce · default_pg", "all_gather_base · group_7"}
    assert collectives.frame["value"].sum() == 65 * US
