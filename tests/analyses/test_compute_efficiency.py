"""How near operators come to their device's limits, on paper values: an A100 does 312 TFLOP/s and 1,555 GB/s."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.analyses.kernels.compute_efficiency import ComputeEfficiency

US = 1000
A100 = "NVIDIA A100-SXM4-40GB"
BF16 = "c10::BFloat16"
HALF_OF_PEAK = [[1000, 1200], [1200, 1300]]  # 3.12e9 operations: 10 µs at peak; 8.12e6 bytes take 5.2 µs.
OF_BANDWIDTH = [[1, 5000], [5000, 1555]]  # 15,563,110 bytes: 10.008 µs; the operations take 0.05 µs.
IMAGE = [[8, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []]
OPTIONS = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


def traced(name=A100, rank=0, **options) -> TraceBuilder:
    return TraceBuilder(rank, deviceProperties=[{"id": 0, "name": name}], **options)


def inputs(shapes, dtype=BF16, **more):
    return {"Input Dims": shapes, "Input type": [dtype] * len(shapes), **more}


def product(trace, at, dur, shapes=HALF_OF_PEAK, dtype=BF16, kernel="ampere_bf16_s16816gemm", name="aten::mm"):
    """An operator of 10 µs whose kernel starts behind it."""
    trace.cpu_op(name, at, 10, **inputs(shapes, dtype))
    return trace.kernel(kernel, at + 10, dur, launch=(at + 2, 3))


def row(section):
    table = section.table("operators")
    assert len(table) == 1
    return table.iloc[0]


def test_bound_by_compute(run):
    """20 µs for what takes 10: half of the roof, 156 TFLOP/s, 8.12e6 bytes in 20 µs."""
    found = row(run(ComputeEfficiency(), product(traced(), 0, 20)))
    assert found[["name", "shapes", "precision", "device"]].tolist() == [
        "aten::mm", "1000×1200, 1200×1300", "bf16", A100,
    ]  # fmt: skip
    assert found[["calls", "time", "flops", "bound"]].tolist() == [1, 20 * US, 3.12e9, "compute"]
    assert found[["flop_rate", "byte_rate", "roof"]].tolist() == pytest.approx([156e12, 406e9, 0.5])


def test_bound_by_memory(run):
    """20 µs for what takes 10.008."""
    found = row(run(ComputeEfficiency(), product(traced(), 0, 20, OF_BANDWIDTH)))
    assert found["bound"] == "memory"
    assert found[["byte_rate", "roof"]].tolist() == pytest.approx([15_563_110 / 20e-6, 15_563_110 / 1.555e12 / 20e-6])


def test_calls_and_ranks_together(run):
    """20, 30 and 50 µs on two ranks: 3 × 10 of 100."""
    first = product(product(traced(), 0, 20), 100, 30)
    found = row(run(ComputeEfficiency(), first, product(traced(rank=1), 0, 50)))
    assert found[["calls", "time"]].tolist() == [3, 100 * US]
    assert found["roof"] == pytest.approx(0.3)


def test_all_that_an_operator_launches(run):
    """A fill of 2 and a sum of 8 µs belong to the product of 10."""
    trace = product(traced(), 0, 10).memset(15, 2, launch=(1, 1))
    trace.kernel("void at::native::reduce_kernel<512>", 25, 8, launch=(7, 1))
    found = row(run(ComputeEfficiency(), trace))
    assert (found["time"], found["precision"]) == (20 * US, "bf16")
    assert found["roof"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("kernel", "precision", "roof"),
    [
        ("ampere_sgemm_128x64_nn", "fp32", 160 / 200),
        ("cutlass_80_tensorop_s1688gemm_128x128_nn_align4", "tf32", 20 / 200),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x16", "tf32", 20 / 200),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x16", "fp32", 160 / 200),
        ("Cijk_Ailk_Bljk_SB_MT128x64x16_MI32x32x2x1", "fp32", 160 / 200),
        ("nvjet_sss_128x64", "", None),
    ],
)
def test_arithmetic_of_float32(run, kernel, precision, roof):
    """3.12e9 operations take 160 µs at 19.5 TFLOP/s, 20 µs at 156 in TF32; only the kernel's name tells."""
    found = row(run(ComputeEfficiency(), product(traced(), 0, 200, dtype="float", kernel=kernel)))
    assert (found["precision"], found["flops"]) == (precision, 3.12e9)
    assert (found["roof"] != found["roof"]) if roof is None else found["roof"] == pytest.approx(roof)
    assert found["bound"] == ("" if roof is None else "compute")


def test_autocast(run):
    """The operator calls itself with what its inputs were cast to: that is what is computed; the casts are others'."""
    trace = traced().cpu_op("aten::mm", 0, 50, **inputs(HALF_OF_PEAK, "float"))
    trace.cpu_op("aten::to", 1, 9).kernel("void at::native::cast", 30, 40, launch=(3, 2))
    found = row(run(ComputeEfficiency(), product(trace, 20, 20)))
    assert found[["precision", "time", "calls"]].tolist() == ["bf16", 20 * US, 1]


