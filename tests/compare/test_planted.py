"""A change that was planted is found, named and sized; where nothing was, nothing is."""

import pytest
from compare.job import ALL_REDUCE, GEMM, LOADER, RELU, Job

from htareport.analyses.time.step_time import StepTime
from htareport.compare import compare


def _row(report, section, table, column, value):
    frame = report[section].table(table)
    found = frame[frame[column] == value]
    assert len(found) == 1, frame[column].tolist()
    return found.iloc[0]


def test_a_slower_kernel(base, new):
    """20 % of 6 × 400 µs: 480 µs per step and rank, all of it by duration."""
    report = compare(base, new)
    row = _row(report, "compare_kernels", "kernels", "kernel", GEMM)
    assert row["change"] == "slower calls"
    assert row["delta"] == pytest.approx(480_000, rel=0.05)
    assert row["by_duration"] == pytest.approx(480_000, rel=0.05)
    assert report["compare_kernels"].table("kernels")["kernel"].iloc[0] == GEMM
    assert report["compare"].table("waterfall").set_index("part")["delta"]["compute"] == pytest.approx(
        480_000, rel=0.05
    )
    assert "The step is longer" in report.verdict
    assert f"{GEMM}: slower calls" in report.verdict


def test_one_more_all_reduce(base, tmp_path):
    """250 µs more per step: one more call."""
    report = compare(base, Job(seed=3, all_reduces=3).report(tmp_path))
    row = _row(report, "compare_communication", "collectives", "collective", "all_reduce")
    assert (row["base_count"], row["new_count"], row["change"]) == (2, 3, "more calls")
    assert row["delta"] == pytest.approx(250_000, rel=0.05)
    assert _row(report, "compare_kernels", "kernels", "kernel", ALL_REDUCE)["change"] == "more calls"
    parts = report["compare"].table("waterfall").set_index("part")["delta"]
    assert parts["exposed communication"] == pytest.approx(250_000, rel=0.05)
    assert "mostly exposed communication" in report.verdict
    assert "all_reduce: more calls" in report.verdict


def test_a_loader_that_stalls(base, tmp_path):
    """700 µs more for which the device waits: idle time, host wait."""
    report = compare(base, Job(seed=4, load=1000).report(tmp_path))
    parts = report["compare"].table("waterfall").set_index("part")["delta"]
    assert parts["idle: host wait"] == pytest.approx(700_000, rel=0.05)
    assert abs(parts["rest"]) <= 0.02 * report["compare"].table("waterfall")["base"].iloc[-1]
    row = _row(report, "compare_names", "names", "name", LOADER)
    assert row["delta"] == pytest.approx(700_000, rel=0.05)
    assert "mostly idle: host wait" in report.verdict
    assert LOADER in report.verdict


def test_one_rank_that_is_slow(base, tmp_path):
    """Rank 1's kernels take 10 % longer: 330 µs of its own time; the other rank's stay."""
    report = compare(base, Job(seed=5, slow_ranks={1: 1.1}).report(tmp_path))
    ranks = report["compare_ranks"].table().set_index("rank")
    assert ranks["own_delta"][1] == pytest.approx(6 * 55_000, rel=0.05)
    assert abs(ranks["own_delta"][0]) < 0.1 * ranks["own_delta"][1]


def test_a_kernel_that_was_renamed(base, tmp_path):
    """The same operator on the same shapes runs another kernel, as long as before: swapped, not new and gone."""
    report = compare(base, Job(seed=6, renamed={RELU: "void fused_clamp(float*)"}).report(tmp_path))
    row = _row(report, "compare_kernels", "kernels", "kernel", f"{RELU} → void fused_clamp(float*)")
    assert row["change"].startswith("swapped")
    assert abs(row["delta"]) < 0.05 * row["base_time"]
    assert row["base_count"] == row["new_count"] == 6
    assert not {"new", "gone"} & set(report["compare_kernels"].table("kernels")["change"])


def test_a_kernel_with_other_numbers_in_its_name(base, tmp_path):
    """Another tile size is the same kernel; what changed is how long its calls take."""
    new = "sm90_gemm_f32_256x128"
    report = compare(base, Job(seed=6, renamed={GEMM: new}, factors={GEMM: 0.5}).report(tmp_path))
    row = _row(report, "compare_kernels", "kernels", "kernel", f"{GEMM} → {new}")
    assert row["change"] == "faster calls"
    assert row["by_duration"] == pytest.approx(-1_200_000, rel=0.05)


def test_other_numbers_of_ranks_and_steps(base, tmp_path):
    """Per step and rank nothing changed."""
    report = compare(base, Job(seed=7, ranks=4, steps=9).report(tmp_path))
    kernels = report["compare_kernels"].table("kernels")
    assert (kernels["base_count"] == kernels["new_count"]).all()
    assert (kernels["delta"].abs() < 0.02 * kernels["base_time"]).all()
    assert "In the new run only: ranks 2, 3." in report["compare_ranks"].notes
    environment = report["compare"].table("environment").set_index("what")
    assert environment.loc["ranks read"].tolist() == ["2", "4", "no"]


def test_other_shapes(base, tmp_path):
    """Operators match by their path, and the difference comes before the numbers."""
    report = compare(base, Job(seed=8, shape=128).report(tmp_path))
    assert report.verdict.startswith("Not like for like: other input shapes of ")
    assert set(report["compare_kernels"].table("details")["level"]) <= {"path", "path and shapes"}
    assert not {"new", "gone"} & set(report["compare_kernels"].table("kernels")["change"])


@pytest.mark.parametrize(
    ("noise", "pairs"), [(0.03, 10), *(pytest.param(noise, 20, marks=pytest.mark.slow) for noise in (0.03, 0.01))]
)
def test_nothing_planted(tmp_path, noise, pairs):
    """In all pairs but one there is no detectable change."""
    jobs = (Job(seed=100 + seed, ranks=1, steps=12, layers=1, noise=noise) for seed in range(2 * pairs))
    reports = [job.report(tmp_path / str(job.seed), analyses=(StepTime(),)) for job in jobs]
    outcomes = [compare(*pair).meta["comparison"]["outcome"] for pair in zip(reports[::2], reports[1::2], strict=True)]
    assert outcomes.count("no detectable change") >= pairs - 1, outcomes


def test_few_steps(base, tmp_path):
    """Three against fourteen allow a small p, three against five none below 0.01."""
    three = Job(seed=9, steps=3, factors={GEMM: 2}).report(tmp_path / "three")
    five = Job(seed=9, steps=5).report(tmp_path / "five")
    assert compare(base, three).meta["comparison"]["outcome"] == "longer"
    report = compare(five, three)
    assert report.meta["comparison"]["outcome"] == "too few steps to tell"
    assert "Too few steps to tell (5 against 3 steps)" in report.verdict
