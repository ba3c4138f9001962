"""Lists what else differs between two runs: devices, software, options, shapes, number types."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd

from htareport.compare.matching import SEPARATOR, Matched
from htareport.compare.sides import Side
from htareport.compare.words import shortened

_MAX_SHAPES = 4
_MAX_VALUE = 200  # Characters.
_MIN_SHARE, _MIN_PRESENT = 0.02, 0.005  # Of the kernels' time: a type counts on one side, and is there on the other.
_UNNAMED = "unnamed device"  # What the summary of a run calls devices whose names the trace does not tell.
_TYPES = {  # The first that fits: names also tell the types that sums are made in.
    "float8": r"float8|fp8|e4m3|e5m2|(?<![a-z])f8",
    "bfloat16": r"bfloat16|bf16",
    "float16": r"half|float16|fp16|(?<![a-z])f16|hgemm|h884|h1688|h16816",
    "tf32": r"tf32|s1688(?:gemm|fprop|dgrad|wgrad)",
    "int8": r"int8|(?<![a-z])i8(?![0-9])",
    "float32": r"float(?!64)|(?<![a-z])f32|sgemm|scudnn",
    "float64": r"double|float64|(?<![a-z])f64|dgemm",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _TYPES.items()}
_MAX_NAME = 1_000


@dataclass(frozen=True)
class Difference:
    """A difference between runs; `matters`: times cannot be compared like for like for it, None if that is unknown."""

    what: str
    base: str
    new: str
    matters: bool | None = True


def differences(base: Side, new: Side, matched: Matched) -> list[Difference]:
    """List what differs, what matters first."""
    listed = (*_of_meta(base, new), *_shapes(matched), *_types(base, new))
    differences = {difference.what: difference for difference in listed}
    return sorted(differences.values(), key=lambda difference: [True, None, False].index(difference.matters))


def _of_meta(*both: Side) -> Iterator[Difference]:
    yield from _differing("devices", *(_devices(side) for side in both))
    yield from _differing("platform", *(_platform(side) for side in both))
    for name, label in (("software", "{}"), ("capture", "profiler's {}")):
        values = [side.meta_of(name) for side in both]
        for key in sorted(values[0].keys() | values[1].keys()):
            yield from _differing(label.format(key), *(_value(side.get(key)) for side in values))
    for name, label in (("world_size", "world size"), ("num_ranks", "ranks read"), ("window", "window")):
        yield from _differing(label, *(_value(side.meta(name)) for side in both))
    steps = [side.meta_of("steps").get("count") or 0 for side in both]
    yield from _differing("steps", *map(_value, steps), matters=not all(steps))
    yield from _options(*(side.meta_of("options") for side in both))
    yield from _differing("htareport", *(_value(side.meta("version")) for side in both), matters=False)


def _options(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield options of analyses that both runs tell: they change no time, but what it is divided into."""
    for analysis in sorted(base.keys() & new.keys()):
        values = base[analysis], new[analysis]
        if all(isinstance(value, Mapping) for value in values):
            for name in sorted(values[0].keys() & values[1].keys()):
                yield from _differing(f"{analysis}.{name}", *(_value(value[name]) for value in values), matters=False)


def _differing(what: str, base: str, new: str, *, matters: bool = True) -> Iterator[Difference]:
    """Yield a difference, if it is one. Where one of the runs does not tell, it is not known whether it matters."""
    if base != new:
        is_known = bool(base and new) or not matters
        yield Difference(what, base or "not told", new or "not told", matters if is_known else None)


def _devices(side: Side) -> str:
    """Return the kinds of devices, without their number, which follows from that of the ranks; "none" on the host."""
    if side.meta("devices") == {}:
        return "none"
    return shortened(", ".join(sorted(set(side.meta_of("devices")) - {_UNNAMED})), _MAX_VALUE)


def _platform(side: Side) -> str:
    """Return the maker of the devices, as far as the names of the software tell."""
    names = " ".join(side.meta_of("software"))
    return "NVIDIA" if "CUDA" in names else "AMD" if "HIP" in names else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else shortened(str(value), _MAX_VALUE)


def _shapes(matched: Matched) -> Iterator[Difference]:
    """Yield the operator that is on both sides, with other shapes on each; of several the one of most time."""
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
    suffix = f" and {len(common) - 1} more" if len(common) > 1 else ""
    what = f"input shapes of {name.rpartition(SEPARATOR)[2]}{suffix}"
    yield Difference(what, _shapes_text(row["shapes"]), _shapes_text(row["shapes_new"]))


def _shapes_text(shapes: list[str]) -> str:
    suffix = f" … {len(shapes) - _MAX_SHAPES} more" if len(shapes) > _MAX_SHAPES else ""
    return shortened("; ".join(shapes[:_MAX_SHAPES]), _MAX_VALUE) + suffix


def _types(base: Side, new: Side) -> Iterator[Difference]:
    """Yield the number types in names of kernels, if types that matter on one side are missing on the other."""
    shares = [_types_of(side.kernels) for side in (base, new)]
    common = [kind for kind in _TYPES if max(share[kind] for share in shares) > _MIN_SHARE]
    types = [[kind for kind in common if share[kind] > _MIN_PRESENT] for share in shares]
    if all(types):
        yield from _differing("number types in kernel names", *map(", ".join, types))


def _types_of(kernels: pd.DataFrame) -> Counter[str]:
    """Return the share of the compute kernels' time by number type; names that tell none have the type ""."""
    times = kernels[kernels["kind"] == "compute"].groupby("kernel")["time"].sum()
    total, shares = float(times.sum()), Counter[str]()
    for name, time in times.items() if total else ():
        shares[_type_of(str(name)[:_MAX_NAME])] += time / total
    return shares


@lru_cache(maxsize=1 << 14)
def _type_of(kernel: str) -> str:
    """Return the most telling number type in a kernel's name, empty if it holds none."""
    name = kernel.lower()
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(name)), "")
