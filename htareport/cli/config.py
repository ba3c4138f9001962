"""The options of `htareport report`: those of the command line over those of a TOML file.

Both give text or plain values under the same names, and one function here reads each option, so that a mistake gets the
same message from either.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from htareport.errors import UsageError, printable

PAPERS = ("A4", "Letter")
READING = ("salvage", "max_bytes", "no_redact")  # How trace files are read.
CACHING = ("cache", "no_cache")  # Whether what was read is cached; no report depends on it.
AMOUNTS = ("gpu_hour", "samples_per_step", "tokens_per_step")  # Options of the analysis of cost.
MAX_RANK = 10_000_000  # A typing error shall not fill the memory.

_BYTES = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_DASK = re.compile(r"dask://(?:([\w.-]+:\d{1,5}|\[[0-9a-f:.]+\]:\d{1,5}))?/?", re.ASCII | re.IGNORECASE)
_UNITS = ("", "K", "M", "G", "T")

Settings = dict[str, dict[str, str]]  # Option values by analysis and option.


@dataclass(frozen=True)
class ReportOptions:
    """The options of `htareport report`, checked as far as they can be without traces."""

    output: tuple[str, ...] = ("report.html",)
    title: str = ""
    ranks: frozenset[int] | None = None
    steps: str = "all"
    only: tuple[str, ...] = ()
    jobs: int | None = None
    executor: str | None = None  # Address of a dask cluster, empty to start one here; None: no cluster.
    allow_partial: bool = False
    paper: str = "A4"
    require_pdf: bool = False
    plotlyjs: Path | None = None
    fail_on: tuple[str, ...] = ()
    fail_on_inconclusive: bool = False
    salvage: bool = False
    max_bytes: int | None = None
    no_redact: bool = False
    cache: Path | None = None
    no_cache: bool = False
    set: Settings = field(default_factory=Settings)


def command_line_options(arguments: Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return those of some options that are on the command line."""
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def report_options(command_line: Mapping[str, Any], config: str | None = None) -> ReportOptions:
    """Combine the options of the command line with those of a configuration file; the command line wins."""
    from_file = ReportOptions() if config is None else _load(config)
    values = {name: _read(f"--{name.replace('_', '-')}", name, value) for name, value in command_line.items()}
    settings = _with_amounts(values)
    if values.get("no_cache") and "cache" in values:
        raise UsageError("--cache, --no-cache: one says where to keep what was read, the other to keep nothing")
    if "cache" in values:  # Overrides no_cache of the file.
        from_file = replace(from_file, no_cache=False)
    for name, options in from_file.set.items():
        settings[name] = options | settings.get(name, {})
    return ReportOptions(**{**vars(from_file), **values, "set": settings})


def _with_amounts(values: dict[str, Any]) -> Settings:
    """Take the options of analyses out of the values: those of --set, over those with an option of their own."""
    amounts = {name: values.pop(name) for name in AMOUNTS if name in values}
    settings = {name: dict(options) for name, options in values.pop("set", {}).items()}
    if amounts:
        settings["cost"] = amounts | settings.get("cost", {})
    return settings


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `: did you mean …?` with the most similar of some names, empty if none is similar."""
    matches = difflib.get_close_matches(name, list(names), n=1)
    return f": did you mean {matches[0]}?" if matches else ""


def ranks(value: Any) -> frozenset[int]:
    """Read `0,3-5`."""
    numbers = set[int]()
    for span in str(value).split(","):
        first, dash, last = (number.strip() for number in span.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{str(value)!r} is not a list of ranks such as 0,3-5")
        if dash and int(last) < int(first):
            raise ValueError(f"{span.strip()} counts backwards")
        if int(last or first) > MAX_RANK:
            raise ValueError(f"{span.strip()} goes beyond rank {MAX_RANK}")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def _load(config: str) -> ReportOptions:
    if not config:
        raise UsageError("--config: no file was named")
    path = Path(config)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path}: {error}") from error
    _refuse_unknown(content, ("report", "set"), path, "table")
    options, settings = content.get("report", {}), content.get("set", {})
    if not isinstance(options, dict) or not isinstance(settings, dict):
        raise UsageError(f"{path}: report and set are tables: [report], [set.NAME]")
    options = {name.replace("-", "_"): value for name, value in options.items()}
    _refuse_unknown(options, _READERS.keys() - {"set"}, path, "key")
    values = {name: _read(f"{path}: {name}", name, value) for name, value in options.items()}
    settings = _with_amounts(values | {"set": _read(f"{path}: set", "set", settings)})
    return ReportOptions(**{name: value for name, value in values.items() if name not in AMOUNTS}, set=settings)


def _refuse_unknown(names: Iterable[str], allowed: Iterable[str], path: Path, kind: str) -> None:
    allowed_names = sorted(allowed)
    for name in names:
        if name not in allowed_names:
            hint = did_you_mean(name, allowed_names)
            raise UsageError(f"{path}: unknown {kind} {name!r}{hint} (there are: {', '.join(allowed_names)})")


def _read(location: str, name: str, value: Any) -> Any:
    try:
        return _READERS[name](value)
    except ValueError as error:
        raise UsageError(f"{location}: {error}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")  # noqa: TRY004  The caller adds the location to any ValueError.
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_text(text) for text in (value if isinstance(value, list) else [value])))


def _bytes(value: Any) -> int:
    """Read 20G, 1.5 GB or 1000000."""
    match = _BYTES.fullmatch(str(value).strip())
    if not match or isinstance(value, bool):
        raise ValueError(f"{str(value)!r} is no number of bytes such as 20G")
    return int(Decimal(match[1]) * 1000 ** _UNITS.index(match[2].upper()))


def _names(value: Any) -> tuple[str, ...]:
    texts = map(_text, value if isinstance(value, list) else [value])
    names = [name.strip() for text in texts for name in text.split(",")]
    distinct = tuple(dict.fromkeys(name for name in names if name))
    if names and not distinct:
        raise ValueError("nothing was named")
    return distinct


def _title(value: Any) -> str:
    return printable(_text(value))


def _jobs(value: Any) -> int:
    text = str(value)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number of processes")
    return int(text)


def _executor(value: Any) -> str:
    """Read dask://HOST:PORT, or dask:// alone: return the address, empty for a cluster of this machine."""
    match = _DASK.fullmatch(_text(value).strip())
    if not match:
        raise ValueError(f"{value!r} is none of dask://HOST:PORT and dask:// (a cluster of this machine)")
    return match[1] or ""


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")  # noqa: TRY004
    return value


