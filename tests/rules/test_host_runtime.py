"""Kernels loaded late, compilation, garbage collection, slow launches."""

from __future__ import annotations

from builder import TraceBuilder

from htareport.rules.host.runtime import GarbageCollection, LateLoading, Recompilation, SlowLaunches

MS = 1000
RULES = [LateLoading(), Recompilation(), GarbageCollection(), SlowLaunches()]


def gap(steps=1):
    """Steps of 10 ms in which the device works for the first ms and from 8 ms on; idle from 1 to 8 ms."""
    trace = TraceBuilder()
    for place in range(steps):
        begin = 10 * MS * place
        trace.step(place, begin, 10 * MS).kernel("a", begin, MS, launch=(begin, 3))
        trace.kernel("a", begin + 8 * MS, 2 * MS, launch=(begin + 8 * MS - 10, 4))
    return trace


def test_a_first_launch_that_takes_long(findings):
    """Launched at 2 ms for 3 ms, it is the first of its kernel; the second one as long is none."""
    trace = gap().kernel("new", 5 * MS + 10, 5, launch=(2 * MS, 3 * MS)).kernel("new", 7500, 5, launch=(6000, 1500))
    told = findings([LateLoading()], trace)["H11"]
    assert told.saving_ns == 3_000_000
    assert told.evidence == "The first launch of a kernel takes 3.00\u202fms."


def test_modules_that_are_loaded(findings):
    told = findings(RULES, gap().runtime("cuModuleLoadData", 2 * MS, 1500))
    assert {code: each.saving_ns for code, each in told.items()} == {"H11": 1_500_000}
    assert "`cuModuleLoadData`" in told["H11"].evidence


def test_loading_behind_work_and_short_loading(saved):
    assert saved(RULES, gap().runtime("cuLibraryLoadData", 8 * MS + 5, 1900)) == {}
    assert saved(RULES, gap().runtime("cuModuleLoadData", 2 * MS, 900)) == {}


def test_compiling_again(findings):
    """Something is compiled in both steps, for 1 and 2 ms; and guards are looked up for 0.5 ms besides."""
    trace = gap(2).annotation("Torch-Compiled Region: 0/1", 2 * MS, 4 * MS)
    trace.annotation("compile_fx_inner (dynamo_timed)", 2 * MS, MS)
    trace.annotation("compile_fx_inner (dynamo_timed)", 12 * MS, 2 * MS)
    told = findings(RULES, trace.annotation("TorchDynamo Cache Lookup", 6 * MS, 500))
    assert {code: each.saving_ns for code, each in told.items()} == {"H12": 1_750_000}
    words = told["H12"].evidence
    assert "Compilation takes 1.50\u202fms per step; looking up guards takes 250\u202fµs per step" in words
    assert "compiled in 2 steps" in words
    assert "`Torch-Compiled Region: 0/1`" in words


def test_a_region_that_is_compiled_once_is_fine(saved):
    assert saved(RULES, gap().annotation("Torch-Compiled Region: 0/0", 2 * MS, 4 * MS)) == {}
    assert saved(RULES, gap().annotation("TorchDynamo Cache Lookup", 2 * MS, 50)) == {}


def test_garbage_collection(findings):
    """From 2 to 5 ms; the other one is behind the device's work."""
    trace = gap().python_function("Python GC", 2 * MS, 3 * MS).python_function("Python GC", 8 * MS + 10, 1000, 2)
    told = findings(RULES, trace)
    assert {code: each.saving_ns for code, each in told.items()} == {"H13": 3_000_000}
    assert told["H13"].evidence == "2 collections recorded, the longest of 3.00\u202fms."


def test_other_python_is_no_garbage_collection(saved):
    assert saved(RULES, gap().python_function("collections/abc.py(3): collect", 2 * MS, 3 * MS)) == {}


def launched(dur):
    """Ten kernels of 5, every 100, that end when the next launch begins, which takes this long."""
    trace = TraceBuilder().step(1, 0, 1000)
    for begin in range(0, 1000, 100):
        trace.kernel("a", begin + dur, 100 - dur, launch=(begin, dur))
    return trace


def test_slow_launches(findings):
    """Nine gaps of 50 that are launch calls; 6 of each are usual."""
    told = findings(RULES, launched(50))
    assert {code: each.saving_ns for code, each in told.items()} == {"H23": 9 * 44_000}
    assert "more than 50.0\u202fµs" in told["H23"].evidence


def test_usual_launches(saved):
    assert saved(RULES, launched(7)) == {}


def test_copies_that_take_long_to_call_are_no_slow_launches(saved):
    trace = TraceBuilder().step(1, 0, 1000)
    for begin in range(0, 1000, 100):
        trace.memcpy("HtoD (Pageable -> Device)", begin + 50, 50, launch=(begin, 50))
    assert saved(RULES, trace) == {}
