"""Default values, and the description of a column that an argument of events becomes."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

DEFAULT_TRACE_DIR = "/tmp/trace"  # noqa: S108  HTA's default
DEFAULT_CONFIG_FILENAME = "trace_analyzer.json"
DF_SYMBOL_COLUMNS = ["cat", "name"]


class YamlVersion(NamedTuple):
    """Version of the list of arguments."""

    major: int
    minor: int
    patch: int

    def get_version_str(self) -> str:
        """Return the version as text, such as 1.2.0."""
        return ".".join(map(str, self))

    @staticmethod
    def from_string(version_str: str) -> YamlVersion:
        """Read `1.2.0`."""
        major, minor, patch = map(int, version_str.split("."))
        return YamlVersion(major, minor, patch)


class ValueType(Enum):
    """Type of a column."""

    Int = 1
    Float = 2
    String = 3
    Object = 4


class AttributeSpec(NamedTuple):
    """An argument of events (`raw_name`) that becomes a column (`name`), with the value where an event has none."""

    name: str
    raw_name: str
    value_type: ValueType
    default_value: object
    min_supported_version: YamlVersion = YamlVersion(1, 0, 0)


class EventArgs(NamedTuple):
    """The known arguments by key, and sets of them."""

    AVAILABLE_ARGS: dict[str, AttributeSpec]
    ARGS_INPUT_SHAPE: list[AttributeSpec]
    ARGS_BANDWIDTH: list[AttributeSpec]
    ARGS_SYNC: list[AttributeSpec]
    ARGS_MINIMUM: list[AttributeSpec]
    ARGS_COMPLETE: list[AttributeSpec]
    ARGS_INFO: list[AttributeSpec]
    ARGS_COMMUNICATION: list[AttributeSpec]
    ARGS_TRITON_KERNELS: list[AttributeSpec]
    ARGS_DEFAULT: list[AttributeSpec]
