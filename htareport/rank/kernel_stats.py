"""Statistics of kernels by name that add up over ranks: shared by the analyses of kernels."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms import histograms
from htareport.rank.budget import at_most
from htareport.rank.rank import Rank
from htareport.report import Better, Column, Unit

_NS = Unit.NANOSECONDS
KIND_LABELS = {"compute": "compute", "comm": "communication", "memory": "memory"}
_BINS = 200_000  # Of histograms that are added up at a time.
MOST_NAMES = 1_000  # Kernel names a rank sends on its own; the rest goes together.
REST = "\U0010ffff all others \U0010ffff"  # Their name until it becomes words; no compiler makes one of noncharacters.

NAME_HELP = "Name in the trace; equal names are one kernel."
KIND_HELP = (
    "Copies and fills are memory; kernels with arguments or names of collectives (NCCL, RCCL and the like) are "
    "communication; the rest is compute."
)
STATISTICS = (
    Column("count", "Calls", Unit.COUNT, "Device events (kernels, copies, fills) of this name."),
    Column("sum", "Total", _NS, "Sum of the durations; calls that overlap count each.", better=Better.LOWER),
    Column("mean", "Mean", _NS, "Mean duration of a call.", better=Better.LOWER),
    Column("min", "Min", _NS, "Shortest call."),
    Column("p50", "p50", _NS, "Median duration of a call."),
    Column("p95", "p95", _NS, "95th percentile of the duration of a call."),
    Column("max", "Max", _NS, "Longest call."),
    Column("std", "Std", _NS, "Sample standard deviation of the durations; 0 for one call."),
)


def by_name(trace: Rank) -> pd.DataFrame:
    """Exact statistics per kernel name and kind of one rank: name, kind, then STATISTICS and m2, largest sum first."""
    events = trace.device_events
    frame = pd.DataFrame({"name": events["name"], "kind": events["kind"].astype(str), "dur": events["dur"]})
    groups = frame.groupby(["name", "kind"], observed=True)["dur"]
    table = groups.agg(["count", "sum", "mean", "min", "max"])
    deviation = frame["dur"] - groups.transform("mean")
    table["m2"] = (deviation**2).groupby([frame["name"], frame["kind"]], observed=True).sum()
    table["p50"], table["p95"] = groups.quantile(0.5), groups.quantile(0.95)
    table["std"] = _std(table)
    table = table.reset_index().astype({"name": object})
    return table.sort_values(["sum", "name"], ascending=[False, True], ignore_index=True)


def histogram(trace: Rank, named: pd.DataFrame) -> pd.DataFrame:
    """Log histograms of durations by name and kind: name, kind, bin, count, and the extremes of the bin, min and max.

    Names outside `named` go together.
    """
    events = trace.device_events
    names, kinds = events["name"].array, events["kind"].array
    rest, known = len(names.categories), set(named["name"])
    shown = np.array([code if name in known else rest for code, name in enumerate(names.categories)], np.int64)
    durations = events["dur"].to_numpy()
    columns = {"name": shown[names.codes], "kind": kinds.codes, "bin": histograms.bins_of(durations), "dur": durations}
    histogram = pd.DataFrame(columns).groupby(["name", "kind", "bin"])["dur"].agg(["count", "min", "max"]).reset_index()
    histogram["name"] = pd.Series(
        [REST if code == rest else names.categories[code] for code in histogram["name"]], dtype=object
    )
    histogram["kind"] = kinds.categories.to_numpy(object)[histogram["kind"]]
    return histogram.sort_values(["name", "kind", "bin"], ignore_index=True)


def label(words: str, names: pd.Series) -> str:
    """Return words for the rest that are no kernel's name."""
    taken = set(names)
    while words in taken:
        words = f"({words})"
    return words


def lumped(table: pd.DataFrame) -> pd.DataFrame:
    """The names of largest sum, and one row REST per kind for what is left."""
    most = at_most(MOST_NAMES, len(table))
    if len(table) <= most:
        return table
    rest = merged(table.iloc[most:].assign(name=REST), ["name", "kind"])
    return pd.concat([table.iloc[:most], rest], ignore_index=True)


def merged(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Pool rows of statistics by some keys; percentiles are left out, since they do not add up."""
    groups = table.groupby(keys, sort=False)
    out = groups.agg(
        count=("count", "sum"), sum=("sum", "sum"), min=("min", "min"), max=("max", "max"), m2=("m2", "sum")
    )
    out["mean"] = out["sum"] / out["count"]
    centre = groups["sum"].transform("sum") / groups["count"].transform("sum")
    between = table["count"] * (table["mean"] - centre) ** 2
    out["m2"] += between.groupby([table[key] for key in keys], sort=False).sum()
    out["std"] = _std(out)
    return out.reset_index()


def _std(table: pd.DataFrame) -> NDArray[np.float64]:
    count = table["count"].to_numpy()
    return np.where(count > 1, np.sqrt(table["m2"].to_numpy() / np.maximum(count - 1, 1)), 0.0)


def with_quantiles(table: pd.DataFrame, histogram: pd.DataFrame, shares: dict[str, float]) -> pd.DataFrame:
    """Add quantiles from merged histograms to rows keyed by name and kind (error up to 1 %; see `quantiles`)."""
    pooled = pooled_bins(histogram)
    wanted = np.array(list(shares.values()))
    rows = {}
    for key, group in pooled.groupby(["name", "kind"]):
        bins, counts, low, high = (group[name].to_numpy() for name in ("bin", "count", "min", "max"))
        rows[key] = histograms.quantiles(bins, counts, wanted, (low, high))
    nothing = np.full(len(wanted), np.nan)
    quantiles = np.array([rows.get(key, nothing) for key in zip(table["name"], table["kind"], strict=True)]).reshape(
        -1, len(wanted)
    )
    quantiles = np.clip(quantiles, table[["min"]].to_numpy(), table[["max"]].to_numpy())
    return table.assign(**dict(zip(shares, quantiles.T, strict=True)))


def pooled_bins(histogram: pd.DataFrame) -> pd.DataFrame:
    """Add up histograms of all ranks, some rows at a time, since grouping takes several times their memory."""
    pieces = (histogram.iloc[at : at + _BINS] for at in range(0, max(len(histogram), 1), _BINS))
    return _added_up(pd.concat(map(_added_up, pieces), ignore_index=True))


def _added_up(histogram: pd.DataFrame) -> pd.DataFrame:
    groups = histogram.groupby(["name", "kind", "bin"])
    return groups.agg({"count": "sum", "min": "min", "max": "max"}).reset_index()


def top_names(table: pd.DataFrame, most: int, ratio: float) -> pd.Series:
    """Which rows are at the top of their kind: the largest until they cover a share of it, or are so many.

    `table` must be in descending order of sum.
    """
    groups = table.groupby("kind")["sum"]
    before = groups.cumsum() - table["sum"]
    position = groups.cumcount()
    short = before < ratio * groups.transform("sum") if ratio < 1 else True  # All of it takes those of no time too.
    return (table["name"] != REST) & (position < most) & short
