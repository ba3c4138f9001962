"""Critical paths worked out on paper. Times in µs; the step is 100 µs long unless said."""

from __future__ import annotations

import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.analyses.time.critical_path import CriticalPath
from htareport.errors import UsageError
from htareport.rank.critical_path import summary
from htareport.trace import RankTrace

CUDA = {
    "launch": "cudaLaunchKernel",
    "device": "cudaDeviceSynchronize",
    "stream": "cudaStreamSynchronize",
    "event": "cudaEventSynchronize",
    "wait": "cudaStreamWaitEvent",
}
HIP = {
    "launch": "hipLaunchKernel",
    "device": "hipDeviceSynchronize",
    "stream": "hipStreamSynchronize",
    "event": "hipEventSynchronize",
    "wait": "hipStreamWaitEvent",
}
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@pytest.fixture(params=[CUDA, HIP], ids=["cuda", "hip"])
def api(request):
    return request.param


@pytest.fixture
def path(tmp_path):
    """Time on the path of a hand-made trace by what bounds it, in µs, and its length."""

    def of(builder, **options):
        trace = RankTrace.load(0, builder.write(tmp_path / "rank0.json"))
        analysis = CriticalPath(**options)
        span, _ = analysis.span(trace)
        found = analysis.graph(trace, span)
        table = summary.by_bound(found, summary.bounds_of(found))
        times = {bound: time / 1000 for bound, time in zip(table["bound"], table["time"], strict=True) if time}
        assert (found.graph.src < found.graph.dst).all()
        assert (found.graph.slack >= 0).all()
        return times, found.graph.path.length / 1000

    return of


def sync(builder, name, start, dur, correlation, pid=0, **args):
    """A row of cuda_sync."""
    args = {"correlation": correlation, "device": pid, "stream": -1, **args}
    return builder.complete("cuda_sync", name, pid, args["stream"], (start, dur), args)


# --- the host -------------------------------------------------------------------------------


def test_python_between_operators(path):
    """Ten before, twenty between and twenty after."""
    trace = TraceBuilder().step(1, 0, 100).cpu_op("a", 10, 20).cpu_op("b", 50, 30)
    assert path(trace) == ({"host": 50, "python": 50}, 100)
    assert path(trace, python_time=False) == ({"host": 50}, 50)


def test_pauses_of_other_threads_are_free(path):
    """A thread that copies now and then has nothing to do in between."""
    trace = TraceBuilder().step(1, 0, 100).cpu_op("a", 10, 20)
    trace.cpu_op("pin", 1, 5, tid=9).cpu_op("pin", 90, 5, tid=9)
    assert path(trace) == ({"host": 20, "python": 80}, 100)


def test_nested_operators_share_their_time(path):
    """40 in all: 15 of the outer, 25 of the inner ones."""
    trace = TraceBuilder().step(1, 0, 40).cpu_op("outer", 0, 40).cpu_op("inner", 5, 10).cpu_op("inner", 20, 15)
    assert path(trace) == ({"host": 40}, 40)


def test_data_loading(path):
    trace = TraceBuilder().step(1, 0, 100).annotation("enumerate(DataLoader)#_Iter.__next__", 10, 60)
    trace.cpu_op("aten::stack", 20, 30).cpu_op("aten::mm", 80, 10)
    assert path(trace) == ({"data_loading": 60, "host": 10, "python": 30}, 100)
    assert path(trace, data_loading="nothing") == ({"host": 40, "python": 60}, 100)


def test_the_backward_pass_on_its_own_thread(path):
    """The main thread waits from 20 to 90; of that the other thread works for 50."""
    trace = TraceBuilder().step(1, 0, 100).cpu_op("forward", 0, 20).cpu_op("optimizer", 90, 10)
    for start in (30, 60):
        trace.cpu_op("autograd::engine::evaluate_function: MmBackward0", start, 25, tid=9)
    assert path(trace) == ({"host": 80, "python": 20}, 100)
    assert path(trace, python_time=False) == ({"host": 80}, 80)


