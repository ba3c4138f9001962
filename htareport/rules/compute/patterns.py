"""Normalisations, rotary embeddings and activations that run as several operators instead of one fused kernel."""

from __future__ import annotations

import re
from collections import defaultdict
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
from htareport.rank.replay.host_edits import edit_of_fusion
from htareport.report.findings import Finding
from htareport.report.units import counted
from htareport.rules.engine.base import Family, Rule
from htareport.rules.engine.evidence import JobEvidence, WorkEvidence
from htareport.rules.engine.recording import joined_words

_LETTERS = {
    "pow": "p", "mean": "m", "add": "a", "add_": "a", "rsqrt": "r", "mul": "x", "mul_": "x", "sub": "s", "sqrt": "q",
    "div": "d", "neg": "n", "cat": "k", "silu": "u", "tanh": "t", "copy_": "c",
}  # fmt: skip
_OTHER_LETTER = "."
_FUSED_BANDWIDTH = 0.8  # Of the device's, that a fused kernel reaches.
_MAX_PATTERNS = 3  # In a sentence.


class _Pattern(NamedTuple):
    """A sequence of operators, as letters; how many tensors of full size a fused kernel moves; and the remedy."""

    name: str
    letters: re.Pattern[str]
    tensors: int
    remedy: str
    snippet: str


_PATTERNS = (  # One that may contain another comes first.
    _Pattern("LayerNorm", re.compile(r"c?ms[px]ma?(?:rx|qd)(?:c?xa)?"), 2, "`torch.nn.LayerNorm`",
             "norm = torch.nn.LayerNorm(size)"),
    _Pattern("RMSNorm", re.compile(r"c?pma?rxc?x"), 2, "`torch.nn.RMSNorm` (`F.rms_norm`)",
             "norm = torch.nn.RMSNorm(size, eps=1e-6)"),
    _Pattern("rotary embedding", re.compile(r"xnkxa"), 2, "a fused rotary embedding (Liger, Transformer Engine, apex)",
             "rotate = torch.compile(apply_rotary_pos_emb)"),
    _Pattern("GELU by tanh", re.compile(r"xpxaxtax"), 2, '`F.gelu(x, approximate="tanh")`',
             'x = torch.nn.functional.gelu(x, approximate="tanh")'),
    _Pattern("SwiGLU", re.compile(r"ux"), 3, "a fused SwiGLU (Liger, Transformer Engine, xFormers)",
             "activation = torch.compile(lambda gate, up: torch.nn.functional.silu(gate) * up)"),
)  # fmt: skip


class _Instance(NamedTuple):
    """One occurrence: the index of its pattern, device events, their time and that of a fused kernel, ns."""

    pattern: int
    event_rows: NDArray[np.int64]
    time: int
    fused_ns: float


@dataclass(frozen=True, kw_only=True)
class UnfusedPatternEvidence(WorkEvidence):
    """Norms, rotary embeddings and activations that run operator by operator."""

    patterns: list[tuple[int, float, float]]  # Index, with calls and ns per step; those of most time.


