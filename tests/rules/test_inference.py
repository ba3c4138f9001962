"""Rules about generating tokens, on hand-made traces of engines and of plain loops."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from builder import TraceBuilder
from rules.computing import A100, BF16, Work, states

from htareport.rules.host.launch import LaunchBound
from htareport.rules.inference.tokens import BandwidthBoundDecode, LaunchBoundDecode, PrefillBetween

DECODE = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"
MIXED = "execute_context_1(512)_generation_31(31)"
BOUND = [LaunchBound(), LaunchBoundDecode()]


def tokens(name: str = DECODE, count: int = 3, gap: int = 20, **options) -> TraceBuilder:
    """Ranges of 200 µs with nine kernels of 4 µs each, one every 20 µs, each launched as it is needed."""
    trace = TraceBuilder(**options)
    for number in range(count):
        begin = 200 * number
        trace.annotation(name, begin, 200)
        for place in range(9):
            at = begin + 5 + gap * place
            trace.kernel("gemv", at + 6, 4, launch=(at, 4))
    return trace


def test_decode_is_bound_by_launches(findings):
    """Of 586 µs the device works 108; what that costs is said by the rule about launches, and only there."""
    told = findings(BOUND, tokens())
    assert list(told) == ["H2", "I1"]
    finding = told["I1"]
    assert (finding.saving_ns, finding.severity, finding.nested_under) == (None, "low", 0)
    assert (
        "3 ranges generate tokens, with a median of 200\u202fµs. Each launches 9 kernels and copies" in finding.evidence
    )
    assert "Requests at once: 32." in finding.evidence
    assert '"cudagraph_capture_sizes": [32]' in finding.snippet


def narrow_step(trace: TraceBuilder, number: int, rows: int = 1, queries: int = 1) -> None:
    """A profiler step with a product, attention and seven more kernels."""
    begin = 200 * number
    trace.step(number, begin, 200)
    shapes = {"aten::mm": [[rows, 64], [64, 64]], "aten::bmm": [[8, queries, 64], [8, 64, 100]]}
    for place in range(9):
        at, name = begin + 5 + 20 * place, ["aten::mm", "aten::bmm", "aten::add"][min(place, 2)]
        told = {"Input Dims": shapes[name], "Input type": [BF16] * 2} if name in shapes else {}
        trace.cpu_op(name, at - 1, 6, **told).kernel("k", at + 6, 4, launch=(at, 4))


def loop(rows: int = 1, queries: int = 1) -> TraceBuilder:
    trace = TraceBuilder()
    for number in range(4):
        narrow_step(trace, number, rows, queries)
    return trace


def test_a_loop_without_annotations(findings):
    told = findings(BOUND, loop())
    assert list(told) == ["H2", "I1"]
    assert "torch.compile" in told["I1"].snippet


@pytest.mark.parametrize(
    "trace",
    [
        tokens("forward"),
        tokens("## decoder ##"),
        tokens(count=2),
        tokens(MIXED),
        tokens().graph_launch(190, 5, [("a", 196, 2)]),
        tokens().cpu_op("autograd::engine::evaluate_function: MmBackward0", 100, 1),
        loop(rows=17),
        loop(queries=2),
    ],
    ids=["not annotated", "another word", "two", "with prompts", "graph", "training", "many rows", "many queries"],
)
def test_not_decode(findings, trace):
    assert list(findings(BOUND, trace)) == ["H2"]


def test_decode_that_launches_do_not_hold_up(tell):
    trace = Work(0).annotation("decode", 0, 400).annotation("decode", 400, 400).annotation("decode", 800, 400)
    for _ in range(9):
        trace.busy(100)
    assert states(tell(BOUND, trace)) == {"H2": "fine", "I1": "fine"}


def engine(lengths: Sequence[int], prompts: Sequence[int], mixed: str = MIXED) -> TraceBuilder:
    """Ranges of these lengths one behind the other, some of which read a prompt as well."""
    trace, at = TraceBuilder(), 0
    for number, length in enumerate(lengths):
        trace.annotation(mixed if number in prompts else DECODE, at, length)
        trace.kernel("k", at + 1, length - 2, launch=(at, 1))
        at += length
    return trace


SLOW = [100] * 9 + [300] + [100] * 9 + [400, 100]


def test_prompts_between_tokens(findings):
    """Of 20 intervals two are of 300 and 400 µs: the 95th percentile is that of 300 and a twentieth of the way on."""
    finding = findings([PrefillBetween()], engine(SLOW, [9, 19]))["I2"]
    assert (
        finding.title
        == "Prompts between tokens delay them: the 95th percentile of the time per token is 3.05 times the median"
    )
    assert "20 intervals from token to token have a median of 100\u202fµs" in finding.evidence
    assert finding.evidence.endswith(
        "Prompts are processed in 2 long ones, of which the longest takes 400\u202fµs. What these take above the "
        "median is 20.0\u202f% of the time."
    )
    assert (finding.saving_ns, finding.severity, finding.spans[0].start) == (None, "low", 2_100_000)


def test_prompts_in_ranges_of_their_own(findings):
    assert "I2" in findings([PrefillBetween()], engine(SLOW, [9, 19], "prefill_step"))


@pytest.mark.parametrize(
    "trace",
    [
        engine(SLOW, []),
        engine([150 if length > 100 else 100 for length in SLOW], [9, 19]),
        engine([100] * 9 + [300], [9]),
        engine(SLOW, [9, 19]).cpu_op("autograd::engine::evaluate_function: MmBackward0", 1, 1),
    ],
    ids=["no prompts", "not slow", "few", "training"],
)
def test_prompts_do_no_harm(tell, trace):
    assert states(tell([PrefillBetween()], trace)) == {"I2": "fine"}


WEIGHTS = [[4, 4096], [4096, 4096]]  # 33,619,968 bytes of bf16: 21.62 µs at 1,555 GB/s.
RULE = BandwidthBoundDecode()


def test_bandwidth_is_the_limit(findings):
    """24 µs each are 90 % of it."""
    trace = Work(1000, A100)
    for _ in range(8):
        trace.mm(24, WEIGHTS)
    finding = findings([RULE], trace)["I3"]
    assert finding.title.startswith("Generating tokens reads memory at 90.1\u202f% of its bandwidth")
    assert "They read 256\u202fMiB per step at 1,401\u202fGB/s: `aten::mm` 4×4096" in finding.evidence
    assert (finding.saving_ns, finding.severity) == (None, "low")


@pytest.mark.parametrize(
    "trace",
    [
        Work().mm(40, WEIGHTS),
        Work().mm(24, WEIGHTS).cpu_op("Optimizer.step#Adam.step", 100, 1),
        Work().mm(24, WEIGHTS).busy(100),
        Work().mm(24, [[40, 4096], [4096, 4096]]),
    ],
    ids=["54 %", "training", "a fifth", "many rows"],
)
def test_bandwidth_is_not_the_limit(tell, trace):
    assert states(tell([RULE], trace)) == {"I3": "fine"}