def test_collectives_of_the_host(path):
    """Begun at 30 while the main thread works; it then waits from 50 to 90."""
    trace = TraceBuilder().step(1, 0, 100).cpu_op("forward", 0, 50).cpu_op("optimizer", 90, 10)
    trace.annotation("gloo:all_reduce", 30, 55, tid=9)
    times, length = path(trace)
    assert length == 100
    assert times["comm"] == 55


# --- launches and streams -------------------------------------------------------------------


def synced(api, *kernels, until=80):
    """An operator that launches kernels (start, duration, start of the launch), then a wait for all of them."""
    trace = TraceBuilder().step(1, 0, 100).cpu_op("op", 0, 20)
    for start, dur, launch in kernels:
        trace.kernel("gemm", start, dur, launch=(launch, 2), launch_name=api["launch"])
    return trace.runtime(api["device"], 20, until - 20, 99)


def test_launch_delay_and_the_return_of_a_wait(path, api):
    """5 of the operator, 25 until the kernel starts, 40 of the kernel, 10 until the call returns, 20 of Python."""
    trace = synced(api, (30, 40, 5))
    assert path(trace) == ({"host": 15, "launch": 25, "compute": 40, "python": 20}, 100)


def test_kernel_after_kernel(path, api):
    """The second is launched while the first runs."""
    trace = synced(api, (10, 30, 5), (42, 28, 12), until=75)
    assert path(trace) == ({"host": 10, "launch": 5, "compute": 58, "gap": 2, "python": 25}, 100)


def test_a_kernel_launched_after_the_one_before(path, api):
    """Then the stream was empty, and the host is what it waits for."""
    trace = synced(api, (4, 4, 2), (15, 55, 12), until=75)
    assert path(trace) == ({"host": 17, "launch": 3, "compute": 55, "python": 25}, 100)


def test_work_that_nobody_waits_for_ends_after_the_step(path, api):
    """The path ends with it: at 130."""
    trace = TraceBuilder().step(1, 0, 100).cpu_op("op", 0, 20)
    trace.kernel("gemm", 30, 100, launch=(5, 2), launch_name=api["launch"])
    assert path(trace) == ({"host": 5, "launch": 25, "compute": 100}, 130)


def test_a_launch_of_another_thread(path, api):
    trace = TraceBuilder().step(1, 0, 100).cpu_op("op", 0, 20).cpu_op("other", 0, 30, tid=9)
    trace.runtime(api["launch"], 25, 2, 1, tid=9)
    trace.kernel("gemm", 30, 100)
    assert path(trace) == ({"host": 25, "launch": 5, "compute": 100}, 130)


def test_a_graph_launch(path):
    """One call, three kernels: the first waits for the call, the others for the one before."""
    trace = TraceBuilder().step(1, 0, 100)
    trace.graph_launch(10, 20, [("a", 40, 10), ("b", 52, 10), ("c", 65, 15)]).runtime("cudaDeviceSynchronize", 30, 55)
    assert path(trace) == ({"python": 25, "launch": 30, "compute": 35, "gap": 5, "host": 5}, 100)


def test_a_kernel_that_starts_before_its_launch(path, api):
    """Clocks apart: it is shown to start with its launch, and the path stays within the window."""
    trace = synced(api, (3, 77, 5))
    assert path(trace) == ({"host": 5, "compute": 75, "python": 20}, 100)


def test_device_events_without_a_launch(path):
    """Why they pause is unknown: only a short pause counts."""
    trace = TraceBuilder().step(1, 0, 300).cpu_op("op", 0, 5)
    trace.kernel("a", 10, 30).kernel("b", 45, 150).kernel("c", 245, 200)
    assert path(trace) == ({"compute": 380, "gap": 5}, 385)


def behind(api, *, synced):
    """Step 1 launches work that runs from 30 to 250; step 2 begins at 100, launches at 105, and that runs until 290."""
    trace = TraceBuilder().step(1, 0, 100).step(2, 100, 100).step(3, 200, 100).cpu_op("op", 0, 20).cpu_op("op", 100, 20)
    trace.kernel("first", 30, 220, launch=(5, 2), launch_name=api["launch"])
    if synced:
        trace.runtime(api["device"], 102, 150, 99)
        return trace
    return trace.kernel("second", 252, 38, launch=(105, 2), launch_name=api["launch"])


