"""Stages of a pipeline: their bubble against that of the schedule, and who waits for whom."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.parallel import GEMM, US, findings, one, plain

from htareport.rules.communication.exposed import ExposedCommunication
from htareport.rules.communication.pipeline import LateSends, PipelineBubble
from htareport.run.runner import analyze

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
STEPS, SENDING = 2, 10


class Pipeline:
    """All forwards, then all backwards: a stage receives a micro-batch, computes for its time, and sends on.

    It goes to receive when it has computed what is before. What is sent takes 10 µs from when both sides are there.
    `clocks` is by how much each rank's is ahead, `group` what the group is called, `of_two` whether each has one with
    its neighbour.
    """

    def __init__(self, times, batches, *, clocks=(), group="mesh_pp", of_two=False, peers=True):
        self.times, self.clocks = times, clocks or [0] * len(times)
        self.group, self.of_two, self.peers = group, of_two, peers
        self.traces = [TraceBuilder(rank, len(times)) for rank in range(len(times))]
        start = 0
        for step in range(STEPS):
            start = self._step(step, start, batches)

    def _step(self, step, start, batches):
        self.start, self.launched = start, 0
        self.free, self.sent = [start] * len(self.times), [start] * len(self.times)
        stages = list(range(len(self.times)))
        for way in (stages, stages[::-1]):
            for _ in range(batches):
                for before, stage in zip([None, *way], way, strict=False):
                    if before is not None:
                        self._send(before, stage)
                    self._add(stage, lambda trace, at, stage=stage, **launch: trace.kernel(
                        GEMM, at, self.times[stage], **launch), self.free[stage])  # fmt: skip
                    self.free[stage] += self.times[stage]
        end = max(self.free) + 20
        for rank, trace in enumerate(self.traces):
            trace.step(step, start + self.clocks[rank], end - start)
        return end

    def _add(self, rank, add, at):
        """Everything is launched in the first 20 µs of the step, in order."""
        self.launched += 1
        launch = self.start + self.clocks[rank] + 20 * self.launched / 10_000
        add(self.traces[rank], at + self.clocks[rank], launch=(round(launch, 3), 0.001))

    def _send(self, source, target):
        comes = (max(self.free[source], self.sent[source]), self.free[target])
        end = max(comes) + SENDING
        ranks = sorted((source, target)) if self.of_two else range(len(self.times))
        for rank, what, peer, start, stream in (
            (source, "send", {"Dst Rank": target}, comes[0], 21),
            (target, "recv", {"Src Rank": source}, comes[1], 20),
        ):
            args = {"Process Group Description": self.group} | (peer if self.peers else {})
            self._add(rank, lambda trace, at, **launch: trace.collective(
                SEND_RECV, what, at, end - start, group=ranks, group_name=str(9 + min(ranks) * self.of_two),  # noqa: B023
                stream=stream, **args, **launch), start)  # noqa: B023  # fmt: skip
        self.sent[source] = self.free[target] = end


@pytest.mark.replayed
def test_uneven_stages(tmp_path):
    """Of 4 stages the third computes for 300 µs, the others for 100, with 8 micro-batches: 3 of 11 are the schedule's.

    Were it as fast as the others, it would compute for 16 × 200 µs less, in a row.
    """
    told = {
        each.code: each for each in findings(tmp_path, Pipeline([100, 100, 300, 100], 8).traces, "N16", "N1").findings
    }
    found = told["N16"]
    assert "rank 2, whose stage takes 3.00 times as long" in plain(found.title)
    assert "4 stages and 8 micro-batches per step cost 27.3 % by themselves." in plain(found.evidence)
    assert "computes for 4.80 ms per step, the other stages for 1.60 ms on average" in plain(found.evidence)
    assert "Move layers from rank 2 to other stages" in found.advice
    assert (found.ranks, found.saving_kind) == ((2,), "replayed")
    assert found.saving_ns == pytest.approx(16 * 200_000, rel=0.1)


@pytest.mark.parametrize("batches", [8, 1])
def test_even_stages(tmp_path, batches):
    """Only the schedule is to blame, and of 1 micro-batch 2 of 3 parts of the step are lost."""
    found = one(tmp_path, Pipeline([100] * 3, batches).traces, "N16", "N1")
    assert (found.severity, found.saving_ns, found.ranks) == ("low", None, ())
    assert "more micro-batches" in found.advice


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline([100, 300, 100], 8, of_two=True),  # Not known how many stages there are.
        Pipeline([100, 300], 8, peers=False),
        Pipeline([100, 300], 8, group="mesh_cp"),  # A ring of attention.
    ],
    ids=["groups of two", "unknown peers", "no pipeline"],
)
def test_no_bubble(tmp_path, pipeline):
    assert one(tmp_path, pipeline.traces, "N16", "N1") is None


@pytest.mark.parametrize("clocks", [(), (0, 4000, -3000, 800)])
def test_a_late_sender(tmp_path, clocks):
    """Rank 3 first waits 110 + 110 + 300 µs for rank 2, and then 7 times 200: it computes for 100 of 310 µs.

    There are no collectives: clocks are known by what is sent.
    """
    found = one(tmp_path, Pipeline([100, 100, 300, 100], 8, clocks=clocks, of_two=True).traces, "N17", "N1")
    assert "rank 3 waits 1.92 ms per step for rank 2 to send (16 calls)" in plain(found.evidence)
    assert plain(found.title).startswith("Rank 0 waits for rank 1 to send: up to ")
    assert 1920 * US < found.saving_ns < found.step_ns
    longest = found.spans[0]
    assert (longest.rank, longest.name, longest.step) == (0, "wait for rank 1", 0)


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline([1000, 1000], 90, group="mesh_cp"),  # One waits in the beginning, the other in the end: below 2 %.
        Pipeline([100, 300], 8),  # Of a pipeline the other rule speaks.
        Pipeline([100, 300], 8, group="mesh_cp", peers=False),
    ],
    ids=["little", "a whole pipeline", "unknown peers"],
)
def test_nobody_waits_for_long(tmp_path, pipeline):
    assert one(tmp_path, pipeline.traces, "N17", "N1") is None


def test_the_other_rank_is_missing(tmp_path):
    assert one(tmp_path, Pipeline([100, 300], 8, group="mesh_cp").traces[:1], "N17", "N1") is None


@pytest.mark.parametrize(
    ("rule", "group", "options"),
    [(PipelineBubble, "mesh_pp", {"least": 0.9}), (LateSends, "mesh_cp", {"least": 0.9})],
)
def test_thresholds(tmp_path, rule, group, options):
    for number, trace in enumerate(Pipeline([100, 300], 8, group=group).traces):
        trace.write(tmp_path / f"{number}.json")
    for each, there in ((rule(), True), (rule(**options), False)):
        section = analyze(tmp_path, analyses=[], rules=[ExposedCommunication(), each])["findings"]
        assert (rule.code in {finding.code for finding in section.findings}) == there
