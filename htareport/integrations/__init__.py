"""Hooks into training code: a report at the end of every training run.

    with htareport.profile_training("reports/") as prof:
        for batch in loader:
            train_step(batch)
            prof.step()

`torch` has the handler for a profiler of one's own and the context manager above, `lightning` and `transformers` have
callbacks. Nothing here loads PyTorch or another framework before it is used, and no extra installs one.

Architecture invariants: what goes wrong here never reaches the training: it is logged. While the training runs, its
processes write their traces and do nothing else; the report is made by a process of its own, which outlives them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from htareport.errors import HtaReportError


class MissingFrameworkError(HtaReportError, ImportError):
    """A training framework that is needed and not installed."""


def framework(user: str, *names: str) -> Any:
    """Import the first of these modules that is installed. MissingFrameworkError, saying who needs it, if none is."""
    for name in names:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # It is there, but something that it needs is not.
    packages = " or ".join(dict.fromkeys(name.partition(".")[0] for name in names))
    raise MissingFrameworkError(f"{user} needs {packages}, which is not installed in this Python")
