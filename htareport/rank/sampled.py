"""Which waiting calls of the CPU read a token that was sampled right before."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from htareport.rank import kernel_launches
from htareport.rank.host_rows import names_of, rows_named
from htareport.rank.rank import Rank
from htareport.rank.training import trains

_SAMPLES = re.compile(r"^aten::(?:multinomial|argmax|exponential_?)$|sampl(?:e|ing)")
_DRAWS = re.compile(r"multinomial|::top_\w*sampl|(?:^|[_:])sample|sampling_from")
_MIN_VOCABULARY = 8192  # The largest of so many values is taken to be a token.
_MAX_LAUNCHES = 24  # From the sampling to the call: comparisons with the end, and copies.


def reads_sampled_token(rank: Rank, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which calls (rows of the host table) come right after the sampling of tokens on their thread.

    An operator samples that draws from a distribution, or takes the largest over a vocabulary, in a trace without a
    backward pass. No more than a few launches are between it and the call.
    """
    sampling = rows_named(rank, _SAMPLES, "operator")
    if not len(sampling) or trains(rank):
        return np.zeros(len(rows), np.bool_)
    sampling = sampling[_samples(rank, sampling)]
    host = rank.host
    index = np.searchsorted(sampling, rows) - 1
    before = np.append(sampling, 0)[index]
    is_after = index >= 0
    for name in ("thread", "capture"):
        is_after &= host.at(name, rows) == host.at(name, before)
    launches = np.flatnonzero(host["launch"] >= 0)  # Those that launch are few of all calls.
    between = np.searchsorted(launches, rows) - np.searchsorted(launches, before)
    return np.asarray(is_after & (between <= _MAX_LAUNCHES), np.bool_)


def _samples(rank: Rank, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these operators draw, or take the largest of as many values as a vocabulary has, by their shapes."""
    strings, names = rank.loaded.strings, names_of(rank, rows.tolist())
    codes = kernel_launches.codes_of(rank, rows, "shapes").tolist()
    shapes = (kernel_launches.shape_text(strings[code]).split(", ")[0] if code >= 0 else "" for code in codes)
    sizes = (int(shape.split("×")[-1]) if shape.replace("×", "").isdecimal() else 0 for shape in shapes)
    is_sampling = [
        bool(_DRAWS.search(name)) or size >= _MIN_VOCABULARY for name, size in zip(names, sizes, strict=True)
    ]
    return np.array(is_sampling, np.bool_)
