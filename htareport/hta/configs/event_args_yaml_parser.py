"""The arguments of events that a version knows, and sets of them."""

from __future__ import annotations

from functools import lru_cache

from htareport.hta.configs.default_event_args import ARGUMENTS, NEWEST, OLDEST, SETS
from htareport.hta.configs.default_values import EventArgs, YamlVersion

v1_0_0 = OLDEST


@lru_cache
def parse_event_args_yaml(version: YamlVersion) -> EventArgs:
    """Return the arguments that a version knows. ValueError for an unknown version."""
    if not OLDEST <= version <= NEWEST:
        raise ValueError(f"version {version.get_version_str()}: there are 1.0.0 to {NEWEST.get_version_str()}")
    specs = {key: spec for key, spec in ARGUMENTS.items() if spec.min_supported_version <= version}
    sets = {name: [specs[key] for key in keys if key in specs] for name, keys in SETS.items()}
    return EventArgs(specs, **sets)
