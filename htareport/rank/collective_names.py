"""What communication kernels are called, from their arguments or their names."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.rank.budget import at_most
from htareport.rank.cached import cached_on_rank
from htareport.rank.rank import Rank
from htareport.rows.metadata import described

OTHER = "other communication"
OTHER_GROUPS = "(other process groups)"
_MOST_GROUPS = 256  # Of a rank, by name.
_BYTES = {  # Of an element, by the names that PyTorch and NCCL give its type.
    "byte": 1,
    "char": 1,
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "half": 2,
    "bfloat16": 2,
    "float16": 2,
    "short": 2,
    "float": 4,
    "float32": 4,
    "int": 4,
    "int32": 4,
    "double": 8,
    "float64": 8,
    "long": 8,
    "int64": 8,
}
_IN_NAME = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|barrier|dispatch|combine|reduce)",
    re.IGNORECASE,
)
_WORDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
}


def labels_of(trace: Rank) -> pd.DataFrame:
    """What is known of each communication kernel, by row of `device_events`.

    Columns: collective, process_group (its description, else its name), bytes (nan unknown), then as the arguments have
    them group, members (its ranks as text), dtype (in small letters), all empty without arguments, group_size,
    elements (the larger of sent and received), sent, received, seq (-1 unknown), and of what goes from one rank to
    another sender and receiver (-1 unknown, or the rank itself). Of very many process groups those of little time are
    one.
    """
    return _labels_of(trace, at_most(_MOST_GROUPS))


@cached_on_rank
def _labels_of(trace: Rank, most_groups: int) -> pd.DataFrame:
    events = trace.device_events
    comm = events[events["kind"] == "comm"]
    arguments = trace.collectives
    strings = np.array([*trace.loaded.strings, ""], object)  # The code of a missing text, -1, is the last.
    found = comm[["source", "row"]].merge(arguments, how="left", on=["source", "row"])
    found.index = comm.index
    text = {
        name: strings[found[name].fillna(-1).astype("int64")] if name in found else np.full(len(found), "", object)
        for name in ("collective", "group", "group_description", "group_ranks", "dtype")
    }
    number = {
        name: found[name].fillna(-1).astype("int64") if name in found else pd.Series(-1, comm.index)
        for name in ("in_nelems", "out_nelems", "group_size", "seq", "sender", "receiver")
    }
    by_name = {name: _collective_of(name) for name in comm["name"].unique()}
    names = comm["name"].astype(object).map(by_name).to_numpy()
    collective = np.where(text["collective"] == "", names, [_spelled(each) for each in text["collective"]])
    is_described = np.array([described(each) for each in text["group_description"]], np.bool_)
    process_group = np.where(is_described, text["group_description"], text["group"])
    process_group = _largest(process_group, comm["dur"].to_numpy(), most_groups)
    elements = number["in_nelems"].where(number["in_nelems"] > number["out_nelems"], number["out_nelems"])
    dtype = pd.Series([each.lower() for each in text["dtype"]], comm.index, dtype=object)
    width = dtype.map(_BYTES).astype("float64")
    return pd.DataFrame(
        {
            "collective": collective,
            "process_group": process_group,
            "bytes": elements.where(elements >= 0) * width,
            "group": text["group"],
            "members": text["group_ranks"],
            "dtype": dtype,
            "group_size": number["group_size"],
            "elements": elements,
            "sent": number["in_nelems"],
            "received": number["out_nelems"],
            "seq": number["seq"],
            "sender": number["sender"],
            "receiver": number["receiver"],
        },
        comm.index,
    )


def shown_names(frame: pd.DataFrame) -> pd.Series[Any]:
    """Names for a chart: the collective, and its process group where that is known."""
    named: pd.Series[Any] = frame["collective"] + frame["process_group"].map(lambda text: f" · {text}" if text else "")
    return named


def _largest(groups: NDArray[Any], durations: NDArray[np.int64], most: int) -> NDArray[Any]:
    """The names of process groups, but for those of most time all of them the same."""
    names, codes = np.unique(groups.astype(object), return_inverse=True)
    if len(names) <= most:
        return groups
    kept_ones = np.argsort(-np.bincount(codes, durations.astype(np.float64)), kind="stable")[:most]
    names[np.setdiff1d(np.arange(len(names)), kept_ones)] = OTHER_GROUPS
    largest: NDArray[Any] = names[codes]
    return largest


def _collective_of(kernel: str) -> str:
    match = _IN_NAME.search(kernel)
    return _spelled(match[1]) if match else OTHER


def _spelled(collective: str) -> str:
    """One spelling for all sources: all_reduce, not AllReduce or allreduce."""
    plain = collective.lower().strip("_")
    match = _IN_NAME.match(plain)
    word = match[1].replace("_", "") if match else ""
    return _WORDS[word] + plain[len(match[1]) :] if match and word in _WORDS else plain
