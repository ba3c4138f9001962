"""What the recording covers, and whether it shows the work as it was."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.rules.host.idle import HostBound
from htareport.rules.quality.missing import WorkMissing
from htareport.rules.quality.overhead import ProfilerOverhead
from htareport.rules.quality.recording import FewSteps, WarmUp


def steps(lengths, begin=0, first=1, trace=None):
    """Steps of these lengths in µs, with a kernel that takes half of each."""
    trace = trace or TraceBuilder()
    for number, length in enumerate(lengths, first):
        trace.step(number, begin, length).kernel("a", begin + 5, length / 2, launch=(begin, 2))
        begin += length
    return trace


@pytest.mark.parametrize(
    ("number", "title"), [(0, "No steps were recorded"), (1, "Only 1 step was recorded"), (2, "Only 2 steps were")]
)
def test_few_steps(findings, number, title):
    trace = steps([100] * number) if number else TraceBuilder().kernel("a", 0, 10, launch=(0, 1))
    told = findings([FewSteps()], trace)["Q1"]
    assert told.title.startswith(title)
    assert (told.severity, told.saving_ns) == ("low", None)
    assert "prof.step()" in told.snippet


def test_steps_enough(findings):
    assert findings([FewSteps()], steps([100] * 3)) == {}
    assert findings([FewSteps()], steps([100] * 3), steps="2") == {}  # What was recorded counts, not what is asked for.


def test_a_first_step_that_warms_up(findings):
    """300 against a median of 110."""
    told = findings([WarmUp()], steps([300, 100, 120, 110]))["Q2"]
    assert told.title == "Step 1, the first recorded, takes 2.7 times as long as the others"
    assert told.snippet == "htareport report TRACES --steps 2-4"
    assert told.steps == (1,)


@pytest.mark.parametrize("lengths", [[150, 100, 100], [100, 300, 100, 100], [300, 100]])
def test_another_step_or_too_few_are_no_warm_up(findings, lengths):
    assert findings([WarmUp()], steps(lengths)) == {}


def test_the_start_of_a_process(findings):
    """Without steps: of 10 ms 2 in cudaMalloc and 3 in a first launch; what lasts less than a ms is none."""
    trace = TraceBuilder().kernel("a", 0, 1000, launch=(0, 5)).runtime("cudaMalloc", 2000, 2000)
    trace.kernel("b", 8005, 995, launch=(5000, 3000)).kernel("c", 9800, 200, launch=(9100, 600))
    told = findings([WarmUp()], trace)["Q2"]
    assert told.title == "The recording includes the start of the process, which takes 5.00\u202fms"
    assert told.severity == "medium"
    assert findings([WarmUp(share=0.51)], trace) == {}


RULES = [WorkMissing(), HostBound()]


def decoding(*, kernels_recorded):
    """Ten graph launches of 100 each, which the host waits for; between them it samples for 20.

    Where the graphs' kernels are not recorded, only the sampling kernels are, and the device seems idle.
    """
    trace = TraceBuilder().step(1, 0, 1200)
    for begin in range(0, 1200, 120):
        kernels = [("attention", begin + 5, 90)] if kernels_recorded else []
        trace.graph_launch(begin, 4, kernels).runtime("cudaStreamSynchronize", begin + 5, 92)
        trace.kernel("sample", begin + 105, 10, launch=(begin + 100, 3))
    return trace


def test_graphs_that_are_not_recorded(tell):
    section = tell(RULES, decoding(kernels_recorded=False))
    assert [finding.code for finding in section.findings] == ["Q3"]
    assert "10 of 10 graph launches have no device event" in section.findings[0].evidence
    assert section.findings[0].severity == "medium"
    assert section.notes[0].startswith("Findings about idle time are held back")


def test_graphs_that_are_recorded(findings):
    assert findings([WorkMissing()], decoding(kernels_recorded=True)) == {}


def test_graphs_of_which_a_part_is_recorded(findings):
    """One kernel of each graph, 82 after the launch returns: of 90 idle the host is late for 8."""
    trace = TraceBuilder().step(1, 0, 1000)
    for begin in range(0, 1000, 100):
        trace.graph_launch(begin, 2, [("last", begin + 84, 10)])
    told = findings(RULES, trace)["Q3"]
    assert "seems idle for 90.0\u202f% of the step" in told.evidence


def host_bound():
    """The device works for 10 of every 100; one launch at the end has not run yet, and one fill of no bytes never."""
    trace = TraceBuilder().step(1, 0, 1000).runtime("cudaMemsetAsync", 20, 1, correlation=901)
    for begin in range(0, 1000, 100):
        trace.kernel("a", begin + 90, 10, launch=(begin + 80, 4))
    return trace.runtime("cudaLaunchKernel", 995, 2, correlation=902)


def test_a_host_that_is_late_is_real(findings):
    assert list(findings(RULES, host_bound())) == ["H1"]


def test_kernels_that_were_dropped(findings):
    """5 of 15 launches before the last that has run."""
    trace = host_bound()
    for begin in range(100, 500, 100):
        trace.runtime("cudaLaunchKernel", begin, 2, correlation=900 + begin)
    assert list(findings(RULES, trace)) == ["H1"]
    told = findings(RULES, trace.runtime("hipLaunchKernel", 600, 2, correlation=1500))
    assert list(told) == ["Q3"]
    assert told["Q3"].evidence == "5 of 15 launches of kernels have no device event."


def captured(number):
    trace = host_bound().runtime("cudaStreamBeginCapture", 110, 2).runtime("cudaStreamEndCapture", 171, 2)
    for place in range(number):
        trace.runtime("cudaLaunchKernel", 115 + 4 * place, 2, correlation=1000 + place)
    return trace


def test_what_is_captured_does_not_run(findings):
    """9 launches are captured and 10 run: nothing is lost. 11 are more than those that run."""
    assert list(findings(RULES, captured(9))) == ["H1"]
    told = findings(RULES, captured(11))
    assert list(told) == ["Q3"]
    assert told["Q3"].evidence == "11 of 21 launches of kernels are captured into a graph."


def test_a_capture_whose_begin_is_not_recorded_is_named(findings):
    trace = host_bound()
    for begin in range(115, 170, 5):
        trace.runtime("hipLaunchKernel", begin, 2, correlation=1000 + begin)
        trace.runtime("hipStreamGetCaptureInfo", begin + 3, 1)
    assert "record replays instead" in findings(RULES, trace)["Q3"].evidence


def test_steps_that_hold_hardly_anything(findings):
    """Two of six steps hold one of twenty kernels."""
    trace = TraceBuilder()
    for number in range(6):
        trace.step(number, 1000 * number, 1000)
        for place in range(1 if number in {2, 4} else 20):
            begin = 1000 * number + 50 * place
            trace.kernel("a", begin + 10, 35, launch=(begin, 5))
    assert "2 steps have hardly any device events" in findings([WorkMissing()], trace)["Q3"].evidence
    assert findings([WorkMissing(empty=0.4)], trace) == {}


def test_only_the_rank_that_lacks_work_is_held_back(tell):
    other = host_bound()
    other.metadata["distributedInfo"] |= {"rank": 1, "world_size": 2}
    first = decoding(kernels_recorded=False)
    first.metadata["distributedInfo"]["world_size"] = 2
    section = tell(RULES, first, other)
    assert [(finding.code, finding.ranks) for finding in section.findings] == [("Q3", (0,)), ("H1", (1,))]


def stacks(number, busy=500):
    trace = TraceBuilder().step(1, 0, 1000).kernel("a", 0, busy, launch=(0, 1))
    for place in range(number):
        trace.python_function("f", place, 1, place)
    return trace


def test_stacks(findings):
    """4 of 7 events, where the device is idle for half of the time."""
    told = findings([ProfilerOverhead()], stacks(4))["Q4"]
    assert told.evidence.startswith("57.1\u202f% of all events are Python calls")
    assert told.severity == "low"
    assert findings([ProfilerOverhead()], stacks(3)) == {}
    assert findings([ProfilerOverhead()], stacks(4, busy=950)) == {}


def overhead(name, length):
    trace = TraceBuilder().step(1, 0, 1000).kernel("a", 0, 300, launch=(0, 5)).kernel("b", 900, 100, launch=(890, 5))
    return trace.complete("overhead", name, -1, 0, (310, length), {})


def test_the_profiler_s_own_work(tell):
    """30 of the step; of 600 idle it is not the half. 310 of it are, and then nothing is said of idle time."""
    section = tell([ProfilerOverhead(), HostBound()], overhead("Buffer Flush", 30))
    assert [finding.code for finding in section.findings] == ["H1", "Q4"]
    assert "the profiler's own work takes 3.00\u202f% of the step" in section.findings[1].evidence.lower()
    section = tell([ProfilerOverhead(), HostBound()], overhead("Buffer Flush", 310))
    assert [(finding.code, finding.severity) for finding in section.findings] == [("Q4", "medium")]


def test_overhead_of_the_program_is_not_the_profiler_s(findings):
    assert findings([ProfilerOverhead()], overhead("Lazy Function Loading", 310)) == {}


@pytest.mark.parametrize("asked", ["8", "2,7-8", "complete"])
def test_launches_of_steps_that_were_not_asked_for_have_their_events(findings, asked):
    assert findings([WorkMissing()], steps([100] * 8), steps=asked) == {}


def test_most_steps_are_empty(findings):
    """Of six steps two have a kernel, so that the median is none."""
    trace = TraceBuilder()
    for number in range(6):
        trace.step(number, 100 * number, 100)
    trace.kernel("a", 10, 50, launch=(0, 2)).kernel("a", 110, 50, launch=(100, 2))
    assert "4 steps have hardly any device events" in findings([WorkMissing()], trace)["Q3"].evidence
