"""Communication that compute waits for: what counts, and what the rules about all of it say."""

from __future__ import annotations

import pickle

import pytest
from builder import TraceBuilder
from rules.parallel import ALL_GATHER, ALL_REDUCE, GEMM, US, findings, one, plain

from htareport.report.findings import Severity
from htareport.rules import rule_classes
from htareport.rules.engine.base import Family
from htareport.rules.engine.evaluate import evaluate_rank
from htareport.trace import RankTrace

RULES = [rule() for rule in rule_classes().values() if rule.family is Family.COMMUNICATION]


def exposed(rank=0, ranks=2, *, late=0, launch_name="cudaLaunchKernel", clock=0, device=0):
    """A step of 1000 µs: gemm 0-400, all-reduce 300-800, gemm 800-900, whose launch ends at 100, or `late`."""
    return (
        TraceBuilder(rank, ranks)
        .step(1, clock, 1000)
        .kernel(GEMM, clock, 400, device=device, launch=(clock, 5), launch_name=launch_name)
        .collective(ALL_REDUCE, "allreduce", clock + 300, 500, nelems=100_000, device=device, launch=(clock + 20, 5))
        .kernel(GEMM, clock + 800, 100, device=device, launch=(clock + (late or 95), 5), launch_name=launch_name)
    )


def test_exposed(tmp_path):
    """400 of 500 µs; 400 kB in 500 µs are 0.8 GB/s."""
    found = one(tmp_path, [exposed()], "N1")
    assert plain(found.title) == "Communication is exposed for 40.0 % of the step: 400 µs per step"
    assert (found.saving_ns, found.low_ns, found.severity) == (400 * US, 200 * US, Severity.HIGH)
    assert "there is communication for 500 µs per step, without compute for 400 µs." in plain(found.evidence)
    by_kind = "all_reduce · default_pg 400 µs (median call 391 KiB, 0.8 GB/s with all waiting)"
    assert plain(found.evidence).endswith(f"By kind, as far as compute waits: {by_kind}.")
    assert "Only 1 of 2 ranks was recorded" in found.advice
    assert "For gradients: buckets that are ready earlier" in found.advice
    assert [(span.start, span.end) for span in found.spans] == [(400 * US, 800 * US)]


def test_the_name_of_a_group_tells_what_it_is_for(tmp_path):
    """A mesh dimension of data parallelism reduces gradients, one of tensors parts of layers."""
    advice = {}
    for dimension in ("mesh_dp", "mesh_tp"):
        trace = exposed()
        for event in trace.events:
            if event["name"] == ALL_REDUCE:
                event["args"]["Process Group Description"] = dimension
        (tmp_path / dimension).mkdir()
        advice[dimension] = one(tmp_path / dimension, [trace], "N1").advice
    assert "Under DDP let buckets be ready earlier" in advice["mesh_dp"]
    assert "split the layers over fewer ranks" in advice["mesh_tp"]


def test_hidden(tmp_path):
    """Of 500 µs all but the last 20 run under compute: 2 % of the step."""
    trace = (
        TraceBuilder(0, 2)
        .step(1, 0, 1000)
        .kernel(GEMM, 0, 780, launch=(0, 5))
        .collective(ALL_REDUCE, "allreduce", 300, 500, launch=(20, 5))
        .kernel(GEMM, 800, 100, launch=(95, 5))
    )
    assert not findings(tmp_path, [trace]).findings


def test_compute_that_is_not_launched_does_not_wait(tmp_path):
    """The launch ends at 705: for 305 of 400 µs the host holds up the device anyway."""
    found = one(tmp_path, [exposed(late=700)], "N1")
    assert found.saving_ns == 95 * US
    assert "In 305 µs the host has not launched the next compute anyway." in plain(found.evidence)
    assert plain(found.title) == "Communication is exposed for 9.50 % of the step: 95.0 µs per step"
    assert one(tmp_path, [exposed(late=760)], "N1") is None


def test_a_host_that_waits_for_the_device(tmp_path):
    """It launches late because it waits: for 350 µs of the 405 µs until its launch has ended."""
    trace = exposed(late=790).runtime("cudaStreamSynchronize", 450, 340)
    assert one(tmp_path, [trace], "N1").saving_ns == 345 * US


