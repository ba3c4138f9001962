"""Types for which the device is slow. 3.12e9 operations take 33.333 µs at 60 % of an A100's peak in TF32."""

from __future__ import annotations

import pytest
from rules.computing import A100, BF16, DOUBLE, ELEMENTWISE, FLOAT, GEMM, HALF, SHAPES, V100, Work, states

from htareport.rules.compute.double import Float64
from htareport.rules.compute.precision import NoTensorCores, NoTf32

SGEMM = "ampere_sgemm_128x64_nn"
IMAGE = [[8, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []]  # 1,849,688,064 operations.
OPTIONS = {"Concrete Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]}
RULES = [NoTensorCores(), NoTf32(), Float64()]


def test_tf32(findings):
    """Of 200 µs 120, since no more than 60 % are; half of that for the lower estimate."""
    told = findings(RULES, Work().mm(200, kernel=SGEMM, dtype=FLOAT))
    assert list(told) == ["C3"]
    assert (told["C3"].saving_ns, told["C3"].low_ns) == (120_000, 60_000)
    assert "100\u202f% of compute: `ampere_sgemm_128x64_nn` 200\u202fµs in 1 call" in told["C3"].evidence
    assert 'set_float32_matmul_precision("high")' in told["C3"].snippet


def test_tf32_has_a_peak_too(findings):
    """Of 60 µs 33.333 are left."""
    assert findings(RULES, Work().mm(60, kernel=SGEMM, dtype=FLOAT))["C3"].saving_ns == pytest.approx(26_667, abs=1)


def test_tf32_without_shapes(findings):
    """The name of the kernel says enough for the ceiling, and nothing of the floor."""
    told = findings(RULES, Work().run("aten::mm", [("cutlass_80_simt_sgemm_128x128_8x5_nn_align1", 100)]))
    assert list(told) == ["C3"]
    assert (told["C3"].saving_ns, told["C3"].low_ns) == (60_000, 0)


def test_float32_where_there_is_no_tf32(findings):
    """On a V100 in float16: 3.12e9 operations at 60 % of 125 TFLOP/s take 41.6 µs."""
    trace = Work(name=V100).mm(200, kernel="volta_sgemm_128x64_nn", dtype=FLOAT)
    told = findings(RULES, trace)
    assert list(told) == ["C2"]
    assert told["C2"].saving_ns == 158_400
    assert "dtype=torch.float16" in told["C2"].advice
    assert "GradScaler" not in told["C2"].advice
    assert "loss" not in told["C2"].snippet  # There is none: nothing of a backward pass is recorded.
    trained = findings(RULES, trace.cpu_op("autograd::engine::evaluate_function: MmBackward0", 0, 1))["C2"]
    assert "GradScaler" in trained.advice
    assert "loss" in trained.snippet


def test_without_shapes_half(findings):
    """Names of convolutions of cuDNN too."""
    trace = Work(name=V100).run("aten::conv2d", [("volta_scudnn_128x64_relu_interior_nn_v1", 60)])
    trace.run("aten::conv2d", [("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7>(int)", 40)])
    assert findings(RULES, trace)["C2"].saving_ns == 50_000


def test_convolutions_in_float32(findings):
    """In bfloat16 1,849,688,064 operations take 9.881 µs at 60 % of 312 TFLOP/s."""
    trace = Work().run(
        "aten::convolution", [("cudnn_ampere_scudnn_128x64_relu_medium_nn_v1", 100)], IMAGE, FLOAT, **OPTIONS
    )
    told = findings(RULES, trace)
    assert list(told) == ["C2"]
    assert told["C2"].saving_ns == pytest.approx(100_000 - 9881, abs=1)
    assert "dtype=torch.bfloat16" in told["C2"].snippet


def test_sixteen_bits_without_tensor_cores(findings):
    """3.12e9 operations take 16.667 µs at 60 % of 312 TFLOP/s."""
    told = findings(RULES, Work().mm(100, kernel="ampere_fp16_sgemm_fp16_32x128_tn", dtype=HALF))
    assert list(told) == ["C2"]
    assert told["C2"].saving_ns == pytest.approx(100_000 - 16_667, abs=1)
    assert "multiples of 8" in told["C2"].advice


def test_a_product_with_a_vector_is_bound_by_memory(findings):
    """10,010,002 elements of 2 bytes take 12.875 µs, 16.093 at 80 % of the bandwidth: of 17 µs next to nothing."""
    shapes = [[1, 5000], [5000, 2000]]
    assert not findings(RULES, Work().mm(17, shapes, "void gemv2T_kernel_val<int, int, __half>", dtype=HALF))


GROUPS = [[8, 64, 56, 56], [64, 1, 3, 3], [], [], [], [], [], [], []]


@pytest.mark.parametrize(
    "trace",
    [
        Work().mm(200),
        Work().mm(200, kernel="cutlass_80_tensorop_s1688gemm_128x128_nn_align4", dtype=FLOAT),
        Work().mm(200, kernel="sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n", dtype=FLOAT),
        Work(name="NVIDIA GeForce RTX 3090").mm(200, kernel=SGEMM, dtype=FLOAT),
        Work(name="AMD Instinct MI300X").mm(200, kernel="Cijk_Ailk_Bljk_SB_MT128x64x16_MI32x32x2x1", dtype=FLOAT),
        Work().mm(200).run("aten::mm", [(SGEMM, 3)], SHAPES, FLOAT),
        Work(10_000).mm(50, kernel=SGEMM, dtype=FLOAT),
        Work().run("aten::convolution", [("conv2d_c1_k1_nhwc_kernel", 100)], GROUPS, HALF, **OPTIONS
                   | {"Concrete Inputs": [*OPTIONS["Concrete Inputs"][:-1], "64"]}),
        Work().run("aten::mul", [(ELEMENTWISE, 100)], [[1000], []], FLOAT, **{"Input type": [FLOAT, DOUBLE]}),
    ],
    ids=["bf16", "s1688", "tf32", "TF32 is no faster", "matrix cores", "little", "little of the step",
         "depthwise", "a number"],
)  # fmt: skip
def test_silent(tell, trace):
    assert states(tell(RULES, trace)) == {"C2": "fine", "C3": "fine", "C16": "fine"}


def test_a_device_that_is_not_known(tell):
    """Whether it has tensor cores is not known either."""
    outcome = states(tell(RULES, Work(name="some GPU").mm(200, kernel=SGEMM, dtype=FLOAT)))
    assert outcome["C2"] == outcome["C3"] == "not checked: the limits of some GPU are not known"
    assert outcome["C16"] == "fine"


def test_float64(findings):
    """Half of 100 µs, since half of the bytes go; a tensor of one element is none."""
    trace = Work().run("aten::mul", [(ELEMENTWISE, 100)], [[1000], [1000]], DOUBLE)
    trace.run("aten::add", [(ELEMENTWISE, 50)], [[1000], [1]], FLOAT, **{"Input type": [FLOAT, DOUBLE]})
    told = findings(RULES, trace)
    assert list(told) == ["C16"]
    assert told["C16"].saving_ns == 50_000
    assert told["C16"].title == "Work in float64 takes 100\u202fµs per step, 66.7\u202f% of compute"
    assert told["C16"].evidence == "By operator: `aten::mul` 100\u202fµs."


@pytest.mark.parametrize(("device", "saving"), [(A100, 50_000), ("NVIDIA GeForce RTX 4090", 90_000)])
def test_products_in_float64(findings, device, saving):
    """An A100 does 19.5 TFLOP/s in float64 as in float32, a consumer card a 64th; known from the kernel's name."""
    trace = Work(name=device).run("aten::mm", [("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1", 100)])
    assert findings(RULES, trace)["C16"].saving_ns == saving


@pytest.mark.replayed
def test_what_the_host_allows_is_said(findings):
    """Each of three kernels could take 60 µs less, but is launched when the one before is done: only the last gains."""
    trace = Work()
    for at in (0, 200, 400):
        trace.cpu_op("aten::mm", at, 10).kernel(SGEMM, at + 20, 100, launch=(at + 2, 3))
    told = findings(RULES, trace)["C3"]
    assert (told.saving_ns, told.saving_kind) == (60_000, "estimate")
    assert "The work itself could take 180\u202fµs less, but" in told.assumption


def test_mixed(findings):
    """Each kernel's own saving: 120 of 200 in float32, 50 of 100 in float64; nothing of bfloat16."""
    trace = Work().mm(200, kernel=SGEMM, dtype=FLOAT).mm(100, kernel=GEMM, dtype=BF16)
    trace.run("aten::mul", [(ELEMENTWISE, 100)], [[1000], [1000]], DOUBLE)
    assert {code: told.saving_ns for code, told in findings(RULES, trace).items()} == {"C3": 120_000, "C16": 50_000}
