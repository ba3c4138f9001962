"""Keys that an object has more than once, with values that differ: the last counts, as in Python, and it is said.

To look for them takes a parser that keeps every pair, three times as slow as the one that reads the events. A writer
that repeats a key does so in all events of a kind, so it is enough to look where a kind is met for the first time.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from htareport.reading.text.repair.slips import Slips
from htareport.reading.text.split import event_spans

REPEATED = "repeated keys with another value"
_KEY_ENDS = b'":'


def in_events(array: bytes) -> Slips:
    """Return how many keys are repeated in a JSON array of events, and the offset of the first event with one."""
    if not _may_repeat(array) or not (count := len(_repeated(array))):
        return {}
    spans, _ = event_spans(array[1:])
    return {REPEATED: (count, next((start + 1 for start, end in spans if _repeated(array[start + 1 : end + 1])), 0))}


def in_object(text: bytes) -> Slips:
    """Return how many keys are repeated in one JSON object, and the offset at which the first stands for the last."""
    keys = _repeated(text)
    return {REPEATED: (len(keys), max(0, text.rfind(json.dumps(keys[0]).encode())))} if keys else {}


def _may_repeat(array: bytes) -> bool:
    """Whether there are more keys in a text than in what a fast parser keeps of it."""
    try:
        reencoded = orjson.dumps(orjson.loads(array))
    except (orjson.JSONDecodeError, TypeError):
        return True
    return array.count(_KEY_ENDS) != reencoded.count(_KEY_ENDS)


def _repeated(text: bytes) -> list[str]:
    """The keys of a JSON text whose later value is another, once for each time."""
    repeated = list[str]()

    def pairs(key_value_pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        pairs = dict(key_value_pairs)
        if len(pairs) < len(key_value_pairs):
            repeated.extend(key for key, value in key_value_pairs if value != pairs[key])
        return pairs

    try:
        json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError):  # What this parser cannot read, it has no say in.
        return []
    return repeated
