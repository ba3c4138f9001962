"""Of eight or more ranks with clocks up to 5 ms off, the planted straggler is named, with its cause; else nobody."""

from __future__ import annotations

import numpy as np
import pytest
from rules.parallel import ParallelJob, Part, findings, plain

pytestmark = pytest.mark.replayed
CAUSES = {  # What is planted, and how it is told.
    "compute": (Part(gemm=200), "kernels take 1.8"),
    "more work": (Part(kernels=18), "runs 18 kernels"),
    "input": (Part(load=900), "data loader"),
    "host": (Part(launch=150), "host launches late"),
}


def job(seed: int, part: Part | None, *, ranks: int = 8, noise: float = 0.05):
    """The traces, and the rank that is late by part: noise on all kernels, and clocks by chance."""
    random = np.random.default_rng(1000 + seed)
    clocks = tuple(random.uniform(-5000, 5000, ranks).round(3).tolist())
    late = int(random.integers(ranks))
    different = {late: part} if part else {}
    made = ParallelJob(ranks=ranks, steps=5, noise=noise, seed=seed, clocks=clocks, different=different)
    return made.traces(), clocks, late


def lateness(traces, clocks, late: int) -> float:
    """By how much the rank really arrives after the second-latest, µs per step: on one clock, as it was planted."""
    starts = np.array(
        [
            [float(event["ts"]) - ahead for event in trace.events if event.get("args", {}).get("Collective name")]
            for trace, ahead in zip(traces, clocks, strict=True)
        ]
    )
    in_order = np.sort(starts, axis=0)
    return float((in_order[-1] - in_order[-2])[starts.argmax(axis=0) == late].sum() / starts.shape[1])


def check(folder, cause: str, seed: int, ranks: int) -> None:
    part, words = CAUSES[cause]
    traces, clocks, late = job(seed, part, ranks=ranks)
    found = {each.code: each for each in findings(folder, traces, "N1", "N4", "N5").findings}
    assert found["N4"].ranks == found["N5"].ranks == (late,)
    assert found["N4"].saving_ns / 1000 == pytest.approx(lateness(traces, clocks, late), rel=0.05)
    assert words in plain(found["N5"].title)
    assert ("no further saving" in found["N5"].evidence) == (cause == "input")
    assert found["N4"].without_ns < 800_000  # As the others alone: 720 µs, and the noise.


@pytest.mark.parametrize("cause", ["compute", "input"])
def test_the_planted_straggler(tmp_path, cause):
    check(tmp_path, cause, seed=1, ranks=8)


def test_nobody_by_chance(tmp_path):
    traces, _, _ = job(3, None, noise=0.2)
    assert not {"N4", "N5"} & {each.code for each in findings(tmp_path, traces, "N1", "N4", "N5").findings}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause(tmp_path, cause, ranks):
    check(tmp_path, cause, seed=ranks, ranks=ranks)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_nobody_in_twenty(tmp_path, seed):
    traces, _, _ = job(seed, None, noise=0.1)
    assert not {"N4", "N5"} & {each.code for each in findings(tmp_path, traces, "N1", "N4", "N5").findings}
