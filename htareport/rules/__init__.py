"""Rules: what costs time, why, and what to try. A rule is a class in a module of this package.

Architecture invariants: a rule reads a rank in a worker and returns little; findings are made in the parent. A rule
that raises costs its own finding and no more. The savings of several findings are never added up: what they have in
common is known exactly, from the lengths of the pieces into which their claims cut the steps.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import isabstract

from htareport.rules.base import Family, Rule

ENTRY_POINTS = "htareport.rules"


@cache
def rule_classes() -> dict[str, type[Rule]]:
    """Return all rules by code, in the order of families and codes."""
    found = dict[str, type[Rule]]()
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        for value in vars(import_module(module.name)).values():
            # What issubclass says no to, an ABC remembers for each of its subclasses: it is asked of rules alone.
            if isinstance(value, type) and Rule in value.__mro__ and issubclass(value, Rule) and not isabstract(value):
                found[value.code] = value
    for point in entry_points(group=ENTRY_POINTS):
        rule = point.load()
        found[rule.code] = rule
    return dict(sorted(found.items(), key=lambda item: _order(item[1])))


def _order(rule: type[Rule]) -> tuple[int, str, int]:
    letters = rule.code.rstrip("0123456789")
    return list(Family).index(rule.family), letters, int(rule.code[len(letters) :] or 0)


def discover() -> list[Rule]:
    """Make every rule with its defaults."""
    return [rule() for rule in rule_classes().values()]
