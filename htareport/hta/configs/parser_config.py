"""Which arguments of events become columns of a trace's frame."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar

import pandas as pd

from htareport.hta.configs.default_values import AttributeSpec, EventArgs, ValueType, YamlVersion
from htareport.hta.configs.event_args_yaml_parser import parse_event_args_yaml, v1_0_0

log = logging.getLogger(__name__)
DEFAULT_PARSE_VERSION = v1_0_0
DEFAULT_VER_EVENT_ARGS: EventArgs = parse_event_args_yaml(DEFAULT_PARSE_VERSION)
AVAILABLE_ARGS: dict[str, AttributeSpec] = DEFAULT_VER_EVENT_ARGS.AVAILABLE_ARGS
_IN_BRACKETS = re.compile(r"\(.*?\)")
_BETWEEN_WORDS = re.compile(r"[ \-/%.]+")
_TYPES: dict[type, tuple[ValueType, object]] = {
    bool: (ValueType.Int, 0),
    int: (ValueType.Int, 0),
    float: (ValueType.Float, 0.0),
    str: (ValueType.String, ""),
}


class ParserBackend(StrEnum):
    """HTA's ways to read a file; the choice changes nothing, as files are always streamed."""

    JSON = "json"
    IJSON = "ijson"
    IJSON_BATCHED = "ijson_batched"
    IJSON_BATCH_AND_COMPRESS = "ijson_batch_and_compress"


class TraceType(StrEnum):
    """Kind of the traced job; nothing depends on it."""

    Training = "training"
    TrainingWoProfilerstepAnnot = "training_wo_profilerstep_annot"
    Inference = "inference"


