"""Memory asked from the driver, and the cache emptied in the loop."""

from __future__ import annotations

from builder import TraceBuilder

from htareport.rules.host.memory import DriverAllocations, EmptyCache

RULES = [DriverAllocations(), EmptyCache()]


def steps(number=2):
    """Steps of 1000 in which the device is idle from 100 to 600."""
    trace = TraceBuilder()
    for place in range(number):
        begin = 1000 * place
        trace.step(place, begin, 1000).kernel("a", begin, 100, launch=(begin, 5))
        trace.kernel("b", begin + 600, 400, launch=(begin + 590, 5))
    return trace


def test_allocations(findings):
    """80 of the idle time in the first of two steps; what runs behind the device's work costs nothing."""
    trace = steps().cpu_op("aten::empty", 150, 100).runtime("cudaMalloc", 160, 80).runtime("cudaMalloc", 700, 50)
    told = findings(RULES, trace)
    assert {code: each.saving_ns for code, each in told.items()} == {"H9": 40_000}
    assert told["H9"].evidence.startswith("1× per step; idle time")
    assert told["H9"].advice.startswith("Set `PYTORCH_ALLOC_CONF")


def test_the_start_of_a_process_is_named(findings):
    trace = TraceBuilder().kernel("a", 0, 10, launch=(0, 5)).runtime("hipMalloc", 20, 80)
    told = findings(RULES, trace.kernel("b", 200, 10, launch=(190, 5)))
    assert "If this is the start of the process" in told["H9"].advice


def emptied(trace, begin):
    for place in range(3):
        trace.runtime("cudaFree", begin + 50 * place, 40)
    return trace


def test_an_emptied_cache(findings):
    """Three frees of 40 in each step, outside of operators, and 50 to allocate again in the first."""
    trace = emptied(emptied(steps(), 150), 1150).cpu_op("aten::empty", 400, 60).runtime("cudaMalloc", 405, 50)
    told = findings(RULES, trace)
    assert {code: each.saving_ns for code, each in told.items()} == {"H10": (120 + 120 + 50) * 500}
    assert "In 2 of 2 steps" in told["H10"].evidence


def test_a_function_that_empties_it(saved):
    trace = steps().runtime("cudaFree", 200, 40).python_function("torch/cuda/memory.py(170): empty_cache", 190, 60)
    assert saved(RULES, trace) == {"H10": 20}


def test_frees_of_an_allocator_that_is_short(saved):
    """Within an operator: it retries, nobody empties the cache."""
    trace = emptied(steps(1).cpu_op("aten::empty", 140, 400), 150)
    assert saved(RULES, trace) == {"H9": 120}


def test_once_in_many_steps_is_no_loop(saved):
    assert saved(RULES, emptied(steps(3), 150)) == {"H9": 40}