def test_the_device_is_behind(path, api):
    """From the start of the step the device works on what was launched before: until 252 with the gap."""
    assert path(behind(api, synced=False), step=2) == ({"earlier": 152, "compute": 38}, 190)


def test_a_wait_for_work_from_before_the_step(path, api):
    """The call returns at 252, after the end of the step."""
    assert path(behind(api, synced=True), step=2) == ({"earlier": 152}, 152)


# --- waits ----------------------------------------------------------------------------------


def test_a_wait_with_nothing_to_wait_for_is_work(path, api):
    """The kernel has ended; the call takes its time all the same."""
    trace = synced(api, (10, 5, 2), until=30)
    assert path(trace) == ({"host": 30, "python": 70}, 100)


def two_streams(api, *, rows):
    """Stream 8 until 90, then stream 7 launched last, until 50: a wait for stream 7 returns at 55."""
    trace = TraceBuilder().step(1, 0, 60).cpu_op("op", 0, 10)
    trace.kernel("long", 10, 80, stream=8, launch=(1, 1), launch_name=api["launch"])
    trace.kernel("short", 20, 30, stream=7, launch=(5, 1), launch_name=api["launch"])
    trace.runtime(api["stream"], 10, 45, 99)
    return sync(trace, "Stream Sync", 11, 43, 99, stream=7) if rows else trace


@pytest.mark.parametrize("rows", [False, True], ids=["from the call", "from cuda_sync"])
def test_stream_sync(path, api, rows):
    """The host goes on when its stream is done: nothing depends on the other stream, which ends the path."""
    times, length = path(two_streams(api, rows=rows))
    assert (times, length) == ({"host": 1, "launch": 9, "compute": 80}, 90)
    trace = two_streams(api, rows=rows)
    trace.cpu_op("after", 55, 60)
    trace.events[0]["dur"] = 120
    assert path(trace)[0] == {"host": 5 + 5 + 60, "launch": 15, "compute": 30, "python": 5}


def test_context_sync_waits_for_every_stream(path):
    trace = TraceBuilder().step(1, 0, 100).cpu_op("op", 0, 10)
    trace.kernel("long", 10, 70, stream=8, launch=(1, 1)).kernel("short", 20, 30, stream=7, launch=(5, 1))
    sync(trace.runtime("cudaDeviceSynchronize", 10, 75, 99), "Context Sync", 11, 73, 99)
    assert path(trace) == ({"host": 1 + 5, "launch": 9, "compute": 70, "python": 15}, 100)


def test_event_sync_waits_for_what_was_launched_before_the_record(path):
    """The second kernel runs on until 90; the event is recorded before it."""
    trace = TraceBuilder().step(1, 0, 60).cpu_op("op", 0, 20)
    trace.kernel("first", 10, 30, launch=(1, 1)).runtime("cudaEventRecord", 4, 1, 50)
    trace.kernel("second", 40, 10, launch=(6, 1)).runtime("cudaEventSynchronize", 20, 25, 51)
    args = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 50}
    sync(trace, "Event Sync", 21, 23, 51, **args)
    assert path(trace) == ({"host": 1 + 5, "launch": 9, "compute": 30, "python": 15}, 60)


def test_event_sync_without_rows_waits_for_what_ends_last_in_it(path, api):
    trace = TraceBuilder().step(1, 0, 60).cpu_op("op", 0, 20)
    trace.kernel("gemm", 10, 30, launch=(1, 1), launch_name=api["launch"]).runtime(api["event"], 20, 25, 51)
    assert path(trace) == ({"host": 1 + 5, "launch": 9, "compute": 30, "python": 15}, 60)


def waiting_stream(api, rows):
    """Compute until 60 on stream 7; the collective, on stream 20, is told to wait for it and starts at 62."""
    trace = TraceBuilder().step(1, 0, 100).cpu_op("op", 0, 20)
    trace.kernel("gemm", 10, 50, launch=(1, 1), launch_name=api["launch"]).runtime("cudaEventRecord", 3, 1, 50)
    trace.runtime(api["wait"], 5, 1, 51)
    if rows:
        args = {"stream": 20, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 50}
        sync(trace, "Stream Wait Event", 5, 1, 51, **args)
    return trace.collective(ALLREDUCE, "allreduce", 62, 30, launch=(8, 1)).runtime(api["device"], 20, 75, 99)


