"""The data loader, in the main process and in workers."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport.rules.host.input import InputStall, SingleProcessLoader

RULES = [InputStall(), SingleProcessLoader()]


def loaded(name, length=300):
    """The device is idle from 100 to 600; the loader runs from 50 for so long."""
    trace = TraceBuilder().step(1, 0, 1000).kernel("a", 0, 100, launch=(0, 5)).kernel("b", 600, 400, launch=(590, 5))
    return trace.cpu_op(f"enumerate(DataLoader)#_{name}DataLoaderIter.__next__", 50, length)


@pytest.mark.parametrize(("name", "code", "words"), [
    ("SingleProcess", "H15", "works in the main process"), ("MultiProcessing", "H14", "whose workers are too slow"),
])  # fmt: skip
def test_what_the_loader_fills(findings, name, code, words):
    """From 100, when the device runs empty, to 350: one finding, whoever loads."""
    told = findings(RULES, loaded(name))
    assert {each: finding.saving_ns for each, finding in told.items()} == {code: 250_000}
    assert words in told[code].title


def test_a_loader_behind_work_costs_nothing(saved):
    assert saved(RULES, loaded("SingleProcess", 50)) == {}
    assert saved(RULES, loaded("SingleProcess", 95)) == {}  # 45 of 1000 is less than 5 %.


def test_a_loader_of_one_s_own(findings):
    trace = TraceBuilder().step(1, 0, 1000).kernel("a", 0, 100, launch=(0, 5)).kernel("b", 600, 400, launch=(590, 5))
    told = findings(RULES, trace.annotation("data_load", 100, 200))
    assert told["H14"].title == "The GPU waits 200\u202fµs per step for the data loader"
