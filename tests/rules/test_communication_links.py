"""Groups whose transfers stand out among many of their kind, and the ranks that they have in common."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from rules.parallel import ALL_REDUCE, GEMM, US, findings, one, plain

PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7)]
CROSS = [(0, 2), (1, 3), (4, 6), (5, 7)]


def grouped(kinds, *, nelems=1_000_000, calls=4, missing=(), hosts=()):
    """Eight ranks in groups of two; in each step `calls` all-reduces of every kind, of a group's length, exposed."""
    traces = []
    for rank in range(8):
        host = {"hostname": hosts[rank]} if hosts else {}
        trace = TraceBuilder(rank, 8, **host).step(1, 0, 20_000).kernel(GEMM, 0, 500, launch=(0, 1))
        for name, (groups, lengths) in enumerate(kinds, 1):
            place, group = next((at, group) for at, group in enumerate(groups) if rank in group)
            for number in range(calls):
                start = 8000 * (name - 1) + 2000 * number + 600
                trace.collective(
                    ALL_REDUCE, "allreduce", start, lengths[place], group=group, nelems=nelems, group_name=str(name),
                    launch=(8 * name + 2 * number + 1, 1),
                )  # fmt: skip
        traces.append(trace.kernel(GEMM, 19_000, 100, launch=(70, 1)))
    return [trace for rank, trace in enumerate(traces) if rank not in missing]


def test_a_slow_link(tmp_path):
    """Pairs take 600, 610, 590 and 900 µs: the middle is 605, and 4 × 295 µs of 20 ms are lost."""
    traces = grouped([(PAIRS, (600, 610, 590, 900))], hosts=[f"gpu-{rank // 4}" for rank in range(8)])
    found = one(tmp_path, traces, "N8", "N7", "N1")
    assert found.title == "all_reduce of ranks 6, 7 takes 1.5 times as long as in other groups of its kind"
    assert found.saving_ns == 4 * 295 * US
    assert found.ranks == (6, 7)
    assert "takes 900 µs among ranks 6, 7, 605 µs in the middle of its 2-rank groups" in plain(found.evidence)
    assert found.evidence.endswith("They are on host-2.")
    assert "what lies between these ranks" in found.advice


def test_a_rank_behind_all_slow_groups(tmp_path):
    """Rank 5 is in both slow pairs, and its partners are not."""
    kinds = [(PAIRS, (600, 600, 900, 600)), (CROSS, (600, 600, 600, 1000))]
    found = one(tmp_path, grouped(kinds), "N8", "N1")
    assert found.title == "Rank 5 is in every slow group: transfers take up to 1.7 times as long as elsewhere"
    assert found.ranks == (5,)
    assert found.saving_ns == 4 * (300 + 400) * US
    assert "network card" in found.advice


def test_a_rank_that_is_fine_elsewhere_is_not_blamed(tmp_path):
    """Both pairs of rank 5 are slow, but so is another: no rank is in all of them."""
    kinds = [(PAIRS, (600, 600, 900, 600)), (CROSS, (1000, 600, 600, 600))]
    found = one(tmp_path, grouped(kinds), "N8", "N1")
    assert found.title.startswith("all_reduce of ranks 0, 2 takes 1.7 times as long")
    assert found.ranks == (0, 2, 4, 5)


def test_what_another_rule_says_is_not_said_twice(tmp_path):
    """Of large messages N7 speaks; only a rank that all slow groups share is news, and its time is not taken twice."""
    kinds = [(PAIRS, (600, 600, 900, 600))]
    told = {
        each.code for each in findings(tmp_path / "a", grouped(kinds, nelems=10_000_000), "N1", "N7", "N8").findings
    }
    assert told >= {"N7"}
    assert "N8" not in told
    kinds.append((CROSS, (600, 600, 600, 1000)))
    section = findings(tmp_path / "b", grouped(kinds, nelems=10_000_000), "N1", "N7", "N8")
    codes = [each.code for each in section.findings]
    found = section.findings[codes.index("N8")]
    assert codes.index("N8") == codes.index("N7") + 1
    assert (found.ranks, found.saving_ns) == ((5,), None)


@pytest.mark.parametrize(
    ("lengths", "options"),
    [
        ((600, 610, 590, 680), {}),  # 12 %.
        ((600, 700, 500, 900), {}),  # The others differ as much.
        ((600, 610, 590, 900), {"calls": 2}),
        ((600, 610, 590, 900), {"missing": (7,)}),  # The missing one may be late.
        ((40, 40, 40, 60), {}),  # 80 of 20,000 µs.
    ],
    ids=["little", "scattered", "few calls", "a rank missing", "short"],
)
def test_no_slow_link(tmp_path, lengths, options):
    assert one(tmp_path, grouped([(PAIRS, lengths)], **options), "N8", "N1") is None