def test_without_steps(tmp_path):
    """400 µs of the 900 that were recorded."""
    trace = exposed()
    trace.events = [event for event in trace.events if "Profiler" not in event["name"]]
    found = one(tmp_path, [trace], "N1")
    assert found.saving_ns == 400 * US
    assert plain(found.title).startswith("Communication is exposed for 44.4 % of what was recorded")


def test_little_compute_cannot_hide_much(tmp_path):
    """400 µs are exposed, and 400 µs of compute runs without communication; then with 300 µs more to hide."""
    assert "so that hiding is not enough" not in one(tmp_path / "a", [exposed()], "N1").advice
    trace = exposed()
    trace.events[-1]["dur"] /= 2
    trace.collective(ALL_REDUCE, "allreduce", 860, 100, launch=(110, 5))
    assert "Only 350 µs of compute runs without communication" in plain(one(tmp_path / "b", [trace], "N1").advice)


@pytest.mark.parametrize(
    ("collective", "name", "group", "words"),
    [
        ("_allgather_base", ALL_GATHER, "mesh_dp", "set_modules_to_forward_prefetch"),
        ("_allgather_base", ALL_GATHER, "mesh_tp", "What follows needs the result"),
        ("all_to_all", "ncclDevKernel_SendRecv", "mesh_ep", "Overlap the exchange"),
        ("broadcast", "ncclDevKernel_Broadcast_RING_LL", "mesh_dp", "async_op=True"),
    ],
)
def test_what_to_do_depends_on_the_collective(tmp_path, collective, name, group, words):
    trace = (
        TraceBuilder(0, 2)
        .step(1, 0, 1000)
        .kernel(GEMM, 0, 400, launch=(0, 5))
        .collective(name, collective, 300, 500, launch=(20, 5), **{"Process Group Description": group})
        .kernel(GEMM, 800, 100, launch=(95, 5))
    )
    assert words in one(tmp_path, [trace], "N1").advice


def odd_traces():
    second = exposed(device=1)
    several = exposed()
    several.events += second.events[1:]
    hip = exposed(launch_name="hipLaunchKernel")
    bare = exposed()
    bare.events = [event for event in bare.events if event["cat"] == "kernel"]
    for event in bare.events:
        event["args"] = {key: event["args"][key] for key in ("device", "stream")}
    cpu = TraceBuilder(0, 2).step(1, 0, 100).cpu_op("aten::mm", 0, 50).annotation("gloo:all_reduce", 50, 40)
    return {"two devices": several, "hip": hip, "bare": bare, "cpu": cpu}


@pytest.mark.parametrize("odd", odd_traces())
def test_odd_traces(tmp_path, odd):
    """No rule fails; on the CPU none can look. Savings are means over devices."""
    section = findings(tmp_path, [odd_traces()[odd]])
    saving = {"two devices": [400 * US], "hip": [400 * US], "bare": [400 * US], "cpu": []}[odd]
    assert [finding.saving_ns for finding in section.findings if finding.code == "N1"] == saving
    assert odd != "cpu" or section.status == "not_applicable"


def test_captures(tmp_path):
    """Two captures of one rank: the same in each of two steps."""
    exposed().write(tmp_path / "host_1.100.pt.trace.json")
    later = exposed(clock=5_000_000)
    later.events[0]["name"] = "ProfilerStep#2"
    later.write(tmp_path / "host_1.200.pt.trace.json")
    assert findings(tmp_path, []).findings[0].saving_ns == 400 * US


def test_evidence_travels(tmp_path):
    """What a rank sends is small, and shared by the rules that compare ranks."""
    trace = RankTrace.load(0, exposed().write(tmp_path / "a.json"))
    evidence = evaluate_rank(trace, RULES)
    assert not evidence.errors
    data = pickle.dumps(evidence)
    assert len(data) < 20_000
    read = pickle.loads(data)  # noqa: S301  as written one line above
    assert read.collectives.windows == evidence.collectives.windows == 1
    assert read.pieces == evidence.pieces


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_help(rule):
    headings = ["When it speaks", "What it could save", "What to do", "How to verify"]
    assert [line[3:] for line in rule.help().splitlines() if line.startswith("## ")] == headings
