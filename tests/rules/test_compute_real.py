"""What is said about compute in real traces, where those are at hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from htareport.rules import discover
from htareport.rules.compute.ranks import SlowRank
from htareport.run.runner import analyze

SHARED = Path(__file__).parents[3] / "shared"

pytestmark = [
    pytest.mark.replayed,
    pytest.mark.skipif(not (SHARED / "traces").is_dir(), reason=f"needs the traces in {SHARED}"),
]


def told(run):
    section = analyze(SHARED / "traces" / run, analyses=[], rules=discover())["findings"]
    assert not [note for note in section.notes if "failed" in note]
    return {finding.code: finding for finding in section.findings}


def compute(found):
    return [code for code in found if code.startswith("C")]


def test_unfused_attention():
    """The loader comes first, then the attention, which is misaligned besides; padding is another way to its time."""
    found = told("owlv2_h100")
    assert list(found)[:2] == ["H15", "C6"]
    assert found["C6"].title.startswith("Attention is not fused and has misaligned sizes")
    assert 330e6 < found["C6"].saving_ns < 465e6  # Of 493 ms, 30 are left; the CPU launches some of it too late.
    assert "5185 is no multiple of 8" in found["C6"].evidence
    assert "Pad 5185 to 5192" in found["C4"].advice
    assert found["C4"].severity == "low"
    assert list(found)[found["C4"].nested_under] == "C6"
    assert "C23" not in found  # The softmax goes with the attention.
    assert "`aten::mul` → `aten::sigmoid` → `aten::mul`" in found["C7"].evidence


def test_layouts_come_behind_communication():
    found = told("resnet_ddp_mi300x")
    assert list(found).index("N1") < list(found).index("C18")
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC=1" in found["C18"].advice
    assert "`batched_transpose_16x32_half`" in found["C18"].evidence


def test_checkpointed_activations():
    """A third of compute is the forward pass once more, but communication sets the pace, and memory is not known."""
    finding = told("resnet_ddp_mi300x")["C21"]
    assert "in the backward pass (activation checkpointing) take 31.9\u202f% of compute" in finding.evidence
    assert (finding.low_ns, finding.confidence, finding.saving_kind) == (0, "low", "estimate")


def test_a_launch_bound_model_needs_no_faster_kernels():
    """Its device is idle nine tenths of the time."""
    assert not compute(told("bert_h100"))


def test_what_the_host_holds_up():
    """No tensor cores in two thirds of compute, but the loader and the host set the pace."""
    found = told("resnet50_workers0_v100")
    assert found["C2"].severity == "low"
    assert "the step would not be shorter by that" in found["C2"].assumption


@pytest.mark.parametrize("run", ["cpu_student", "cpu_gloo_rank34", "npu_ascend"])
def test_nothing_of_the_cpu(run):
    assert not compute(told(run))


def test_generated_slow_rank(tmp_path):
    """The kernels of rank 3 take 1.3 times as long, and all vary by a tenth and more."""
    options = ["--ranks", "4", "--steps", "4", "--layers", "4", "--straggler", "3:1.3"]
    command = [sys.executable, str(SHARED / "tools" / "make_trace.py"), *options, str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    [found] = analyze(tmp_path, analyses=[], rules=[SlowRank(spread=0.5)])["findings"].findings
    assert found.ranks == (3,)
    assert "3" in found.title
