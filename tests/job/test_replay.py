"""The replay of a job: ranks wait for each other at collectives, on paper values."""

from __future__ import annotations

import numpy as np
import pytest
from builder import TraceBuilder

from htareport.job.facts import JobFacts
from htareport.job.replay import JobChange
from htareport.job.replay_join import NOT_ALIKE, NOT_MATCHED, job_replay
from htareport.rank.capability import Capability
from htareport.rank.collectives import collectives_of
from htareport.rank.replay.edits import RankEdit
from htareport.rank.replay.summary import replay_of
from htareport.trace import RankTrace

MS = 1_000_000
NEARLY = 5000  # ns: what launches and streams take by themselves.
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def trace(rank: int, ready: float, *, rest: float, clock: float = 0, steps: int = 1) -> TraceBuilder:
    """Compute until `ready` (ms) in a kernel, an all-reduce that ends at 32, and so much compute after it."""
    made = TraceBuilder(rank, 2)
    for step in range(steps):
        at = 1000 * (clock + (32 + rest) * step)
        made.step(step + 1, at, 1000 * (32 + rest))
        made.kernel("gemm", at + 4, 1000 * ready - 4, launch=(at, 2))
        made.collective(NCCL, "allreduce", at + 1000 * ready, 1000 * (32 - ready), launch=(at + 3, 2), stream=20)
        made.kernel("relu", at + 32_000, 1000 * rest, launch=(at + 6, 2))
        made.runtime("cudaDeviceSynchronize", at + 10, 1000 * (32 + rest) - 10)
    return made


@pytest.fixture
def job(tmp_path):
    """Return the replay of some traces, with the changes of rules by code and rank."""

    def replay(*traces, edits=None):
        ranks = {}
        for number, made in enumerate(traces):
            ranks[number] = RankTrace.load(number, made.write(tmp_path / f"rank{number}.json"))
        facts = JobFacts(
            {n: collectives_of(rank) for n, rank in ranks.items() if Capability.COMM in rank.capabilities},
            has_steps=True,
        )
        parts = {number: replay_of(rank, (edits or {}).get(number, {})) for number, rank in ranks.items()}
        return job_replay(parts, facts)

    return replay


def shorter(*ms):
    return RankEdit(shorter_ns=np.array(ms, float) * MS)


@pytest.mark.parametrize("clock", [0, 5000])
def test_what_the_late_rank_does(job, clock):
    """Rank 0 is ready at 10, rank 1 at 30; transfers take 2. Without 12 of its 30 rank 1 comes at 18, and saves 12.

    Without 25 it comes at 5: then rank 0 is last, at 10, and 20 are saved, not 25.
    """
    edits = {1: {"A": shorter(12, 0, 0), "B": shorter(25, 0, 0)}}
    replay = job(trace(0, 10, rest=8), trace(1, 30, rest=6, clock=clock), edits=edits)
    assert replay.error_ns == pytest.approx(0, abs=1)
    savings = replay.savings([JobChange(codes={"A": 1.0}), JobChange(codes={"B": 1.0}), JobChange(codes={"A": 0.5})])
    assert savings == pytest.approx([12 * MS, 20 * MS, 6 * MS], abs=NEARLY)


def test_what_the_others_do_gains_nothing(job):
    """Rank 0 waits anyway; only what it does after the collective counts, as far as it is the last to be done."""
    replay = job(trace(0, 10, rest=8), trace(1, 30, rest=6), edits={0: {"A": shorter(5, 0, 0), "B": shorter(0, 0, 5)}})
    assert replay.savings([JobChange(codes={"A": 1.0}), JobChange(codes={"B": 1.0})]) == pytest.approx(
        [0, 2 * MS], abs=NEARLY
    )


def test_ready_questions(job):
    """Rank 1 is 20 late; a transfer takes 2; the mean of 10 and 30 is 20; half of 30 is 15."""
    replay = job(trace(0, 10, rest=8), trace(1, 30, rest=8))
    changes = [
        JobChange(without_lateness=frozenset({1})), JobChange(transfer_share=0.5), JobChange(transfer_share=0.0),
        JobChange(is_balanced=True), JobChange(device_scale={1: 0.5}),
    ]  # fmt: skip
    assert replay.savings(changes) == pytest.approx([20 * MS, 1 * MS, 2 * MS, 10 * MS, 15 * MS], abs=2 * NEARLY)


def test_a_transfer_that_takes_less(job):
    """By row of a call, or of any of the others; never more than it takes."""
    replay = job(trace(0, 10, rest=8), trace(1, 30, rest=8))
    for row in (0, 1):
        assert replay.saving(JobChange(transfer_ns={row: 1.5 * MS})) == pytest.approx(1.5 * MS, abs=NEARLY)
        assert replay.saving(JobChange(transfer_ns={row: 9.0 * MS})) == pytest.approx(2 * MS, abs=NEARLY)


def test_a_rank_without_others(job):
    """All of its collective is its own: nobody says how much of that is waiting."""
    replay = job(trace(0, 10, rest=8), edits={0: {"A": shorter(4, 0, 3)}})
    assert replay.saving(JobChange(codes={"A": 1.0})) == pytest.approx(7 * MS, abs=NEARLY)
    assert replay.saving(JobChange(transfer_share=0.0)) == pytest.approx(22 * MS, abs=NEARLY)


def test_savings_are_per_step(job):
    replay = job(trace(0, 10, rest=8, steps=3), trace(1, 30, rest=8, steps=3))
    assert replay.num_steps == 3
    assert replay.saving(JobChange(transfer_share=0.0)) == pytest.approx(2 * MS, abs=NEARLY)


def test_both_changes():
    one = JobChange(codes={"A": 1.0}, transfer_share=0.5, device_scale={1: 0.9})
    other = JobChange(codes={"A": 0.5, "B": 1.0}, without_lateness=frozenset({2}), device_scale={1: 0.8, 2: 0.7})
    assert one.and_also(other) == JobChange(
        codes={"A": 1.0, "B": 1.0}, transfer_share=0.5, without_lateness=frozenset({2}), device_scale={1: 0.8, 2: 0.7}
    )


def test_why_not(job, tmp_path):
    """Other steps, no collective in common, a rank without device work."""
    other = trace(1, 30, rest=6)
    for event in other.events:
        event["name"] = event["name"].replace("ProfilerStep#1", "ProfilerStep#7")
    assert job(trace(0, 10, rest=8), other) == NOT_ALIKE
    alone = TraceBuilder(1, 2).step(1, 0, 40).kernel("gemm", 1, 29, launch=(0, 0.2))
    assert job(trace(0, 10, rest=8), alone) == NOT_MATCHED
    assert job(trace(0, 10, rest=8), TraceBuilder(1, 2).step(1, 0, 40)) == "rank 1: no device work is recorded"
