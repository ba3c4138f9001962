"""Matrix products below the roof, misaligned, and on old kernels: 3.12e9 operations take 10 µs at an A100's peak."""

from __future__ import annotations

import pytest
from rules.computing import BF16, FLOAT, GEMM, H100, SHAPES, V100, Work, states

from htareport.rules.compute.attention import UnfusedAttention
from htareport.rules.compute.products import BelowRoof, Misaligned, OldKernels

ODD = [[1000, 1201], [1201, 1300]]  # 3.1226e9 operations: 10.0083 µs.
ALIGN = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_64x3_nn_align1>(cutlass::Params)"
OLD = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align8>(cutlass::Params)"
RULES = [BelowRoof(), Misaligned(), OldKernels()]


def test_below_the_roof(findings):
    """Three of 50 µs, 20 % of the roof: at 85 % each takes 11.765, at 70 % 14.286."""
    told = findings(RULES, Work().mm(50).mm(50).mm(50))
    assert list(told) == ["C1"]
    finding = told["C1"]
    assert finding.saving_ns == pytest.approx(3 * (50_000 - 10_000 / 0.85), abs=1)
    assert finding.low_ns == pytest.approx(3 * (50_000 - 10_000 / 0.7), abs=1)
    assert (
        finding.title
        == "Matrix products reach 20.0\u202f% of what the GPU can do, which costs up to 115\u202fµs per step"
    )
    assert finding.severity == "high"
    assert finding.evidence == (
        "`aten::mm` 1000×1200, 1200×1300 in bf16: 20.0\u202f% of its roof (compute bound), 150\u202fµs in 3 calls per "
        f"step, kernel `{GEMM}`."
    )


def test_what_else_an_operator_launches_counts(findings):
    """40 µs with a sum of 10 behind: 50 for 10."""
    trace = Work().run("aten::mm", [(GEMM, 40), ("void at::native::reduce_kernel<512>", 10)], SHAPES)
    assert findings(RULES, trace)["C1"].saving_ns == pytest.approx(50_000 - 10_000 / 0.85, abs=1)


@pytest.mark.parametrize(
    "trace",
    [
        Work().mm(16),
        Work().mm(19, [[500, 1200], [1200, 1300]]),
        Work().mm(50, grid=(80, 1, 1)),
        Work(10_000).mm(50),
        Work().mm(50, dtype=FLOAT, kernel="nvjet_sss"),
        Work().run("aten::add", [("add", 50)], SHAPES),
    ],
    ids=["60 %", "short", "few blocks", "little", "unknown arithmetic", "no product"],
)
def test_silent(tell, trace):
    assert states(tell(RULES, trace)) == {"C1": "fine", "C4": "fine", "C5": "fine"}


def test_a_device_that_is_not_known(tell):
    """There is no roof, and that is said, where any rule can look."""
    outcome = states(tell([*RULES, UnfusedAttention()], Work(name="some GPU").mm(50)))
    assert {outcome[code] for code in ("C1", "C4", "C5")} == {"not checked: the limits of some GPU are not known"}
    assert outcome["C6"] == "fine"


def test_without_steps_and_on_two_devices(findings):
    """Of one device 50 of 100 µs are a product for 10; the other does nothing to speak of: half of it each."""
    trace = Work(0)
    trace.metadata["deviceProperties"].append({"id": 1, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108})
    trace.mm(50).busy(50).kernel("other", 200, 100, device=1)
    told = findings(RULES, trace)["C1"]
    assert told.saving_ns == pytest.approx((50_000 - 10_000 / 0.85) / 2, abs=1)
    assert not told.is_per_step


def test_misaligned(findings):
    """100 µs for 10.0083: at 60 % of the roof 16.68; at 30 % 33.36."""
    told = findings(RULES, Work().mm(100, ODD, ALIGN))
    assert list(told) == ["C4"]
    finding = told["C4"]
    assert finding.saving_ns == pytest.approx(100_000 - 10_008.33 / 0.6, abs=1)
    assert finding.low_ns == pytest.approx(100_000 - 10_008.33 / 0.3, abs=1)
    assert finding.evidence.startswith("1300 and 1201 are no multiple of 8 elements (16 bytes).")
    assert "kernel `cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_64x3_nn_align1`" in finding.evidence
    assert finding.advice.startswith("Pad 1300 to 1304 and 1201 to 1208, so that")


