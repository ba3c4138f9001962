"""Chains of elementwise kernels, in which each kernel reads what the previous one has written."""

from __future__ import annotations

import re
from collections import defaultdict
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
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence

_ELEMENTWISE = re.compile(r"elementwise_kernel")
_OPTIMIZER = re.compile(r"^Optimizer\.|optimizer.*step", re.IGNORECASE)
_MIN_KERNELS = 3  # Of a chain.
_FUSED_BANDWIDTH = 0.8  # Of the device's, that a fused kernel reaches.


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
    """Several elementwise kernels in a row run on tensors of one size, although one fused kernel could do it.

    ## When it speaks
    At least three elementwise kernels follow each other on a stream. The largest inputs of their operators have equally
    many elements, and the kernels take `shortest` µs or more on average. All such chains take at least `least` of the
    step. Chains of an optimizer do not count: `fused=True` is the remedy there.

    ## What it could save
    The time above that of one fused kernel, which reads the chain's inputs and writes its last output at 80 % of the
    memory bandwidth. The lower estimate is half of it, because in training the backward pass may need the results in
    between. Only what shortens the step counts: time that no other work covers, as far as the CPU launches early
    enough.

    ## What to do
    Fuse the kernels with `torch.compile`: compile the model, or only the function that holds the chain.

    ## How to verify
    `triton_…` kernels replace these kernels, and take less time.
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
        number, num_kernels = np.unique(events["chain"].to_numpy(), return_inverse=True, return_counts=True)[1:]
        times = kernel_launches.summed(number, events["dur"].to_numpy(), len(num_kernels))
        fused_ns = np.bincount(number, events["fused_ns"].to_numpy())
        is_chain = (num_kernels >= _MIN_KERNELS) & (times >= 1000 * self.shortest * num_kernels) & (fused_ns > 0)
        time = int(times[is_chain].sum())
        if not time or time < self.least * rank.whole:
            return None
        saved_share = np.maximum(1 - fused_ns / np.maximum(times, 1), 0)[number]
        events, saved_share = events[is_chain[number]], saved_share[is_chain[number]]
        saving = np.zeros(len(rank.device_events))
        saving[events["event"].to_numpy()] = events["dur"].to_numpy() * saved_share
        claim = shortened(rank, saving)
        if rank.share(claim) < WORTH:
            return None
        return ChainEvidence(
            claim=claim,
            spans=rank.spans(claim),
            time_ns=time / rank.num_steps,
            count=int(is_chain.sum()) / rank.num_steps,
            main=_main_chain(rank, events),
            requested_ns=asked(rank, saving),
            edit=edit_of_fusion(rank, saving, saving > 0),
        )

    def tell(self, job: JobEvidence[ChainEvidence]) -> Finding | None:
        worst = job.worst
        chain = " → ".join(f"`{name}`" for name in worst.main.operators)
        return self.finding(
            job,
            f"Elementwise kernels that are not fused cost up to {job.max_saving} {job.per_step}",
            evidence=f"{counted(worst.count, 'chain takes', 'chains take')} {job.time(worst.time_ns)} {job.per_step}. "
            f"Most time goes to {chain} on {worst.main.shapes}: {job.time(worst.main.time_ns)} in "
            f"{counted(worst.main.calls, 'chain')}.",
            assumption="One kernel reads the chain's inputs and writes its last output at 80 % of the bandwidth.",
            snippet="activation = torch.compile(activation)",
        )


def _elementwise(rank: Rank) -> pd.DataFrame:
    """Elementwise kernels of the steps: event, row (of the operator), dur, chain (its number), and fused_ns.

    The last is what the kernel adds to the time of a fused one; 0 where the device's bandwidth is not known.
    """
    events, rows = rank.device_events, operators(rank)
    is_elementwise = events_of(rank).named(_ELEMENTWISE) & in_steps(rank) & (rows != NONE)
    is_elementwise[is_elementwise] &= ~_within_optimizer(rank)[rows[is_elementwise]]
    inputs = np.zeros((len(events), 3), np.int64)
    inputs[is_elementwise] = inputs_of(rank, rows[is_elementwise])
    is_elementwise &= inputs[:, 0] > 0
    lane, capture = (events[column].to_numpy() for column in ("lane", "capture"))
    order = np.lexsort((np.arange(len(events)), lane, capture))
    # A kernel continues the chain of its predecessor on the stream, unless size or stream change, or one is none.
    continues = is_elementwise[order][1:] & is_elementwise[order][:-1]
    for column in (lane, capture, inputs[:, 0]):
        continues &= np.diff(column[order]) == 0
    continues &= np.diff(rows[order]) != 0  # Kernels of one operator do not read each other's results.
    is_first = np.append(True, ~continues)[: len(order)]
    event_rows = order[is_elementwise[order]]
    table = pd.DataFrame(
        {
            "event": event_rows,
            "row": rows[event_rows],
            "dur": events["dur"].to_numpy()[event_rows],
            "chain": np.cumsum(is_first)[is_elementwise[order]],
        }
    )
    return table.assign(fused_ns=_fused_ns(rank, table, inputs[event_rows]))


def _fused_ns(rank: Rank, table: pd.DataFrame, inputs: NDArray[np.int64]) -> NDArray[np.float64]:
    """What each kernel adds to the time of a fused one, ns; 0 where the device's bandwidth is not known."""
    # A fused kernel reads the inputs, but not what the previous kernel of the chain wrote; it writes the last output.
    limits = limits_of(rank, rank.devices)
    by_device = {device: limit.bandwidth if limit else 0.0 for device, limit in limits.items()}
    devices = rank.device_events["device"].to_numpy()[table["event"].to_numpy()]
    bandwidth = np.array([by_device[device] for device in devices], np.float64)
    result_bytes, input_bytes = inputs[:, 0] * inputs[:, 1], inputs[:, 2]
    is_first, is_last = (~table["chain"].duplicated(keep=end).to_numpy() for end in ("first", "last"))
    read_bytes = np.where(is_first, input_bytes, np.maximum(input_bytes - result_bytes, 0))
    moved_bytes = read_bytes + np.where(is_last, result_bytes, 0)
    return np.divide(moved_bytes * 1e9, _FUSED_BANDWIDTH * bandwidth, out=np.zeros(len(table)), where=bandwidth > 0)


