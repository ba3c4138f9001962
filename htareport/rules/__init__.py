"""Rules: what costs time, why, and what to try. A rule is a class in a module of this package.

Architecture invariants: a rule reads a rank in a worker and returns little; findings are made in the parent. A rule
that raises costs its own finding and no more. The savings of several findings are never added up: what they have in
common is known exactly, from the lengths of the pieces into which their claims cut the steps.
"""

from __future__ import annotations

from functools import cache

from htareport.plugins.discovery import classes_from_entry_points, classes_in
from htareport.rules.engine.base import AnyRule, Family, Rule

ENTRY_POINTS = "htareport.rules"


@cache
def rule_classes() -> dict[str, type[AnyRule]]:
    """Return all rules by code, in the order of families and codes."""
    own = classes_in(__name__, Rule)  # type: ignore[type-abstract]  # Only concrete ones are found.
    classes = [*own, *classes_from_entry_points(ENTRY_POINTS, "rule")]
    return {rule.code: rule for rule in sorted(classes, key=_order)}


def _order(rule: type[AnyRule]) -> tuple[int, str, int]:
    letters = rule.code.rstrip("0123456789")
    return list(Family).index(rule.family), letters, int(rule.code[len(letters) :] or 0)


def discover() -> list[AnyRule]:
    """Make every rule with its defaults."""
    return [rule() for rule in rule_classes().values()]
