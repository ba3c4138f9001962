"""Reads one trace file as a frame, and infers the kind of its device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pandas as pd

from htareport.export.numbered import load_numbered
from htareport.files.locations import located
from htareport.hta.common.frames import trace_frame
from htareport.hta.common.trace_file import read_trace
from htareport.hta.common.trace_symbol_table import TraceSymbolTable
from htareport.hta.configs.parser_config import ParserBackend, ParserConfig

MetaData = dict[str, Any]
_RUNTIMES = (("cuda", "NVIDIA GPU"), ("hip", "AMD GPU"))
_MTIA = ("runFunction - job_prep_and_submit_for_execution", "mtia:hccl")
_UNKNOWN = "UNKNOWN GPU"


class MetaDataKey(Enum):
    """Keys that are added to the metadata of a file."""

    DEVICE_TYPE = "device_type"

    def __str__(self) -> str:
        return self.value


def set_default_trace_parsing_backend(parser_backend: ParserBackend) -> None:
    """Set the backend of the default configuration; it changes nothing, as files are read in one way."""
    config = ParserConfig.get_default_cfg()
    config.set_parser_backend(parser_backend)
    ParserConfig.set_default_cfg(config)


def get_default_trace_parsing_backend() -> ParserBackend:
    """Return the backend of the default configuration."""
    return ParserConfig.get_default_cfg().parser_backend or ParserBackend.JSON


def infer_gpu_type(metadata: Mapping[str, Any] | None = None, name_set: Iterable[str] | None = None) -> str:
    """Return the kind of device, by the backend in the metadata, then by the names of launching calls."""
    distributed = (metadata or {}).get("distributedInfo")
    names = list(name_set or ())
    if _MTIA[0] in names or (isinstance(distributed, dict) and _MTIA[1] in str(distributed.get("backend", ""))):
        return "MTIA"
    for prefix, device in _RUNTIMES:
        if any(name.startswith(prefix) and "Launch" in name for name in names):
            return device
    return _UNKNOWN


def parse_trace_dict(trace_file_path: str | Path) -> dict[str, Any]:
    """Return everything in a trace file as plain values. TraceFileError if it cannot be read."""
    return read_trace(trace_file_path)


def parse_trace_dataframe(
    trace_file_path: str | Path, cfg: ParserConfig | None = None
) -> tuple[MetaData, pd.DataFrame, TraceSymbolTable]:
    """Return metadata, frame (see Trace.get_trace) and symbols of one file, times from its earliest event on."""
    trace = load_numbered(0, located(trace_file_path))
    frame = trace_frame(trace, trace.start_ns or 0, cfg or ParserConfig.get_default_cfg())
    metadata = dict(trace.captures[0].meta)
    metadata[MetaDataKey.DEVICE_TYPE.value] = infer_gpu_type(metadata, trace.loaded.strings)
    return metadata, frame, TraceSymbolTable.create_from_df(frame)


parse_trace_file = parse_trace_dataframe  # HTA has both names.