def test_convolution_that_multiplies_matrices(run):
    """It is a convolution, and one: 2·8·56·56·64·64·9 operations."""
    trace = traced().cpu_op("aten::convolution", 0, 50, **inputs(IMAGE, **{"Concrete Inputs": OPTIONS}))
    found = row(run(ComputeEfficiency(), product(trace, 10, 20)))
    assert (found["name"], found["flops"]) == ("aten::convolution", 2 * 8 * 56 * 56 * 64 * 64 * 9)


def test_null_where_unknown(run):
    """Without the values of its options a convolution has no work, but its time."""
    trace = traced().cpu_op("aten::convolution", 0, 20, **inputs(IMAGE)).kernel("fprop", 30, 20, launch=(5, 2))
    section = run(ComputeEfficiency(), trace)
    found = row(section)
    assert found["time"] == 20 * US
    assert found[["flops", "flop_rate", "byte_rate", "roof"]].isna().all()
    ranks = section.table("ranks").iloc[0]
    assert ranks["known"] == 0
    assert ranks[["flops", "mfu", "counted"]].isna().all()


def test_mfu(run):
    """Two steps of 100 and 200 µs with 10 and 20 µs at peak; 20 of 40 and 45 of 45 µs of kernels are counted."""
    trace = product(traced().step(1, 0, 100), 0, 20).cpu_op("aten::relu", 50, 5).kernel("relu", 60, 20, launch=(52, 1))
    trace = product(product(trace.step(2, 100, 200), 100, 20), 150, 25)
    section = run(ComputeEfficiency(), trace)
    steps = section.table("steps")
    assert steps["window"].tolist() == [100 * US, 200 * US]
    assert steps["flops"].tolist() == [3.12e9, 6.24e9]
    assert steps["mfu"].tolist() == pytest.approx([0.1, 0.1])
    assert steps["counted"].tolist() == pytest.approx([0.5, 1])
    ranks = section.table("ranks").iloc[0]
    assert ranks[["model", "window"]].tolist() == [A100, 300 * US]
    assert ranks[["mfu", "counted", "known"]].tolist() == pytest.approx([0.1, 65 / 85, 65 / 85])
    assert section.fact("mfu").value == pytest.approx(0.1)


def test_mfu_without_steps(run):
    """From the first event at 10 to the last at 110 µs."""
    section = run(ComputeEfficiency(), product(traced(), 0, 20).kernel("last", 100, 10))
    assert section.table("ranks").iloc[0]["mfu"] == pytest.approx(0.1)
    assert section.table("steps").empty
    assert section.fact("mfu").value == pytest.approx(0.1)


def test_no_overall_number_of_little(run):
    """Where most of the kernels' time is not counted."""
    section = run(ComputeEfficiency(), product(traced(), 0, 20).kernel("triton", 100, 30))
    assert section.fact("mfu") is None
    assert section.table("ranks").iloc[0]["counted"] == pytest.approx(0.4)


def test_a_device_that_is_not_known(run):
    """Operations and rates, but neither a roof nor an MFU; and it is said."""
    section = run(ComputeEfficiency(), product(traced("NVIDIA A100-PG509-200"), 0, 20))
    found = row(section)
    assert found["flop_rate"] == pytest.approx(156e12)
    assert found["roof"] != found["roof"]
    ranks = section.table("ranks").iloc[0]
    assert ranks["known"] == 1
    assert ranks[["mfu", "counted"]].isna().all()
    assert section.notes == (
        "The limits of NVIDIA A100-PG509-200 are not known here, so there is neither a roof nor an MFU.",
    )


def test_kernels_on_a_device_of_another_number(run):
    """As of ROCm, which counts processors with them; all devices are alike, so there is no doubt."""
    trace = traced("AMD Instinct MI300X VF").cpu_op("aten::mm", 0, 10, **inputs(HALF_OF_PEAK))
    trace.kernel("Cijk_Ailk_Bljk_BBS", 20, 20, device=2, launch=(2, 3), launch_name="hipModuleLaunchKernel")
    found = row(run(ComputeEfficiency(), trace))
    assert found["device"] == "AMD Instinct MI300X VF"
    assert found["roof"] == pytest.approx(3.12e9 / 1307.4e12 / 20e-6)


def test_work_of_several_devices(run):
    """Each has its own row, time and limits."""
    trace = traced().step(1, 0, 100)
    trace.metadata["deviceProperties"].append({"id": 1, "name": "NVIDIA A100-SXM4-80GB"})
    trace = product(trace, 0, 20).cpu_op("aten::mm", 50, 10, **inputs(HALF_OF_PEAK))
    trace.kernel("ampere_bf16_s16816gemm", 70, 25, device=1, launch=(52, 3))
    section = run(ComputeEfficiency(), trace)
    assert section.table("operators")["roof"].tolist() == pytest.approx([0.4, 0.5])
    assert section.table("ranks")["mfu"].tolist() == pytest.approx([0.1, 0.1])


def test_chosen_steps(run):
    """Calls and kernels of other steps are left out."""
    trace = product(product(traced().step(1, 0, 100).step(2, 100, 100), 0, 20), 100, 40)
    section = run(ComputeEfficiency(), trace, steps="2")
    assert row(section)["time"] == 40 * US
    assert section.table("steps")["step"].tolist() == [2]
