"""What else differs between two runs than what they measured: whether they may be compared at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from htareport.comparison.matching import SEPARATOR, Matched
from htareport.comparison.sides import Side

_MOST_SHAPES = 4
_SLIGHT = 0.02  # A number type that takes less of the kernels' time does not count.
_TYPES = {
    "float64": r"double|f64",
    "float32": r"float32|(?<![a-z])float(?![0-9a-z])|f32|sgemm",
    "tf32": r"tf32",
    "bfloat16": r"bfloat16|bf16",
    "float16": r"half|float16|fp16|(?<![bs])f16|hgemm|h884|h1688|s16816(?!gemm_bf)",
    "float8": r"float8|fp8|e4m3|e5m2|f8",
    "int8": r"int8|(?<![a-z])i8(?![0-9])",
}
_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _TYPES.items()}


@dataclass(frozen=True)
class Difference:
    """One thing that differs; `matters` says that times cannot be compared like for like."""

    what: str
    base: str
    new: str
    matters: bool = True


def differences(base: Side, new: Side, matched: Matched) -> list[Difference]:
    """List what differs, what matters first."""
    found = [*_of_meta(base.meta, new.meta), *_shapes(matched), *_types(base, new)]
    return sorted(found, key=lambda each: not each.matters)


def _of_meta(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    both = (base, new)
    yield from _differing("devices", *(_devices(side) for side in both))
    yield from _differing("platform", *(_platform(side) for side in both))
    for name in ("software", "capture"):
        values = [side.get(name) or {} for side in both]
        for each in sorted(values[0].keys() | values[1].keys()):
            label = each if name == "software" else f"profiler's {each}"
            yield from _differing(label, *(_value(side.get(each)) for side in values))
    yield from _differing("world size", *(_value(side.get("world_size")) for side in both))
    yield from _differing("ranks read", *(_value(side.get("num_ranks")) for side in both))
    yield from _differing("window", *(_value(side.get("window")) for side in both))
    steps = [(side.get("steps") or {}).get("count", 0) for side in both]
    yield from _differing("steps", *map(_value, steps), matters=not all(steps))


def _differing(what: str, base: str, new: str, *, matters: bool = True) -> Iterator[Difference]:
    """A difference, if it is one. What one of the runs does not tell is none that matters."""
    if base != new:
        yield Difference(what, base or "not told", new or "not told", matters and bool(base and new))


def _devices(meta: Mapping[str, Any]) -> str:
    """Kinds of devices; their number follows from that of the ranks."""
    return ", ".join(sorted(meta.get("devices") or {}))


def _platform(meta: Mapping[str, Any]) -> str:
    """Whose devices they are, as far as the names of the software tell."""
    names = " ".join(meta.get("software") or {})
    return "NVIDIA" if "CUDA" in names else "AMD" if "HIP" in names else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else str(value)


def _shapes(matched: Matched) -> Iterator[Difference]:
    """Operators that are on both sides, with other shapes on each."""
    sides = [side[(side["shapes"] != "") & side["level"].isin(["path", "operator"])] for side in matched]
    by_operator = [
        side.groupby("operator").agg(time=("time", "sum"), shapes=("shapes", lambda s: sorted(set(s))))
        for side in sides
    ]
    common = by_operator[0].merge(by_operator[1], left_index=True, right_index=True, suffixes=("", "_new"))
    if not len(common):
        return
    common = common.assign(both=common["time"] + common["time_new"]).sort_values("both", ascending=False)
    name, row = str(common.index[0]), common.iloc[0]
    more = f" and {len(common) - 1} more" if len(common) > 1 else ""
    yield Difference(f"input shapes of {name.rpartition(SEPARATOR)[2]}{more}", _some(row["shapes"]),
                     _some(row["shapes_new"]))  # fmt: skip


def _some(shapes: list[str]) -> str:
    more = f" … {len(shapes) - _MOST_SHAPES} more" if len(shapes) > _MOST_SHAPES else ""
    return "; ".join(shapes[:_MOST_SHAPES]) + more


def _types(base: Side, new: Side) -> Iterator[Difference]:
    """Number types, as far as names of kernels tell them."""
    found = [_types_of(side.kernels) for side in (base, new)]
    if all(found):
        yield from _differing("number types in kernel names", *(", ".join(sorted(each)) for each in found))


def _types_of(kernels: pd.DataFrame) -> set[str]:
    compute = kernels[kernels["kind"] == "compute"]
    whole = compute["time"].sum()
    taken = dict.fromkeys(_PATTERNS, 0.0)
    for name, time in zip(compute["kernel"], compute["time"], strict=True):
        for kind, pattern in _PATTERNS.items():
            if pattern.search(name):
                taken[kind] += time
                break
    return {kind for kind, time in taken.items() if whole and time > _SLIGHT * whole}
