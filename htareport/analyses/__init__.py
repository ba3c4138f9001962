"""The analyses, one module each, and how they are found."""

from __future__ import annotations

import inspect
import logging
import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from htareport.analyses.base import Analysis, Group

__all__ = ["ENTRY_POINT_GROUP", "analysis_classes", "discover"]

ENTRY_POINT_GROUP = "htareport.analyses"

_log = logging.getLogger(__name__)


@cache
def _own_modules() -> tuple[str, ...]:
    return tuple(f"{__name__}.{info.name}" for info in pkgutil.iter_modules(__path__))


def analysis_classes() -> dict[str, type[Analysis]]:
    """Every analysis of this package and of installed plug-ins by name, in report order."""
    classes = [
        value
        for module in map(import_module, _own_modules())
        for value in vars(module).values()
        if isinstance(value, type)
        and Analysis in value.__mro__  # What issubclass says no to, an ABC remembers for each of its subclasses.
        and issubclass(value, Analysis)
        and not inspect.isabstract(value)
        and value.__module__ == module.__name__
    ]
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            classes.append(entry.load())
        except Exception as error:  # noqa: BLE001  a plug-in that does not load costs its own section only
            _log.warning("the analysis %s (%s) cannot be loaded: %s", entry.name, entry.value, error)
    for own in [each for each in classes if each.__module__ in _own_modules()]:
        for other in [each for each in classes if each.name == own.name and each is not own]:
            _log.warning("the analysis %s of %s is left out: that name is taken", other.name, other.__module__)
            classes.remove(other)
    order = list(Group)
    return {each.name: each for each in sorted(classes, key=lambda c: (order.index(c.group), c.order, c.name))}


def discover() -> list[Analysis]:
    """Every analysis with its default thresholds, in report order."""
    return [each() for each in analysis_classes().values()]
