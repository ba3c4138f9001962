"""What a copy of a trace holds, and what the events that are added to it have to be like."""

from __future__ import annotations

import gzip
import json

import htareport

SCHEMA = {  # Of the events that are added, as the Trace Event Format has them.
    "type": "object",
    "required": ["ph", "name", "pid", "ts", "args"],
    "properties": {"pid": {"type": ["integer", "string"]}, "ts": {"type": "number"}, "name": {"type": "string"}},
    "oneOf": [
        {
            "properties": {
                "ph": {"const": "C"},
                "id": {"type": "string"},
                "args": {
                    "additionalProperties": {"type": "number", "minimum": 0},
                    "minProperties": 1,
                    "maxProperties": 1,
                },
            },
        },
        {
            "required": ["id", "tid", "cat"],
            "properties": {
                "ph": {"enum": ["s", "f"]},
                "id": {"type": "integer", "minimum": 1},
                "cat": {"const": "critical_path"},
                "args": {
                    "required": ["type", "weight", "critical"],
                    "properties": {"weight": {"type": "number", "minimum": 0}, "critical": {"type": "boolean"}},
                },
            },
            "if": {"properties": {"ph": {"const": "f"}}},
            "then": {"required": ["bp"], "properties": {"bp": {"const": "e"}}},
        },
    ],
}


def content(path):
    """A copy as data."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def sections_of(folder):
    """All that a report says of a run, but for names and sizes of its files."""
    report = json.loads(htareport.analyze(folder).to_json())
    return report["warnings"], [each for each in report["sections"] if each["name"] != "trace_quality"]
