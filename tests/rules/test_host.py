"""Idle time as a whole: the host is late, stops between steps, or is not to blame."""

from __future__ import annotations

from builder import TraceBuilder

from htareport.rules.host.idle import BetweenSteps, HostBound, WorkQueued


def one_gap(launched):
    """A step of 1000 µs in which the device works from 0 to 100 and from 600 to 700."""
    trace = TraceBuilder().step(1, 0, 1000).kernel("a", 0, 100, launch=(0, 5))
    return trace.cpu_op("aten::mm", 150, 100).kernel("b", 600, 100, launch=launched)


def test_the_host_launches_late(findings):
    """Idle for 800 of 1000; of the gap the call returns at 595: 495 late, 61.9 % of idle. 100 of them in the operator.

    The rest of the gap, 390 until the call begins, nothing is recorded.
    """
    told = findings([HostBound(), WorkQueued()], one_gap((590, 5)))
    assert list(told) == ["H1"]
    finding = told["H1"]
    assert (finding.saving_ns, finding.low_ns, finding.severity) == (495_000, 247_500, "high")
    assert "idle for 80.0\u202f% of the step; in 61.9\u202f% of that" in finding.evidence
    assert ", and 37.5\u202f% of it lies before the first or after the last recorded GPU event. " in finding.evidence
    assert "`aten::mm` 100\u202fµs" in finding.evidence
    assert "not recorded for 390\u202fµs per step" in finding.evidence
    assert [(span.start, span.end, span.step) for span in finding.spans] == [(100_000, 595_000, 1)]


def test_advice_is_possible_for_the_job(findings):
    """A job that only infers has no optimizer; where no operators are recorded that is not known."""
    inferring, training = one_gap((590, 5)), one_gap((590, 5)).cpu_op("Optimizer.step#SGD.step", 300, 10)
    told = [findings([HostBound()], trace)["H1"].advice for trace in (inferring, training)]
    assert ["optimizers" in advice for advice in told] == [False, True]
    nothing = TraceBuilder().step(1, 0, 1000).kernel("a", 0, 100, launch=(0, 5)).kernel("b", 600, 100, launch=(590, 5))
    assert "optimizers" in findings([HostBound()], nothing)["H1"].advice


def test_work_that_waits_on_the_device_is_not_the_host_s(findings):
    """Launched at 50, while the device is busy, it starts at 600: 500 of waiting."""
    told = findings([HostBound(), WorkQueued()], one_gap((50, 5)))
    assert list(told) == ["H26"]
    assert (told["H26"].saving_ns, told["H26"].low_ns) == (500_000, 0)
    assert (told["H26"].severity, told["H26"].confidence) == ("medium", "low")
    assert "`b` 500\u202fµs" in told["H26"].evidence


def test_half_of_idle_time_or_as_much_of_the_step(saved):
    """Late for 165 of 800 idle: neither half of it nor 15 % of the step after the launch at 260."""
    trace = TraceBuilder().step(1, 0, 1000).kernel("a", 0, 100, launch=(0, 5)).kernel("b", 265, 100, launch=(260, 5))
    assert saved([HostBound(idle=0.17)], trace) == {}
    assert saved([HostBound()], trace) == {"H1": 165}


def test_the_longest_gap_is_named(findings):
    """Where Python was recorded: the innermost function that is none of PyTorch's, in its middle."""
    trace = one_gap((590, 5)).python_function("train.py(3): log", 100, 400)
    assert "The longest gap is in `train.py(3): log`." in findings([HostBound()], trace)["H1"].evidence


def test_without_steps_the_whole_recording_counts(findings):
    trace = TraceBuilder().kernel("a", 0, 100, launch=(0, 5)).kernel("b", 600, 400, launch=(590, 5))
    told = findings([HostBound()], trace)["H1"]
    assert (told.saving_ns, told.is_per_step) == (495_000, False)
    assert told.title == "The GPU waits for the host in 49.5\u202f% of what was recorded"


def two_steps():
    """The device works from 100 to 6000 and from 12010 to 18000; steps of 10 ms."""
    trace = TraceBuilder().step(1, 0, 10_000).step(2, 10_000, 10_000)
    trace.kernel("a", 100, 5900, launch=(50, 5)).kernel("b", 12_010, 5990, launch=(12_000, 5))
    return trace.python_function("loop.py(7): save", 6000, 5000).python_function("torch/x.py(1): y", 6500, 4000, 2)


def test_between_steps(findings):
    """From 6000, 1 ms may pass; until 12005 the host is late: 5005 in two steps."""
    told = findings([BetweenSteps()], two_steps())["H21"]
    assert told.saving_ns == 2_502_500
    assert "in `loop.py(7): save`" in told.evidence


def test_the_loader_between_steps_has_its_own_finding(saved):
    trace = two_steps().cpu_op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 6000, 6000)
    assert saved([BetweenSteps()], trace) == {}


def test_a_step_that_is_launched_in_time_leaves_nothing_between(saved):
    trace = TraceBuilder().step(1, 0, 1000).step(2, 1000, 1000)
    trace.kernel("a", 100, 1100, launch=(50, 5)).kernel("b", 1205, 600, launch=(1010, 5))
    assert saved([BetweenSteps(free=0)], trace) == {}


def test_a_late_host_that_replays_graphs(findings):
    """It is not told to use what it uses."""
    trace = TraceBuilder().step(1, 0, 1000)
    for begin in (0, 500):
        trace.graph_launch(begin, 50, [("a", begin + 60, 100)])
    told = findings([HostBound()], trace)["H1"]
    assert "graphs that hold more of the step" in told.advice
    assert not told.snippet
