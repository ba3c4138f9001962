"""What the step takes without what a finding claims, with ranks that go on waiting for each other."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from builder import TraceBuilder
from rules.parallel import US, ParallelJob, Part, findings

from htareport.algorithms.intervals import union
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.collective_schedule import _MOST_ENTRIES, PackedSchedule, _pieces
from htareport.rules.engine.evaluate import evaluate_rank
from htareport.rules.engine.evidence import Evidence
from htareport.run.runner import analyze
from htareport.trace import RankTrace

STEP, END, TRANSFER = 1000, 800, 100  # µs: length of a step; when its collective ends; how long it moves bytes.


class _Claims(Rule):
    """Claims pairs of µs from the first step's start, by rank."""

    title, family = "Test", Family.COMPUTE

    def __init__(self, code, claims):
        self.code, self.claims = code, claims

    def look(self, rank):
        pairs = self.claims.get(rank.rank)
        if not pairs:
            return None
        zero = int(rank.windows[rank.lanes[0]][0, 0])
        edges = zero + US * np.array(pairs, np.int64)
        return Evidence(claim={rank.lanes[0]: union(edges[:, 0], edges[:, 1])})

    def tell(self, found):
        return self.finding(found, self.code)


def job(late, *, steps=2, clocks=(), world=None, **group):
    """Each rank computes until it arrives at `late[rank]`; a collective that ends at 800; compute [800, 1000]."""
    traces = []
    for rank, arrives in enumerate(late):
        trace = TraceBuilder(rank, world or len(late))
        for step in range(steps):
            at = STEP * step + (clocks[rank] if clocks else 0)
            trace.step(step, at, STEP).kernel("gemm", at, arrives, launch=(at, 1))
            trace.collective("ncclDevKernel_AllReduce_Sum", "allreduce", at + arrives, END - arrives, launch=(at, 2),
                             **group)  # fmt: skip
            trace.kernel("relu", at + END, STEP - END, launch=(at, 3))
        traces.append(trace)
    return traces


@pytest.fixture
def told(tmp_path):
    """Findings of rules on traces, by code."""

    def made(rules, traces):
        for number, each in enumerate(traces):
            each.write(tmp_path / f"{number}.json")
        return {each.code: each for each in analyze(tmp_path, analyses=[], rules=rules)["findings"].findings}

    return made


LATE = (END - TRANSFER, 500, 500)  # Rank 0 comes last, 200 µs after the others.


ON_PAPER = [
    ({0: [(0, 150)]}, 150),
    ({0: [(0, 300)]}, 200),  # The others come 200 earlier: no more than that.
    ({1: [(0, 300)]}, 0),  # It would only wait longer.
    ({0: [(0, 300)], 1: [(100, 200)], 2: [(0, 500)]}, 300),  # Rank 1 then comes at 400.
    ({0: [(0, 300)], 1: [(100, 150)], 2: [(0, 500)]}, 250),  # At 450.
    ({0: [(700, 800)], 1: [(500, 800)], 2: [(500, 800)]}, 100),  # Of the waiting, only what moves bytes.
    ({1: [(500, 700)], 2: [(500, 700)]}, 0),  # Rank 0 waits for the bytes as before, and the others for rank 0.
    ({0: [(850, 950)]}, 50),  # It comes earlier in the next step; in the last one others end as before.
    ({0: [(850, 950)], 1: [(850, 950)], 2: [(850, 950)]}, 100),
]


def test_worked_out_on_paper(told):
    """In each of two steps the same is claimed. Clocks are milliseconds apart."""
    rules = [
        _Claims(
            f"X{number}", {rank: [*pairs, *((a + STEP, b + STEP) for a, b in pairs)] for rank, pairs in each.items()}
        )
        for number, (each, _) in enumerate(ON_PAPER)
    ]
    found = told(rules, job(LATE, clocks=(0, 4000, -3000)))
    for number, (claims, saving) in enumerate(ON_PAPER):
        each = found[f"X{number}"]
        assert (each.step_ns, each.ceiling) == (STEP * US, "")
        assert each.step_ns - each.without_ns == saving * US, claims


def test_what_makes_the_step_no_shorter_is_low_and_comes_last(told):
    """X1 claims 300 µs of each of two steps, of ranks that then wait longer; X2 what only 40 are gained by, of 1000."""
    both = [(0, 300), (STEP, STEP + 300)]
    found = told([_Claims("X1", {1: both, 2: both}), _Claims("X2", {0: [(0, 40), (STEP, STEP + 40)]})], job(LATE))
    assert [(code, each.severity, each.saving_ns) for code, each in found.items()] == [
        ("X2", "medium", 40 * US), ("X1", "low", 300 * US),
    ]  # fmt: skip
    assert all(each.is_across_ranks for each in found.values())