@dataclass(frozen=True)
class Decomposed(Rule[UnfusedPatternEvidence]):
    """Normalisations, rotary embeddings and activations run as several operators instead of one fused kernel.

    ## When it speaks
    Consecutive operators of a thread are those of an RMSNorm (pow, mean, add, rsqrt, mul, mul), a LayerNorm (mean, sub,
    pow, mean, add, rsqrt, mul), a rotary embedding (mul, neg, cat, mul, add), a GELU by tanh, or a SwiGLU (silu, mul).
    The first and the last have equally many elements, and their kernels take `shortest` µs or more on average. Together
    they take at least `least` of the step. Only forward passes are searched.

    ## What it could save
    The time above that of one fused kernel, which reads the input and writes the output at 80 % of the memory
    bandwidth. Only what shortens the step counts: time that no other work covers, as far as the CPU launches early
    enough.

    ## What to do
    Use {remedies|`torch.nn.LayerNorm`, `torch.nn.RMSNorm`, or a fused rotary embedding or activation}. Or compile these
    modules with `torch.compile`.

    ## How to verify
    In *Kernels by operator* one kernel replaces several, and takes less time.
    """

    code, title = "C8", "Norms and activations are not fused"
    family, section = Family.COMPUTE, "operator_kernels"
    requires = frozenset({Capability.GPU, Capability.LAUNCHES, Capability.SHAPES})

    least: float = 0.01
    shortest: float = 5.0

    def lacking(self, rank: Rank) -> tuple[str, ...]:
        return super().lacking(rank) or unknown_limits(rank)

    def look(self, rank: Rank) -> UnfusedPatternEvidence | None:
        min_ns = 1000 * self.shortest
        instances = [instance for instance in _instances(rank) if instance.time >= min_ns * len(instance.event_rows)]
        if sum(instance.time for instance in instances) < max(self.least * rank.whole, 1):
            return None
        saving, durations = np.zeros(len(rank.device_events)), rank.device_events["dur"].to_numpy()
        by_pattern = defaultdict[int, list[int]](list)
        for instance in instances:
            rows = instance.event_rows
            saving[rows] = durations[rows] * max(1 - instance.fused_ns / instance.time, 0.0)
            by_pattern[instance.pattern].append(instance.time)
        claim = shortened(rank, saving)
        if rank.share(claim) < WORTH:
            return None
        steps = rank.num_steps
        patterns = [(pattern, len(times) / steps, sum(times) / steps) for pattern, times in by_pattern.items()]
        return UnfusedPatternEvidence(
            claim=claim,
            spans=rank.spans(claim),
            patterns=sorted(patterns, key=lambda pattern: -pattern[2])[:_MAX_PATTERNS],
            requested_ns=asked(rank, saving),
            edit=edit_of_fusion(rank, saving, saving > 0),
        )

    def tell(self, job: JobEvidence[UnfusedPatternEvidence]) -> Finding | None:
        patterns = [_PATTERNS[index] for index, _, _ in job.worst.patterns]
        times = "; ".join(
            f"{_PATTERNS[index].name} {job.time(time)} in {counted(count, 'call')}"
            for index, count, time in job.worst.patterns
        )
        return self.finding(
            job,
            f"Operators of {joined_words([pattern.name for pattern in patterns])} are not fused, which costs up to "
            f"{job.max_saving} {job.per_step}",
            evidence=f"{times} {job.per_step}. Each call runs several kernels that read and write whole tensors.",
            values={"remedies": joined_words([pattern.remedy for pattern in patterns])},
            assumption="One kernel reads the input and writes the output at 80 % of the memory bandwidth.",
            snippet=patterns[0].snippet,
        )


def _instances(rank: Rank) -> list[_Instance]:
    """All occurrences of the patterns within the steps; an operator is part of one only."""
    # Patterns are searched in a string of letters, one for each operator with device work, in order of call.
    operator = operators(rank)
    event_rows = np.flatnonzero((operator != NONE) & in_steps(rank))
    rows, inverse = np.unique(operator[event_rows], return_inverse=True)
    letters = _letters(rank, rows)
    if not any(pattern.letters.search(letters) for pattern in _PATTERNS):
        return []
    order = np.argsort(inverse, kind="stable")
    first = np.searchsorted(inverse[order], np.arange(len(rows) + 1))
    inputs, limits = inputs_of(rank, rows), limits_of(rank, rank.devices)
    thread = rank.host.at("thread", rows) * len(rank.captures) + rank.host.at("capture", rows)
    durations, devices = (rank.device_events[name].to_numpy() for name in ("dur", "device"))
    instances, is_matched = list[_Instance](), np.zeros(len(rows), np.bool_)
    for index, pattern in enumerate(_PATTERNS):
        for match in pattern.letters.finditer(letters):
            start, stop = match.span()
            elements, size = inputs[start][:2].tolist()
            if not elements or elements != inputs[stop - 1][0] or thread[start] != thread[stop - 1]:
                continue
            if is_matched[start:stop].any():
                continue
            is_matched[start:stop] = True
            events = event_rows[order[first[start] : first[stop]]]
            limit = limits[devices[events[0]]]
            if limit is not None:
                fused_ns = pattern.tensors * elements * size * 1e9 / (_FUSED_BANDWIDTH * limit.bandwidth)
                instances.append(_Instance(index, events, int(durations[events].sum()), fused_ns))
    return instances


def _letters(rank: Rank, rows: NDArray[np.int64]) -> str:
    """Operators as a string of one letter each."""
    codes, strings = kernel_launches.names_of(rank, rows), rank.loaded.strings
    used = unique_sorted(codes).tolist()
    letters = {code: _LETTERS.get(strings[code].removeprefix("aten::"), _OTHER_LETTER) for code in used}
    return "".join(map(letters.__getitem__, codes.tolist()))
