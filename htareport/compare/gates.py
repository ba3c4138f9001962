"""Gates: limits that a run must not cross, such as `step_time > 255 ms` and, against a base, `step_time > +5%`.

    gate   = metric op limit | "finding:" (severity | code)
    op     = ">" | ">=" | "<" | "<="
    limit  = ["+" | "-"] number [unit]
    unit   = "ns" | "us" | "µs" | "ms" | "s" | "min" | "B" | "KiB" | "MiB" | "GiB" | "TiB" | "kB" | "MB" | "GB" | "%"

The gate says what is too much. With a sign the limit is a change against the base: in per cent of it, or of the
metric's own unit (percentage points where that is per cent). It is crossed if the whole confidence interval of the
change lies beyond the limit, and inconclusive where there is no interval. `finding: high` (low, medium, high) is
crossed by any finding of at least that severity, `finding: H14` by that of the rule of this code.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from htareport.compare.metrics import Metric, absolute_interval, relative_interval, too_few
from htareport.compare.topics import METRICS, TOO_FEW
from htareport.compare.words import between, changed, listed, shortened
from htareport.errors import UsageError
from htareport.report import Unit
from htareport.report.units import MINUS, text

_GATE = re.compile(
    r"\s*([A-Za-z][A-Za-z0-9_]*)\s*(>=|<=|>|<)\s*([+\-−]?)\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-zµμ%]*)\s*"
)
_FINDING = re.compile(r"\s*finding\s*:\s*(.*?)\s*", re.IGNORECASE | re.DOTALL)
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_OPS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
_UNITS: dict[str, tuple[Unit, float]] = {
    "ns": (Unit.NANOSECONDS, 1), "us": (Unit.NANOSECONDS, 1e3), "µs": (Unit.NANOSECONDS, 1e3),
    "μs": (Unit.NANOSECONDS, 1e3), "ms": (Unit.NANOSECONDS, 1e6), "s": (Unit.NANOSECONDS, 1e9),
    "min": (Unit.NANOSECONDS, 60e9), "B": (Unit.BYTES, 1), "KiB": (Unit.BYTES, 2**10), "MiB": (Unit.BYTES, 2**20),
    "GiB": (Unit.BYTES, 2**30), "TiB": (Unit.BYTES, 2**40), "kB": (Unit.BYTES, 1e3), "MB": (Unit.BYTES, 1e6),
    "GB": (Unit.BYTES, 1e9), "%": (Unit.RATIO, 0.01),
}  # fmt: skip
_PLAIN = {Unit.COUNT, Unit.NUMBER, Unit.BYTES_PER_SECOND}
_MAX_GATES, _MAX_GATE = 3, 60  # In a sentence, and characters of one.
_EXAMPLES = "such as 'step_time > 255 ms', 'step_time > +5%', 'exposed_comm_pct > +2' or 'finding: high'"


class State(StrEnum):
    """How a gate came out."""

    PASSED = "passed"
    CROSSED = "crossed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Gate:
    """A limit as it was written, and what it means; `limit` is in the metric's unit, or a share of the base's value."""

    written: str
    metric: str
    op: str
    limit: float
    unit: Unit | None  # None: none was given.
    is_change: bool
    is_share: bool  # A change in per cent of the base.
    finding: str = ""  # Severity or code of what must not be found; then all else of the gate is not used.


@dataclass(frozen=True)
class Verdict:
    """How one gate came out: the value (of the change, where the gate is about one), its interval, and why."""

    gate: str
    metric: str
    state: State
    value: float | None
    unit: str
    reason: str
    shown: str = ""  # The value as text.
    base: float | None = None
    new: float | None = None
    low: float | None = None
    high: float | None = None
    fails: bool = False  # Whether the run fails for it.

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def grammar() -> list[str]:
    """Return the grammar, line by line."""
    return [line.strip() for line in (__doc__ or "").split("\n\n")[1].splitlines()]


def parse(written: str) -> Gate:
    """Read a gate. UsageError, saying what is wrong, for anything else."""
    if match := _FINDING.fullmatch(written):
        return _on_finding(written, match[1])
    match = _GATE.fullmatch(written)
    if not match:
        raise UsageError(f"--fail-on {written!r}: is no gate: METRIC > LIMIT, {_EXAMPLES}")
    metric, op, sign, number, unit = match.groups()
    if unit and unit not in _UNITS:
        raise UsageError(f"--fail-on {written!r}: no unit {unit!r} (there are {', '.join(_UNITS)})")
    kind, factor = _UNITS[unit] if unit else (None, 1.0)
    is_share = bool(sign) and unit == "%"
    if is_share and metric.endswith("_pct"):
        raise UsageError(
            f"--fail-on {written!r}: {metric} is in per cent: write {sign}{number} without % for percentage points"
        )
    limit = float(number) * factor * (-1 if sign in {"-", MINUS} else 1)
    if metric.endswith("_pct") and kind is None:
        limit, kind = limit / 100, Unit.RATIO
    return Gate(written.strip(), metric, op, limit, kind, bool(sign), is_share)


def _on_finding(written: str, finding: str) -> Gate:
    if not _CODE.fullmatch(finding):
        raise UsageError(
            f"--fail-on {written!r}: after 'finding:' comes a severity (low, medium, high) or a rule's code, as H14"
        )
    return Gate(written.strip(), "finding", ":", 0.0, None, is_change=False, is_share=False, finding=finding)


def check(gates: Sequence[Gate], *, has_base: bool) -> None:
    """Refuse, before any work, gates that cannot be judged. UsageError."""
    for gate in gates:
        if gate.is_change and not has_base:
            raise UsageError(
                f"--fail-on {gate.written!r}: is about a change, which needs a base: htareport diff BASE NEW"
            )


def judge(gate: Gate, new: Mapping[str, Metric], base: Mapping[str, Metric] | None) -> Verdict:
    """Judge one gate. UsageError where its unit is not the metric's, or no run could have such a metric."""
    metric = new.get(gate.metric)
    if metric is None and gate.metric not in (base or {}) and gate.metric not in METRICS:
        similar = get_close_matches(gate.metric, new, 1)
        hint = f"; did you mean {similar[0]}?" if similar else ""
        raise UsageError(f"--fail-on {gate.written!r}: no metric {gate.metric!r}{hint} (this run has {', '.join(new)})")
    if metric is None:
        return _unknown(gate, "this run does not tell it")
    _check_unit(gate, metric)
    if not gate.is_change:
        state = State.CROSSED if _OPS[gate.op](metric.value, gate.limit) else State.PASSED
        shown = text(metric.value, metric.unit)
        return Verdict(gate.written, gate.metric, state, metric.value, str(metric.unit), shown, shown, new=metric.value)
    before = (base or {}).get(gate.metric)
    if before is None:
        return _unknown(gate, "the base does not tell it", metric)
    return _judge_change(gate, before, metric)


