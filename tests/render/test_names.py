"""Names of kernels get short; everything else stays what it is."""

import time

import pytest
from render.sample import HOSTILE, REAL

from htareport.render.kernel_names import cut, label, labels, short


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
        ("void at::k<4, (at::Mode)1>(int)::{lambda(int)#1}::operator()(int) const", "k"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",) * 2,
        ("execute_32_context_0(0)_generation_32(32)",) * 2,
        ("k(int)const", "k"),
        (
            "_ZN2ck16tensor_operation6device12_GLOBAL__N_121kernel_gemm_xdlops_v2INS_12GridwiseGemmIfEEEEvPf",
            "kernel_gemm_xdlops_v2 [GridwiseGemm]",
        ),
        ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_8PipelineEEEJEEvDpT1_", "kentry [Rmsnorm2dFwd]"),
        ("_Z9my_kernelPfS_i", "my_kernel"),
        ("_ZN99ab",) * 2,
        ("_Zebra",) * 2,
        ("", ""),
    ],
)
def test_short_name(name, shown):
    assert short(name) == shown


@pytest.mark.parametrize("name", HOSTILE + REAL)
def test_no_longer_than_64(name):
    assert 0 < len(short(name)) <= 64


@pytest.mark.parametrize("name", [*HOSTILE[:6], *HOSTILE[8:]])
def test_what_is_no_cpp_stays(name):
    assert short(name) == name


@pytest.mark.parametrize(
    "evil",
    ["void " + "<" * 100_000, "a<" + "(" * 100_000, "void " + "a::" * 33_000 + "<", "_GLOBAL__N__" * 9_000,
     "void k<" + "Functor_" * 12_000, "void " + " " * 100_000 + "k<", "void k<" + "thrust::a::" * 9_000,
     "a::" * 33_000 + "b", "_ZN" + "1a" * 50_000, "_ZN9" + "9" * 100_000, "k<" * 1000 + ")" * 50_000],
)  # fmt: skip
def test_hostile_names_cost_no_time(evil):
    start = time.perf_counter()
    assert len(short(evil)) <= 64
    assert time.perf_counter() - start < 0.2


def test_cut_in_the_middle():
    assert cut("abcdefghij", 7) == "abcd…ij"
    assert cut("abc", 7) == "abc"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("a\x1b[1mb\x7f\x85", "a␛[1mb␡⟨U+0085⟩"),
        ("a\nb\tc", "a␊b␉c"),
        ("a\u200bb\ufeff\u2066", "a⟨U+200B⟩b⟨U+FEFF⟩⟨U+2066⟩"),
        ("\ud800", "\ufffd"),
        ("核函数_ядро_🚀", "核函数_ядро_🚀"),
    ],
)
def test_what_does_not_show_is_spelled_out(name, shown):
    assert short(name) == shown


@pytest.mark.parametrize("name", ["", " ", "\u2003 "])
def test_blank_names_show(name):
    assert label(name) == "(no name)"


def test_equal_short_names_are_told_apart():
    kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::{}_kernel_cuda(at::TensorIteratorBase&)::"
    rest = "{{lambda()#2}}::operator()() const::{{lambda(float)#1}}, at::detail::Array<char*, 2> >(int, float)"
    names = [f"{kernel.format(what)}{rest}" for what in ("sqrt", "addcmul", "addcdiv")]
    assert list(labels(names).values()) == [
        f"vectorized_elementwise_kernel fp32 · {what}_kernel_cuda" for what in ("sqrt", "addcmul", "addcdiv")
    ]
    assert labels(["void k<1>()", "void k<2>()"]) == {"void k<1>()": "k · 1", "void k<2>()": "k · 2"}
    gemm = "sm90_xmma_gemm_bf16bf16_bf16f32_tn_n_tilesize{}_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas"
    told = list(labels([gemm.format(tile) for tile in ("128x256x64", "64x64x64")]).values())
    assert [text.split(" · ")[1] for text in told] == ["tilesize128x256x64", "tilesize64x64x64"]


def test_names_that_differ_in_two_places_say_both():
    gemm = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_{}_n_tilesize{}_warpgroupsize1x1x1_execute_segment_k_off__5x_cublas"
    pairs = [(layout, tile) for layout in ("nt", "nn", "tn") for tile in ("128x128x64", "128x256x64")]
    told = list(labels([gemm.format(*pair) for pair in pairs]).values())
    assert [text.split(" · ")[1] for text in told] == [f"tilesize{tile}, {layout}" for layout, tile in pairs]
    assert max(text.count("…") for text in told) == 1


def test_mangled_names_are_told_apart_by_numbers_and_classes():
    kernel = "_ZN2ck3gemI{}Li{}ELi64EEEvPf"
    names = [kernel.format("NS_8RowMajorE", 128), kernel.format("NS_8RowMajorE", 256), kernel.format("NS_3ColE", 128)]
    assert list(labels(names).values()) == ["gem [RowMajor] · 128", "gem [RowMajor] · 256", "gem [Col]"]


def test_labels_are_unique_and_short_whatever_the_names():
    names = [*HOSTILE, *REAL, "", " ", *(f"{name} " for name in REAL), *("q" * i for i in range(60, 90)),
             *(f"void k<{'x' * 5000}{i}>()" for i in range(100))]  # fmt: skip
    shown = labels(names)
    assert set(shown) == set(names)
    assert len(set(shown.values())) == len(names)
    assert all(0 < len(text) <= 64 for text in shown.values())


def test_chains_of_kernels_are_made_short():
    chain = f"{REAL[0]} → {REAL[9]} ×3"
    assert short(chain, 200) == "vectorized_elementwise_kernel [CUDAFunctor_add] bf16 → reduce_kernel [MeanOps] fp32 ×3"