class ParserConfig:
    """Additional columns of a trace's frame, and events that are left out of it.

    `args` are the arguments that become columns (by default ARGS_DEFAULT). With `parse_all_args` every argument in the
    file does, under a name made from its own; `selected_arg_keys` (keys of the known arguments) then says which.
    `skip_event_types` are categories that the frame leaves out.
    """

    ARGS_INPUT_SHAPE: ClassVar = DEFAULT_VER_EVENT_ARGS.ARGS_INPUT_SHAPE
    ARGS_BANDWIDTH: ClassVar = DEFAULT_VER_EVENT_ARGS.ARGS_BANDWIDTH
    ARGS_SYNC: ClassVar = DEFAULT_VER_EVENT_ARGS.ARGS_SYNC
    ARGS_MINIMUM: ClassVar = DEFAULT_VER_EVENT_ARGS.ARGS_MINIMUM
    ARGS_COMPLETE: ClassVar = DEFAULT_VER_EVENT_ARGS.ARGS_COMPLETE
    ARGS_INFO: ClassVar = DEFAULT_VER_EVENT_ARGS.ARGS_INFO
    ARGS_TRITON_KERNELS: ClassVar = DEFAULT_VER_EVENT_ARGS.ARGS_TRITON_KERNELS
    ARGS_COMMUNICATION: ClassVar = DEFAULT_VER_EVENT_ARGS.ARGS_COMMUNICATION
    ARGS_DEFAULT: ClassVar = DEFAULT_VER_EVENT_ARGS.ARGS_DEFAULT
    DEFAULT_MIN_REQUIRED_COLS: ClassVar = ["ts", "dur", "name", "cat", "pid", "tid"]
    _default: ClassVar[ParserConfig | None] = None

    def __init__(
        self,
        args: Iterable[AttributeSpec] | None = None,
        user_provide_trace_type: TraceType | None = None,
        version: YamlVersion = DEFAULT_PARSE_VERSION,
        parse_all_args: bool = False,
        selected_arg_keys: list[str] | None = None,
        skip_event_types: Iterable[str] | None = None,
        convert_ts_to_integer: bool = True,
    ) -> None:
        self.version, self.parse_all_args = version, parse_all_args
        self.args: list[AttributeSpec] = []
        self.set_args(self.get_default_args(version) if args is None else list(args))
        self.user_provide_trace_type, self.convert_ts_to_integer = user_provide_trace_type, convert_ts_to_integer
        self.selected_arg_keys = selected_arg_keys
        self.skip_event_types = frozenset(skip_event_types or ())
        self.min_required_cols = self.DEFAULT_MIN_REQUIRED_COLS
        self.parser_backend: ParserBackend | None = None
        self.trace_memory = self.drop_gpu_user_annotation = False

    def clone(self) -> ParserConfig:
        """Return a copy."""
        clone = ParserConfig(self.args)
        clone.__dict__.update(self.__dict__ | {"args": list(self.args)})
        return clone

    def get_fingerprint_key(self) -> tuple[tuple[str, ...], bool]:
        """Return a key that is equal for configurations that read the same."""
        return tuple(spec.name for spec in self.selected()), self.parse_all_args

    def __repr__(self) -> str:
        names = ", ".join(spec.name for spec in self.selected())
        return f"ParserConfig(args=[{names}], parse_all_args={self.parse_all_args})"

    def selected(self) -> list[AttributeSpec]:
        """Return the arguments that become columns: those of the selector if there is one."""
        if self.selected_arg_keys is None:
            return self.args
        specs = parse_event_args_yaml(self.version).AVAILABLE_ARGS
        return [specs[key] for key in self.selected_arg_keys if key in specs]

    # --- defaults of the process ------------------------------------------------------------

    @classmethod
    def get_default_cfg(cls) -> ParserConfig:
        """Return a copy of the default configuration."""
        return (cls._default or cls()).clone()

    @classmethod
    def set_default_cfg(cls, cfg: ParserConfig) -> None:
        """Set the default configuration."""
        cls._default = cfg.clone()

    @classmethod
    def get_versioned_cfg(cls, version: YamlVersion) -> ParserConfig:
        """Return the default set of a version."""
        return cls(version=version)

    @staticmethod
    def set_global_parser_config_version(version: YamlVersion) -> None:
        """Make the default set of a version the default configuration."""
        ParserConfig.set_default_cfg(ParserConfig(version=version))

    @classmethod
    def enable_communication_args(
        cls, cfg: ParserConfig | None = None, version: YamlVersion = DEFAULT_PARSE_VERSION
    ) -> ParserConfig:
        """Add the arguments of collectives to a configuration, the default one for None."""
        config = cls.get_default_cfg() if cfg is None else cfg
        config.add_args(parse_event_args_yaml(version).ARGS_COMMUNICATION)
        if cfg is None:
            cls.set_default_cfg(config)
        return config

    # --- arguments --------------------------------------------------------------------------

    @classmethod
    def get_minimum_args(cls, version: YamlVersion = DEFAULT_PARSE_VERSION) -> list[AttributeSpec]:
        """Return stream and correlation."""
        return list(parse_event_args_yaml(version).ARGS_MINIMUM)

    @classmethod
    def get_default_args(cls, version: YamlVersion = DEFAULT_PARSE_VERSION) -> list[AttributeSpec]:
        """Return the default set."""
        return list(parse_event_args_yaml(version).ARGS_DEFAULT)

    @classmethod
    def get_info_args(cls, version: YamlVersion = DEFAULT_PARSE_VERSION) -> list[AttributeSpec]:
        """Return those of rows that name processes and threads."""
        return list(parse_event_args_yaml(version).ARGS_INFO)

    @classmethod
    def get_all_available_args(cls) -> dict[str, AttributeSpec]:
        """Return the known arguments by key."""
        return dict(AVAILABLE_ARGS)

    @classmethod
    def show_available_args(cls) -> None:
        """Log the known arguments."""
        log.info("\n".join(f"{key}: {spec.raw_name} → {spec.name}" for key, spec in AVAILABLE_ARGS.items()))

    def set_args(self, args: Iterable[AttributeSpec]) -> None:
        """Replace the arguments; stream and correlation are always among them."""
        self.args = []
        self.add_args([*self.get_minimum_args(self.version), *args])

    def get_args(self) -> list[AttributeSpec]:
        """Return the arguments."""
        return self.args

    def add_args(self, args: Iterable[AttributeSpec]) -> None:
        """Add arguments that are not selected yet."""
        self.args += [spec for spec in dict.fromkeys(args) if spec not in self.args]

    def set_args_selector(self, selected_arg_keys: list[str] | None = None) -> ParserConfig:
        """Select arguments by their keys; None: no selection."""
        self.selected_arg_keys = selected_arg_keys
        return self

    def set_parse_all_args(self, parse_all_args: bool) -> ParserConfig:
        """Set whether every argument becomes a column."""
        self.parse_all_args = parse_all_args
        return self

    def set_skip_event_types(self, skip_event_types: Iterable[str] | None = None) -> ParserConfig:
        """Set which categories are left out of frames."""
        self.skip_event_types = frozenset(skip_event_types or ())
        return self

    # --- settings that change nothing here --------------------------------------------------

    def set_min_required_cols(self, cols: list[str]) -> None:
        """Keep a list of columns; frames always have the fixed ones."""
        self.min_required_cols = cols

    def get_min_required_cols(self) -> list[str]:
        """Return that list."""
        return self.min_required_cols

    def set_trace_memory(self, trace_memory: bool) -> None:
        """Set the switch; it changes nothing."""
        self.trace_memory = trace_memory

    def set_drop_gpu_user_annotation(self, should_drop: bool) -> None:
        """Leave annotations of the device out of frames, or not."""
        self.drop_gpu_user_annotation = should_drop

    def set_parser_backend(self, parser_backend: ParserBackend | None) -> None:
        """Set the backend; it changes nothing."""
        self.parser_backend = parser_backend

    # --- names ------------------------------------------------------------------------------

    @classmethod
    def transform_arg_name(cls, arg: str) -> str:
        """Column name made from an argument's: small letters, without brackets, words joined by underscores."""
        name = _BETWEEN_WORDS.sub("_", _IN_BRACKETS.sub("", arg).strip()).strip("_").lower()
        return "arg_name" if name == "name" else name

    @classmethod
    def make_attribute_spec(
        cls, raw_name: str, value: object, min_supported_version: YamlVersion = DEFAULT_PARSE_VERSION
    ) -> AttributeSpec:
        """Return the column of an argument, with the type of one of its values and an empty default."""
        kind, default = _TYPES.get(type(value), (ValueType.Object, None))
        return AttributeSpec(cls.transform_arg_name(raw_name), raw_name, kind, default, min_supported_version)

    @classmethod
    def infer_attribute_specs(
        cls, args: pd.Series[Any], reference_specs: Mapping[str, AttributeSpec] | None = None
    ) -> dict[str, AttributeSpec]:
        """Return the column of each argument in a series of argument objects, by name; `reference_specs` come first."""
        reference = {spec.raw_name: spec for spec in (reference_specs or {}).values()}
        specs: dict[str, AttributeSpec] = {}
        for arguments in args.dropna():
            for raw_name, value in arguments.items():
                if raw_name not in specs:
                    specs[raw_name] = reference.get(raw_name) or cls.make_attribute_spec(raw_name, value)
        return {spec.name: spec for spec in specs.values()}
