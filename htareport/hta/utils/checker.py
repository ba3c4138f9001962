"""Checks whether a path is a folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass
class OperationOutcome:
    """Whether a check succeeded, and why not."""

    success: bool
    reason: str = ""


def is_valid_directory(path_to_directory: str | Path, must_be_writable: bool = False) -> OperationOutcome:
    """Return whether a path is a folder, and optionally whether it can be written to."""
    path = Path(path_to_directory)
    if not path.is_dir():
        return OperationOutcome(False, f"{path} is no folder")
    if must_be_writable and not os.access(path, os.W_OK):
        return OperationOutcome(False, f"{path} cannot be written to")
    return OperationOutcome(True)
