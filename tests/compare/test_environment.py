"""What else differs between two runs, and whether that matters."""

import pytest
from compare.reports import run, steps_of

from htareport.compare import compare
from htareport.compare.environment import _type_of

META = {"devices": {"NVIDIA H100": 8}, "software": {"CUDA runtime": "12.4"}, "num_ranks": 8, "version": "1.0"}


def _differing(base, new, **runs):
    """What differs between two `meta`, with whether it matters."""
    report = compare(*(run({0: steps_of(100)}, meta=META | meta, **runs) for meta in (base, new)))
    tables = [table for table in report["compare"].tables if table.spec.name == "environment"]
    rows = tables[0].frame.to_dict("records") if tables else []
    return {row["what"]: row["like"] for row in rows}, report.verdict


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ({}, {}),
        ({"devices": {"NVIDIA H100": 1}}, {}),  # Their number follows from that of the ranks.
        ({"devices": {"NVIDIA A100": 8}}, {"devices": "no"}),
        ({"devices": {"unnamed device": 8}}, {"devices": "unknown"}),
        ({"devices": {}}, {"devices": "no"}),  # On the host alone.
        ({"software": {"CUDA runtime": "12.6"}}, {"CUDA runtime": "no"}),
        ({"software": {}}, {"CUDA runtime": "unknown", "platform": "unknown"}),
        ({"num_ranks": 16}, {"ranks read": "no"}),
        ({"version": "1.1"}, {"htareport": "yes"}),
        ({"capture": {"with_stack": True}}, {"profiler's with_stack": "unknown"}),
    ],
)
def test_what_is_known(new, expected):
    found, verdict = _differing({}, new)
    assert found == expected
    assert verdict.startswith("Not like for like") == ("no" in expected.values())


def test_options_of_analyses():
    """They divide time otherwise; those that one run does not know are passed over."""
    options = [{"idle_time": {"consecutive_kernel_delay": delay}, "cost": cost} for delay, cost in ((30, {}), (50, 1))]
    assert _differing(*({"options": each} for each in options))[0] == {"idle_time.consecutive_kernel_delay": "yes"}


def test_long_values_are_cut():
    verdict = _differing({}, {"devices": {"x" * 9000: 1}})[1]
    assert f"devices (NVIDIA H100 → {'x' * 49}…)." in verdict


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("ampere_sgemm_128x64_tn", "float32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x32x64", "tf32"),
        ("cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4", "tf32"),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "float16"),
        ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "bfloat16"),
        ("ampere_h16816gemm_128x128_ldg8_stages_32x5_tn", "float16"),
        ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::Half>>(int, float)", "float16"),
        ("void cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16>(float*)", "bfloat16"),
        ("multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>, float const*, double>", "float32"),
        ("void at::native::vectorized_elementwise_kernel<4, AddFunctor<double>>(int)", "float64"),
        ("cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_128x128x128", "float8"),
        ("transpose_CNHW2NCHW_V2_2D_WG_off64", ""),
        ("nvjet_hsh_192x192_64x4_1x2_h_bz_coopA_TNT", ""),
    ],
)
def test_number_types_of_kernels(kernel, kind):
    assert _type_of(kernel) == kind


def test_a_type_that_comes_and_one_that_hardly_changes():
    """TF32 is new; half precision at the border of what counts is on both sides."""

    def of(*kernels):
        return run({0: steps_of(100)}, kernels=[("op", "8", name, "compute", 1, time) for name, time in kernels])

    base = of(("sgemm", 97.9), ("add<c10::Half>", 2.1))
    new = of(("s1688gemm", 40.0), ("sgemm", 58.1), ("add<c10::Half>", 1.9))
    table = next(t for t in compare(base, new)["compare"].tables if t.spec.name == "environment").frame
    assert table.to_dict("records") == [
        {
            "what": "number types in kernel names",
            "base": "float16, float32",
            "new": "float16, tf32, float32",
            "like": "no",
        }
    ]
