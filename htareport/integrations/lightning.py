"""`Trainer(callbacks=[HtaReportCallback("reports/")])`: the report at the end of a Lightning training."""

from __future__ import annotations

import os
import sys
from typing import Any

from htareport.integrations import framework
from htareport.integrations.torch import TrainingProfile, started

_PACKAGES = ["lightning.pytorch", "pytorch_lightning"]  # The same code under two names.
if sys.modules.get("pytorch_lightning") and not sys.modules.get("lightning.pytorch"):
    _PACKAGES.reverse()
_lightning: Any = framework("HtaReportCallback", *_PACKAGES)


class HtaReportCallback(_lightning.Callback):  # type: ignore[misc]  # its base is known only at run time
    """Profiles a few training batches; the options are those of `profile_training`. A batch is a step."""

    def __init__(self, directory: str | os.PathLike[str], **options: Any) -> None:
        self._arguments = (directory, options)
        self._profile: TrainingProfile | None = None  # Made by the process that trains, which may be another.

    def on_train_start(self, *_: Any) -> None:
        """Start the profiler."""
        self._profile = started(*self._arguments)

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Count the step."""
        if self._profile:
            self._profile.step()

    def on_train_end(self, *_: Any) -> None:
        """Stop the profiler, which has the report built."""
        profile, self._profile = self._profile, None
        if profile:
            profile.stop()

    def on_exception(self, *_: Any) -> None:
        """Stop the profiler: what it has recorded until here gets its report."""
        self.on_train_end()
