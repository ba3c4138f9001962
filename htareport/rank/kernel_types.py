"""Compute kernels with the types of what they compute, and what they would take in others: for rules about types."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.algorithms.work import Kind
from htareport.rank.cached import cached_until_release
from htareport.rank.compute_time import in_steps, work
from htareport.rank.device_peaks import Precision
from htareport.rank.operator_groups import short
from htareport.rank.operator_work import NONE, limits_of
from htareport.rank.rank import Rank

_REACHED = 0.6  # Of the peak, by what is computed in another type.
_MOVED = 0.8  # Of the bandwidth.
_SHOWN = 3


class Events:
    """Compute kernels of the steps: which name and which call of an operator with known arithmetic each has."""

    def __init__(self, rank: Rank) -> None:
        self.rank, self.found, events = rank, work(rank), rank.device_events
        self.codes = events["name"].cat.codes.to_numpy()
        self._names = [(code, rank.loaded.strings[code]) for code in unique_sorted(self.codes).tolist()]
        self.durations, self.devices = events["dur"].to_numpy(), events["device"].to_numpy()
        self.owner = self.found.owner
        self.wanted = in_steps(rank) & (events["kind"] == "compute").to_numpy()
        self.limits = limits_of(rank, rank.devices)
        works = [signature.work for signature in self.found.signatures]
        self._of_call = self.found.calls["signature"].to_numpy()
        self._dtype = np.array([each.dtype if each else "" for each in works] or [""], object)
        self._is_product = np.array([bool(each and each.kind is Kind.PRODUCT) for each in works] or [False])
        self._groups = np.array([each.groups if each else 1 for each in works] or [1])

    def named(self, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
        """Which have a name that matches."""
        matches = np.zeros(len(self.rank.loaded.strings), np.bool_)
        matches[[code for code, name in self._names if pattern.search(name)]] = True
        named: NDArray[np.bool_] = matches[self.codes]
        return named

    def on(self, wanted: Any) -> NDArray[np.bool_]:
        """Which run on devices whose limits are of that kind."""
        chosen = [device for device, limit in self.limits.items() if limit and wanted(limit)]
        return np.isin(self.devices, chosen)

    def of_calls(self, values: NDArray[Any], other: Any) -> NDArray[Any]:
        """A value of the signature of each one's call, `other` where there is none."""
        number = np.append(self._of_call, 0)[self.owner]  # The last is for those of no call.
        of_calls: NDArray[Any] = np.where(self.owner == NONE, other, values[number])
        return of_calls

    @property
    def dtype(self) -> NDArray[Any]:
        """Type of the inputs, empty where it is not known."""
        return self.of_calls(self._dtype, "")

    @property
    def is_product(self) -> NDArray[Any]:
        """Whether a matrix product is computed, as far as the operator tells."""
        return self.of_calls(self._is_product, False)  # noqa: FBT003  the value of the others

    @property
    def is_grouped(self) -> NDArray[Any]:
        """Whether a convolution has groups, which leave little to multiply."""
        return self.of_calls(self._groups, 1) > 1

    def left(self, precision: Precision, moved: float) -> NDArray[np.float64]:
        """Share of its time that each still takes in another type, at `moved` times the bytes; nan if not known."""
        calls, flops = self.found.calls, self.found.works("flops")
        peaks = {
            device: limit.peaks.get(precision, np.nan) if limit else np.nan for device, limit in self.limits.items()
        }
        peak = np.array([peaks.get(device, np.nan) for device in calls["device"]])
        least = np.maximum(flops / (_REACHED * peak) * 1e9, calls["by_memory"].to_numpy() * moved / _MOVED)
        each = np.append(least / np.maximum(calls["time"].to_numpy(), 1), np.nan)
        left: NDArray[np.float64] = np.minimum(each[self.owner], 1.0)
        return left

    def kernels(self, mine: NDArray[np.bool_]) -> list[tuple[str, float, float]]:
        """The names of most time, with calls and time per step."""
        counts = np.bincount(self.codes[mine])
        times = np.bincount(self.codes[mine], self.durations[mine])
        sums = dict[str, tuple[float, float]]()
        for code in np.flatnonzero(counts).tolist():
            name = short(self.rank.loaded.strings[code])
            count, time = sums.get(name, (0.0, 0.0))
            sums[name] = count + counts[code] / self.rank.num_steps, time + times[code] / self.rank.num_steps
        most = sorted(sums, key=lambda name: (-sums[name][1], name))[:_SHOWN]
        return [(name, *sums[name]) for name in most if round(sums[name][1])]


@cached_until_release
def events_of(rank: Rank) -> Events:
    """The compute kernels of a rank."""
    return Events(rank)
