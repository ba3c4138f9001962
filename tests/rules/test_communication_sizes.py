"""Large messages that reach less bandwidth than smaller ones of their group."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.parallel import ALL_REDUCE, GEMM, US, one, plain

from htareport.rules.communication.exposed import ExposedCommunication
from htareport.rules.communication.sizes import FallingBandwidth
from htareport.run.runner import analyze

MIB = 2**18  # Elements of four bytes.


def sized(*kinds, calls=4, missing=(), late=0):
    """Two ranks that reduce: in a step of 20 ms `calls` messages of each kind, (elements, µs), exposed.

    Rank 1 comes `late` µs after rank 0 to all of them.
    """
    traces = []
    for rank in range(2):
        trace, now, launch = TraceBuilder(rank, 2).step(1, 0, 20_000), 0, 0
        for nelems, length in kinds:
            for _ in range(calls):
                trace.kernel(GEMM, now, 100, launch=(launch, 1))
                trace.collective(ALL_REDUCE, "allreduce", now + 100 + late * rank, length + late * (1 - rank),
                                 nelems=nelems, launch=(launch + 1, 1))  # fmt: skip
                now, launch = now + 100 + length + late, launch + 2
        traces.append(trace.kernel(GEMM, now, 100, launch=(launch, 1)))
    return [trace for rank, trace in enumerate(traces) if rank not in missing]


@pytest.mark.replayed
def test_a_rate_that_falls(tmp_path):
    """2 MiB in 100 µs, 16 MiB in 1600 for 800: half the rate, 4 × 800 µs longer."""
    found = one(tmp_path, sized((2 * MIB, 100), (16 * MIB, 1600)), "N11", "N1")
    assert found.title == "all_reduce · default_pg moves 16.0\u202fMiB at 50% of the bandwidth of smaller messages"
    assert plain(found.evidence) == (
        "16.0 MiB take 1.60 ms, at the rate of smaller ones 800 µs (medians, without waiting)."
    )
    assert found.saving_ns == found.step_ns - found.without_ns == 3200 * US
    assert (found.ranks, found.confidence) == ((), "low")
    assert found.snippet.startswith("unset NCCL_PROTO")


def test_waiting_is_no_transfer(tmp_path):
    """Rank 1 comes 300 µs late to every call: rates count from then on, and the waits are told elsewhere."""
    found = one(tmp_path, sized((2 * MIB, 100), (16 * MIB, 1600), late=300), "N11", "N1")
    assert "16.0 MiB take 1.60 ms, at the rate of smaller ones 800 µs" in plain(found.evidence)
    assert found.saving_ns == 3200 * US


@pytest.mark.parametrize(
    ("kinds", "options"),
    [
        ([(2 * MIB, 100), (16 * MIB, 1300)], {}),  # 62 %.
        ([(MIB // 4, 50), (2 * MIB, 1600)], {}),  # 2 MiB are not large.
        ([(MIB // 2, 49), (16 * MIB, 3200)], {}),  # 49 µs say little; and they are 32 times as small.
        ([(4 * MIB, 400), (2 * MIB, 100)], {"calls": 2}),  # Twice may be chance.
        ([(2 * MIB, 100), (16 * MIB, 1600)], {"missing": (1,)}),  # It may be late.
        ([(16 * MIB, 1600)], {}),
    ],
    ids=["nearly as fast", "small", "uncertain", "few", "a rank missing", "one size"],
)
def test_no_rate_that_falls(tmp_path, kinds, options):
    assert one(tmp_path, sized(*kinds, **options), "N11", "N1") is None


@pytest.mark.parametrize("options", [{}, {"peer": 0.4}, {"least": 0.2}, {"large": 17.0}, {"span": 7.0}])
def test_its_thresholds(tmp_path, options):
    """Half of the rate, 3.2 of 20 ms, 16 MiB, 8 times as large."""
    for number, trace in enumerate(sized((2 * MIB, 100), (16 * MIB, 1600))):
        trace.write(tmp_path / f"{number}.json")
    section = analyze(tmp_path, analyses=[], rules=[ExposedCommunication(), FallingBandwidth(**options)])["findings"]
    assert ("N11" in {each.code for each in section.findings}) == (not options)
