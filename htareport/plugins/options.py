"""Classes whose options are the fields of a frozen dataclass, and are set by name as text."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Self, cast, get_args, get_origin, get_type_hints

from htareport.errors import UsageError
from htareport.plugins.prose import fill

_MAX_VALUE = 2**62  # Of an option: beyond, arithmetic overflows.


@dataclass(frozen=True)
class Range:
    """Which numbers an option takes: `num_kernels: Annotated[int, Range(minimum=1)] = 10`."""

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.above is None or value > self.above)
        )

    def __str__(self) -> str:
        bounds = {"above": self.above, "at least": self.minimum, "at most": self.maximum}
        return ", ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None)


class Configurable:
    """What analyses and rules have in common: a docstring as help, and thresholds that can be set."""

    @classmethod
    def settings_name(cls) -> str:
        """What stands before the dot in `--set NAME.OPTION=VALUE`."""
        raise NotImplementedError

    @classmethod
    def help(cls) -> str:
        """Return the docstring, dedented, with words where findings have values."""
        return fill(cls.prose())

    @classmethod
    def prose(cls) -> str:
        """Return the docstring, dedented, as it is written: see htareport.plugins.prose."""
        return inspect.cleandoc(cls.__doc__ or "")

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return name and default of each threshold."""
        return {item.name: item.default for item in fields(cls)} if is_dataclass(cls) else {}

    def chosen_options(self) -> dict[str, Any]:
        """Return name and value of each threshold of this instance."""
        return {name: getattr(self, name) for name in self.options()}

    @classmethod
    def ranges(cls) -> dict[str, Range]:
        """Return name and range of each threshold that has one."""
        hints = get_type_hints(cls, include_extras=True)
        return {name: number_range for name in cls.options() if (number_range := _range_of(hints[name])) is not None}

    @classmethod
    def configured(cls, settings: Mapping[str, str]) -> Self:
        """Make an instance with some thresholds given as text. UsageError on unknown names and wrong values."""
        defaults, hints, values = cls.options(), get_type_hints(cls), dict[str, Any]()
        ranges = cls.ranges()
        for name, text in settings.items():
            if name not in defaults:
                available = ", ".join(defaults) or "none"
                raise UsageError(f"{cls.settings_name()} has no option {name!r} (it has: {available})")
            try:
                values[name] = _parsed(text, hints[name])
                if name in ranges and values[name] not in ranges[name]:
                    raise ValueError(f"{text} is outside its range: {ranges[name]}")  # noqa: TRY301
            except ValueError as error:
                raise UsageError(f"{cls.settings_name()}.{name}: {error}") from error
        return cast("type[Any]", cls)(**values) if values else cls()


def _parsed(text: str, hint: Any) -> Any:
    if hint is bool:
        if text.lower() not in {"true", "false", "yes", "no", "1", "0"}:
            raise ValueError(f"{text!r} is neither true nor false")
        return text.lower() in {"true", "yes", "1"}
    if hint in (int, float):
        try:
            value = hint(text)
        except ValueError:
            raise ValueError(f"{text!r} is not {'a whole number' if hint is int else 'a number'}") from None
        if abs(value) > _MAX_VALUE or not math.isfinite(value):
            raise ValueError(f"{text} is no number to work with")
        return value
    return text


def _range_of(hint: Any) -> Range | None:
    annotations = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((annotation for annotation in annotations if isinstance(annotation, Range)), None)