@pytest.mark.parametrize("rows", [False, True], ids=["from the call", "from cuda_sync"])
def test_a_stream_that_waits_for_an_event(path, api, rows):
    times = {"host": 1 + 3, "launch": 9, "compute": 50, "gap": 2, "comm": 30, "python": 5}
    assert path(waiting_stream(api, rows)) == (times, 100)


def test_a_copy_that_blocks(path):
    """The call returns with the copy: 10 to the launch, 10 until it starts, 25 of copy, 5 to the return."""
    trace = TraceBuilder().step(1, 0, 100).cpu_op("op", 0, 60)
    trace.memcpy("DtoH (Device -> Pageable)", 20, 25, launch=(10, 40))
    assert path(trace) == ({"host": 10 + 5 + 10, "launch": 10, "memory": 25, "python": 40}, 100)


def test_a_copy_that_does_not_block(path):
    trace = TraceBuilder().step(1, 0, 100).cpu_op("op", 0, 60)
    trace.memcpy("HtoD (Pinned -> Device)", 20, 25, launch=(10, 40))
    assert path(trace) == ({"host": 60, "python": 40}, 100)


# --- the section ----------------------------------------------------------------------------


def steps(*lengths):
    trace, at = TraceBuilder(), 0
    for number, length in enumerate(lengths):
        trace.step(number, at, length).cpu_op(f"op{number}", at, length / 2)
        at += length
    return trace


@pytest.mark.parametrize(
    ("lengths", "chosen"),
    [((10, 30, 20, 40), 2), ((10, 10, 10), 1), ((10,), 0), ((50, 10, 20, 20, 20), 3)],
    ids=["median", "last of equals, but for the last step", "single", "last of equal ones"],
)
def test_which_step(run, lengths, chosen):
    section = run(CriticalPath(), steps(*lengths))
    assert section.table("ranks")["step"].tolist() == [chosen]
    assert section.table("ranks")["path"].tolist() == [lengths[chosen] * 1000]


def test_options(run):
    assert run(CriticalPath(step=1), steps(10, 30, 20)).table("ranks")["step"].tolist() == [1]
    section = run(CriticalPath(annotation="Profiler", instance=2), steps(10, 30, 20))
    assert section.table("bounds")["time"].sum() == 20_000
    assert "no step 7 (there are 0, 1, 2)" in run(CriticalPath(step=7), steps(10, 30, 20)).reason
    section = run(CriticalPath(annotation="nothing"), steps(10, 30, 20))
    assert "no instance 0 of 'nothing' (there are 0)" in section.reason


@pytest.mark.parametrize(
    ("option", "value", "least"), [("rank", -5, -1), ("step", -2, -1), ("instance", -1, 0), ("max_events", 0, 1)]
)
def test_options_out_of_range(option, value, least):
    """Below what stands for "as by default" nothing is a number of a rank or step."""
    with pytest.raises(UsageError, match=f"critical_path.{option}: {value} is outside its range: at least {least}"):
        CriticalPath.configured({option: str(value)})


def test_every_rank_has_its_path_and_the_lowest_is_shown(run):
    ranks = [TraceBuilder(rank).step(0, 0, 10).cpu_op(f"op{rank}", 0, 5 + rank) for rank in (3, 1)]
    section = run(CriticalPath(), *ranks)
    assert section.table("ranks")["rank"].tolist() == [1, 3]
    assert section.table("names")["name"].tolist() == ["op1"]
    assert "Rank 1, step 0" in section.notes[0]
    section = run(CriticalPath(rank=3), *ranks)
    assert section.table("ranks")["rank"].tolist() == [3]
    assert section.table("names")["name"].tolist() == ["op3"]


