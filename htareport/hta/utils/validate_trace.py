"""Checks whether a file is a trace, and the types of its events' arguments.

    python -m htareport.hta.utils.validate_trace FILE --level standard

`htareport validate` checks a whole run, and says what is missing for which analysis.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from htareport.errors import TraceFileError
from htareport.hta.configs.default_values import AttributeSpec, ValueType
from htareport.hta.configs.parser_config import ParserConfig
from htareport.reading.arguments import Values, read_arguments
from htareport.rows.metadata import as_int

LEVELS = {
    "minimal": ParserConfig.ARGS_MINIMUM,
    "standard": ParserConfig.ARGS_DEFAULT,
    "default": ParserConfig.ARGS_DEFAULT,
    "complete": ParserConfig.ARGS_COMPLETE,
}
_PYTHON_TYPES: dict[ValueType, tuple[type, ...]] = {
    ValueType.Float: (int, float),
    ValueType.String: (str,),
    ValueType.Object: (list, dict, str, int, float, bool),
}


def get_argument_spec(level: str = "default") -> list[AttributeSpec]:
    """Return the arguments that a level knows: minimal, standard (or default), complete. ValueError for another."""
    if level not in LEVELS:
        raise ValueError(f"level {level!r}: there are {', '.join(LEVELS)}")
    return list(LEVELS[level])


def get_expected_arguments(attribute_specs: Sequence[AttributeSpec]) -> pd.DataFrame:
    """Return arguments as a frame: name, raw_name, value_type, default_value."""
    rows = [(spec.name, spec.raw_name, spec.value_type, spec.default_value) for spec in attribute_specs]
    return pd.DataFrame(rows, columns=["name", "raw_name", "value_type", "default_value"])


def validate_trace_format(
    trace_file_path: str | Path, level: str = "standard", ignore_missing_arguments: bool = True
) -> tuple[bool, dict[str, Any]]:
    """Return whether a file is a trace whose complete events have arguments of the right types, and the errors.

    Errors: trace_read_error (the reason), type_violations ({argument: the first}), and skipped_arguments
    ({argument: times}), those that the level does not know, unless they are ignored.
    """
    specs = {spec.raw_name: spec for spec in get_argument_spec(level)}
    try:
        arguments = read_arguments(Path(trace_file_path))
    except (TraceFileError, OSError) as error:
        return False, {"trace_read_error": str(error)}
    specified = {name: values for name, values in arguments.items() if name in specs}
    violations = {name: text for name, values in specified.items() if (text := _violation(specs[name], values))}
    unknown = Counter({name: len(values.items) for name, values in arguments.items() if name not in specs})
    errors: dict[str, Any] = {}
    if unknown and not ignore_missing_arguments:
        errors["skipped_arguments"] = dict(unknown)
    if violations:
        errors["type_violations"] = violations
    return not errors, errors


def _violation(spec: AttributeSpec, values: Values) -> str:
    """Return a text on the first value of another type, empty if there is none; numbers as text are numbers."""
    for event, value in zip(values.positions.tolist(), values.items, strict=True):
        if value is not None and not _fits(spec.value_type, value):
            return (
                f"event {event}: {spec.raw_name} is {type(value).__name__}, not {spec.value_type.name}: {value!r:.80}"
            )
    return ""


def _fits(kind: ValueType, value: Any) -> bool:
    if kind is ValueType.Int:
        return as_int(value) is not None or (isinstance(value, str) and value.startswith("0x"))
    return isinstance(value, _PYTHON_TYPES[kind])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the errors of a file; return 0 if it has none, else 1."""
    parser = argparse.ArgumentParser(prog="validate_trace", description="Check the arguments of a trace's events.")
    parser.add_argument("trace_file", metavar="FILE")
    parser.add_argument("--level", choices=list(LEVELS), default="standard")
    parser.add_argument("--all", action="store_true", help="also name arguments that the level does not know")
    options = parser.parse_args(arguments)
    valid, errors = validate_trace_format(options.trace_file, options.level, ignore_missing_arguments=not options.all)
    sys.stdout.write(f"{'valid' if valid else 'not valid'}\n{json.dumps(errors, indent=2) if errors else ''}\n")
    return 0 if valid else 1


if __name__ == "__main__":
    sys.exit(main())
