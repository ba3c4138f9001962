"""The gates of a report as JUnit XML, which CI systems show as tests: one test case per gate."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import quoteattr

from htareport.render import highlights, kernel_names
from htareport.report import Report

_MAX_TEXT = 2_000


def junit(report: Report) -> str:
    """Return the gates as JUnit XML. Crossed gates fail; inconclusive ones are skipped, or fail if the user wants that.

    Without gates the suite has one test, that the report exists, so that no CI system reports it as missing.
    """
    gates = [gate for gate in report.meta.get("gates", ()) if isinstance(gate, dict)]
    cases = [_case(gate) for gate in gates] or [_element("testcase", {"classname": "htareport", "name": "report"})]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(map(_fails, gates))),
        "errors": "0",
        "skipped": str(sum(map(_is_skipped, gates))),
    }
    verdict = _element("system-out", {}, _text(report.verdict))
    suite_name = {"name": f"htareport: {highlights.title(report)}"}
    suite = _element("testsuite", suite_name | counts, "".join([*cases, verdict]))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_element("testsuites", counts, suite)}\n'


def _fails(gate: dict[str, Any]) -> bool:
    """Whether a gate is a failure: any state other than passed and inconclusive is one."""
    state = gate.get("state")
    return bool(gate.get("fails")) if state == "inconclusive" else state != "passed"


def _is_skipped(gate: dict[str, Any]) -> bool:
    return gate.get("state") == "inconclusive" and not _fails(gate)


def _case(gate: dict[str, Any]) -> str:
    reason, state = str(gate.get("reason", "")), str(gate.get("state", ""))
    content = ""
    if _fails(gate):
        content = _element("failure", {"message": f"{state}: {reason}", "type": state}, _text(reason))
    elif _is_skipped(gate):
        content = _element("skipped", {"message": f"{state}: {reason}"})
    elif reason:
        content = _element("system-out", {}, _text(reason))
    return _element("testcase", {"classname": "htareport.gates", "name": str(gate.get("gate", ""))}, content)


def _element(name: str, attributes: dict[str, str], content: str = "") -> str:
    attribute_text = "".join(f" {key}={quoteattr(_clean(value))}" for key, value in attributes.items())
    return f"<{name}{attribute_text}>{content}</{name}>" if content else f"<{name}{attribute_text}/>"


def _text(text: str) -> str:
    return _clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clean(text: str) -> str:
    """Return text without characters that XML cannot hold."""
    return kernel_names.visible(kernel_names.cut(text, _MAX_TEXT))
