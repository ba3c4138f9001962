"""`Trainer(callbacks=[HtaReportCallback("reports/")])`: the report at the end of a Hugging Face training."""

from __future__ import annotations

import os
from typing import Any

from htareport.integrations import framework
from htareport.integrations.torch import TrainingProfile, started

_transformers: Any = framework("HtaReportCallback", "transformers")


class HtaReportCallback(_transformers.TrainerCallback):  # type: ignore[misc]  # its base is known only at run time
    """Profiles a few training steps; the options are those of `profile_training`. An update of the weights is a step.

    A training that raises gets its report when the process ends: the Trainer has no hook for it.
    """

    def __init__(self, directory: str | os.PathLike[str], **options: Any) -> None:
        self._arguments = (directory, options)
        self._profile: TrainingProfile | None = None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Start the profiler."""
        self._profile = started(*self._arguments)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Count the step."""
        if self._profile:
            self._profile.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Stop the profiler, which has the report built."""
        profile, self._profile = self._profile, None
        if profile:
            profile.stop()