@pytest.mark.parametrize("seed", range(2))
def test_never_more_than_the_saving(told, seed):
    """Whatever is claimed, wherever ranks arrive."""
    random = np.random.default_rng(seed)
    ranks = int(random.integers(2, 4))
    rules = [_Claims(f"X{number}", {rank: _some(random) for rank in range(ranks) if random.random() < 0.7})
             for number in range(30)]  # fmt: skip
    found = told(rules, job(random.integers(10, END, ranks).tolist()))
    saving = [each for each in found.values() if each.saving_ns]
    assert len({each.without_ns for each in saving}) > 5
    for each in saving:
        assert 0 <= each.step_ns - each.without_ns <= each.saving_ns


def _some(random):
    starts = random.integers(0, 2 * STEP - 10, random.integers(1, 5))
    return [(int(start), int(min(start + random.integers(1, 400), 2 * STEP))) for start in starts]


CLAIM = {0: [(0, 150), (1000, 1150)]}


@pytest.mark.parametrize(
    ("traces", "why"),
    [
        (lambda: job((700,), world=2), "there is only one rank to go by"),
        (lambda: job(LATE, world=8, group=range(8)), "no collective is matched across ranks"),  # Five are missing.
        (lambda: job((700, 500)) + job(LATE, steps=3)[2:], "ranks recorded different steps"),
        (lambda: [TraceBuilder(r).step(0, 0, 900).kernel("gemm", 0, 900, launch=(0, 1)) for r in range(2)],
         "no collectives are recorded"),
    ],
)  # fmt: skip
def test_why_it_is_only_a_ceiling(told, traces, why):
    """The saving stands as it is, and the finding says what is missing."""
    made = traces()
    if why == "ranks recorded different steps":
        made[2].events = [e for e in made[2].events if e["name"] != "ProfilerStep#0"]
    finding = told([_Claims("X1", CLAIM)], made)["X1"]
    assert (finding.without_ns, finding.ceiling) == (None, why)
    assert finding.saving_ns > 0


def test_the_only_rank_of_a_job(told):
    """Nobody waits for it, so that all that goes is gained: 150 of 1000 µs. With two devices it is not known."""
    claim = [_Claims("X1", CLAIM)]
    found = told(claim, job((700,)))["X1"]
    assert (found.step_ns, found.without_ns, found.ceiling) == (STEP * US, 850 * US, "")
    assert not found.is_across_ranks
    traces = [TraceBuilder(devices=2).step(0, 0, 1000)]
    for device in range(2):
        traces[0].kernel("gemm", 0, 900, device=device, launch=(0, 1))
    assert told(claim, traces)["X1"].ceiling == "there is only one rank to go by"


def test_waiting_for_what_is_not_matched(told):
    """Half of the step compute waits for what another rank sends: nobody knows when that comes."""
    traces = job(LATE)
    for trace in traces:
        for event in trace.events:
            if event.get("args", {}).get("Collective name"):
                event["args"]["Collective name"] = "recv"
    finding = told([_Claims("X1", CLAIM)], traces)["X1"]
    assert finding.without_ns is None
    assert finding.ceiling


def test_a_straggler_that_comes_in_time(tmp_path):
    """The step becomes that of the same job without it."""
    late = findings(tmp_path / "late", ParallelJob(different={2: Part(gemm=200)}).traces(), "N4", "N1")
    usual = findings(tmp_path / "usual", ParallelJob().traces(), "N1")
    found = {each.code: each for each in late.findings}
    assert found["N4"].without_ns == usual.findings[0].step_ns
    assert found["N1"].step_ns - found["N1"].without_ns == 100 * US  # Its transfer, not the waiting.


def test_a_straggler_whose_lateness_the_next_collective_hides(tmp_path):
    """Two all-reduces one behind the other on a stream: only the first shows who is late.

    Rank 2 is ready for the first at 500, the others at 100; it lasts 200 from then, the second 100. What that reduces,
    the others have computed by 200, rank 2 by 600. Without it the step is 400 shorter.
    """
    traces = []
    for rank in range(3):
        trace, late = TraceBuilder(rank, 3), 400 if rank == 2 else 0
        for step in range(12):
            at = 1000 * step
            trace.step(step, at, 1000).kernel("gemm", at, 100 + late, launch=(at, 1))
            first = at + 100 + late
            trace.collective("ncclDevKernel_AllReduce_Sum", "allreduce", first, at + 700 - first, launch=(at + 2, 1))
            trace.kernel("gemm", first, 100, launch=(at + 4, 1))
            trace.collective("ncclDevKernel_AllReduce_Sum", "allreduce", at + 700, 100, launch=(at + 6, 1))
            trace.kernel("relu", at + 800, 190, launch=(at + 8, 1))
        traces.append(trace)
    found = {each.code: each for each in findings(tmp_path, traces, "N4", "N1").findings}
    assert found["N4"].step_ns == 1000 * US
    assert found["N4"].step_ns - found["N4"].without_ns == found["N4"].saving_ns == 400 * US


