"""Rules on traces that lack something: none may fail, most say nothing. Those about communication have their own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from builder import TraceBuilder

from htareport import rules
from htareport.errors import UsageError
from htareport.rules import discover, rule_classes
from htareport.rules.engine.base import Family
from htareport.run.runner import analyze

RULES = [rule for rule in discover() if rule.family is not Family.COMMUNICATION]
HEADINGS = ("## When it speaks", "## What it could save", "## What to do", "## How to verify")


def cpu_only():
    trace = TraceBuilder(deviceProperties=None)
    for number in range(5):
        trace.step(number, 100 * number, 100).cpu_op("aten::mm", 100 * number + 10, 50)
    return trace


def on_rocm():
    trace = TraceBuilder(cuda_runtime_version=None, hip_runtime_version=60_443_483)
    trace.step(1, 0, 1000).step(2, 1000, 1000).runtime("hipDeviceSynchronize", 700, 60)
    trace.kernel("a", 10, 400, launch=(0, 5), launch_name="hipLaunchKernel")
    trace.memcpy("DtoH (Device -> Host)", 410, 20, launch=(300, 135)).runtime("hipStreamSynchronize", 436, 5)
    return trace.kernel("b", 1300, 400, launch=(1250, 5), launch_name="hipExtModuleLaunchKernel")


def devices():
    trace = TraceBuilder(devices=2).step(1, 0, 1000)
    for device in range(2):
        trace.kernel("a", 10, 400, device=device, launch=(0, 5)).kernel("b", 600, 100, device=device, launch=(590, 5))
    return trace


ODD = {
    "cpu only": cpu_only(),
    "rocm": on_rocm(),
    "two devices": devices(),
    "one kernel": TraceBuilder().kernel("a", 0, 10, launch=(0, 1)),
    "without launches": TraceBuilder().step(1, 0, 1000).kernel("a", 0, 10).kernel("b", 500, 10),
    "without the host": TraceBuilder(rank=None).kernel("a", 0, 10).memset(20, 5, 64),
    "events of no length": TraceBuilder().kernel("a", 5, 0, launch=(0, 0)).kernel("a", 9, 0, launch=(7, 0)),
    "steps without work": TraceBuilder().step(1, 0, 100).step(2, 100, 100).kernel("a", 300, 10, launch=(290, 1)),
    "a graph": TraceBuilder().graph_launch(0, 5, [("a", 10, 5), ("b", 20, 5)]),
    "copies without bytes": TraceBuilder().step(1, 0, 100).memcpy("HtoD (Pageable -> Device)", 0, 50, launch=(0, 1)),
    "memory of the host": TraceBuilder().memory(0, 64, 1, 64, device=None),
}


@pytest.mark.parametrize("rule", discover(), ids=lambda rule: rule.code)
def test_every_threshold_that_is_a_number_has_a_range(rule):
    """A threshold that nothing fails to meet would find what is not there."""
    ranges = rule.ranges()
    for name, default in rule.options().items():
        assert default in ranges[name], name
        for wrong in ("0", "-1"):
            with pytest.raises(UsageError, match=f"{rule.code}.{name}: {wrong} is outside its range: above 0"):
                rule.configured({name: wrong})


@pytest.mark.parametrize("trace", ODD.values(), ids=ODD.keys())
def test_nothing_fails(tell, trace):
    states = dict(tell(RULES, trace).table("checked")[["code", "state"]].to_numpy().tolist())
    assert "failed" not in states.values()


def test_a_recording_of_the_host_alone_is_only_told_what_it_lacks(findings):
    assert set(findings(RULES, cpu_only())) == {"Q9"}


def test_several_captures(tmp_path):
    """Two files of one process, each with steps of its own."""
    for place in range(2):
        trace = on_rocm()
        for event in trace.events:
            event["ts"] += 10_000 * place
        trace.write(tmp_path / f"host_1.{place + 1}000000000000000000.pt.trace.json")
    section = analyze(tmp_path, analyses=[], rules=RULES)["findings"]
    assert not [note for note in section.notes if "failed" in note]
    assert "H7" in {finding.code for finding in section.findings}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_help(rule):
    """What it looks for, and each threshold, stands in its help."""
    text = rule.help()
    assert [line for line in text.splitlines() if line.startswith("## ")] == list(HEADINGS)
    missing = [name for name in rule.options() if f"`{name}`" not in text]
    assert not missing


CODES = re.compile(rf"\b(?:{'|'.join(sorted(rule_classes()))})\b")


@pytest.mark.parametrize("file", sorted(Path(rules.__file__).parent.glob("*.py")), ids=lambda file: file.stem)
def test_no_text_names_a_rule_by_its_code(file):
    """Codes show only where a finding is opened, so texts name others by their words. Docstrings may: they explain."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docs = {ast.get_docstring(each, clean=False) for each in ast.walk(tree)
            if isinstance(each, ast.Module | ast.ClassDef | ast.FunctionDef)}  # fmt: skip
    texts = {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    assert not [text for text in texts - docs if " " in text and CODES.search(text)]
