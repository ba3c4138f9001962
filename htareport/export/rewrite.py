"""Writes a trace file again with changed and added events, without ever holding more than a chunk of it.

Times and all else that is not changed keep their exact text. Slips that the loader mends are written mended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

import msgspec
import orjson

from htareport.reading.text.decode import Buffer
from htareport.reading.text.sink import Sink
from htareport.reading.text.split import BETWEEN
from htareport.rows.options import ReadOptions

Edit: TypeAlias = Callable[[int, bytes], bytes | None]
_JOINT = b",\n"
_RAW = msgspec.json.Decoder(list[msgspec.Raw]).decode
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def rewrite(  # noqa: PLR0913  what a copy consists of
    source: Path,
    out: IO[bytes],
    metadata: Mapping[str, Any],
    more: Iterable[bytes] = (),
    edit: Edit | None = None,
    *,
    options: ReadOptions | None = None,
) -> None:
    """Write the events of a trace file, those `more` events (JSON texts) behind them, and metadata in front of them.

    `edit` gets the position of each event among all of its file, and its text; it returns the text to write, or None.
    `options` are those that it was loaded with. TraceFileError if the source is no trace, damaged or ends early.
    """
    head = orjson.dumps(dict(metadata), option=orjson.OPT_NON_STR_KEYS)[1:-1]
    out.write(b"{" + head + b"," * bool(head) + b'\n"traceEvents": [\n')
    writer = _Writer(out, edit)
    writer.read(source, options)
    for event in more:
        writer.write(event)
    out.write(b"\n]}\n")


class _Writer(Sink):
    """Takes chunks of events and passes them on."""

    def __init__(self, out: IO[bytes], edit: Edit | None) -> None:
        super().__init__()
        self._out, self._edit = out, edit
        self._is_first = True

    def take(self, chunk: Buffer, values: list[Any]) -> None:
        """Pass events on, as they are or edited."""
        if self._edit is None:
            self.write(bytes(chunk)[1:-1].strip(BETWEEN))
            return
        texts = (bytes(text) for text, value in zip(_RAW(chunk), values, strict=True) if isinstance(value, dict))
        for position, event in enumerate(texts, self.passed):
            self.write(self._edit(position, event) or b"")

    def write(self, text: bytes) -> None:
        """Write one event or several with commas between them; nothing for no text."""
        if text:
            self._out.write(text if self._is_first else _JOINT + text)
            self._is_first = False


def with_fields(event: bytes, args: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """Return an event's text with some fields, and some of its arguments, set; the others keep their text."""
    own_fields = _FIELDS(event)
    if args is not None:
        text = own_fields.get("args", b"{}")
        own_args: dict[str, Any] = dict(_FIELDS(text)) if bytes(text).lstrip().startswith(b"{") else {}
        fields["args"] = own_args | {name: msgspec.Raw(orjson.dumps(value)) for name, value in args.items()}
    return msgspec.json.encode(own_fields | fields)


def micros(nanoseconds: int) -> str:
    """Return nanoseconds as decimal microseconds: the exact text of a time stamp."""
    sign, size = ("-" if nanoseconds < 0 else ""), abs(int(nanoseconds))
    return f"{sign}{size // 1000}.{size % 1000:03d}"


def without_args(event: bytes, name: str) -> bytes:
    """Return an event's text under another name, without its arguments."""
    fields: dict[str, Any] = {key: value for key, value in _FIELDS(event).items() if key != "args"}
    return msgspec.json.encode(fields | {"name": name})
