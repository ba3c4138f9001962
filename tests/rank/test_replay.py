"""The replay of one rank: recorded times come back, and changes are what paper and a plain simulation say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builder import TraceBuilder

from htareport.algorithms.longest_paths import LongestPaths
from htareport.rank.replay.contraction import contracted
from htareport.rank.replay.edits import EditedProgram, RankEdit, edit_of_claim, edited, scaled, unedited
from htareport.rank.replay.program import Program, program_of
from htareport.rank.replay.reduction import reduced
from htareport.rank.replay.summary import replay_of
from htareport.reading.sources.job import Trace
from htareport.trace import RankTrace

US = 1000
TRACES = Path(__file__).parents[3] / "shared" / "traces"
RUNS = ("dlrm_8rank_v100", "nccl_args_a100", "critical_path_alexnet")
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason=f"needs the traces in {TRACES}")


@pytest.fixture
def load(tmp_path):
    return lambda trace: RankTrace.load(0, trace.write(tmp_path / "rank0.json"))


def ends(program: Program, changes: list[EditedProgram]) -> np.ndarray:
    """When the last step ends under each change (ns since the window's start); collectives last as recorded."""
    graph = contracted(reduced(program, changes))
    time = np.array(graph.time) - graph.time[0]
    source, target = np.array(graph.source + graph.begin), np.array(graph.target + graph.end)
    lasting = np.repeat((time[graph.end] - time[graph.begin])[:, None], len(changes), axis=1)
    delays = np.concatenate((np.stack(graph.delays), lasting))
    begin = np.where(np.arange(len(time)) == 0, 0.0, -np.inf)
    return LongestPaths(len(time), source, target).times(delays, begin)[graph.steps[-1]]


def simulated(program: Program, change: EditedProgram) -> float:
    """The same by going through the events one by one, in the order of the host."""
    window, waits = program.window, program.waits
    order = sorted(
        [(int(stamp), 1, event) for event, stamp in enumerate(program.called)]
        + [(int(stamp), 0, wait) for wait, stamp in enumerate(waits.end)]
    )
    host, host_recorded, host_gone, end, free = 0.0, window.start, 0.0, {}, {}
    for stamp, is_event, place in order:
        if is_event:
            launched = (
                host + (stamp - host_recorded) - (change.host_gone[place] - host_gone) + change.launch_delay[place]
            )
            stream = int(program.stream[place])
            before = free.get(stream, float(program.previous_end[place] - window.start))
            joined = [
                end[int(source)] + change.join_delay[pair]
                for pair, (event, source) in enumerate(zip(program.joins.event, program.joins.source, strict=True))
                if event == place
            ]
            start = max(launched, before + change.stream_delay[place], *joined)
            recorded = float(program.end[place] - program.start[place])
            lasts = recorded if program.is_collective[place] else change.duration[place]
            free[stream] = end[place] = start + lasts
            continue
        begun = min(max(int(waits.start[place]) - host_recorded, 0), int(waits.end[place]) - host_recorded)
        own = begun + min(change.own_ns[place], int(waits.end[place]) - host_recorded - begun)
        returned = [host + max(own - (change.wait_gone[place] - host_gone), 0)]
        for wait, event, delay in zip(waits.source_wait, waits.source_event, waits.source_delay, strict=True):
            if wait == place and change.waits[place]:
                returned.append(end[int(event)] + delay)
        host, host_recorded, host_gone = max(returned), int(waits.end[place]), float(change.waited_gone[place])
    host += max(int(program.host_ends[-1]) - host_recorded, 0) - (change.window_gone[-1] - host_gone)
    return max([host, *(free.values())])


def saving(rank: RankTrace, edit: RankEdit) -> float:
    """By how much the recording ends earlier, in µs."""
    program = program_of(rank)
    before, after = ends(program, [unedited(program), edited(program, edit)])
    return float(before - after) / US


def shorter(rank: RankTrace, *us: float) -> RankEdit:
    return RankEdit(shorter_ns=np.array(us, np.float64) * US)


def test_a_host_that_is_ahead_gains_nothing_by_being_faster(load):
    """It launches 10 kernels at 0, 1, …, 9; each runs for 5, the first from 1 on: the last ends at 51."""
    trace = TraceBuilder()
    for number in range(10):
        trace.kernel("k", 1 + 5 * number, 5, launch=(number, 0.5))
    rank = load(trace)
    zero = rank.captures[0].base_ns
    halves = np.array([[zero + number * US, zero + number * US + US // 2] for number in range(9)])
    assert saving(rank, RankEdit(host_gone=halves)) == 0
    assert saving(rank, shorter(rank, *[1] * 10)) == pytest.approx(10)


def test_a_blocking_copy(load):
    """Its call lasts from 0 to 30, the copy from 10 to 28, and the next launch follows: without the copy, 18 go."""
    trace = TraceBuilder().memcpy("HtoD", 10, 18, launch=(0, 30)).kernel("k", 35, 10, launch=(30, 2))
    rank = load(trace)
    assert saving(rank, shorter(rank, 18, 0)) == 18
    assert saving(rank, shorter(rank, 0, 4)) == 4


def test_a_wait_of_the_host(load):
    """The second kernel is launched once the first is done; without the wait it only waits for its stream."""
    trace = TraceBuilder().step(1, 0, 400).kernel("a", 10, 100, launch=(0, 5))
    trace.runtime("cudaStreamSynchronize", 20, 95).kernel("b", 180, 50, launch=(170, 5))
    trace.runtime("cudaDeviceSynchronize", 200, 200)
    rank = load(trace)
    assert saving(rank, shorter(rank, 40, 0)) == 40
    launch = np.flatnonzero(rank.launches["name"].astype(str) == "cudaStreamSynchronize")
    assert saving(rank, RankEdit(waits_gone=launch)) == pytest.approx(180 - 111, abs=6)


def test_work_of_another_stream_that_is_waited_for(load):
    """The copy ends at 200, and the kernel of the other stream starts right then."""
    trace = TraceBuilder().kernel("a", 10, 50, launch=(0, 2)).memcpy("DtoD", 12, 188, stream=9, launch=(3, 2))
    rank = load(trace.kernel("b", 201, 50, launch=(6, 2)))
    assert saving(rank, shorter(rank, 0, 30, 0)) == 30
    assert saving(rank, shorter(rank, 30, 0, 0)) == 0


def test_what_a_rule_claims(load):
    """Idle time before the launch is the host's, and goes; a kernel gets shorter by what is claimed of it."""
    trace = TraceBuilder().kernel("a", 10, 50, launch=(0, 2)).kernel("b", 110, 40, launch=(100, 2))
    rank = load(trace)
    zero = rank.captures[0].base_ns
    program = program_of(rank)
    claim = np.array([[zero + at * US, zero + until * US] for at, until in ((20, 30), (60, 90))])
    edit = edit_of_claim(rank, program, {program.window.lane: claim})
    assert edit.shorter_ns.tolist() == [10 * US, 0]
    assert saving(rank, edit) == 30
    assert saving(rank, RankEdit(shorter_ns=edit.shorter_ns)) == 0  # The next is launched late.


def test_without_a_device(load):
    assert program_of(load(TraceBuilder().cpu_op("aten::mm", 0, 10))) == "no device work is recorded"


def test_what_a_rank_sends_is_small(load):
    """However many steps there are, and waits in them."""
    trace = TraceBuilder(0, 2)
    for step in range(300):
        at = 1000 * step
        trace.step(step, at, 1000).kernel("k", at + 10, 500, launch=(at, 5))
        trace.collective("ncclDevKernel_AllReduce", "allreduce", at + 510, 100, launch=(at + 6, 5))
        trace.runtime("cudaDeviceSynchronize", at + 20, 595)
    replay = replay_of(load(trace), {})
    assert replay.frames.size < 60_000


def first_rank(folder: Path) -> RankTrace:
    return RankTrace.load(*next(iter(Trace.open(folder).files.items())))


@needs_traces
def test_recorded_times_come_back():
    """To the ns, on a rank of every real run with device work on one device."""
    for folder in sorted(path for path in TRACES.iterdir() if path.is_dir()):
        program = program_of(first_rank(folder))
        if isinstance(program, str):
            continue
        graph = contracted(reduced(program, [unedited(program)]))
        recorded_end = graph.time[graph.steps[-1]] - graph.time[0]
        assert ends(program, [unedited(program)])[0] == pytest.approx(recorded_end, abs=1), folder.name


@needs_traces
@pytest.mark.parametrize("run", RUNS)
def test_changes_are_what_a_plain_simulation_says(run):
    """Of kernels and hosts that are faster, waits that are gone, and work that is shorter at random."""
    source, rank = np.random.default_rng(0), first_rank(TRACES / run)
    program = program_of(rank)
    size = len(rank.device_events)
    part = source.random(size) * rank.device_events["dur"].to_numpy()
    zero, end = program.window.start, program.window.end
    gone = np.sort(source.integers(zero, end, 40)).reshape(-1, 2)
    edits = [
        RankEdit(shorter_ns=part),
        RankEdit(waits_gone=program.waits.launch),
        RankEdit(host_gone=gone[gone[:, 1] > gone[:, 0]]),
        RankEdit(is_removed=source.random(size) < 0.3, host_gone=gone, shorter_ns=part / 2),
    ]
    changes = [
        unedited(program), scaled(program, device=0.7), scaled(program, host=0.6),
        *(edited(program, edit) for edit in edits),
    ]  # fmt: skip
    plain = [simulated(program, change) for change in changes]
    assert ends(program, changes).tolist() == pytest.approx(plain, abs=1)
    assert min(plain[1:]) < plain[0] + 1
