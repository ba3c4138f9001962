"""Properties of comparisons: of a run with itself, of swapped runs, of saved reports; and reports that lack things."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from builder import TraceBuilder
from compare.job import ANALYSES, GEMM, Job
from hypothesis import example, given
from hypothesis import strategies as st

import htareport
from htareport.compare import changes, compare
from htareport.compare.changes import EFFECTS, MEASURES, SIDES, Amount, split
from htareport.compare.matching import match, plain
from htareport.compare.metrics import metrics
from htareport.compare.sides import Side
from htareport.compare.topics import METRICS
from htareport.report import Report, Status
from htareport.run.runner import analyze

COMPARED = ("compare", "compare_kernels", "compare_names", "compare_communication", "compare_ranks")


@pytest.fixture(scope="module")
def pair(base, tmp_path_factory):
    other = Job(seed=2, factors={GEMM: 1.3}, load=600).report(tmp_path_factory.mktemp("pair") / "b")
    return replace(base, title="a"), other


@pytest.fixture(scope="module")
def compared(pair):
    return compare(*pair)


def test_a_run_with_itself(pair):
    report = compare(pair[0], pair[0])
    assert report.meta["comparison"]["outcome"] == "no detectable change"
    assert report["compare"].fact("change").value == 0
    assert (report["compare"].table("waterfall")["delta"] == 0).all()
    assert "environment" not in [table.spec.name for table in report["compare"].tables]
    for name in ("compare_kernels", "compare_names", "compare_communication"):
        for table in report[name].tables:
            if "change" in table.frame:
                assert set(table.frame["change"]) <= {"unchanged"}, table.spec.name
                assert (table.frame[["delta", *EFFECTS]] == 0).all(axis=None)
            assert not report[name].charts or all(len(chart.frame) for chart in report[name].charts)
    assert "mostly" not in report.verdict


def test_swapped_runs_mirror(pair, compared):
    """Every change turns its sign, whatever it is split into."""
    one, other = compared, compare(*reversed(pair))
    opposite = {"by_new": "by_gone", "base_time": "new_time", "base_count": "new_count"}
    opposite |= {new: old for old, new in opposite.items()}
    for section, table in (("compare_kernels", "details"), ("compare_names", "names"), ("compare", "waterfall")):
        keys = one[section].tables[[t.spec.name for t in one[section].tables].index(table)].spec.keys
        left, right = (each[section].table(table).set_index(keys).sort_index() for each in (one, other))
        assert list(left.index) == list(right.index)
        for column in ("delta", *(name for name in MEASURES if name in left)):
            sign = 1 if column in SIDES else -1
            mirrored = right[opposite.get(column, column)] * sign if column != "delta" else -right[column]
            assert left[column].to_numpy() == pytest.approx(mirrored.to_numpy(), abs=1e-6), column
    first, second = one.meta["comparison"], other.meta["comparison"]
    assert first["low"] == pytest.approx(1 / second["high"])
    assert first["p"] == pytest.approx(second["p"])
    assert {first["outcome"], second["outcome"]} == {"longer", "shorter"}


def test_saved_reports_give_the_same_bytes(pair, compared, tmp_path):
    """As the folders, and as the reports in memory."""
    paths = [report.write(tmp_path / f"{name}.json.gz") for name, report in zip("ab", pair, strict=True)]
    saved = htareport.diff(*paths)
    assert saved.to_json() == compared.to_json()
    assert Report.from_json(saved.to_json()).to_json() == saved.to_json()


def test_folders_give_the_same_bytes_as_saved_reports(tmp_path):
    """With all analyses."""
    jobs = {"a": Job(seed=3, ranks=1, steps=3, layers=1), "b": Job(seed=4, ranks=2, steps=4, layers=1)}
    for name, job in jobs.items():
        job.write(tmp_path / name)
        report = htareport.analyze(tmp_path / name)
        assert set(metrics(Side(report))) <= set(METRICS)
        report.write(tmp_path / f"{name}.json")
    from_folders = htareport.diff(tmp_path / "a", tmp_path / "b")
    assert from_folders.to_json() == htareport.diff(tmp_path / "a.json", tmp_path / "b.json").to_json()


def test_the_new_run_is_reported_whole(pair, compared):
    report = compared
    assert [section.name for section in report.sections] == [*COMPARED, *(s.name for s in pair[1].sections)]
    assert report.title == "b against a"
    assert report["step_time"].fact("step_time").detail.startswith("was ")
    assert report["step_work"].table("kernels").equals(pair[1]["step_work"].table("kernels"))


def test_the_parts_add_up(pair, compared):
    frame = compared["compare"].table("waterfall").set_index("part")
    total = frame.loc["in all"]
    assert frame.drop(index="in all")["delta"].sum() == pytest.approx(total["delta"])
    assert total["base"] == pytest.approx(pair[0]["step_time"].table("summary")["mean"].iloc[0])
    assert abs(frame.loc["rest", "delta"]) <= 0.02 * total["base"]


def test_runs_without_steps(tmp_path):
    """What was recorded is compared, and it is said that nothing tells chance from change."""
    for name, length in (("a", 40), ("b", 60)):
        trace = TraceBuilder().cpu_op("aten::mm", 0, 10).kernel("gemm", 10, length, launch=(2, 4))
        trace.kernel("gemm", 100, length, launch=(90, 4)).write(tmp_path / name / "rank0.json")
    report = compare(*(analyze(tmp_path / name, analyses=ANALYSES) for name in "ab"))
    assert "GPU span 130 µs → 150 µs" in report.verdict.replace("\u202f", " ")
    assert "No steps in either run" in report.verdict
    assert report.meta["comparison"]["outcome"] == "no steps, so no test"
    parts = report["compare"].table("waterfall").set_index("part")["delta"]
    assert parts["compute"] == 40_000
    assert parts["idle: host wait"] == -20_000
    ranks = report["compare_ranks"].tables[0]
    assert ranks.spec.title == "GPU span by rank"
    assert ranks.frame["delta"].tolist() == [20_000]


def test_runs_without_gpu(tmp_path):
    for name, length in (("a", 40), ("b", 60)):
        trace = TraceBuilder(cuda_runtime_version=None)
        for number in range(6):
            start = number * 100
            trace.step(number, start, length + 10).cpu_op("aten::conv", start + 2, length + number)
        trace.write(tmp_path / name / "rank0.json")
    report = compare(*(analyze(tmp_path / name, analyses=ANALYSES) for name in "ab"))
    assert report["compare_kernels"].status is Status.NOT_APPLICABLE
    row = report["compare_names"].table("names").iloc[0]
    assert (row["name"], row["change"], row["delta"]) == ("aten::conv", "slower calls", 20_000)


def test_reports_that_have_nothing():
    empty = Report("nothing")
    report = compare(empty, empty)
    assert "Nothing to compare" in report.verdict
    assert {section.status for section in report.sections[1:]} == {Status.NOT_APPLICABLE}
    report.to_json()


AMOUNTS = st.builds(Amount, st.integers(1, 50), st.integers(1, 10**9))


@example(Amount(1, 999_988_483), Amount(2, 999_968_977))  # Times that are nearly equal.
@example(Amount(1, 1), Amount(3, 86_893_339))
@given(AMOUNTS, AMOUNTS)
def test_a_split_adds_up_and_mirrors(base, new):
    row, back = split(base, new), split(new, base)
    assert row["by_calls"] + row["by_duration"] == pytest.approx(new.time - base.time, abs=1e-3)
    for part in ("by_calls", "by_duration"):
        assert row[part] == pytest.approx(-back[part], abs=1e-3)
    if base.calls == new.calls:
        assert row["by_calls"] == 0


def test_split_on_paper():
    """Twice the calls of the same duration, then the same calls of twice the duration."""
    assert split(Amount(2, 20), Amount(4, 40))["by_calls"] == pytest.approx(20)
    assert split(Amount(2, 20), Amount(2, 40))["by_duration"] == 20
    both = split(Amount(2, 20), Amount(4, 80))  # 60 more, by ln 2 and ln 2.
    assert (both["by_calls"], both["by_duration"]) == (pytest.approx(30), pytest.approx(30))
    assert math.isclose(sum(split(Amount(0, 0), Amount(3, 7), "by_new")[effect] for effect in EFFECTS), 7)


def test_what_happened_lies_in_the_direction_of_the_change():
    """6 + 6 - 7 is longer, and so not gone; where nothing remains, the largest part counts."""

    def of(**parts):
        rows = pd.DataFrame([dict.fromkeys(MEASURES, 0.0) | {"base_time": 100.0, "new_time": 105.0} | parts])
        return changes.labelled(rows)["change"].iloc[0]

    assert of(by_calls=6, by_duration=6, by_gone=-7) == "more calls"
    assert of(by_calls=6, by_duration=-11, new_time=95) == "faster calls"
    assert of(by_new=7, by_gone=-7.5, by_duration=0.5, new_time=100) == "gone"
    assert of(new_time=100) == "unchanged"


def test_work_that_moved_is_told_with_both_places():
    """A kernel that other operators launch now, and one that none does."""
    base = _work(("a > b", "2", "k1", 1, 10), ("a > c", "3", "k2", 1, 10), ("a > d", "3", "k2", 1, 10))
    new = _work(("a > e", "4", "k1", 1, 10), ("", "", "k2", 2, 20))
    rows = changes.of_kernels(match(base, new)).set_index("kernel")
    assert rows.loc["k1", ["path", "operator", "shapes"]].tolist() == ["a > b → a > e", "b → e", "2 → 4"]
    assert rows.loc["k2", ["operator", "shapes", "base_count"]].tolist() == ["c; d → (none)", "3 → (none)", 2]


def _work(*rows):
    frame = pd.DataFrame(rows, columns=["path", "shapes", "kernel", "count", "time"])
    return frame.assign(kind="compute").astype({"count": float, "time": float})


def test_what_is_matched_by_what():
    base = _work(
        ("a > b", "2×2", "k1", 1, 10), ("x > c", "4", "k2", 1, 10), ("a > d", "8", "k3", 1, 10),
        ("", "", "k4_128", 1, 10), ("", "", "past", 1, 10), ("a > e", "1", "k6", 1, 10),
    )  # fmt: skip
    new = _work(
        ("a > b", "2×2", "other", 1, 12), ("y > c", "4", "k2", 1, 10), ("a > d", "9", "k3", 1, 10),
        ("", "", "k4_256", 1, 10), ("", "", "fresh", 1, 10), ("z > e", "3", "k6", 2, 20),
    )  # fmt: skip
    matched = match(base, new)
    levels = ["path and shapes", "operator and shapes", "path", "similar kernel", "", "operator"]
    assert matched.base["level"].tolist() == levels
    assert matched.new["level"].tolist() == levels
    rows = changes.labelled(changes.of_kernels(matched)).set_index("kernel")["change"].to_dict()
    assert rows == {
        "k1 → other": "swapped, slower", "k2": "unchanged", "k3": "unchanged", "k4_128 → k4_256": "unchanged",
        "past": "gone", "fresh": "new", "k6": "more calls",
    }  # fmt: skip


def test_names_without_what_changes_with_versions():
    assert plain("triton_poi_fused_add_12") == "triton_poi_fused_add_#"
    assert plain("CompiledFxGraph f7kq2mzx4h5n6p7r8s9t") == "CompiledFxGraph *"
    assert plain("sm80_gemm_128x64") == plain("sm90_gemm_256x128")
    assert plain("aten::addmm") == "aten::addmm"
