"""JSON text of events to columns.

Two tiers. *Typed*: one msgspec struct per category, holding only what becomes a column; everything else in the text is
skipped without making an object, which is where the speed comes from. *Loose*: any JSON object at all, for chunks that
hold metadata rows, categories not seen before, or values of unusual types. A category met there gets a struct of its
own, so that the next chunk is typed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, Union

import msgspec

from htareport.trace.classify import PROFILER_CATEGORY
from htareport.trace.columns import NO_TEXT, Codes, Table, declare
from htareport.trace.schema import COLLECTIVE, FAMILIES, LANE_KEYS, Arg, Family, family_of

Buffer = bytes | bytearray | memoryview
_LONGEST_PAUSE = 6
_NUMBER = Union[int, float, str, None]  # noqa: UP007  made into a msgspec type at run time
_TYPES: dict[str, tuple[Any, Any]] = {
    "int": (_NUMBER, -1),
    "float": (_NUMBER, float("nan")),
    "text": (Union[str, None], None),  # noqa: UP007
    "json": (msgspec.Raw, NO_TEXT),
}
declare(Arg(column, key, "int") for column, key in LANE_KEYS.items())


class Loose(msgspec.Struct, gc=False):
    """Any event."""

    ph: Any = ""
    cat: Any = None
    name: Any = ""
    ts: msgspec.Raw = NO_TEXT
    dur: msgspec.Raw = NO_TEXT
    pid: Any = -1
    tid: Any = -1
    args: Any = None


class _Attributes:
    """Arguments of a loose event, by column."""

    def __init__(self, args: Any, family: Family) -> None:
        given = args if isinstance(args, dict) else {}
        for column, key in LANE_KEYS.items():
            setattr(self, column, _hashable(given.get(key)))
        for arg in (*family.args, *COLLECTIVE):
            value = given.get(arg.key)
            setattr(self, arg.column, (msgspec.json.encode(value) if value else b"") if arg.kind == "json" else value)


def _hashable(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


class Reader:
    """Takes chunks of events; holds the columns by category, the metadata rows and the counts."""

    def __init__(self) -> None:
        self.strings = Codes()
        self.threads = Codes()  # (pid, tid)
        self.lanes = Codes()  # (device, stream, queue, stream id, pid, tid) as written; see model.lane_of
        self.tables: dict[str, Table] = {}
        self.collectives: dict[str, tuple[list[int], Table]] = {}  # By category: rows of the table, their arguments.
        self.counts: Counter[str] = Counter()  # Events by category, or by phase where there is none.
        self.metadata: list[tuple[str, Any, Any, dict[str, Any]]] = []  # name, pid, tid, args of `M` rows.
        self._structs: dict[str, type[Any]] = {}
        self._empty: dict[str, Any] = {}
        self._pause = self._misses = 0
        for category, family in FAMILIES.items():
            self._add_struct(category, family)
        self._build()

    def feed(self, chunk: Buffer) -> bool:
        """Take a JSON array of events; False if the text is not one."""
        if self._pause:
            self._pause -= 1
        elif self._feed_typed(chunk):
            self._misses = max(0, self._misses - 1)
            return True
        else:  # Files that are all loose do not pay for two attempts each time.
            self._misses = min(self._misses + 1, _LONGEST_PAUSE)
            self._pause = (1 << self._misses) - 2
        try:
            events = _LOOSE(chunk)
        except msgspec.ValidationError:  # Something in the array is no object.
            events = _objects(chunk)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        self._store_loose(events)
        return True

    # --- typed ------------------------------------------------------------------------------

    def _add_struct(self, category: str, family: Family) -> None:
        fields: list[Any] = []
        if family.kept:
            fields = [("name", str), ("ts", msgspec.Raw), ("dur", msgspec.Raw, NO_TEXT), ("ph", Literal["X"], "X"),
                      ("pid", Union[int, str], -1), ("tid", Union[int, str], -1)]  # fmt: skip  # noqa: UP007
            args: tuple[Arg, ...] = family.args
            if family.on_device:
                args = (*args, *(Arg(column, key, "int") for column, key in LANE_KEYS.items()), *COLLECTIVE)
            if args:
                types = [(arg.column, *_TYPES[arg.kind]) for arg in args]
                if family.on_device:  # None, not -1, so that another key can stand in.
                    types = [(c, t, None) if c in LANE_KEYS else (c, t, d) for c, t, d in types]
                struct = msgspec.defstruct(
                    f"Args_{len(self._structs)}", types, rename={arg.column: arg.key for arg in args}, gc=False
                )
                self._empty[category] = struct()
                fields.append(("args", struct | None, None))
        name = f"Event_{len(self._structs)}"
        self._structs[category] = msgspec.defstruct(name, fields, tag_field="cat", tag=category, gc=False)

    def _build(self) -> None:
        union = Union[tuple(self._structs.values())]  # type: ignore[valid-type]  # noqa: UP007  at run time
        self._decode_typed = msgspec.json.Decoder(list[union]).decode
        self._category = {struct: category for category, struct in self._structs.items()}

    def _feed_typed(self, chunk: Buffer) -> bool:
        try:
            events = self._decode_typed(chunk)
        except (msgspec.DecodeError, UnicodeDecodeError):  # ValidationError is a DecodeError.
            return False
        groups: dict[type[Any], list[Any]] = {each: [] for each in set(map(type, events))}
        put = {each: group.append for each, group in groups.items()}
        for event in events:
            put[type(event)](event)
        for struct, group in groups.items():
            category = self._category[struct]
            if not struct.__struct_fields__:
                self.counts[category] += len(group)
            elif empty := self._empty.get(category):
                self._store(category, group, [event.args or empty for event in group])
            else:
                self._store(category, group, ())
        return True

    # --- loose ------------------------------------------------------------------------------

    def _store_loose(self, events: Sequence[Loose]) -> None:
        groups: dict[str, list[Loose]] = {}
        for event in events:
            if event.ph == "M":
                args = event.args if isinstance(event.args, dict) else {}
                self.metadata.append((str(event.name), event.pid, event.tid, args))
                continue
            category = event.cat if isinstance(event.cat, str) else ""
            if event.ph != "X" or category == PROFILER_CATEGORY:
                self.counts[category or f"ph {event.ph}"] += 1
                continue
            if not isinstance(event.name, str):
                event.name = str(event.name)
            event.pid, event.tid = _hashable(event.pid), _hashable(event.tid)
            groups.setdefault(category, []).append(event)
        new = [category for category in groups if category and category not in self._structs]
        for category in new:
            self._add_struct(category, family_of(category))
        if new:
            self._build()
            self._pause = self._misses = 0
        for category, group in groups.items():
            family = FAMILIES.get(category) or family_of(category)
            if not family.kept:
                self.counts[category] += len(group)
                continue
            self._store(category, group, [_Attributes(event.args, family) for event in group])

    # --- columns ----------------------------------------------------------------------------

    def _store(self, category: str, events: Sequence[Any], args: Sequence[Any]) -> None:
        table = self.tables.get(category)
        if table is None:
            family = FAMILIES.get(category) or family_of(category)
            table = self.tables[category] = Table(family.args, on_device=family.on_device)
        first = len(table)
        table.ts.extend([event.ts for event in events])
        table.dur.extend([event.dur for event in events])
        strings, threads = self.strings, self.threads
        table.name.extend([strings[event.name] for event in events])
        table.thread.extend([threads[event.pid, event.tid] for event in events])
        if table.on_device:
            lanes = self.lanes
            table.lane.extend(
                [
                    lanes[arg.device, arg.stream, arg.queue, arg.stream_id, event.pid, event.tid]
                    for arg, event in zip(args, events, strict=True)
                ]
            )
            self._store_collectives(category, first, args)
        if table.args:
            table.extend_args(args, strings)
        self.counts[category] += len(events)

    def _store_collectives(self, category: str, first: int, args: Sequence[Any]) -> None:
        rows = [row for row, arg in enumerate(args) if arg.collective]
        if rows:
            at, table = self.collectives.setdefault(category, ([], Table(COLLECTIVE, on_device=False)))
            at.extend([first + row for row in rows])
            table.extend_args([args[row] for row in rows], self.strings)


_LOOSE = msgspec.json.Decoder(list[Loose]).decode


def _objects(chunk: Buffer) -> list[Loose]:
    """The objects of a JSON array that holds other things too."""
    values = msgspec.json.decode(chunk, type=list[msgspec.Raw])
    return [_ONE_LOOSE(value) for value in values if bytes(value).lstrip().startswith(b"{")]


_ONE_LOOSE = msgspec.json.Decoder(Loose).decode