def test_tables(run):
    """Gain: without the kernel the call would still wait for nothing, and the host goes on."""
    section = run(CriticalPath(), synced(CUDA, (30, 40, 5)))
    bounds = section.table("bounds").set_index("bound")
    assert bounds["time"].to_dict() == {
        "host operators": 15_000,
        "Python": 20_000,
        "launch overhead": 25_000,
        "compute": 40_000,
    }
    assert bounds["share"].sum() == pytest.approx(1)
    assert bounds.loc["compute", "gain"] == 40_000
    names = section.table("names").set_index("name")
    assert names.loc["gemm", ["time", "total", "count"]].tolist() == [40_000, 40_000, 1]
    longest = section.table("edges").iloc[0]
    assert longest[["bound", "name", "lane", "start", "duration"]].tolist() == [
        "compute", "gemm", "stream 7", 30_000, 40_000,
    ]  # fmt: skip
    assert section.fact("critical_path_host_share").value == pytest.approx(0.6)


def test_slack_of_what_is_off_the_path(run):
    """The short kernel of stream 8 ends at 30, the wait is for stream 7 until 70."""
    trace = synced(CUDA, (30, 40, 5)).kernel("small", 20, 10, stream=8, launch=(10, 2))
    section = run(CriticalPath(), trace)
    off_path = section.table("off_path").set_index("name")
    assert off_path.loc["small"].tolist() == ["compute", 10_000, 50_000]
    assert (section.table("names")["time"] > 0).all()


def test_off_the_path_the_least_slack_comes_first(run):
    """Both kernels run while the wait is for stream 7 until 70; the shorter one ends later."""
    trace = synced(CUDA, (30, 40, 5)).kernel("long", 20, 20, stream=8, launch=(10, 1))
    trace.kernel("late", 55, 10, stream=9, launch=(12, 1))
    names = run(CriticalPath(), trace).table("off_path").set_index("name")["slack"]
    assert names.drop("cudaLaunchKernel").to_dict() == {"late": 15_000, "long": 40_000}
    assert names.is_monotonic_increasing


def test_the_share_of_the_host_is_none_without_a_device(run):
    """It would always be all of it."""
    trace = TraceBuilder().step(1, 0, 100).cpu_op("op", 0, 20)
    assert run(CriticalPath(), trace).fact("critical_path_host_share") is None


def test_without_steps_it_is_what_was_recorded(run):
    trace = TraceBuilder().cpu_op("a", 0, 20).cpu_op("b", 50, 30)
    section = run(CriticalPath(), trace)
    assert section.table("ranks")["path"].tolist() == [80_000]
    assert section.table("ranks")["step"].tolist() == [None]
    assert run(CriticalPath(max_events=1), trace).table("ranks")["path"].tolist() == [20_000]


def test_the_longest_of_several_captures(tmp_path):
    """A path does not jump from one capture to the next."""
    files = [
        TraceBuilder(0).cpu_op("a", start, dur).write(tmp_path / f"{start}.json")
        for start, dur in ((0, 10), (1000, 30), (2000, 20))
    ]
    trace = RankTrace.load(0, files)
    frames = CriticalPath().map(trace)
    assert frames["ranks"]["path"].tolist() == [30_000]
    assert frames["names"]["name"].tolist() == ["a"]


def test_marks_show_what_takes_the_time():
    """Gaps of a hundredth of a pixel do not hide the kernels between them, nor does a long kernel what follows it."""
    rows = [
        {"start": 10 * n + shift, "end": 10 * n + end, "bound": bound, "name": bound, "lane": "stream 7"}
        for n in range(10_000)
        for shift, end, bound in ((0, 9, "compute"), (9, 10, "gap"))
    ]
    rows.append({"start": 100_000, "end": 150_000, "bound": "comm", "name": "all", "lane": "stream 20"})
    marks = summary.marks(pd.DataFrame(rows), 100)
    assert marks.to_numpy().tolist() == [
        ["stream 7", "compute", 0, 100_000, "compute"],
        ["stream 20", "comm", 100_000, 150_000, "all"],
    ]


def test_marks_are_few(run):
    trace = TraceBuilder().step(0, 0, 50_000)
    for number in range(5000):
        trace.cpu_op("a", 10 * number, 5)
    section = run(CriticalPath(), trace)
    chart = next(chart for chart in section.charts if chart.name == "timeline")
    assert 1 <= len(chart.frame) <= 800
    assert section.table("ranks")["path"].tolist() == [50_000_000]
