"""What is said about the recording, the host and memory of real runs, where their traces are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from htareport.rules import discover
from htareport.rules.engine.base import Family
from htareport.run.runner import analyze

TRACES = Path(__file__).parents[3] / "shared" / "traces"
RULES = [rule for rule in discover() if rule.family in {Family.QUALITY, Family.HOST, Family.MEMORY}]
RUNS = sorted(path.name for path in TRACES.glob("*") if path.is_dir())

pytestmark = [
    pytest.mark.replayed,
    pytest.mark.skipif(not RUNS, reason=f"needs the traces in {TRACES}"),
]


@pytest.fixture(scope="module")
def told():
    """Return the section of findings of a run, made once."""
    sections = {}

    def section(run):
        if run not in sections:
            sections[run] = analyze(TRACES / run, analyses=[], rules=RULES)["findings"]
        return sections[run]

    return section


def codes(section):
    return [finding.code for finding in section.findings]


@pytest.mark.parametrize("run", RUNS)
def test_no_rule_fails(told, run):
    section = told(run)
    assert not [note for note in section.notes if "failed" in note]
    assert all(finding.saving_ns is None or finding.saving_ns >= finding.low_ns for finding in section.findings)


def test_a_stalled_loader_and_the_copies_before_it(told):
    """The loader comes first; that blocking copies let the device run empty is nested under it."""
    found = told("owlv2_h100").findings
    copies = next(finding for finding in found if finding.code == "H7")
    assert (found[0].code, copies.nested_under) == ("H15", 0)
    assert 0.6e9 < found[0].saving_ns < 0.63e9  # 0.12 of it before the first GPU event.
    assert copies.saving_ns > 0.25e9


def test_small_kernels_one_by_one(told):
    """The recording has stacks, which slow the host: that is said first."""
    recording, first = (finding for finding in told("bert_h100").findings if finding.code in {"Q4", "H2"})
    assert (recording.code, recording.severity, first.code) == ("Q4", "high", "H2")
    assert "A CUDA graph could replay the step" in first.evidence


def test_workers_end_the_stall(told):
    assert codes(told("resnet50_workers0_v100"))[0] == "H15"
    assert not {"H14", "H15"} & set(codes(told("resnet50_workers4_v100")))


@pytest.mark.parametrize("run", ["resnet_ddp_mi300x", "vllm_decode_hipgraph"])
def test_busy_devices_need_no_advice_about_the_host(told, run):
    assert not [code for code in codes(told(run)) if code.startswith("H")]


@pytest.mark.parametrize("run", ["compile_graph_a100", "vllm_decode_hipgraph", "bert_h100", "owlv2_h100"])
def test_all_work_is_there(told, run):
    assert "Q3" not in codes(told(run))


def test_a_graph_that_is_recorded_is_no_reason_to_launch_more_at_once(told):
    assert not {"H2", "H3"} & set(codes(told("compile_graph_a100")))


@pytest.mark.parametrize("run", ["critical_path_alexnet", "critical_path_simple_add", "tp_toy_2rank_rtx4090"])
def test_the_start_of_a_process_comes_first(told, run):
    assert codes(told(run))[0] == "Q2"
    assert "H9" in codes(told(run))


def test_a_recording_of_captures_is_none_of_replays(told):
    first = told("vllm_decode_hipgraph/capture_traces").findings[0]
    assert (first.code, first.severity) == ("Q3", "medium")
    assert "421 of 428" in first.evidence
    assert not [code for code in codes(told("vllm_decode_hipgraph/capture_traces")) if code.startswith("H")]
