"""Which waiting calls read a token that was sampled right before."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from htareport.rank import kernel_launches
from htareport.rank.host_rows import rows_named
from htareport.rank.rank import Rank
from htareport.rank.training import trains

_SAMPLES = re.compile(r"^aten::(?:multinomial|argmax|exponential_?)$|sampl(?:e|ing)")
_DRAWS = re.compile(r"multinomial|::top_\w*sampl|(?:^|[_:])sample|sampling_from")
_VOCABULARY = 8192  # Values from which a largest one is taken to be a token.
_FEW = 24  # Launches from the sampling to the call: comparisons with the end, and copies.


def behind_sampling(rank: Rank, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which calls (rows of the host table) come right behind the sampling of tokens on their thread.

    That is an operator that draws from a distribution, or takes the largest over a vocabulary, in a trace without a
    backward pass, and no more than a few launches before the call.
    """
    sampling = rows_named(rank, _SAMPLES, "operator")
    if not len(sampling) or trains(rank):
        return np.zeros(len(rows), np.bool_)
    sampling = sampling[_over_vocabulary(rank, sampling)]
    host = rank.host
    place = np.searchsorted(sampling, rows) - 1
    before = np.append(sampling, 0)[place]
    behind_sampling = place >= 0
    for name in ("thread", "capture"):
        behind_sampling &= host.at(name, rows) == host.at(name, before)
    launches = np.flatnonzero(host["launch"] >= 0)  # Those that launch are few of all calls.
    between = np.searchsorted(launches, rows) - np.searchsorted(launches, before)
    return np.asarray(behind_sampling & (between <= _FEW), np.bool_)


def _over_vocabulary(rank: Rank, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these operators draw, or are over as many values as a vocabulary has, as far as shapes tell."""
    strings, names = rank.loaded.strings, kernel_launches.texts(rank, kernel_launches.names_of(rank, rows).tolist())
    codes = kernel_launches.codes_of(rank, rows, "shapes").tolist()
    shapes = (kernel_launches.shape_text(strings[code]).split(", ")[0] if code >= 0 else "" for code in codes)
    sizes = (int(shape.split("×")[-1]) if shape.replace("×", "").isdecimal() else 0 for shape in shapes)
    over_vocabulary = [
        bool(_DRAWS.search(name)) or size >= _VOCABULARY for name, size in zip(names, sizes, strict=True)
    ]
    return np.array(over_vocabulary, np.bool_)
