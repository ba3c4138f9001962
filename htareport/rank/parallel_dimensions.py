"""Which parallel dimension each collective serves, as far as its process group's name or what calls it says so.

A dimension is never guessed: where neither the group nor the operators around the call are certain, it is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.nesting import NO_PARENT
from htareport.rank.host_calls import launching_rows
from htareport.rank.rank import Rank
from htareport.rows.metadata import group_descriptions

DATA, TENSOR, PIPELINE, EXPERT, CONTEXT = "data", "tensor", "pipeline", "expert", "context"
UNKNOWN = "unknown"
NAMED, INFERRED = "group's name", "inferred"
DEFAULT_GROUP = "default_pg"

_TOKENS: Mapping[str, str] = {
    **dict.fromkeys(("data", "dp", "ddp", "fsdp", "hsdp", "edp", "efsdp", "zero", "replicate", "shard"), DATA),
    **dict.fromkeys(("tensor", "tp", "etp"), TENSOR),
    **dict.fromkeys(("pipeline", "pp"), PIPELINE),
    **dict.fromkeys(("expert", "experts", "ep", "moe"), EXPERT),
    **dict.fromkeys(("context", "cp", "sequence", "seq", "sp", "ulysses"), CONTEXT),
}
_ORDER = (DATA, TENSOR, PIPELINE, EXPERT, CONTEXT)
_WHOLE: Mapping[str, tuple[str, ...]] = {  # Megatron's, which their words alone don't tell.
    "model_parallel_group": (TENSOR, PIPELINE),
    "embedding_group": (PIPELINE,),
    "position_embedding_group": (PIPELINE,),
}
_WORD = re.compile(r"[a-z]+")

_GRADIENT = re.compile(r"evaluate_function: torch::autograd::AccumulateGrad")  # DDP reduces from there.
_SHARDED = re.compile(r"^FSDP::|FullyShardedDataParallel\._")  # Not its forward, in which the model itself runs.
_REPLICATED = re.compile(r"DistributedDataParallel\.forward")  # Broadcasts its buffers.
_EXPERTS = re.compile(r"(?<![A-Za-z])(?:moe|MoE|MOE|[Ee]xperts?|[Tt]oken_?[Dd]ispatch(?:er)?)(?![a-z])")
_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)  # Rings of context parallelism send to neighbours, too.
_DEEP_EP = re.compile(r"deep_?ep", re.IGNORECASE)
_SENDS = ("send", "recv", "isend", "irecv", "batch_isend")
_AROUND = (_GRADIENT, _SHARDED, _REPLICATED, _EXPERTS, _ATTENTION)


def named_dimension(name: str) -> str:
    """The dimension that a group's name or description says, several joined by plus; empty if it says none."""
    words = _WORD.findall(re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", name).lower())
    if (whole := _WHOLE.get("_".join(words))) is not None:
        return " + ".join(whole)
    named_dimension = {_TOKENS[word] for word in words if word in _TOKENS}
    if EXPERT in named_dimension and len(named_dimension) > 1 and "model" not in words:
        named_dimension.discard(
            EXPERT
        )  # Expert data parallel: replicas of experts. Megatron's expert *model* parallel is both.
    return " + ".join(each for each in _ORDER if each in named_dimension)


def dimensions_of(trace: Rank, labels: pd.DataFrame) -> pd.DataFrame:
    """The dimension of each communication kernel (rows of `labels_of`), and by what it is told: dimension, told_by."""
    described: dict[str, str] = {}
    for capture in trace.captures:
        described |= group_descriptions(capture.meta)
    names = labels[["process_group", "group"]].drop_duplicates()
    of_group = {
        (process_group, group): named_dimension(process_group)
        or named_dimension(described.get(group, ""))
        or named_dimension(group)
        for process_group, group in names.itertuples(index=False, name=None)
    }
    keys = list(zip(labels["process_group"], labels["group"], strict=True))
    named = np.array([of_group[key] for key in keys], object)
    inferred = _inferred(trace, labels)
    shared = _of_whole_groups(keys, inferred, described)
    inferred = np.where(inferred == "", [shared.get(key, "") for key in keys], inferred)
    dimension = np.where(named != "", named, np.where(inferred != "", inferred, UNKNOWN))
    told_by = np.where(named != "", NAMED, np.where(inferred != "", INFERRED, ""))
    return pd.DataFrame({"dimension": dimension, "told_by": told_by}, labels.index, dtype=object)


def _inferred(trace: Rank, labels: pd.DataFrame) -> NDArray[Any]:
    """What the call itself makes certain, empty for nothing."""
    inferred = np.full(len(labels), "", object)
    if not len(labels):
        return inferred
    events = trace.device_events.loc[labels.index]
    collective: Any = labels["collective"].astype(str).str
    gradient, sharded, replicated, experts, attention = _around(trace, events["launch"].to_numpy())
    reduces = collective.startswith(("all_reduce", "reduce_scatter")).to_numpy(dtype=bool)
    gathers = collective.startswith("all_gather").to_numpy(dtype=bool)
    is_data = (gradient & reduces) | (sharded & (reduces | gathers))
    is_data |= replicated & collective.startswith("broadcast").to_numpy(dtype=bool)
    sends = collective.startswith(_SENDS).to_numpy(dtype=bool) & labels["group"].ne("").to_numpy()
    sends &= ~collective.startswith("send_recv").to_numpy(dtype=bool)  # By the kernel's name: all-to-all is that, too.
    exchanges = collective.startswith("all_to_all").to_numpy(dtype=bool) & experts
    exchanges |= events["name"].astype(object).str.contains(_DEEP_EP).to_numpy(dtype=bool)
    inferred[is_data], inferred[sends & ~attention], inferred[exchanges] = DATA, PIPELINE, EXPERT
    return inferred


def _around(trace: Rank, launches: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
    """For each pattern, which launches have an operator or annotation of such a name around them."""
    host, found = trace.host, [np.zeros(len(launches), np.bool_) for _ in _AROUND]
    rows = np.full(len(launches), NO_PARENT, np.int64)
    rows[launches >= 0] = launching_rows(host, launches[launches >= 0]) if len(host) else NO_PARENT
    parent, codes = host["parent"], host["name"]
    strings, known = trace.loaded.strings, dict[int, tuple[bool, ...]]()
    while (inside := rows != NO_PARENT).any():
        rows[inside] = parent[rows[inside]]
        there = np.flatnonzero(rows != NO_PARENT)
        names, which = np.unique(codes[rows[there]], return_inverse=True)
        for code in names.tolist():
            if code not in known:
                known[code] = tuple(pattern.search(strings[code][:512]) is not None for pattern in _AROUND)
        for number, mine in enumerate(found):
            mine[there] |= np.array([known[code][number] for code in names.tolist()], np.bool_)[which]
    return found


def _of_whole_groups(
    keys: list[tuple[str, str]], inferred: NDArray[Any], described: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """Groups all of whose telling calls tell the same. The default group is everybody's, and so tells nothing."""
    told: dict[tuple[str, str], set[str]] = {}
    for key, each in zip(keys, inferred.tolist(), strict=True):
        if each:
            told.setdefault(key, set()).add(each)
    return {
        key: next(iter(each))
        for key, each in told.items()
        if len(each) == 1 and key[1] and DEFAULT_GROUP not in {key[0], described.get(key[1])}
    }