def _amount(value: Any) -> str:
    text = str(value)
    try:
        is_amount = not isinstance(value, bool) and 0 < float(text) < math.inf
    except ValueError:
        is_amount = False
    if not is_amount:
        raise ValueError(f"{text!r} is not a number above 0")
    return text


def _paper(value: Any) -> str:
    for paper in PAPERS:
        if str(value).casefold() == paper.casefold():
            return paper
    raise ValueError(f"{str(value)!r} is no size of paper (there are: {', '.join(PAPERS)})")


def _file(value: Any) -> Path:
    text = _text(value)
    try:
        if text and Path(text).is_file():
            return Path(text)
    except (OSError, ValueError) as error:  # A name that is too long or has characters that names cannot have.
        raise ValueError(f"no file {text}: {getattr(error, 'strerror', None) or error}") from error
    raise ValueError(f"no file {text}")


def _folder(value: Any) -> Path:
    """Read the name of a folder, which need not exist yet."""
    text = _text(value)
    if not text:
        raise ValueError("no folder was named")
    if "://" in text:
        raise ValueError(f"{text} is no folder of this machine")
    try:
        is_other = Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError) as error:
        raise ValueError(f"no folder {text}: {getattr(error, 'strerror', None) or error}") from error
    if is_other:
        raise ValueError(f"{text} is no folder")
    return Path(text)


def _settings(value: Any) -> Settings:
    """Read a list of NAME.option=value, or tables of options by name."""
    settings = Settings()
    if isinstance(value, dict):
        for name, options in value.items():
            if not isinstance(options, dict):
                raise ValueError(f"{name} belongs into a table [set.NAME]")  # noqa: TRY004
            settings[name] = {key: printable(str(setting)) for key, setting in options.items()}
        return settings
    for text in value:
        key, equals, content = text.partition("=")
        name, dot, option = key.strip().partition(".")
        if not (equals and dot and name and option):
            raise ValueError(f"{text!r} is not of the form NAME.option=value")
        settings.setdefault(name, {})[option.strip()] = printable(content.strip())
    return settings


_READERS: dict[str, Callable[[Any], Any]] = {
    "output": _texts,
    "title": _title,
    "ranks": ranks,
    "steps": str,
    "only": _names,
    "jobs": _jobs,
    "executor": _executor,
    "allow_partial": _flag,
    "paper": _paper,
    **dict.fromkeys(AMOUNTS, _amount),
    "require_pdf": _flag,
    "plotlyjs": _file,
    "fail_on": _texts,
    "fail_on_inconclusive": _flag,
    "salvage": _flag,
    "max_bytes": _bytes,
    "no_redact": _flag,
    "cache": _folder,
    "no_cache": _flag,
    "set": _settings,
}
