"""Classes and short names of kernels, under HTA's names, by the definitions of the report."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any

import pandas as pd

from htareport.algorithms import intervals
from htareport.hta.units import PER_US, nanoseconds
from htareport.rank.events import KIND_DTYPE
from htareport.rows.classify import Kind, copy_kind, kinds_of_names
from htareport.run.executors import free_memory, usable_cores

_COPY_NAME = re.compile(r"Memcpy|Memset|Copy")
_BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)")
_FREE_SHARE = 0.8


class KernelType(Enum):
    """Class of a kernel; here every kernel is of one of the first three."""

    COMMUNICATION = 0
    MEMORY = 1
    COMPUTATION = 2
    OTHER = 3


class IdleTimeType(Enum):
    """Cause of idle time of a stream."""

    HOST_WAIT = 0
    KERNEL_WAIT = 1
    OTHER = 2


_TYPES = {Kind.COMM: KernelType.COMMUNICATION, Kind.MEMORY: KernelType.MEMORY, Kind.COMPUTE: KernelType.COMPUTATION}


def get_kernel_type(name: str) -> str:
    """Class of a kernel by its name: COMMUNICATION, MEMORY or COMPUTATION."""
    return _TYPES[Kind(KIND_DTYPE.categories[int(kinds_of_names([name])[0])])].name


def is_comm_kernel(name: str) -> bool:
    """Whether a kernel communicates, by its name."""
    return get_kernel_type(name) == KernelType.COMMUNICATION.name


def is_memory_kernel(name: str) -> bool:
    """Whether a kernel copies or fills memory, by its name."""
    return get_kernel_type(name) == KernelType.MEMORY.name


def is_compute_kernel(name: str) -> bool:
    """Whether a kernel computes: it neither communicates nor copies or fills memory."""
    return get_kernel_type(name) == KernelType.COMPUTATION.name


is_computer_kernel = is_compute_kernel  # HTA has both spellings.


def get_memory_kernel_type(name: str) -> str:
    """Direction of a copy, or Memset."""
    return copy_kind(name)


def merge_kernel_intervals(kernel_df: pd.DataFrame) -> pd.DataFrame:
    """The union of rows' intervals: ts and end of each interval (µs). Adjacent ones are merged."""
    starts = nanoseconds(kernel_df["ts"])
    union = intervals.union(starts, starts + nanoseconds(kernel_df["dur"]))
    return pd.DataFrame({"ts": union[:, 0] / PER_US, "end": union[:, 1] / PER_US})


def shorten_name(name: str) -> str:
    """Drop arguments, template arguments and the return type; names of copies stay as they are."""
    if _COPY_NAME.match(name):
        return name
    short, previous = name.replace("->", ""), ""
    while short != previous:
        previous, short = short, _BRACKETS.sub("", short)
    return short.removeprefix("void ").strip()


def normalize_path(path: str) -> str:
    """Absolute path, with ~ for the home folder spelled out."""
    return str(Path(path).expanduser().absolute())


def flatten_column_names(df: pd.DataFrame) -> None:
    """Join the levels of a frame's column names by underscores, in place."""
    if isinstance(df.columns, pd.MultiIndex):
        df.columns = pd.Index(["_".join(str(level) for level in levels if level != "") for levels in df.columns])


def get_mp_pool_size(obj_size: int, num_objs: int) -> int:
    """How many processes cores and free memory allow, for `num_objs` objects of `obj_size` bytes each."""
    fitting = int(_FREE_SHARE * free / max(obj_size, 1)) if (free := free_memory()) is not None else num_objs
    return max(1, min(usable_cores(), num_objs, fitting))


def get_symbol_column_names(df: pd.DataFrame) -> tuple[str, str]:
    """Names of the columns with names and categories as text: s_name and s_cat, or name and cat; empty for none."""
    name, cat = (next((column for column in (f"s_{base}", base) if column in df), "") for base in ("name", "cat"))
    return name, cat


def normalize_gpu_stream_numbers(df: pd.DataFrame) -> None:
    """Give missing stream numbers -1 and make the column whole numbers, in place."""
    df["stream"] = pd.to_numeric(df["stream"], errors="coerce").fillna(-1).astype("int64")


def get_value_from_dict(d: object, key: str, default: object = None) -> Any:
    """Value of a key, the default if there is none or `d` is no dict."""
    return d.get(key, default) if isinstance(d, dict) else default
