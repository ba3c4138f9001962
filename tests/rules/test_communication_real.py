"""What is said about communication in real traces, where those are at hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rules.parallel import plain

from htareport.analyses.ranks.stragglers import Stragglers
from htareport.rules import discover
from htareport.run.runner import analyze

SHARED = Path(__file__).parents[3] / "shared"

pytestmark = [
    pytest.mark.replayed,
    pytest.mark.skipif(not (SHARED / "traces").is_dir(), reason=f"needs the traces in {SHARED}"),
]


def report_of(source, *codes):
    rules = [rule for rule in discover() if rule.code in codes or (not codes and rule.code.startswith("N"))]
    return analyze(source, analyses=[Stragglers()], rules=rules)


def told(source, *codes):
    return {finding.code: finding for finding in report_of(source, *codes)["findings"].findings}


def test_exposed_gradients_of_one_rank():
    """32.15 of 48.67 ms in three steps; compute is 4 ms a step, so that hiding is not enough."""
    report = report_of(SHARED / "traces" / "resnet_ddp_mi300x")
    [found] = report["findings"].findings
    assert found.code == "N1"
    assert "66.1 % of the step: 10.7 ms per step" in plain(found.title)
    assert found.saving_ns == pytest.approx(11e6, rel=0.01)  # Some of it runs after the CPU has ended the step.
    assert "all_reduce · default_pg" in found.evidence
    assert "Only 1 of 8 ranks was recorded" in found.advice
    assert "hiding is not enough" in found.advice
    assert "bf16" not in found.advice  # It reduces in bf16.


def test_late_ranks_of_eight():
    """The one that the section of stragglers names, and nothing against its last ranks."""
    report = report_of(SHARED / "traces" / "dlrm_8rank_v100")
    found = {finding.code: finding for finding in report["findings"].findings}
    ranks, collectives = report["stragglers"].table(), report["stragglers"].table("collectives")
    assert found["N4"].ranks == tuple(ranks.loc[ranks["straggler"] == "yes", "rank"])
    held_up = ranks.set_index("rank").loc[7, "held_up"]
    assert plain(found["N4"].title) == f"Rank 7 holds up the others for {held_up / 1e6:.2f} ms per step"
    assert "7.62 ms of rank 1 for rank 7, at send_recv" in plain(found["N3"].evidence)
    assert collectives.set_index("collective").loc[[0, 5], "last_rank"].tolist() == [7, 5]


def test_one_collective_of_two_ranks():
    found = told(SHARED / "traces" / "tp_toy_2rank_rtx4090")
    assert set(found) == {"N3"}
    assert "11.3 ms of rank 1 for rank 0, at all_reduce" in plain(found["N3"].evidence)
    assert "One collective may be chance." in found["N3"].evidence


@pytest.mark.parametrize("run", ["nccl_args_a100", "cpu_gloo_rank34", "bert_h100", "vllm_decode_hipgraph"])
def test_nothing_to_say(run):
    """No communication, or none that compute waits for: in the first the host has not launched what follows."""
    assert not told(SHARED / "traces" / run)


def test_two_of_many_ranks():
    """Communication is exposed, but these two wait for their hosts: without it, their steps would take as long."""
    assert not told(SHARED / "traces" / "sampled_2of128ranks_a100")


def test_generated_straggler(tmp_path):
    """Its kernels take 1.3 times as long; clocks are off by up to 5 ms."""
    options = ["--ranks", "8", "--steps", "4", "--layers", "4", "--straggler", "3:1.3", "--clock-offset-us", "5000"]
    command = [sys.executable, str(SHARED / "tools" / "make_trace.py"), *options, str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    report = report_of(tmp_path, "N1", "N4", "N5")
    found = {finding.code: finding for finding in report["findings"].findings}
    ranks = report["stragglers"].table().set_index("rank")
    assert found["N4"].ranks == (3,)
    assert found["N4"].saving_ns == pytest.approx(ranks.loc[3, "held_up"] / 4, rel=0.05)
    assert "its kernels take 1.3" in found["N5"].title
    assert "All kinds of kernels are slower alike." in found["N5"].evidence
