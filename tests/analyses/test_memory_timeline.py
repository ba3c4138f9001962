"""Memory over time: peak, composition, growth."""

from __future__ import annotations

import pandas as pd
from builder import TraceBuilder

from htareport.analyses.memory.memory_timeline import BEFORE, MemoryTimeline

US = 1000
MIB = 1 << 20


def training() -> TraceBuilder:
    """100 MiB are there before; linear adds 20 and (within it) empty 10; 10 are freed, then add takes 5."""
    trace = TraceBuilder(0).cpu_op("aten::linear", 10, 40).cpu_op("aten::empty", 15, 20).cpu_op("aten::add", 60, 20)
    trace.memory(12, 20 * MIB, 1, 120 * MIB, 200 * MIB)
    trace.memory(20, 10 * MIB, 2, 130 * MIB, 240 * MIB)
    trace.memory(40, -10 * MIB, 2, 120 * MIB, 240 * MIB)
    return trace.memory(70, 5 * MIB, 2, 125 * MIB, 240 * MIB)


def device_row(section, device="CUDA 0"):
    return section.table().set_index("device").loc[device]


def test_peak(run):
    """130 MiB at 20 µs, which is 10 after the first event."""
    section = run(MemoryTimeline(), training())
    row = device_row(section)
    assert (row["peak"], row["peak_at"], row["reserved"]) == (130 * MIB, 10 * US, 240 * MIB)
    assert row["used"] == 240 * MIB / 85_017_624_576
    assert (row["allocations"], row["turnover"]) == (3, 35 * MIB)
    assert pd.isna(row["growth"])
    assert section.fact("peak_memory").value == 130 * MIB
    assert section.fact("peak_memory").detail == "allocated on rank 0, CUDA 0; 240\u202fMiB reserved"


def test_composition(run):
    """By the outermost operator; the rest was there before."""
    section = run(MemoryTimeline(), training())
    table = section.table("composition").set_index("operator")
    assert table["bytes"].to_dict() == {BEFORE: 100 * MIB, "aten::linear": 30 * MIB}
    assert (table.loc["aten::linear", "count"], table.loc["aten::linear", "largest"]) == (2, 20 * MIB)
    assert table["share"].sum() == 1
    sizes = section.table("sizes").set_index("size")
    assert sizes.to_dict()["bytes"] == {"10 to 100 MiB": 30 * MIB}


def test_devices_apart(run):
    """The CPU comes last, and is no peak where a GPU is."""
    trace = training().memory(30, 900 * MIB, 1, 900 * MIB, 0, device=None).memory(31, MIB, 1, MIB, 2 * MIB, device=1)
    section = run(MemoryTimeline(), trace)
    assert section.table()["device"].tolist() == ["CUDA 0", "CUDA 1", "CPU"]
    assert pd.isna(device_row(section, "CPU")["reserved"])
    assert section.fact("peak_memory").value == 130 * MIB
    assert section.charts[0].title.endswith("CUDA 0")


def test_without_totals(run):
    """Traces of 2021: the sizes are summed up, from what must have been there."""
    trace = TraceBuilder(0).cpu_op("a", 0, 50)
    trace.memory(10, -4096, -1).memory(20, 8192, -1).memory(30, -2048, -1)
    section = run(MemoryTimeline(), trace)
    assert device_row(section)["peak"] == 8192
    assert pd.isna(device_row(section)["reserved"])
    assert len(section.table("composition")) == 0
    assert ["no totals" in section.notes[0], "no addresses" in section.notes[1]] == [True, True]
    assert "without what was there before" in section.fact("peak_memory").detail


def stepwise(levels) -> TraceBuilder:
    trace = TraceBuilder(0)
    for step, level in enumerate(levels):
        trace.step(step, 100 * step, 100).memory(100 * step + 50, 1, step, level * MIB, 900 * MIB)
    return trace


def test_growth(run):
    """From the end of the first step to the end of the last; every step more than before is said."""
    section = run(MemoryTimeline(), stepwise([100, 110, 120, 130]))
    row = device_row(section)
    assert (row["growth"], row["per_step"], row["peak_step"]) == (30 * MIB, 10 * MIB, 3)
    assert section.notes == ("Rank 0, CUDA 0: 10.0\u202fMiB more are held after every step.",)


def test_up_and_down_is_no_growth(run):
    """One step that gives back."""
    assert not run(MemoryTimeline(), stepwise([100, 110, 105, 130])).notes


def test_chosen_steps(run):
    """The peak of a step that is left out doesn't count."""
    section = run(MemoryTimeline(), stepwise([100, 500, 120]), steps="0,2")
    assert device_row(section)["peak"] == 120 * MIB


def test_captures(tmp_path):
    """Live blocks of one file are not those of another."""
    from htareport.run.runner import analyze

    one = TraceBuilder(0).cpu_op("aten::one", 0, 50).memory(10, MIB, 1, MIB, 2 * MIB).write(tmp_path / "one.json")
    two = (
        TraceBuilder(0).cpu_op("aten::two", 900, 50).memory(910, MIB, 2, 3 * MIB, 4 * MIB).write(tmp_path / "two.json")
    )
    section = analyze({0: (one, two)}, analyses=[MemoryTimeline()])["memory_timeline"]
    table = section.table("composition").set_index("operator")
    assert table["bytes"].to_dict() == {BEFORE: 2 * MIB, "aten::two": MIB}


def test_other_threads_and_outside(run):
    """An allocation on another thread belongs to that thread's operator, or to none."""
    trace = TraceBuilder(0).cpu_op("aten::one", 0, 100).cpu_op("aten::two", 0, 100, tid=7)
    trace.memory(10, MIB, 1, MIB, MIB, tid=7).memory(20, MIB, 2, 2 * MIB, 2 * MIB).memory(200, MIB, 3, 3 * MIB, 3 * MIB)
    table = run(MemoryTimeline(), trace).table("composition").set_index("operator")
    assert table["bytes"].to_dict() == {"aten::one": MIB, "aten::two": MIB, "outside operators": MIB}
