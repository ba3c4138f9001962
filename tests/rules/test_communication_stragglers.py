"""A straggler is named, sized, and its cause found; where nobody is always late, nobody is named."""

from __future__ import annotations

import pytest
from rules.parallel import GEMM, LOADER, MS, US, ParallelJob, Part, findings, one, plain

pytestmark = pytest.mark.slow  # Whole jobs of many ranks.

SLOW = Part(gemm=200)  # 5 gemms of 100 µs more.


def told(section):
    return {finding.code: finding for finding in section.findings}


def test_nobody_is_late(tmp_path):
    section = findings(tmp_path, ParallelJob().traces(), "N1", "N3", "N4", "N5", "N6")
    assert not section.findings or set(told(section)) == {"N1"}


@pytest.mark.parametrize("seed", range(4))
def test_chance_names_nobody(tmp_path, seed):
    """Kernels vary by a fifth, clocks are off by milliseconds: now this rank is late, now that."""
    traces = ParallelJob(ranks=8, noise=0.2, seed=seed, clocks=(0, 5000, -4000, 1, 2, 3, 900, 70)).traces()
    assert not {"N4", "N5", "N6"} & set(told(findings(tmp_path, traces)))


def test_a_straggler_among_noise(tmp_path):
    """500 µs, give or take what the others vary by."""
    traces = ParallelJob(ranks=8, noise=0.05, steps=10, different={6: SLOW}).traces()
    found = told(findings(tmp_path, traces))
    assert found["N4"].ranks == (6,)
    assert found["N4"].saving_ns == pytest.approx(500 * US, rel=0.05)
    assert "because its kernels take 1.8" in found["N5"].title


@pytest.mark.parametrize("clocks", [(), (0, 4000, -3000, 5000)])
def test_slow_kernels(tmp_path, clocks):
    """5 × 100 µs later than the others, at each of 6 all-reduces: exactly what the others wait for it."""
    found = told(findings(tmp_path, ParallelJob(different={2: SLOW}, clocks=clocks).traces()))
    straggler, why = found["N4"], found["N5"]
    assert next(iter(found)) == "N4"
    assert list(found)[why.nested_under] == "N4"
    assert straggler.ranks == (2,)
    assert straggler.saving_ns == 500 * US
    assert plain(straggler.title) == "Rank 2 holds up the others for 500 µs per step"
    assert "Rank 2 alone is late to 6 of 6 collectives, no other rank to any" in straggler.evidence
    assert "Most likely its kernels take longer; “Rank 2 is late because …” says more." in straggler.advice
    assert why.title == "Rank 2 is late because its kernels take 1.83× as long"  # 1100 µs for 600.
    assert plain(why.evidence).startswith("Rank 2: 500 µs more compute per step than the median of the other ranks")
    assert f"Most of it is `{GEMM}`: 500 µs more in 5 calls (the others 5)" in plain(why.evidence)
    assert (why.saving_ns, why.severity, why.ranks) == (None, "low", (2,))


def test_where_it_is_late(tmp_path):
    """On its own clock, from when the second-latest rank comes: 710 µs into the step, and 500 µs later."""
    found = told(findings(tmp_path, ParallelJob(different={2: SLOW}, clocks=(0, 0, 7000, 0)).traces()))
    span = found["N4"].spans[0]
    assert (span.rank, span.step, span.end - span.start, span.name) == (2, 0, 500 * US, "all_reduce")
    assert span.start == pytest.approx(7000 * US + 610 * US, abs=7 * MS)


def test_a_slow_device(tmp_path):
    """Both kinds of kernel take 1.5 times as long."""
    why = one(tmp_path, ParallelJob(different={1: Part(gemm=150, relu=30)}).traces(), "N5", "N4")
    assert "because its kernels take 1.50× as long" in why.title
    assert "All kinds of kernels are slower alike." in why.evidence
    assert "The device itself is slower" in why.advice