def _within_optimizer(rank: Rank) -> NDArray[np.bool_]:
    """Which rows of the host table lie within a step of an optimizer."""
    codes, strings = rank.host["name"], rank.loaded.strings
    is_optimizer = np.zeros(len(strings), np.bool_)
    is_optimizer[[code for code in unique_sorted(codes).tolist() if _OPTIMIZER.search(strings[code][:200])]] = True
    return np.asarray(innermost(rank.host, is_optimizer[codes]) != NONE, np.bool_)


def _main_chain(rank: Rank, events: pd.DataFrame) -> MainChain:
    """The kind of chain (operators and shapes) that takes the most time."""
    rows = events["row"].to_numpy()
    names, shapes = kernel_launches.names_of(rank, rows), kernel_launches.codes_of(rank, rows, "shapes")
    kinds = defaultdict[int, list[tuple[int, int]]](list)
    for chain, name, shape in zip(events["chain"].tolist(), names.tolist(), shapes.tolist(), strict=True):
        kinds[chain].append((name, shape))
    times, times_by_kind = (
        events.groupby("chain")["dur"].sum(),
        defaultdict[tuple[tuple[int, int], ...], list[int]](list),
    )
    for chain, kind in kinds.items():
        times_by_kind[tuple(kind)].append(int(times[chain]))
    main_kind, main_times = max(times_by_kind.items(), key=lambda item: sum(item[1]))
    return MainChain(
        operators=kernel_launches.texts(rank, [name for name, _ in main_kind]),
        shapes=kernel_launches.shape_text(rank.loaded.strings[main_kind[0][1]]),
        calls=len(main_times) / rank.num_steps,
        time_ns=sum(main_times) / rank.num_steps,
    )
