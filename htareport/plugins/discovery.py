"""Finds classes by where they stand: in the modules of a package, and behind the entry points of installed ones."""

from __future__ import annotations

import inspect
import logging
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeVar

Kind = TypeVar("Kind")

_log = logging.getLogger(__name__)


@cache
def module_names(package: str) -> tuple[str, ...]:
    """Names of all modules of a package, those of its sub-packages too."""
    path: Iterable[str] = import_module(package).__path__
    return tuple(info.name for info in pkgutil.walk_packages(path, f"{package}.") if not info.ispkg)


def classes_in(package: str, base: type[Kind]) -> Iterator[type[Kind]]:
    """Concrete subclasses of `base` that modules of a package define, in order of the modules."""
    for name in module_names(package):
        for value in vars(import_module(name)).values():
            # What issubclass says no to, an ABC remembers for each of its subclasses: the order of names is asked.
            is_one = isinstance(value, type) and value.__module__ == name and base in value.__mro__
            if is_one and not inspect.isabstract(value):
                yield value


def classes_from_entry_points(group: str, what: str) -> Iterator[Any]:
    """Classes that installed packages name in an entry point. One that does not load is logged and left out."""
    for entry in entry_points(group=group):
        try:
            yield entry.load()
        except Exception as error:  # noqa: BLE001  a plug-in that does not load costs its own part only
            _log.warning("the %s %s (%s) cannot be loaded: %s", what, entry.name, entry.value, error)


def function(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that only those who use it need to load."""
    loaded: Callable[..., Any] = getattr(import_module(module), name)
    return loaded
