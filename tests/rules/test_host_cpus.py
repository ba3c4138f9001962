"""Operators of one rank that take more of the CPU than those of the others of its host."""

from __future__ import annotations

import pickle

import pytest
from builder import TraceBuilder

from htareport.rules.communication.exposed import ExposedCommunication
from htareport.rules.communication.stragglers import Straggler, StragglerCause
from htareport.rules.engine.evaluate import evaluate_rank
from htareport.rules.engine.evidence import Evidence
from htareport.rules.host.cpus import SlowCpu
from htareport.rules.host.runtime import SlowLaunches
from htareport.run.runner import analyze
from htareport.trace import RankTrace

OPERATORS = ("aten::linear", "aten::relu", "aten::add", "aten::mul", "aten::norm", "aten::sum")
RANKS, STEPS = 4, 3


def rank(number, factor=1.0, *, host="", devices=RANKS, ranks=RANKS, further=0, wait=0, steps=STEPS):
    """Each step: ten operators of 40 µs times factor, each followed by its launch of 5 and a kernel of 10.

    The device is idle while an operator runs. The last operator is a wait that lasts `wait`.
    """
    names = {"hostname": host} if host else {}
    trace = TraceBuilder(number, ranks, devices=devices, **names)
    for step in range(steps):
        now = begin = 5000 * step
        trace.step(step, begin, 4000)
        for place in range(10 + further):
            length = 40 * factor
            trace.cpu_op(OPERATORS[place % len(OPERATORS)], now, length)
            trace.kernel("gemm", now + length + 5, 10, device=number % devices, launch=(now + length, 5))
            now += length + 15
        if wait:
            trace.cpu_op("c10d::barrier", now, wait * factor)
            trace.kernel("gemm", now + wait * factor, 10, device=number % devices, launch=(now + wait * factor - 1, 1))
    return trace


def job(slow=3, factor=3.0, **options):
    return [rank(each, factor if each == slow else 1.0, **options) for each in range(RANKS)]


def test_a_slow_cpu(findings):
    """Rank 3 takes 120 µs for each operator instead of 40. Before the first of 30 the device has not begun: 29 count.

    Two thirds of these 29 · 120 µs in three steps are the excess. Between steps nothing runs.
    """
    told = findings([SlowCpu()], *job())["H25"]
    assert told.ranks == (3,)
    assert told.saving_ns == pytest.approx(30 * 120_000 / STEPS * 2 / 3, abs=1)
    assert told.title.startswith("Operators of rank 3 take 3 times the CPU time")
    assert "6 operators that the 4 ranks call equally often take 1.20\u202fms per step" in told.evidence
    assert "400\u202fµs in the median" in told.evidence
    assert {(span.rank, span.end - span.start) for span in told.spans} == {(3, 120_000)}


def test_equal_cpus(findings):
    assert findings([SlowCpu()], *job(factor=1.2)) == {}


def test_thresholds(findings):
    assert findings([SlowCpu(spread=0.05, ratio=1.1)], *job(factor=1.2))["H25"].ranks == (3,)


def test_other_work_is_no_slow_cpu(findings):
    """Rank 3 calls more operators: it does something else."""
    traces = [*job()[:3], rank(3, 3.0, further=2)]
    assert findings([SlowCpu()], *traces) == {}


def test_one_slow_operator_is_no_slow_cpu(findings):
    traces = job(factor=1.0)
    for number, trace in enumerate(traces):
        trace.cpu_op("aten::copy_", 2200, 1500 if number == 3 else 10)
    assert findings([SlowCpu()], *traces) == {}


def test_waits_are_no_time_of_the_cpu(findings):
    assert findings([SlowCpu()], *[rank(each, wait=900 if each == 3 else 20) for each in range(RANKS)]) == {}


def test_hosts_by_name(findings):
    """Two hosts, of which one is slower altogether; then only one rank of it."""
    hosts = ["alpha", "alpha", "beta", "beta"]
    slow = [rank(each, 3.0 if each > 1 else 1.0, host=hosts[each], devices=1) for each in range(RANKS)]
    assert findings([SlowCpu()], *slow) == {}
    slow = [rank(each, 3.0 if each == 2 else 1.0, host=hosts[each], devices=1) for each in range(RANKS)]
    assert findings([SlowCpu()], *slow)["H25"].ranks == (2,)


def test_hosts_that_are_not_known(tell):
    """Each rank sees only its own device: nothing tells who shares a host."""
    section = tell([SlowCpu(), SlowLaunches()], *job(devices=1))
    assert not section.findings
    assert "do not tell which ranks share a host" in section.table("checked")["state"].iloc[0]
    alone = tell([SlowCpu(), SlowLaunches()], rank(0, ranks=1))
    assert "tells of no other ranks" in alone.table("checked")["state"].iloc[0]


def test_hosts_by_devices(findings):
    """Ranks 4 and 5 are the first two of the second host of four; they alone cannot make rank 3 a slow one."""
    traces = [rank(each, 3.0 if each > 3 else 1.0, ranks=6) for each in range(6)]
    assert findings([SlowCpu()], *traces) == {}


@pytest.mark.replayed
def test_a_straggler_by_its_cpu(tmp_path):
    """Both findings name the rank and each other. Without the excess all ranks arrive earlier by just that."""
    traces = job(factor=4.0, steps=8)
    for number, trace in enumerate(traces):
        for step in range(8):
            ready, end = 5000 * step + 10 * (40 * (4 if number == 3 else 1) + 15), 5000 * step + 10 * 175 + 120
            trace.collective("ncclDevKernel_AllReduce", "allreduce", ready, end - ready, device=number,
                             launch=(ready - 4, 4))  # fmt: skip
            trace.kernel("gemm", end, 20, device=number, launch=(ready, 4))
        trace.write(tmp_path / f"rank{number}.json")
    rules = [SlowCpu(), ExposedCommunication(), Straggler(), StragglerCause()]
    told = {each.code: each for each in analyze(tmp_path, analyses=[], rules=rules)["findings"].findings}
    assert told["N4"].ranks == told["H25"].ranks == (3,)
    assert "Collectives wait for rank 3, too" in told["H25"].evidence
    assert "Its operators take 4 times the CPU time" in told["N5"].evidence
    assert told["H25"].saving_ns == pytest.approx(80 * 160_000 / 8 * 3 / 4, abs=1)
    assert told["H25"].without_ns == told["H25"].step_ns - told["H25"].saving_ns


def test_what_is_sent_is_small(tmp_path):
    trace = TraceBuilder(0, 8, devices=8)
    for place in range(200):
        trace.cpu_op(f"aten::operator_with_a_rather_long_name_number_{place}", 100 * place, 50)
        trace.kernel("gemm", 100 * place + 60, 20, launch=(100 * place + 50, 5))
    trace.write(tmp_path / "rank0.json")
    found = evaluate_rank(RankTrace.load(0, tmp_path / "rank0.json"), [SlowCpu()]).found["H25"]
    assert isinstance(found, Evidence)
    assert len(pickle.dumps(found)) < 2048
