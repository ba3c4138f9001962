"""What a run may be: a comparison itself, judged before, without steps, of another measure, edited by hand."""

import dataclasses

import orjson
import pytest
from compare.reports import run, steps_of

from htareport.analyses.kernels.step_work import SMALL_KERNELS
from htareport.cli import main
from htareport.compare import compare, judged, sections
from htareport.compare.gates import parse
from htareport.report import Fact, Report, Unit

KERNELS = [("op", "8", "gemm", "compute", 3, 900.0)]


@pytest.fixture(scope="module")
def runs():
    fact = Fact("peak_memory", "peak memory", 2.0**30, Unit.BYTES, "allocated on rank 0")
    return [run({0: steps_of(time), 1: steps_of(time)}, title=title, kernels=KERNELS, facts=[fact])
            for title, time in (("one", 500), ("two", 600), ("three", 800))]  # fmt: skip


def _gates(report, *written, base=None):
    return judged(report, [parse(gate) for gate in written], base)[0]


def test_a_comparison_counts_for_its_new_run(runs):
    """In both places, with gates or without: as if the runs themselves had been compared."""
    one, two, three = (
        dataclasses.replace(each, warnings=(f"of {each.title}",), meta={"problems": ["file"]}) for each in runs
    )
    expected = compare(two, three)
    first, second = _gates(compare(one, two), "step_time > +1%", base=one), _gates(compare(one, three), "kernels > 1")
    assert compare(first, second).to_json() == expected.to_json()
    assert expected.title == "three against two"
    assert expected.warnings == ("base: of two", "of three")
    assert expected.meta["problems"] == ["base: file", "file"]


def test_gates_are_judged_anew(runs):
    """Those of a saved report make room: in the verdict, the section and the JSON."""
    first = _gates(runs[0], "step_time > 1 us")
    again = _gates(Report.from_json(first.to_json()), "step_time > 2 us", "step_time > 1 s")
    assert again.to_json() == _gates(runs[0], "step_time > 2 us", "step_time > 1 s").to_json()
    assert again.verdict == "Gate crossed (1 of 2): step_time > 2 us (502\u202fµs)."


def test_thousands_of_gates_take_one_sentence(runs):
    report = _gates(compare(*runs[:2]), *(f"step_time > +{number / 1000}%" for number in range(2000)), base=runs[0])
    assert "and 1997 more." in report.verdict
    assert len(report.verdict) < 500
    assert len(report.meta["gates"]) == 2000


def test_the_same_steps(runs):
    assert compare(runs[0], runs[0]).verdict == "The step times are the same: 502\u202fµs (8 against 8 steps)."
    assert compare(runs[0], runs[0]).title == "one: new against base"


def test_work_of_runs_of_which_one_has_no_steps(runs):
    """Eight steps of a rank, with three calls each, are beside the 24 calls that a rank of the other made in all."""
    report = compare(runs[0], run({}, span=4000, kernels=[("op", "8", "gemm", "compute", 24, 7200.0)]))
    row = report["compare_kernels"].table("kernels").iloc[0]
    assert (row["base_count"], row["new_count"], row["change"]) == (24, 24, "unchanged")
    assert report["compare_kernels"].tables[0].spec.columns[4].help.endswith("per rank.")
    assert "The new run has no steps" in report["compare_kernels"].notes[0]
    assert "No steps in the new run" in report.verdict


def test_the_row_of_small_kernels_is_named_as_the_analysis_does():
    assert sections._SMALL_KERNELS == SMALL_KERNELS


def _edited(report, *path, value):
    data = orjson.loads(report.to_json())
    at = data
    for step in path[:-1]:
        at = at[step] if not isinstance(at, list) or isinstance(step, int) else _named(at, step)
    at[path[-1]] = value
    return Report.from_json(orjson.dumps(data))


def _named(items, name):
    return next(item for item in items if name in {item.get("name"), item.get("spec", {}).get("name")})


META = [
    {"software": True, "capture": ["on"], "recorded_ns": {"a": 1}, "options": {"idle_time": 3}, "window": [1]},
    {"software": "12", "capture": {"with_stack": {"a": 1}}, "recorded_ns": "long", "devices": {"x" * 5000: 1}},
    {"software": {"devices": "1", "platform": "2"}, "devices": {"a": 1}, "steps": {}},
]  # fmt: skip
KERNEL_CELLS = {
    "path": [None, "a > b", 3, "c", "d"],
    "kernel": [7, None, "gemm", "gemm", "add"],
    "count": [1, None, 2, 3, 4.0],
    "time": [900.0, 5.0, "much", -5.0, 1e300],
}


def _both_ways(edited, other):
    for pair in ((edited, other), (other, edited)):
        report = _gates(compare(*pair), "kernel_time > +5%", "kernels > 5", base=pair[0])
        assert len(report.verdict) < 800
        report.to_json()


@pytest.mark.parametrize("meta", META)
def test_what_is_known_of_a_run_may_be_anything(runs, meta):
    known = {"devices": {"b": 2}, "software": {"CUDA runtime": "1"}, "steps": {"count": 8}}
    _both_ways(_edited(runs[0], "meta", value=meta), _edited(runs[1], "meta", value=known))


def test_cells_may_be_anything(runs):
    edited = runs[0]
    frame = ("sections", "step_work", "tables", "kernels", "frame")
    rows = {"shapes": [""] * 5, "kind": ["compute"] * 5} | KERNEL_CELLS
    edited = _edited(edited, *frame, value={"dtypes": dict.fromkeys(rows, "object"), "columns": rows})
    _both_ways(edited, runs[1])
    basis = {"ranks": [0], "steps": ["x"]}
    frame = ("sections", "step_work", "tables", "basis", "frame")
    edited = _edited(edited, *frame, value={"dtypes": dict.fromkeys(basis, "object"), "columns": basis})
    _both_ways(edited, run({}, span=10))


def test_steps_of_no_length_are_none(runs):
    assert "tells no time" in compare(run({0: [(0, 0, 0)] * 8}), runs[0]).verdict
    none = run({0: [*steps_of(500), (0, 0, 0)]})
    assert compare(none, none).meta["comparison"]["steps"] == [8, 8]


def test_a_baseline_is_not_written_over(runs, tmp_path, capsys):
    paths = [str(report.write(tmp_path / f"{report.title}.json")) for report in runs[:2]]
    for output in (paths[0], str(tmp_path / "." / "two.json")):
        assert main(["diff", *paths, "-o", str(tmp_path / "out.md"), "-o", output]) == 2
    assert "is one of the runs that are compared" in capsys.readouterr().err
    assert not (tmp_path / "out.md").exists()


def test_a_problem_of_the_base_is_one_of_the_comparison(runs, tmp_path):
    """A file of the base that could not be used: exit 4."""
    broken = dataclasses.replace(runs[0], meta={"problems": ["rank1.json: not used"]})
    paths = [str(report.write(tmp_path / f"{report.title}.json")) for report in (broken, runs[1])]
    assert main(["diff", *paths, "-o", str(tmp_path / "out.md")]) == 4
    assert main(["diff", *paths, "-o", str(tmp_path / "out.md"), "--allow-partial"]) == 0
