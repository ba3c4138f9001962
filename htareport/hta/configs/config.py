"""Reads settings from JSON files, and configures logging."""

from __future__ import annotations

import json
import logging
import logging.config
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from htareport.errors import UsageError
from htareport.hta.configs.default_values import DEFAULT_CONFIG_FILENAME

logger = logging.getLogger("htareport.hta")


def setup_logger(config_file: str = "") -> None:
    """Configure logging by a file for logging.config.fileConfig; without one, messages from INFO on to stderr."""
    if config_file:
        logging.config.fileConfig(config_file, disable_existing_loggers=False)
    else:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        logger.setLevel(logging.INFO)


class HtaConfig:
    """Settings of JSON files: ~/.hta/trace_analyzer.json, trace_analyzer.json in the current folder, and one by name.

    At the top level later files win. UsageError (naming the file) for one that is no JSON object.
    """

    def __init__(self, config_file_path: str | None = None, load_default_paths: bool | None = True) -> None:
        named = [config_file_path] if config_file_path else []
        self.config_file_paths = [*(self.get_default_paths() if load_default_paths else []), *named]
        self.config: dict[str, Any] = {}
        for path in self.get_config_file_paths():
            self.config.update(_load(Path(path)))

    @staticmethod
    def get_default_paths() -> list[str]:
        """Return the default files."""
        return [str(folder / DEFAULT_CONFIG_FILENAME) for folder in (Path.home() / ".hta", Path.cwd())]

    def get_config_file_paths(self) -> list[str]:
        """Return the files that exist, in order."""
        return [path for path in self.config_file_paths if Path(path).is_file()]

    def get_config(self, dot_path: str | None = None, default_value: Any = None) -> Any:
        """Return the value at `a.b.c`, the default if there is none; all settings for None."""
        config: Any = self.config
        for name in dot_path.split(".") if dot_path else ():
            if not isinstance(config, Mapping) or name not in config:
                return default_value
            config = config[name]
        return config

    def show(self) -> None:
        """Log all settings."""
        logger.info(json.dumps(self.config, indent=2))


def _load(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{path}: settings are a JSON object")
    return settings
