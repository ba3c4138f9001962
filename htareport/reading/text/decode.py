"""JSON text of events to columns.

Two tiers. *Typed*: one msgspec struct per category, holding only what becomes a column; everything else in the text is
skipped without making an object, which is where the speed comes from. *Loose*: any JSON object at all, for chunks that
hold metadata rows, categories not seen before, or values of unusual types. A category met there gets a struct of its
own, so that the next chunk is typed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, Union

import msgspec

from htareport.rows.classify import MEMORY_CATEGORY, MEMORY_NAME, PROFILER_CATEGORY
from htareport.rows.columns import NO_TEXT, Arg, Codes, Table, Threads, declare
from htareport.rows.schema import COLLECTIVE, FAMILIES, LANE_KEYS, WHOLE, Family, family_of

Buffer = bytes | bytearray | memoryview
_LONGEST_PAUSE = 6
_MOST_CATEGORIES = 200  # Beyond them, new ones are one category: a file that has as many means something else by them.
_OTHER = "other categories"
_STREAM_KEYS = set(LANE_KEYS.values()) - {"device"}
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
        arguments = args if isinstance(args, dict) else {}
        for column, key in LANE_KEYS.items():
            setattr(self, column, _hashable(arguments.get(key)))
        for arg in (*family.args, *COLLECTIVE):
            value = arguments.get(arg.key)
            if arg.kind == "json":
                value = msgspec.json.encode(value) if value else b""
            elif isinstance(value, bool):  # Which Python would count as 0 and 1.
                value = None
            setattr(self, arg.column, value)
        if family.args == (WHOLE,):
            self.args = msgspec.json.encode(arguments)


def _hashable(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def _grouped(events: list[Any]) -> dict[type[Any], list[Any]]:
    """Events by struct, in order of first sight. Kineto writes long runs of one category."""
    structs = dict.fromkeys(map(type, events))
    if len(structs) == 1:
        return dict.fromkeys(structs, events)
    groups: dict[type[Any], list[Any]] = {struct: [] for struct in structs}
    put = {struct: group.append for struct, group in groups.items()}
    for struct, event in zip(map(type, events), events):  # noqa: B905  as many, and this is run for each event
        put[struct](event)
    return groups


class Reader:
    """Takes chunks of events; holds the columns by category, the names of processes and the counts.

    What codes mean holds for all files that it reads, the rest for the file since `begin`.
    """

    def __init__(self) -> None:
        self.strings = Codes()
        self.threads = Threads()
        self.lanes = Codes()  # (device, stream, queue, stream id, pid, tid) as written; see capture.lane_of
        self._structs: dict[str, type[Any]] = {}
        self._empty: dict[str, Any] = {}
        self._seen: set[str] = set()  # Categories that PyTorch does not write.
        for category, family in FAMILIES.items():
            self._add_struct(category, family)
        self._build()
        self.begin()

    def begin(self) -> None:
        """Forget the events of the file before."""
        self.tables: dict[str, Table] = {}
        self.collectives: dict[str, tuple[list[int], Table]] = {}  # By category: rows of the table, their arguments.
        self.counts: Counter[str] = Counter()  # Events by category, or by phase where there is none.
        self.processes: dict[Any, str] = {}  # Names, by process id.
        self.like_device: set[str] = set()  # Categories that nobody knows, whose rows have a stream.
        self.fault = ""  # Why the last chunk was no array of events.
        self._pause = self._misses = 0

    def feed(self, chunk: Buffer) -> bool:
        """Take a JSON array of events; False if the text is not one, and why stands in `fault` then."""
        try:
            if not self._pause:
                try:
                    events = self._decode_typed(chunk)
                except msgspec.ValidationError:  # Files that are all loose do not pay for two attempts each time.
                    self._misses = min(self._misses + 1, _LONGEST_PAUSE)
                    self._pause = (1 << self._misses) - 2
                else:
                    self._store_typed(events)
                    self._misses = max(0, self._misses - 1)
                    return True
            else:
                self._pause -= 1
            loose = _objects(chunk)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.fault = str(error)
            return False
        self._store_loose(loose)
        return True

    # --- typed ------------------------------------------------------------------------------

    def _add_struct(self, category: str, family: Family) -> None:
        self._structs[category], empty = _struct_of(category, family)
        if empty is not None:
            self._empty[category] = empty

    def _build(self) -> None:
        self._decode_typed = _decoder_of(tuple(self._structs.values()))
        self._category = {struct: category for category, struct in self._structs.items()}

    def _store_typed(self, events: list[Any]) -> None:
        for struct, group in _grouped(events).items():
            category = self._category[struct]
            if not struct.__struct_fields__:
                self.counts[category] += len(group)
            elif empty := self._empty.get(category):
                self._store(category, group, [event.args or empty for event in group])
            else:
                self._store(category, group, group)  # Its arguments, if any are wanted, are taken whole.

    # --- loose ------------------------------------------------------------------------------

    def _store_loose(self, events: Sequence[Loose]) -> None:
        groups: dict[str, list[Loose]] = {}
        for event in events:
            category = self._known(event.cat) if isinstance(event.cat, str) else ""
            if event.ph == "i" and not category and event.name == MEMORY_NAME:
                category = MEMORY_CATEGORY
            if event.ph == "M":
                self._store_metadata(event)
            elif event.ph != self._phase(category) or category == PROFILER_CATEGORY:
                self.counts[category or f"ph {event.ph}"] += 1
            else:
                if not isinstance(event.name, str):
                    event.name = "" if event.name is None else str(event.name)
                event.pid, event.tid = _hashable(event.pid), _hashable(event.tid)
                groups.setdefault(category, []).append(event)
        new = [category for category in groups if category and category not in self._structs]
        if new:
            self._learn({category: groups[category] for category in new})
        for category, group in groups.items():
            family = FAMILIES.get(category) or family_of(category)
            if not family.has_rows:
                self.counts[category] += len(group)
                continue
            self._store(category, group, [_Attributes(event.args, family) for event in group])

    def _learn(self, groups: dict[str, list[Loose]]) -> None:
        """Give categories that were met for the first time their structs."""
        for category, events in groups.items():
            self._add_struct(category, family_of(category))
            if any(isinstance(event.args, dict) and _STREAM_KEYS & event.args.keys() for event in events):
                self.like_device.add(category)
        self._build()
        self._pause = self._misses = 0

    def _phase(self, category: str) -> str:
        return FAMILIES[category].phase if category in FAMILIES else "X"

    def _known(self, category: str) -> str:
        """The category, or one for all others where there are too many to tell apart."""
        if category in self._structs or not category:
            return category
        self._seen.add(category if len(self._seen) < _MOST_CATEGORIES else _OTHER)
        return category if category in self._seen else _OTHER

    def _store_metadata(self, event: Loose) -> None:
        self.counts["ph M"] += 1
        if event.name == "process_name" and isinstance(event.args, dict):
            self.processes[_hashable(event.pid)] = str(event.args.get("name", ""))

    # --- columns ----------------------------------------------------------------------------

    def _store(self, category: str, events: Sequence[Any], args: Sequence[Any]) -> None:
        table = self.tables.get(category)
        if table is None:
            family = FAMILIES.get(category) or family_of(category)
            table = self.tables[category] = Table(family.args, on_device=family.on_device)
        first = len(table)
        table.ts.extend([event.ts for event in events])
        table.dur.extend([event.dur for event in events] if self._phase(category) == "X" else [b"0"] * len(events))
        strings, threads = self.strings, self.threads
        names = [event.name for event in events]
        table.name.fromlist(list(map(strings.__getitem__, names)))
        table.thread.fromlist([threads[event.pid][event.tid] for event in events])
        if table.on_device:
            lanes = self.lanes
            table.lane.fromlist(
                [
                    lanes[arg.device, arg.stream, arg.queue, arg.stream_id, event.pid, event.tid]
                    for arg, event in zip(args, events, strict=True)
                ]
            )
            self._store_collectives(category, first, args)
        if table.args:
            table.extend_args(args, names, strings)
        self.counts[category] += len(events)

    def _store_collectives(self, category: str, first: int, args: Sequence[Any]) -> None:
        rows = [row for row, arg in enumerate(args) if arg.collective]
        if rows:
            table_rows, table = self.collectives.setdefault(category, ([], Table(COLLECTIVE, on_device=False)))
            table_rows.extend([first + row for row in rows])
            table.extend_args([args[row] for row in rows], [], self.strings)


# Making a struct and a decoder takes longer than reading a small file; those of one file do for the next.


@lru_cache(maxsize=256)
def _struct_of(category: str, family: Family) -> tuple[type[Any], Any]:
    """Make the struct of a category's events, and what stands for the arguments of those that have none."""
    fields: list[Any] = []
    empty = None
    if family.has_rows:  # In the order in which Kineto writes them, which is the fastest to decode.
        fields = [
            ("ph", Literal[family.phase]),
            ("name", str),
            ("pid", Union[int, str], -1),  # noqa: UP007  made into a msgspec type at run time
            ("tid", Union[int, str], -1),  # noqa: UP007
            ("ts", msgspec.Raw, NO_TEXT),
            ("dur", msgspec.Raw, NO_TEXT),
        ]
        args: tuple[Arg, ...] = family.args
        if args == (WHOLE,):
            fields.append(("args", msgspec.Raw, NO_TEXT))
            args = ()
        if family.on_device:
            args = (*args, *(Arg(column, key, "int") for column, key in LANE_KEYS.items()), *COLLECTIVE)
        if args:
            types = [(arg.column, *_TYPES[arg.kind]) for arg in args]
            if family.on_device:  # None, not -1, so that another key can stand in.
                types = [(c, t, None) if c in LANE_KEYS else (c, t, d) for c, t, d in types]
            struct = msgspec.defstruct("Args", types, rename={arg.column: arg.key for arg in args}, gc=False)
            empty = struct()
            fields.append(("args", struct | None, None))
    return msgspec.defstruct("Event", fields, tag_field="cat", tag=category, gc=False), empty


@lru_cache(maxsize=8)
def _decoder_of(structs: tuple[type[Any], ...]) -> Callable[[Buffer], list[Any]]:
    union: Any = Union[structs]  # noqa: UP007  made at run time
    return msgspec.json.Decoder(list[union]).decode


_DECODE_LOOSE = msgspec.json.Decoder(list[Loose]).decode
_DECODE_ONE = msgspec.json.Decoder(Loose).decode


def _objects(chunk: Buffer) -> list[Loose]:
    """The objects of a JSON array; other things in it are passed over."""
    try:
        return _DECODE_LOOSE(chunk)
    except msgspec.ValidationError:
        values = msgspec.json.decode(chunk, type=list[msgspec.Raw])
        return [_DECODE_ONE(value) for value in values if bytes(value).lstrip().startswith(b"{")]
