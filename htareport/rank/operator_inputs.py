"""Sizes of what operators read, from the shapes and types of their inputs."""

from __future__ import annotations

import json
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.work import SIZES
from htareport.rank import kernel_launches
from htareport.rank.operator_work import NONE
from htareport.rank.rank import Rank

_OTHER_SIZES = {"bool": 1, "unsigned char": 1, "long int": 8, "int": 4, "short int": 2}


class _Inputs(NamedTuple):
    """Of an operator: elements of its largest input, bytes of one of these, and of all inputs; 0 unknown."""

    elements: int
    size: int
    moved: int


def inputs_of(rank: Rank, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """What operators (rows of the host table) read."""
    columns = [kernel_launches.codes_of(rank, rows, name) for name in ("shapes", "types")]
    first, number = kernel_launches.distinct(*columns)
    strings, pairs = rank.loaded.strings, zip(*(column[first].tolist() for column in columns), strict=True)
    each = [_read(*(strings[code] if code != NONE else "[]" for code in pair)) for pair in pairs]
    return np.array(each, np.int64).reshape(-1, 3)[number]


def _read(shapes: str, types: str) -> _Inputs:
    try:
        pairs = list(zip(json.loads(shapes), json.loads(types), strict=False))
    except (ValueError, TypeError):
        return _Inputs(0, 0, 0)
    sizes = SIZES | _OTHER_SIZES
    tensors = [
        (prod(shape), sizes[dtype])
        for shape, dtype in pairs
        if isinstance(shape, list) and shape and dtype in sizes and all(type(size) is int for size in shape)
    ]
    return _Inputs(*max(tensors), sum(count * size for count, size in tensors)) if tensors else _Inputs(0, 0, 0)
