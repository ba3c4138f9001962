"""The rows of one rank as reading gives them and `htareport.rank` takes them: columns by category, over its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from htareport.rows.columns import Columns
from htareport.rows.options import DEFAULT_OPTIONS, ReadOptions


@dataclass
class Slip:
    """One kind of slip of a file: how often it was mended, and the byte and line of the first."""

    count: int
    byte: int
    line: int = 0

    @property
    def location(self) -> str:
        """The place of the first, in words."""
        return f"the first at byte {self.byte}, line {self.line}"


@dataclass
class Salvaged:
    """What is kept of a file that is damaged or ends early: complete events, and the bytes up to the last of them."""

    reason: str
    events: int
    kept_bytes: int
    all_bytes: int  # As far as the content could be read.

    def __str__(self) -> str:
        extent = f"within the first {self.kept_bytes:,} of {self.all_bytes:,} bytes of JSON"
        return f"{self.reason}; {self.events:,} complete events are kept, {extent}; what is missing may be of any time"


@dataclass
class Capture:
    """One file of a rank."""

    name: str
    size: int  # On disk; 0 inside an archive.
    meta: Mapping[str, Any]
    base_ns: int = 0
    first_ns: int | None = None  # Earliest start and latest end of its complete events.
    last_ns: int | None = None
    devices: dict[int, str] = field(default_factory=dict)
    processes: dict[Any, str] = field(default_factory=dict)
    host: str = ""  # Where it was recorded, as far as its metadata or its name tell.
    slips: Mapping[str, Slip] = field(default_factory=dict)  # What the writer got wrong, and was mended.
    set_aside: Mapping[tuple[str, str], int] = field(default_factory=dict)  # Events, by `device` or `host` and reason.
    salvaged: Salvaged | None = None
    path: Path = field(default_factory=Path)  # For those who read the file again; never shown.
    events: int = 0  # All that are in the file, of any kind.
    options: ReadOptions = DEFAULT_OPTIONS


@dataclass(frozen=True)
class Loaded:
    """Columns by category over all captures of a rank, and what their codes mean.

    Columns: ts (int64 ns, base time added), dur (ns), name (code of `strings`), thread (code of `threads`: pid, tid),
    capture (number), for device rows lane (code of `lanes`: device, stream, each pair once) and kind, then those of
    the category. Integers but for ts are of 32 bits where all of a column are within them. `counts` also has the events
    that became no rows, by category or phase.
    """

    tables: dict[str, Columns]
    collectives: dict[str, Columns]  # By category; `row` is the row of its table.
    memory: Columns  # The [memory] instants, in file order; empty if there are none.
    strings: list[str]
    threads: list[tuple[Any, Any]]
    lanes: list[tuple[Any, Any]]
    captures: tuple[Capture, ...]
    counts: Mapping[str, int]
    device_categories: frozenset[str]
    warnings: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]
    is_transient: bool = False  # Whether a problem may be gone the next time: the system could not read a file.
    redactions: Mapping[str, int] = field(default_factory=dict)  # By kind, once secrets were taken out,
    is_redacted: bool = False  # as they are then.
