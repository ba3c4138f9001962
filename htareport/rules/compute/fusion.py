"""Chains of elementwise kernels, each of which reads what the one before has written."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.rank import kernel_launches
from htareport.rank.capability import Capability
from htareport.rank.compute_time import WORTH, asked, in_steps, operators, shortened, unknown_limits
from htareport.rank.host_calls import innermost
from htareport.rank.kernel_types import events_of
from htareport.rank.operator_inputs import inputs_of
from htareport.rank.operator_work import NONE, limits_of
from htareport.rank.rank import Rank
from htareport.rank.replay.host_edits import edit_of_fusion
from htareport.report.findings import Finding
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence

_ELEMENTWISE = re.compile(r"elementwise_kernel")
_OPTIMIZER = re.compile(r"^Optimizer\.|optimizer.*step", re.IGNORECASE)
_LEAST = 3  # Kernels of a chain.
_MOVED = 0.8  # Of the bandwidth, by a fused kernel.


@dataclass(frozen=True)
class MainChain:
    """The kind of chain that takes the most time, per step."""

    operators: list[str]
    shapes: str
    calls: float
    time_ns: float


@dataclass(frozen=True, kw_only=True)
class ChainEvidence(WorkEvidence):
    """Chains of elementwise kernels, per step."""

    time_ns: float
    count: float
    main: MainChain


@dataclass(frozen=True)
class ElementwiseChains(Rule[ChainEvidence]):
    """Elementwise kernels follow each other on tensors of one size, each reading what the one before has written.

    ## When it speaks
    At least three elementwise kernels in a row on a stream, of operators whose largest inputs have equally many
    elements, each of `shortest` µs or more in the mean; all such chains take at least `least` of the step. Those of an
    optimizer have another remedy (`fused=True`) and don't count.

    ## What it could save
    Of each chain's own time, what one kernel would not need that reads the chain's inputs and writes its last output at
    80 % of the memory bandwidth. Half of it is the lower estimate: in training, what lies between may be needed later.
    Of that, what no other work covers and the host's launches allow.

    ## What to do
    `torch.compile` fuses them: the model, or just the function that holds the chain.

    ## How to verify
    Their kernels are gone, and `triton_…` ones take less.
    """

    code, title, family, section = "C7", "Chains of elementwise kernels", Family.COMPUTE, "kernel_sequences"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})

    least: float = 0.01
    shortest: float = 5.0

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def look(self, rank: Rank) -> ChainEvidence | None:
        events = _elementwise(rank)
        if not len(events):
            return None
        number, size = np.unique(events["chain"].to_numpy(), return_inverse=True, return_counts=True)[1:]
        times = kernel_launches.summed(number, events["dur"].to_numpy(), len(size))
        least = np.bincount(number, events["least"].to_numpy())
        chains = (size >= _LEAST) & (times >= 1000 * self.shortest * size) & (least > 0)
        time = int(times[chains].sum())
        if not time or time < self.least * rank.whole:
            return None
        share = np.maximum(1 - least / np.maximum(times, 1), 0)[number]
        events, share = events[chains[number]], share[chains[number]]
        saving = np.zeros(len(rank.device_events))
        saving[events["event"].to_numpy()] = events["dur"].to_numpy() * share
        claim = shortened(rank, saving)
        if rank.share(claim) < WORTH:
            return None
        return ChainEvidence(
            claim=claim,
            spans=rank.spans(claim),
            time_ns=time / rank.num_steps,
            count=int(chains.sum()) / rank.num_steps,
            main=_main_chain(rank, events),
            requested_ns=asked(rank, saving),
            edit=edit_of_fusion(rank, saving, saving > 0),
        )

    def tell(self, job: JobEvidence[ChainEvidence]) -> Finding | None:
        worst = job.worst
        chain = " → ".join(f"`{name}`" for name in worst.main.operators)
        return self.finding(
            job,
            f"Chains of elementwise kernels: fused, they take up to {job.max_saving} less {job.per_step}",
            evidence=f"{worst.count:,.4g} chains take {job.time(worst.time_ns)} {job.per_step}; most of it "
            f"({worst.main.calls:,.4g} of them, {job.time(worst.main.time_ns)}) {chain} on {worst.main.shapes}.",
            assumption="One kernel reads the chain's inputs and writes its last output at 80 % of the bandwidth.",
            snippet="activation = torch.compile(activation)",
        )


def _elementwise(rank: Rank) -> pd.DataFrame:
    """Elementwise kernels of the steps: event, row (of the operator), dur, chain, and least.

    That is what the kernel adds to a fused one, ns; 0 where the device's bandwidth is not known.
    """
    trace = rank
    events, rows = trace.device_events, operators(rank)
    order = np.lexsort((np.arange(len(events)), events["lane"].to_numpy(), events["capture"].to_numpy()))
    wanted = events_of(rank).named(_ELEMENTWISE) & in_steps(rank) & (rows != NONE)
    wanted[wanted] &= ~_within_optimizer(rank)[rows[wanted]]
    inputs = np.zeros((len(events), 3), np.int64)
    inputs[wanted] = inputs_of(rank, rows[wanted])
    wanted &= inputs[:, 0] > 0
    lane, capture = events["lane"].to_numpy()[order], events["capture"].to_numpy()[order]
    mine, row, count = wanted[order], rows[order], inputs[order, 0]
    broken = np.ones(len(order), np.bool_)
    same = (np.diff(lane) == 0) & (np.diff(capture) == 0) & (np.diff(count) == 0) & (np.diff(row) != 0)
    broken[1:] = ~(same & mine[1:] & mine[:-1])
    chosen = order[mine]
    table = pd.DataFrame(
        {
            "event": chosen,
            "row": rows[chosen],
            "dur": events["dur"].to_numpy()[chosen],
            "chain": np.cumsum(broken)[mine],
        }
    )
    return table.assign(least=_least(rank, table, inputs[chosen]))


def _least(rank: Rank, table: pd.DataFrame, inputs: NDArray[np.int64]) -> NDArray[np.float64]:
    """What each kernel adds to a fused one, ns: what it reads but for what the one before wrote; the last output."""
    limits = limits_of(rank, rank.devices)
    rate = {device: limit.bandwidth if limit else 0.0 for device, limit in limits.items()}
    devices = rank.device_events["device"].to_numpy()[table["event"].to_numpy()]
    bandwidth = np.array([rate[device] for device in devices], np.float64)
    size, moved = inputs[:, 0] * inputs[:, 1], inputs[:, 2]
    first, last = (~table["chain"].duplicated(keep=keep).to_numpy() for keep in ("first", "last"))
    kept = np.where(first, moved, np.maximum(moved - size, 0)) + np.where(last, size, 0)
    return np.divide(kept * 1e9, _MOVED * bandwidth, out=np.zeros(len(table)), where=bandwidth > 0)


def _within_optimizer(rank: Rank) -> NDArray[np.bool_]:
    """Which rows of the host table lie within a step of an optimizer."""
    host = rank.host
    codes = host["name"]
    named = np.zeros(len(rank.loaded.strings), np.bool_)
    used = unique_sorted(codes).tolist()
    named[[code for code in used if _OPTIMIZER.search(rank.loaded.strings[code][:200])]] = True
    within_optimizer: NDArray[np.bool_] = innermost(host, named[codes]) != NONE
    return within_optimizer


def _main_chain(rank: Rank, events: pd.DataFrame) -> MainChain:
    """The kind of chain (operators and shapes) that takes the most time."""
    trace = rank
    rows = events["row"].to_numpy()
    names, shapes = (
        kernel_launches.names_of(trace, rows).tolist(),
        kernel_launches.codes_of(trace, rows, "shapes").tolist(),
    )
    kinds = dict[int, list[tuple[int, int]]]()
    for chain, name, shape in zip(events["chain"].tolist(), names, shapes, strict=True):
        kinds.setdefault(chain, []).append((name, shape))
    times, sums = events.groupby("chain")["dur"].sum(), dict[tuple[tuple[int, int], ...], list[int]]()
    for chain, kind in kinds.items():
        sums.setdefault(tuple(kind), []).append(int(times[chain]))
    most = max(sums, key=lambda kind: sum(sums[kind]))
    shape = trace.loaded.strings[most[0][1]]
    return MainChain(
        operators=kernel_launches.texts(trace, [name for name, _ in most]),
        shapes=kernel_launches.shape_text(shape),
        calls=len(sums[most]) / rank.num_steps,
        time_ns=sum(sums[most]) / rank.num_steps,
    )