def test_a_rank_says_little(tmp_path):
    """However many calls and claims: evenly small, and nothing of the claims is lost but within waits."""
    steps = 400
    trace = TraceBuilder(0, 2)
    for step in range(steps):
        at = 100 * step
        trace.step(step, at, 100).kernel("gemm", at, 60, launch=(at, 1))
        trace.collective("ncclDevKernel_AllReduce_Sum", "allreduce", at + 60, 30, launch=(at, 2))
    loaded = RankTrace.load(0, trace.write(tmp_path / "0.json"))
    rules = [_Claims(f"X{n}", {0: [(100 * s + n, 100 * s + 2 * n + 1) for s in range(steps)]}) for n in range(1, 9)]
    packed = evaluate_rank(loaded, rules).schedule
    assert isinstance(packed, PackedSchedule)
    moves = packed.unpacked()
    assert len(moves.rows) == steps
    assert len(pickle.dumps(packed)) < 8_000
    assert len(moves.own.ns) <= _MOST_ENTRIES + len(rules)
    for number, code in enumerate(moves.codes):
        assert moves.own.of(number, 3 * steps).sum() == steps * (int(code[1:]) + 1) * US


def test_very_many_steps():
    """A rank may have more of them than two bytes count."""
    claimed = np.zeros(70_000, np.int64)
    claimed[[5, 69_999]] = 10, 20
    pieces = _pieces([claimed], carry=True)
    assert (pieces.of(0, 70_000) == claimed).all()


@pytest.mark.parametrize(
    ("moved", "why"),
    [(True, "no collective is matched across ranks: rank 0 has none"),
     (False, "some ranks did not record what the others did (rank 0: no collectives are recorded)")],
)  # fmt: skip
def test_a_rank_without_collectives(told, moved, why):
    """Of a file that was cut, say: there are none within its steps, or none at all. It says on which rank."""
    traces = job((700, 500))
    mine = [event for event in traces[0].events if event.get("args", {}).get("Collective name")]
    for event in mine:
        event["ts"] += 100 * STEP
    if not moved:
        traces[0].events = [event for event in traces[0].events if event not in mine]
    assert told([_Claims("X1", CLAIM)], traces)["X1"].ceiling == why


def in_pairs(lengths):
    """In each step every rank computes and reduces with its neighbour four times, then with all."""
    traces, slowest = [], 4 * (500 + max(lengths))
    for rank in range(2 * len(lengths)):
        trace, pair = TraceBuilder(rank, 2 * len(lengths)), [rank // 2 * 2, rank // 2 * 2 + 1]
        for step in range(2):
            begin = now = (slowest + 200) * step
            for number in range(4):
                trace.kernel("gemm", now, 500, launch=(begin + 2 * number, 1))
                trace.collective("ncclDevKernel_AllReduce_Sum", "allreduce", now + 500, lengths[rank // 2], group=pair,
                                 nelems=20_000_000, group_name="1", launch=(begin + 2 * number + 1, 1))  # fmt: skip
                now += 500 + lengths[rank // 2]
            trace.collective("ncclDevKernel_AllReduce_Sum", "allreduce", now, begin + slowest + 100 - now,
                             launch=(begin + 20, 1))  # fmt: skip
            trace.kernel("relu", begin + slowest + 100, 90, launch=(begin + 22, 1)).step(step, begin, slowest + 200)
        traces.append(trace)
    return traces


@pytest.mark.parametrize(
    ("lengths", "code", "saving", "shorter"),
    [
        ((600, 1000), "N7", 4 * 400, 4 * 400),
        ((600, 610, 590, 800), "N8", 4 * 195, 4 * 190),  # Longer than the middle; then the one of 610 is the last.
    ],
)
def test_a_slow_group_like_the_others(tmp_path, lengths, code, saving, shorter):
    """All wait for it in the collective behind; a transfer of 76 MiB takes as long as elsewhere."""
    found = {each.code: each for each in findings(tmp_path, in_pairs(lengths), code, "N1").findings}[code]
    assert found.saving_ns == saving * US
    assert found.step_ns - found.without_ns == shorter * US
