"""What a change is said to come from: on numbers worked out by hand."""

import pytest
from compare.reports import run, steps_of

from htareport.compare import compare
from htareport.report import Report


def _said(base, new):
    return compare(base, new).verdict.replace("\u202f", " ").replace("\u2212", "-")


def _compute(*kernels):
    """Kernels of one step and their times; everything else as in all runs here."""
    return [("op", "8", kernel, "compute", count, time) for kernel, count, time in kernels]


def test_a_rank_that_alone_became_slower():
    """Rank 2 takes 300 µs more for itself; the others wait for it in communication, which is no cause."""
    base = run({rank: steps_of(700, 100) for rank in range(4)})
    slow = {rank: steps_of(1000, 100) if rank == 2 else steps_of(700, 400) for rank in range(4)}
    said = _said(base, run(slow))
    alone = "Rank 2 alone became slower: own time, without exposed communication, +300 µs; the others' 0 ns."
    assert alone in said
    assert said.index(alone) < said.index("mostly exposed communication +225 µs")
    back = _said(run(slow), base)
    assert "Rank 2 alone became faster: own time, without exposed communication, -300 µs" in back


def test_all_ranks_that_became_slower():
    said = _said(run({rank: steps_of(700) for rank in range(4)}), run({rank: steps_of(900) for rank in range(4)}))
    assert "alone" not in said
    assert "mostly compute +200 µs" in said


def test_ranks_that_differ_are_told_by_the_slowest():
    """Without communication nobody waits: the slowest rank's 300 µs are 150 in the mean of two, half of it a rest."""
    base, new = run({0: steps_of(700), 1: steps_of(700)}), run({0: steps_of(700), 1: steps_of(1000)})
    report = compare(base, new)
    parts = report["compare"].table("waterfall").set_index("part")["delta"]
    assert parts["compute"] == 300_000
    assert parts["rest"] == 0
    assert "In the mean of the slowest rank" in report.verdict
    assert "those of the slowest one" in report["compare"].charts[0].caption


def test_one_fused_kernel_for_two():
    base = run({0: steps_of(900)}, kernels=_compute(("relu", 1, 360.0), ("softmax", 1, 540.0)))
    new = run({0: steps_of(480)}, kernels=[("compiled", "9", "triton_fused", "compute", 1, 480.0)])
    assert "softmax and relu gone (-900 µs), triton_fused new (+480 µs)" in _said(base, new)


def test_many_kernels_with_more_calls():
    """A third layer: each of four kernels has half as many calls again, none is most of it."""
    base, new = (run({0: steps_of(100 * layers)}, kernels=_compute(*((f"kernel{name}", layers, 25.0 * layers)
                 for name in "abcd"))) for layers in (2, 3))  # fmt: skip
    assert "mostly compute +100 µs; more calls of many kernels." in _said(base, new)


@pytest.mark.parametrize(
    ("name", "named"), [("enumerate(DataLoader)", True), ("aten::item", False), ("aten::_local_scalar_dense", False)]
)
def test_what_the_host_did_while_the_device_was_idle(name, named):
    """An operator that waits for the device is no cause of its idling."""
    base, new = (run({0: steps_of(500, 0, idle)}, operators=[(name, 1, idle)]) for idle in (100, 400))
    said = _said(base, new)
    assert "mostly idle +300 µs" in said
    assert (f"on the host {name}: slower calls, 100 µs → 400 µs per step and rank" in said) == named
    assert "GPU idle: 16.6 % → 44.4 %." in said


def test_a_part_that_is_less_than_half():
    base, new = run({0: steps_of(500, 100, 100)}), run({0: steps_of(580, 170, 150)})
    assert "In the mean +200 µs, the largest part compute +80.0 µs" in _said(base, new)


def test_a_report_without_its_work_blames_nothing():
    """A baseline of before there were such tables: what is there now is not new for that."""
    kernels = _compute(("gemm", 1, 900.0))
    base, new = run({0: steps_of(500)}, kernels=kernels), run({0: steps_of(900)}, kernels=kernels)
    old = Report(base.title, meta=base.meta, sections=tuple(s for s in base.sections if s.name != "step_work"))
    report = compare(old, new)
    assert "gemm" not in report.verdict
    assert "mostly compute" in report.verdict
    for section in ("compare_kernels", "compare_names", "compare_communication"):
        assert "does not tell its work" in report[section].reason
