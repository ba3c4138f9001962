"""Names of kernels get short; everything else stays what it is."""

import time

import pytest
from render.sample import HOSTILE, REAL

from htareport.render.names import cut, short


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (REAL[0], "vectorized_elementwise_kernel [CUDAFunctor_add] bf16"),
        (REAL[2], "80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8"),
        (REAL[3], "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        (REAL[5], "flash_fwd_kernel bf16"),
        (REAL[7], "multi_tensor_apply_kernel [FusedAdamMathFunctor] fp32"),
        (REAL[9], "reduce_kernel [MeanOps] fp32"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128", "Cijk_Ailk_Bljk_BBS_BH_MT128x128"),
        ("aten::add", "aten::add"),
        ("void (anonymous namespace)::k<int, float>(int)", "k fp32"),
        ("", ""),
    ],
)
def test_short_name(name, shown):
    assert short(name) == shown


@pytest.mark.parametrize("name", HOSTILE + REAL)
def test_no_longer_than_64(name):
    assert 0 < len(short(name)) <= 64


@pytest.mark.parametrize("name", [*HOSTILE[:6], *HOSTILE[7:]])
def test_what_is_no_cpp_stays(name):
    assert short(name) == name


@pytest.mark.parametrize(
    "evil",
    ["void " + "<" * 100_000, "a<" + "(" * 100_000, "void " + "a::" * 33_000 + "<", "_GLOBAL__N__" * 9_000,
     "void k<" + "Functor_" * 12_000, "void " + " " * 100_000 + "k<", "void k<" + "thrust::a::" * 9_000,
     "a::" * 33_000 + "b"],
)  # fmt: skip
def test_hostile_names_cost_no_time(evil):
    start = time.perf_counter()
    assert len(short(evil)) <= 64
    assert time.perf_counter() - start < 0.2


def test_cut_in_the_middle():
    assert cut("abcdefghij", 7) == "abcd…ij"
    assert cut("abc", 7) == "abc"
