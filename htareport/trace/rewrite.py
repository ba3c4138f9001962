"""Writes a trace file again with changed and added events, without ever holding more than a chunk of it.

Times and all else that is not changed keep their exact text. Slips that the loader mends are written mended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

import msgspec
import orjson

from htareport.trace.decode import Buffer
from htareport.trace.sink import Sink
from htareport.trace.split import BETWEEN

Edit: TypeAlias = Callable[[int, bytes], bytes | None]
_JOINT = b",\n"
_RAW = msgspec.json.Decoder(list[msgspec.Raw]).decode
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def rewrite(
    source: Path, out: IO[bytes], metadata: Mapping[str, Any], more: Iterable[bytes] = (), edit: Edit | None = None
) -> None:
    """Write the events of a trace file, those `more` events (JSON texts) behind them, and metadata in front of them.

    `edit` gets the place of each event among all of its file, and its text; it returns what to write, None for nothing.
    TraceFileError if the source is no trace, damaged or ends early.
    """
    head = orjson.dumps(dict(metadata), option=orjson.OPT_NON_STR_KEYS)[1:-1]
    out.write(b"{" + head + b"," * bool(head) + b'\n"traceEvents": [\n')
    writer = _Writer(out, edit)
    writer.read(source)
    for event in more:
        writer.write(event)
    out.write(b"\n]}\n")


class _Writer(Sink):
    """Takes chunks of events and passes them on."""

    def __init__(self, out: IO[bytes], edit: Edit | None) -> None:
        self._out, self._edit = out, edit
        self._place = 0
        self._is_first = True

    def feed(self, chunk: Buffer) -> bool:
        """Pass a JSON array of events on, if it is valid down to every string in it."""
        try:
            orjson.loads(chunk)
            events = [] if self._edit is None else [bytes(each) for each in _RAW(chunk)]
        except (orjson.JSONDecodeError, msgspec.DecodeError) as error:
            self.fault = str(error)
            return False
        if self._edit is None:
            self.write(bytes(chunk)[1:-1].strip(BETWEEN))
        for event in events:
            if event.lstrip().startswith(b"{"):  # What is no object is no event; the loader passes it over as well.
                self.write(self._edit(self._place, event) or b"" if self._edit else event)
                self._place += 1
        return True

    def write(self, text: bytes) -> None:
        """Write one event or several with commas between them; nothing for no text."""
        if text:
            self._out.write(text if self._is_first else _JOINT + text)
            self._is_first = False


def with_fields(event: bytes, args: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """Return an event's text with some fields, and some of its arguments, set; the others keep their text."""
    found = _FIELDS(event)
    if args is not None:
        given = found.get("args", b"{}")
        inner: dict[str, Any] = dict(_FIELDS(given)) if bytes(given).lstrip().startswith(b"{") else {}
        fields["args"] = inner | {name: msgspec.Raw(orjson.dumps(value)) for name, value in args.items()}
    return msgspec.json.encode(found | fields)


def micros(nanoseconds: int) -> str:
    """Return nanoseconds as decimal microseconds: the exact text of a time stamp."""
    sign, size = ("-" if nanoseconds < 0 else ""), abs(int(nanoseconds))
    return f"{sign}{size // 1000}.{size % 1000:03d}"


def without_args(event: bytes, name: str) -> bytes:
    """Return an event's text under another name, without its arguments."""
    fields: dict[str, Any] = {key: value for key, value in _FIELDS(event).items() if key != "args"}
    return msgspec.json.encode(fields | {"name": name})