def test_more_kernels(tmp_path):
    why = one(tmp_path, ParallelJob(different={1: Part(kernels=16)}).traces(), "N5", "N4")
    assert why.title == "Rank 1 is late because it runs 16 kernels per step, the others 10"
    assert plain(why.evidence).startswith("Rank 1: 360 µs more compute")
    assert "Balance the work" in why.advice


def test_input(tmp_path):
    """The device is idle meanwhile in five of six steps: before its first event nothing is known of it."""
    why = one(tmp_path, ParallelJob(different={3: Part(load=600)}).traces(), "N5", "N4")
    assert plain(why.title) == "Rank 3 is late because it waits for its data loader: 600 µs more per step"
    assert LOADER in why.evidence
    assert "Its input alone is slow" in why.advice


def test_a_slow_host(tmp_path):
    """Ten launches of 200 µs; the device waits for each."""
    why = one(tmp_path, ParallelJob(different={0: Part(launch=200)}).traces(), "N5", "N4")
    assert why.title.startswith("Rank 0 is late because its host launches late")
    assert "`aten::linear`" in why.evidence
    assert "what only this rank does" in why.advice


def test_copies(tmp_path):
    why = one(tmp_path, ParallelJob(different={0: Part(copy=300)}).traces(), "N5", "N4")
    assert plain(why.title) == "Rank 0 is late because its copies take longer: 300 µs more per step"


def test_no_cause(tmp_path):
    """It starts its collective late although nothing else takes longer: N5 has nothing to say."""
    traces = ParallelJob().traces()
    for event in traces[1].events:
        if event.get("args", {}).get("Collective name"):
            event["ts"], event["dur"] = event["ts"] + 90, event["dur"] - 90
    found = told(findings(tmp_path, traces))
    assert found["N4"].ranks == (1,)
    assert found["N4"].saving_ns == 90 * US
    assert "Its kernels, launches, input and copies take no longer" in found["N4"].advice
    assert "N5" not in found


def test_two_stragglers_are_late_together(tmp_path):
    """Nobody alone holds the others up, but compute is uneven."""
    found = told(findings(tmp_path, ParallelJob(different={1: SLOW, 2: SLOW}).traces()))
    assert "N4" not in found
    assert found["N6"].saving_ns == 250 * US  # 1100 µs, of 850 on average.
    assert plain(found["N6"].title) == "Compute is uneven: 600 µs per step on rank 0, 1.10 ms on rank 1"
    assert "58.8 % of the mean" in plain(found["N6"].evidence)


def test_late_by_turns(tmp_path):
    """Each step another rank is late by 500 µs: nobody is a straggler, and it is not the network."""
    found = told(findings(tmp_path, ParallelJob(steps=8, late_by_turns=SLOW).traces()))
    assert not {"N4", "N5", "N6"} & set(found)
    assert found["N3"].saving_ns == 375 * US  # Every rank waits in 6 of 8 steps, of 4 ranks 3 in each: 1500 of 1900.
    assert "78.9 % lies before the last rank's start" in plain(found["N3"].evidence)
    assert "500 µs of rank 1 for rank 0" in plain(found["N3"].evidence)
    assert found["N3"].spans[0].end - found["N3"].spans[0].start == 500 * US


def test_waits_are_not_called_exposed_communication(tmp_path):
    """Of 600 µs the straggler causes 500; what is left is below 10 % of the step."""
    found = told(findings(tmp_path, ParallelJob(different={2: SLOW}).traces()))
    assert found["N1"].saving_ns == 100 * US
    assert "Of that 500 µs are due to late or slow ranks, which have findings of their own." in plain(
        found["N1"].evidence
    )


def test_one_rank_says_nothing_about_others(tmp_path):
    found = told(findings(tmp_path, ParallelJob(different={2: SLOW}).traces()[:1]))
    assert set(found) == {"N1"}
    assert "Only 1 of 4 ranks was recorded" in found["N1"].advice


def test_uneven_compute_of_few_ranks_says_nothing(tmp_path):
    """Of four ranks one is recorded, or two: the others may have more."""
    traces = ParallelJob(different={1: SLOW, 2: SLOW}, ranks=8).traces()[:3]
    assert "N6" not in told(findings(tmp_path, traces))
