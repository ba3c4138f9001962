"""What else differs between two runs than what they measured: whether they may be compared at all."""

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

_MOST_SHAPES = 4
_LONGEST = 200  # Characters of a value.
_SLIGHT, _NONE = 0.02, 0.005  # Of the kernels' time: a number type that takes less does not count, or is not there.
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
_LONGEST_KERNEL = 1_000


@dataclass(frozen=True)
class Difference:
    """One thing that differs; `matters` says that times cannot be compared like for like, None that nobody knows."""

    what: str
    base: str
    new: str
    matters: bool | None = True


def differences(base: Side, new: Side, matched: Matched) -> list[Difference]:
    """List what differs, what matters first."""
    differences = {each.what: each for each in (*_of_meta(base, new), *_shapes(matched), *_types(base, new))}
    return sorted(differences.values(), key=lambda each: [True, None, False].index(each.matters))


def _of_meta(*both: Side) -> Iterator[Difference]:
    yield from _differing("devices", *(_devices(side) for side in both))
    yield from _differing("platform", *(_platform(side) for side in both))
    for name, label in (("software", "{}"), ("capture", "profiler's {}")):
        values = [side.meta_of(name) for side in both]
        for each in sorted(values[0].keys() | values[1].keys()):
            yield from _differing(label.format(each), *(_value(side.get(each)) for side in values))
    for name, label in (("world_size", "world size"), ("num_ranks", "ranks read"), ("window", "window")):
        yield from _differing(label, *(_value(side.meta(name)) for side in both))
    steps = [side.meta_of("steps").get("count") or 0 for side in both]
    yield from _differing("steps", *map(_value, steps), matters=not all(steps))
    yield from _options(*(side.meta_of("options") for side in both))
    yield from _differing("htareport", *(_value(side.meta("version")) for side in both), matters=False)


def _options(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Options of analyses that both runs tell: they change no time, but what it is divided into."""
    for analysis in sorted(base.keys() & new.keys()):
        values = base[analysis], new[analysis]
        if all(isinstance(value, Mapping) for value in values):
            for name in sorted(values[0].keys() & values[1].keys()):
                yield from _differing(f"{analysis}.{name}", *(_value(value[name]) for value in values), matters=False)


def _differing(what: str, base: str, new: str, *, matters: bool = True) -> Iterator[Difference]:
    """A difference, if it is one. Of what one of the runs does not tell nobody knows whether it matters."""
    if base != new:
        told = bool(base and new)
        yield Difference(what, base or "not told", new or "not told", matters if told or not matters else None)


def _devices(side: Side) -> str:
    """Kinds of devices; their number follows from that of the ranks. Runs on the host tell that there are none."""
    if side.meta("devices") == {}:
        return "none"
    return shortened(", ".join(sorted(set(side.meta_of("devices")) - {_UNNAMED})), _LONGEST)


def _platform(side: Side) -> str:
    """Whose devices they are, as far as the names of the software tell."""
    names = " ".join(side.meta_of("software"))
    return "NVIDIA" if "CUDA" in names else "AMD" if "HIP" in names else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else shortened(str(value), _LONGEST)


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
    return shortened("; ".join(shapes[:_MOST_SHAPES]), _LONGEST) + more


def _types(base: Side, new: Side) -> Iterator[Difference]:
    """Number types, as far as names of kernels tell them: those that matter on one side, and hardly on the other."""
    shares = [_types_of(side.kernels) for side in (base, new)]
    wanted = [kind for kind in _TYPES if max(share[kind] for share in shares) > _SLIGHT]
    found = [[kind for kind in wanted if share[kind] > _NONE] for share in shares]
    if all(found):
        yield from _differing("number types in kernel names", *(", ".join(each) for each in found))


def _types_of(kernels: pd.DataFrame) -> Counter[str]:
    """Share of the compute kernels' time by number type; empty for names that tell none."""
    times = kernels[kernels["kind"] == "compute"].groupby("kernel")["time"].sum()
    whole, taken = float(times.sum()), Counter[str]()
    for name, time in times.items() if whole else ():
        taken[_type_of(str(name)[:_LONGEST_KERNEL])] += time / whole
    return taken


@lru_cache(maxsize=1 << 14)
def _type_of(kernel: str) -> str:
    """The most telling type that a kernel's name holds, empty if it holds none."""
    name = kernel.lower()
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(name)), "")