def _judge_change(gate: Gate, before: Metric, metric: Metric) -> Verdict:
    share, unit = gate.is_share, metric.unit
    if share and before.value <= 0:
        return _unknown(gate, f"the base is {text(before.value, unit)}, so there is no change in per cent", metric)
    value = metric.value / before.value - 1 if share else metric.value - before.value
    interval = (relative_interval if share else absolute_interval)(before, metric)
    shown = changed(value, unit, is_share=share)
    reason = f"{text(before.value, before.unit)} → {text(metric.value, unit)} ({shown})"
    state = State.INCONCLUSIVE
    if interval is not None:
        is_beyond = all(_OPS[gate.op](end, gate.limit) for end in (interval.low, interval.high))
        state = State.CROSSED if is_beyond else State.PASSED
        reason += "" if before.is_exact else f"; 95 % interval {between(interval, unit, is_share=share)}"
    else:
        reason += f"; {TOO_FEW if too_few(before, metric) else 'this number has no interval here'}"
    low, high = (interval.low, interval.high) if interval else (None, None)
    return Verdict(gate.written, gate.metric, state, value, str(Unit.RATIO if share else unit), reason, shown,
                   before.value, metric.value, low, high)  # fmt: skip


def gates_sentence(gates: Sequence[Mapping[str, Any]]) -> str:
    """Say which gates did not pass, of verdicts as plain values; empty where all did."""
    sentences = []
    for state in (State.CROSSED, State.INCONCLUSIVE):
        bad = [gate for gate in gates if gate.get("state") == state]
        count = f" ({len(bad)} of {len(gates)})" if len(gates) > 1 else ""
        if bad:
            names = listed(list(map(_gate_text, bad)), _MAX_GATES)
            sentences.append(f"Gate{'s' if len(bad) > 1 else ''} {state}{count}: {names}.")
    return " ".join(sentences)


def _gate_text(gate: Mapping[str, Any]) -> str:
    shown = str(gate.get("shown") or "")
    return shortened(str(gate.get("gate", "")), _MAX_GATE) + (f" ({shown})" if shown else "")


def _unknown(gate: Gate, reason: str, metric: Metric | None = None) -> Verdict:
    unit = "" if metric is None else str(metric.unit)
    return Verdict(gate.written, gate.metric, State.INCONCLUSIVE, None, unit, reason,
                   new=None if metric is None else metric.value)  # fmt: skip


def _check_unit(gate: Gate, metric: Metric) -> None:
    if gate.is_share:
        return
    if gate.unit is None and metric.unit not in _PLAIN:
        needed = "ms" if metric.unit is Unit.NANOSECONDS else "GiB" if metric.unit is Unit.BYTES else "%"
        raise UsageError(f"--fail-on {gate.written!r}: {gate.metric} needs a unit, such as {needed}")
    if gate.unit is not None and gate.unit is not metric.unit:
        raise UsageError(f"--fail-on {gate.written!r}: {gate.metric} is not in that unit ({_unit_word(metric.unit)})")


def _unit_word(unit: Unit) -> str:
    words = {Unit.NANOSECONDS: "it is a time", Unit.BYTES: "it is in bytes", Unit.RATIO: "it is in per cent"}
    return words.get(unit, "it is a plain number")
