"""Normalisations, rotary embeddings and activations that are written out in plain operators."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htareport.algorithms.distinct import unique_sorted
from htareport.rank import kernel_launches
from htareport.rank.capability import Capability
from htareport.rank.compute_time import WORTH, asked, in_steps, operators, shortened, unknown_limits
from htareport.rank.operator_inputs import inputs_of
from htareport.rank.operator_work import NONE, limits_of
from htareport.rank.rank import Rank
from htareport.report.findings import Finding
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence
from htareport.rules.engine.wording import held_up

_LETTERS = {
    "pow": "p", "mean": "m", "add": "a", "add_": "a", "rsqrt": "r", "mul": "x", "mul_": "x", "sub": "s", "sqrt": "q",
    "div": "d", "neg": "n", "cat": "k", "silu": "u", "tanh": "t", "copy_": "c",
}  # fmt: skip
_OTHER = "."
_MOVED = 0.8  # Of the bandwidth, by a fused kernel.
_SHOWN = 3


class _Pattern(NamedTuple):
    """What operators in a row make, as letters; how many tensors of full size a fused kernel moves; and the remedy."""

    name: str
    written: re.Pattern[str]
    tensors: int
    remedy: str
    snippet: str


_PATTERNS = (  # What may hold another one stands before it.
    _Pattern("LayerNorm", re.compile(r"c?ms[px]ma?(?:rx|qd)(?:c?xa)?"), 2, "`torch.nn.LayerNorm`",
             "norm = torch.nn.LayerNorm(size)"),
    _Pattern("RMSNorm", re.compile(r"c?pma?rxc?x"), 2, "`torch.nn.RMSNorm` (`F.rms_norm`)",
             "norm = torch.nn.RMSNorm(size, eps=1e-6)"),
    _Pattern("rotary embedding", re.compile(r"xnkxa"), 2, "a fused rotary embedding (Liger, Transformer Engine, apex)",
             "rotate = torch.compile(apply_rotary_pos_emb)"),
    _Pattern("GELU by tanh", re.compile(r"xpxaxtax"), 2, '`F.gelu(x, approximate="tanh")`',
             'x = torch.nn.functional.gelu(x, approximate="tanh")'),
    _Pattern("SiLU and product", re.compile(r"ux"), 3, "a fused SwiGLU (Liger, Transformer Engine, xFormers)",
             "activation = torch.compile(lambda gate, up: torch.nn.functional.silu(gate) * up)"),
)  # fmt: skip


class _Instance(NamedTuple):
    """One occurrence: its pattern, device events, their time and what a fused kernel takes, ns."""

    pattern: int
    events: NDArray[np.int64]
    time: int
    least: float


@dataclass(frozen=True, kw_only=True)
class DecomposedEvidence(WorkEvidence):
    """What was seen on one rank: norms and activations operator by operator."""

    kinds: list[tuple[int, float, float]]


@dataclass(frozen=True)
class Decomposed(Rule[DecomposedEvidence]):
    """Normalisations, rotary embeddings and activations run operator by operator.

    ## When it speaks
    Operators in a row on a thread are those of an RMSNorm (pow, mean, add, rsqrt, mul, mul), a LayerNorm (mean, sub,
    pow, mean, add, rsqrt, mul), a rotary embedding (mul, neg, cat, mul, add), a GELU by tanh, or of SiLU and a product;
    the first and the last have equally many elements, and their kernels take `shortest` µs or more on average. Together
    they take at least `least` of the step. Backward passes are not looked for.

    ## What it could save
    What they take above what one kernel takes that reads the input and writes the output at 80 % of the memory
    bandwidth, each occurrence by itself. Of that, what no other work covers and the host's launches allow.

    ## What to do
    Use {remedies|`torch.nn.LayerNorm`, `torch.nn.RMSNorm`, a fused rotary embedding or activation}; or `torch.compile`
    the modules.

    ## How to verify
    Their kernels are gone, and one with a name of its own takes less.
    """

    code, title, family, section = (
        "C8",
        "Norms and activations operator by operator",
        Family.COMPUTE,
        "operator_kernels",
    )
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})

    least: float = 0.01
    shortest: float = 5.0

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def look(self, rank: Rank) -> DecomposedEvidence | None:
        found = [
            instance for instance in _instances(rank) if instance.time >= 1000 * self.shortest * len(instance.events)
        ]
        if sum(each.time for each in found) < max(self.least * rank.whole, 1):
            return None
        saving, durations = np.zeros(len(rank.device_events)), rank.device_events["dur"].to_numpy()
        for each in found:
            saving[each.events] = durations[each.events] * max(1 - each.least / each.time, 0.0)
        claim = shortened(rank, saving)
        if rank.share(claim) < WORTH:
            return None
        kinds = {each.pattern: [one for one in found if one.pattern == each.pattern] for each in found}
        told = [
            (pattern, len(mine) / rank.num_steps, sum(each.time for each in mine) / rank.num_steps)
            for pattern, mine in kinds.items()
        ]
        told.sort(key=lambda each: -each[2])
        return DecomposedEvidence(
            claim=claim, spans=rank.spans(claim), kinds=told[:_SHOWN], requested_ns=asked(rank, saving)
        )

    def tell(self, job: JobEvidence[DecomposedEvidence]) -> Finding | None:
        kinds = [(_PATTERNS[place], count, time) for place, count, time in job.worst.kinds]
        told = "; ".join(
            f"{pattern.name} {job.time(time)} in {counted(count, 'call')}" for pattern, count, time in kinds
        )
        names = ", ".join(pattern.name for pattern, _, _ in kinds)
        return self.finding(
            job,
            f"{names} operator by operator: fused, up to {job.max_saving} less {job.per_step}",
            evidence=f"{told} {job.per_step}, each in several kernels that read and write whole tensors.",
            values={"remedies": "; ".join(pattern.remedy for pattern, _, _ in kinds)},
            assumption="One kernel reads the input and writes the output at 80 % of the memory bandwidth."
            + held_up(job),
            snippet=kinds[0][0].snippet,
        )


def _instances(rank: Rank) -> list[_Instance]:
    """All occurrences of the patterns within the steps; an operator is part of one only."""
    trace, host, each = rank, rank.host, operators(rank)
    there = np.flatnonzero((each != NONE) & in_steps(rank))
    rows, inverse = np.unique(each[there], return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    first = np.searchsorted(inverse[order], np.arange(len(rows) + 1))
    text = _text(rank, rows)
    if not any(pattern.written.search(text) for pattern in _PATTERNS):
        return []
    inputs = inputs_of(rank, rows)
    thread = host.at("thread", rows) * len(trace.captures) + host.at("capture", rows)
    durations, devices = trace.device_events["dur"].to_numpy(), trace.device_events["device"].to_numpy()
    limits, instances, taken = limits_of(trace, trace.devices), list[_Instance](), np.zeros(len(rows), np.bool_)
    for place, pattern in enumerate(_PATTERNS):
        for match in pattern.written.finditer(text):
            start, last = match.start(), match.end() - 1
            elements, size = inputs[start][:2].tolist()
            if not elements or elements != inputs[last][0] or thread[start] != thread[last]:
                continue
            if taken[start : last + 1].any():
                continue
            taken[start : last + 1] = True
            events = there[order[first[start] : first[last + 1]]]
            limit = limits[devices[events[0]]]
            if limit is None:
                continue
            least = pattern.tensors * elements * size * 1e9 / (_MOVED * limit.bandwidth)
            instances.append(_Instance(place, events, int(durations[events].sum()), least))
    return instances


def _text(rank: Rank, rows: NDArray[np.int64]) -> str:
    """Operators as letters."""
    codes, strings = kernel_launches.names_of(rank, rows), rank.loaded.strings
    used = unique_sorted(codes).tolist()
    letters = {code: _LETTERS.get(strings[code].removeprefix("aten::"), _OTHER) for code in used}
    return "".join(map(letters.__getitem__, codes.tolist()))