def test_sizes_are_even_but_strides_are_not(findings):
    """The kernel says so, and nothing else does."""
    shapes = [[1000, 1200], [1200, 1296]]
    assert findings(RULES, Work().mm(100, shapes, ALIGN))["C4"].advice.startswith("Make strides and offsets")


def test_four_elements_of_float32_are_sixteen_bytes(findings):
    """3.12e9 operations take 20 µs in TF32: 100 is a fifth of the roof, for no reason of alignment."""
    kernel = "cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4"
    assert list(findings(RULES, Work().mm(100, kernel=kernel, dtype=FLOAT))) == ["C1"]
    kernel = kernel.replace("align4", "align2")
    assert list(findings(RULES, Work().mm(100, kernel=kernel, dtype=FLOAT))) == ["C4"]


@pytest.mark.parametrize(
    "trace",
    [Work().mm(16, ODD, ALIGN), Work().mm(100, SHAPES, GEMM.replace("128x128", "align8")), Work().mm(19, ODD, ALIGN)],
    ids=["fast", "aligned", "short"],
)
def test_not_misaligned(tell, trace):
    assert states(tell(RULES, trace))["C4"] == "fine"


def test_old_kernels(findings):
    """On an H100 3.12e9 operations take 3.1531 µs; 40 of 50 µs are cutlass_80's. Of C1 nothing is left to say."""
    told = findings(RULES, Work(name=H100).mm(40, kernel=OLD))
    assert list(told) == ["C5"]
    assert told["C5"].saving_ns == pytest.approx(40_000 - 3153.11 / 0.85, abs=1)
    assert told["C5"].low_ns == pytest.approx(40_000 - 3153.11 / 0.7, abs=1)


@pytest.mark.parametrize(
    "trace",
    [
        Work().mm(100, kernel=OLD),
        Work(name=V100).mm(100, dtype="c10::Half", kernel="volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"),
        Work(name=H100).mm(40, kernel="sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"),
        Work(name=H100).mm(100, ODD, ALIGN),
        Work(name="NVIDIA GeForce RTX 5090").mm(100, kernel=OLD),
    ],
    ids=["A100", "V100", "of its own", "misaligned", "consumer card"],
)
def test_kernels_of_the_device_s_own(tell, trace):
    assert states(tell(RULES, trace))["C5"] == "fine"


def test_attention_has_its_own_remedy(findings):
    """Its products are neither below the roof nor misaligned to speak of: with fused attention there are none."""
    trace = Work(2000).run("aten::bmm", [(ALIGN, 300)], [[16, 1001, 64], [16, 64, 1001]], BF16)
    trace.run("aten::_softmax", [("softmax", 100)], [[16, 1001, 1001], [], []])
    trace.run("aten::bmm", [(ALIGN, 300)], [[16, 1001, 1001], [16, 1001, 64]], BF16)
    told = findings([*RULES, UnfusedAttention()], trace)
    assert list(told) == ["C6", "C4"]
    assert told["C4"].severity == "low"
    assert told["C4"].nested_under == 0


def test_on_rocm(findings):
    """On an MI300X 3.12e9 operations take 2.3864 µs; kernels are on device 2, as ROCm counts."""
    trace = Work(name="AMD Instinct MI300X VF", hip_runtime_version=60443483)
    trace.mm(100, kernel="Cijk_Ailk_Bljk_BBS_BH_MT128x128x64_MI16x16x16x1", launch_name="hipModuleLaunchKernel")
    for event in trace.events:
        if event["cat"] == "kernel":
            event["args"]["device"] = event["pid"] = 2
    assert findings(RULES, trace)["C1"].saving_ns == pytest.approx(100_000 - 2386.4 / 0.85, abs=1)
