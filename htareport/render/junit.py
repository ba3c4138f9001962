"""The gates of a report as JUnit XML, which CI systems show as tests: one test case per gate."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import quoteattr

from htareport.render import highlights, kernel_names
from htareport.report import Report

_LONGEST = 2_000


def junit(report: Report) -> str:
    """Return the gates as JUnit XML. Crossed ones fail; inconclusive ones are skipped, or fail if that was asked for.

    Without gates the suite has one test, that the report was made, so that no CI takes it for lost.
    """
    gates = [gate for gate in report.meta.get("gates", ()) if isinstance(gate, dict)]
    cases = [_case(gate) for gate in gates] or [_element("testcase", {"classname": "htareport", "name": "report"})]
    counts = {
        "tests": len(cases),
        "failures": sum(_fails(gate) for gate in gates),
        "errors": 0,
        "skipped": sum(_is_skipped(gate) for gate in gates),
    }
    told = _element("system-out", {}, _text(report.verdict))
    about = {"name": f"htareport: {highlights.title(report)}"} | {name: str(count) for name, count in counts.items()}
    suite = _element("testsuite", about, "".join([*cases, told]))
    whole = {name: str(count) for name, count in counts.items()}
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_element("testsuites", whole, suite)}\n'


def _fails(gate: dict[str, Any]) -> bool:
    """Whether a gate is a failure: one that is neither passed nor inconclusive, whatever it says, is no success."""
    state = gate.get("state")
    return bool(gate.get("fails")) if state == "inconclusive" else state != "passed"


def _is_skipped(gate: dict[str, Any]) -> bool:
    return gate.get("state") == "inconclusive" and not _fails(gate)


def _case(gate: dict[str, Any]) -> str:
    reason, state = str(gate.get("reason", "")), str(gate.get("state", ""))
    inner = ""
    if _fails(gate):
        inner = _element("failure", {"message": f"{state}: {reason}", "type": state}, _text(reason))
    elif _is_skipped(gate):
        inner = _element("skipped", {"message": f"{state}: {reason}"})
    elif reason:
        inner = _element("system-out", {}, _text(reason))
    return _element("testcase", {"classname": "htareport.gates", "name": str(gate.get("gate", ""))}, inner)


def _element(name: str, attributes: dict[str, str], content: str = "") -> str:
    written = "".join(f" {key}={quoteattr(_clean(value))}" for key, value in attributes.items())
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def _text(text: str) -> str:
    return _clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clean(text: str) -> str:
    """Text without what XML cannot hold."""
    return kernel_names.visible(kernel_names.cut(text, _LONGEST))
