"""Python functions that take time themselves while the device is idle."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.rules.host.idle import HostBound
from htareport.rules.host.optimizer import UnfusedOptimizer
from htareport.rules.host.python import PythonOverhead

BACKWARD_THREAD = 77
TRAIN = "train.py(10): main"
HOOK = "model.py(31): scale_hook"


def step():
    """A step of 1000 µs: the device works until 100 and from 900 on. What follows is launched from 890 to 895."""
    trace = TraceBuilder().step(1, 0, 1000).python_function(TRAIN, 0, 1000, 1)
    return trace.kernel("a", 0, 100, launch=(0, 3)).kernel("b", 900, 100, launch=(890, 5))


def test_time_of_a_function_itself(findings):
    """Of 200 to 700 in `log` an operator takes 300 to 500; the rest of the gap is in `main`: 100 to 200, 700 to 890."""
    trace = step().python_function("train.py(50): log", 200, 500, 2, 1).cpu_op("aten::mul", 300, 200)
    told = findings([PythonOverhead()], trace)["H22"]
    assert told.saving_ns == 590_000
    assert "`train.py(50): log` 300\u202fµs, `train.py(10): main` 290\u202fµs" in told.evidence
    assert [(span.start, span.end, span.name) for span in told.spans] == [
        (500_000, 700_000, "train.py(50): log"), (200_000, 300_000, "train.py(50): log"),
    ]  # fmt: skip
    assert "out of the step" in told.advice


def test_only_functions_of_enough_time_count(saved):
    trace = step().python_function("train.py(50): log", 200, 500, 2, 1)
    assert saved([PythonOverhead(least=0.4)], trace) == {"H22": 500}
    assert saved([PythonOverhead(least=0.6)], trace) == {}


def test_what_is_built_in_counts_for_who_calls_it(findings):
    trace = step().python_function("train.py(50): log", 150, 700, 2, 1)
    trace.python_function("<built-in method dumps of module object at 0x7f>", 200, 600, 3, 2)
    told = findings([PythonOverhead(least=0.2)], trace)["H22"]
    assert told.saving_ns == 700_000
    assert "mostly in `<built-in method dumps of module object at 0x7f>`" in told.evidence


def test_a_built_in_call_that_is_not_seen_to_end(saved):
    """It lasts until recording stops, but no longer than `log`, which calls it: 500 to 890 are in `main`."""
    trace = step().python_function("train.py(50): log", 150, 350, 2, 1)
    trace.python_function("<built-in method dumps of module object at 0x7f>", 200, 5000, 3, 2)
    assert saved([PythonOverhead(least=0.38)], trace) == {"H22": 440}


def backward():
    """The autograd thread launches what ends the gap. In its operator runs a hook, and in that another operator."""
    trace = TraceBuilder().step(1, 0, 1000).kernel("a", 0, 100, launch=(0, 3))
    trace.python_function("torch/autograd/graph.py(823): _engine_run_backward", 0, 1000)
    trace.cpu_op("autograd::engine::evaluate_function: MulBackward0", 200, 600, tid=BACKWARD_THREAD)
    trace.complete("python_function", HOOK, trace.pid, BACKWARD_THREAD, (250, 450), {})
    trace.cpu_op("aten::norm", 400, 200, tid=BACKWARD_THREAD)
    trace.runtime("cudaLaunchKernel", 890, 5, 500, tid=BACKWARD_THREAD)
    return trace.kernel("b", 900, 100, correlation=500)


def test_a_hook_in_the_backward_pass(findings):
    """Of its 450 another operator takes 200. That the main thread waits meanwhile is no time of Python."""
    told = findings([PythonOverhead()], backward())["H22"]
    assert told.saving_ns == 250_000
    assert f"`{HOOK}` 250\u202fµs (in the backward pass)" in told.evidence
    assert told.title.endswith(f"in `{HOOK}`")
    assert "backward pass" in told.advice


def test_wrappers_of_pytorch(findings):
    wrapper = "torch/nn/modules/module.py(1743): _call_impl"
    told = findings([PythonOverhead(least=0.3)], step().python_function(wrapper, 200, 500, 2, 1))["H22"]
    assert told.saving_ns == 500_000
    assert "`torch.compile` or CUDA graphs run without them" in told.advice
    assert f"The longest such time is in `{TRAIN}`" in told.evidence


def test_what_another_thread_fills_is_no_time_of_this_one(saved):
    assert saved([PythonOverhead()], step()) == {"H22": 790}
    assert saved([PythonOverhead()], step().cpu_op("aten::mul", 300, 200, tid=BACKWARD_THREAD)) == {"H22": 590}


@pytest.mark.parametrize(
    "name",
    ["torch/utils/data/dataloader.py(733): __next__", "Python GC", "<built-in function collect>",
     "torch/profiler/profiler.py(770): step"],
)  # fmt: skip
def test_what_other_rules_are_about(saved, name):
    """From 150 to 850; before and behind that it is `main`."""
    assert saved([PythonOverhead()], step().python_function(name, 150, 700, 2, 1)) == {"H22": 90}


def test_time_with_a_more_telling_cause(saved):
    trace = step().runtime("cudaMalloc", 150, 300).annotation("enumerate(DataLoader)#_Iter.__next__", 500, 350)
    assert saved([PythonOverhead()], trace) == {"H22": 140}


def test_what_the_optimizer_rule_has_said(saved):
    trace = step().annotation("Optimizer.step#SGD.step", 150, 700)
    trace.python_function("torch/optim/sgd.py(120): step", 150, 700, 2, 1)
    assert saved([PythonOverhead()], trace) == {"H22": 790}
    assert saved([UnfusedOptimizer(kernels=0), PythonOverhead()], trace) == {"H19": 700, "H22": 90}


def test_busy_devices_and_recordings_without_stacks(tell):
    busy = TraceBuilder().step(1, 0, 1000).python_function(TRAIN, 0, 1000).kernel("a", 0, 990, launch=(0, 3))
    assert not tell([PythonOverhead()], busy.kernel("b", 991, 9, launch=(5, 3))).findings
    section = tell([PythonOverhead(), HostBound()], TraceBuilder().kernel("a", 0, 10, launch=(0, 1)))
    assert "with_stack=True" in section.table("checked")["state"].iloc[0]
