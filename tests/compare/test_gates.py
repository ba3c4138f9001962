"""Gates: what can be written, what it means, how it comes out, and what CI sees of it."""

import xml.etree.ElementTree as ET

import orjson
import pytest
from compare.job import Job
from compare.reports import run, steps_of

from htareport.cli import main
from htareport.compare import compare, judged
from htareport.compare.gates import check, parse
from htareport.compare.metrics import metrics
from htareport.compare.sides import Side
from htareport.compare.topics import METRICS
from htareport.errors import UsageError
from htareport.render.junit import junit
from htareport.report import Fact, Report, Unit


@pytest.fixture(scope="module")
def runs(base, new, tmp_path_factory):
    """A base, a run of which the kernel takes 20 % longer (about 12 % of the step), and one with three steps."""
    return base, new, Job(seed=3, steps=3).report(tmp_path_factory.mktemp("runs") / "few")


@pytest.fixture(scope="module")
def compared(runs):
    return compare(*runs[:2])


@pytest.fixture(scope="module")
def files(runs, tmp_path_factory):
    """The base and the new run, saved."""
    folder = tmp_path_factory.mktemp("saved")
    return [str(report.write(folder / f"{name}.json")) for name, report in zip(("base", "new"), runs, strict=False)]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("step_time > 255 ms", ("step_time", ">", 255e6, Unit.NANOSECONDS, False, False)),
        ("step_time>255ms", ("step_time", ">", 255e6, Unit.NANOSECONDS, False, False)),
        ("step_time >= 1.5s", ("step_time", ">=", 1.5e9, Unit.NANOSECONDS, False, False)),
        ("step_time > 90 µs", ("step_time", ">", 90e3, Unit.NANOSECONDS, False, False)),
        ("step_time > +5%", ("step_time", ">", 0.05, Unit.RATIO, True, True)),
        ("step_time > + 5 %", ("step_time", ">", 0.05, Unit.RATIO, True, True)),
        ("step_time > +2 ms", ("step_time", ">", 2e6, Unit.NANOSECONDS, True, False)),
        ("exposed_comm_pct > +2", ("exposed_comm_pct", ">", 0.02, Unit.RATIO, True, False)),
        ("exposed_comm_pct > 20", ("exposed_comm_pct", ">", 0.2, Unit.RATIO, False, False)),
        ("exposed_comm_pct > 20%", ("exposed_comm_pct", ">", 0.2, Unit.RATIO, False, False)),
        ("memory_peak > +10%", ("memory_peak", ">", 0.1, Unit.RATIO, True, True)),
        ("memory_peak > 70 GiB", ("memory_peak", ">", 70 * 2**30, Unit.BYTES, False, False)),
        ("kernels > 100", ("kernels", ">", 100, None, False, False)),
        ("compute_pct < -3", ("compute_pct", "<", -0.03, Unit.RATIO, True, False)),
        ("compute_pct < −3", ("compute_pct", "<", -0.03, Unit.RATIO, True, False)),
    ],
)
def test_grammar(written, expected):
    gate = parse(written)
    found = (gate.metric, gate.op, gate.limit, gate.unit, gate.is_change, gate.is_share)
    assert found[:2] == expected[:2]
    assert found[2] == pytest.approx(expected[2])
    assert found[3:] == expected[3:]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("", "is no gate"),
        ("step_time", "is no gate"),
        ("step_time = 5 ms", "is no gate"),
        ("step_time > fast", "is no gate"),
        ("> 5 ms", "is no gate"),
        ("step_time > 5 ms or 6 ms", "is no gate"),
        ("step_time > nan", "is no gate"),
        ("step_time > ٥ ms", "is no gate"),
        ("step_time > 5 parsec", "no unit 'parsec'"),
        ("exposed_comm_pct > +2%", "write +2 without %"),
    ],
)
def test_what_is_no_gate(written, words):
    with pytest.raises(UsageError, match=words.replace("+", r"\+")):
        parse(written)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("step_time > 5", "needs a unit, such as ms"),
        ("kernel_time > 5", "needs a unit, such as ms"),
        ("step_time > 5 GiB", "is not in that unit"),
        ("kernels > 5 ms", "is not in that unit"),
        ("step_tim > 5 ms", "did you mean step_time"),
        ("nonsense > 5 ms", "this run has step_time,"),
    ],
)
def test_gates_that_do_not_fit_the_metric(runs, written, words):
    with pytest.raises(UsageError, match=words):
        judged(runs[0], [parse(written)])


def test_a_change_needs_a_base():
    with pytest.raises(UsageError, match="htareport diff BASE NEW"):
        check([parse("step_time > +5%")], has_base=False)


def _state(report, gate, base=None):
    (verdict,) = judged(report, [parse(gate)], base)[1]
    return str(verdict.state)


@pytest.mark.parametrize(
    ("gate", "state"),
    [
        ("step_time > 1 ms", "crossed"),
        ("step_time > 1 s", "passed"),
        ("compute_pct < 99", "crossed"),
        ("kernels > 20", "passed"),  # 6 × 3 and 2 collectives.
        ("kernels >= 20", "crossed"),
        ("memory_peak > 1 GiB", "inconclusive"),  # Of a run without memory events.
    ],
)
def test_absolute(runs, gate, state):
    assert _state(runs[0], gate) == state


@pytest.mark.parametrize(
    ("gate", "state"),
    [
        ("step_time > +5%", "crossed"),
        ("step_time > +30%", "passed"),
        ("step_time > +300 us", "crossed"),
        ("compute_time > +400 us", "crossed"),
        ("compute_time > +600 us", "passed"),
        ("exposed_comm_pct > +2", "passed"),
        ("kernels > +0%", "passed"),
        ("span > +5%", "inconclusive"),  # One value of each run.
        ("memory_peak > +10%", "inconclusive"),
    ],
)
def test_relative(runs, compared, gate, state):
    assert _state(compared, gate, runs[0]) == state


def test_too_few_steps_are_inconclusive(runs, tmp_path):
    few = compare(runs[0], runs[2])
    assert _state(few, "step_time > +5%", runs[0]) == "passed"  # 14 against 3 allow a p below 0.01.
    few = compare(runs[2], runs[2])
    assert _state(few, "step_time > +5%", runs[2]) == "passed"  # The same run.
    other = Job(seed=4, steps=3).report(tmp_path)
    few = compare(runs[2], other)
    assert _state(few, "step_time > +5%", runs[2]) == "inconclusive"
    assert _state(few, "kernels > +5%", runs[2]) == "passed"  # Counted, not timed.


@pytest.fixture(scope="module")
def told():
    """Two runs that differ in what gates tell: the base and the comparison."""
    kernels = [("op", "8", "gemm", "compute", 3, 500.0)]

    def of(compute, speed, peak, **work):
        facts = (Fact("samples_per_second", "samples per second", speed, Unit.NUMBER),
                 Fact("peak_memory", "peak memory", peak * 2**30, Unit.BYTES))  # fmt: skip
        return run({0: steps_of(compute, 100, count=40)}, kernels=kernels, facts=facts, **work)

    base, new = of(500, 100.0, 1.2), of(626, 100 * 602 / 728, 1.8, collectives=[("all_reduce", 2, 50.0)])
    return base, compare(base, new)


@pytest.mark.parametrize(
    ("gate", "reason"),
    [
        ("compute_pct > +2", "83.4 % → 86.3 % (+2.88 points); 95 % interval +2.87 to +2.89 points"),
        ("step_time > +5%", "602 µs → 728 µs (+20.9 %); 95 % interval +20.8 % to +21.1 %"),
        ("step_time > +90 us", "602 µs → 728 µs (+126 µs); 95 % interval +125 µs to +127 µs"),
        ("step_time_p95 > +5%", "603 µs → 729 µs (+20.9 %); this number has no interval here"),
        ("memory_peak > +10%", "1.20 GiB → 1.80 GiB (+50.0 %)"),
        ("samples_per_second < -5%", "100 → 82.7 (−17.3 %); 95 % interval −17.4 % to −17.2 %"),
        ("collectives > +0", "0 → 2 (+2)"),
    ],
)
def test_reasons(told, gate, reason):
    """With signs, shares in percentage points; none of a kind is 0 and not unknown; throughput follows step time."""
    base, report = told
    (verdict,) = judged(report, [parse(gate)], base)[1]
    assert verdict.reason.replace("\u202f", " ") == reason
    assert str(verdict.state) == ("inconclusive" if "no interval" in reason else "crossed")


def test_intervals_are_not_shown_where_steps_are_too_few():
    """As the verdict says: three steps against five tell nothing."""
    three, five = (run({0: steps_of(500, count=count)}) for count in (3, 5))
    table = compare(three, five)["compare"].table("metrics").set_index("name")
    assert table["interval"].isna().all()
    assert compare(five, five)["compare"].table("metrics")["interval"].notna().any()


def test_every_metric_of_a_run_can_be_known_before(runs):
    assert set(metrics(Side(runs[0]))) <= set(METRICS)


def test_the_report_tells(runs, compared):
    report, verdicts = judged(compared, [parse("step_time > +5%"), parse("span > +1%")], runs[0])
    assert report.sections[0].name == "gates"
    assert report.sections[0].table()["state"].tolist() == ["crossed", "inconclusive"]
    assert report.verdict.startswith("Gate crossed (1 of 2): step_time > +5% (+1")
    assert "Gate inconclusive (1 of 2): span > +1% (+1" in report.verdict
    assert [gate["state"] for gate in report.meta["gates"]] == ["crossed", "inconclusive"]
    assert [verdict.fails for verdict in verdicts] == [True, False]
    again = Report.from_json(report.to_json())
    assert again.meta["gates"] == report.meta["gates"]


def _suite(report):
    root = ET.fromstring(junit(report))  # noqa: S314  our own
    assert root.tag == "testsuites"
    (suite,) = root
    assert int(suite.get("tests")) == len(suite.findall("testcase"))
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
    assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped"))
    assert all(case.get("name") and case.get("classname") for case in suite.iter("testcase"))
    return suite


def test_junit(runs, compared):
    gates = [parse(each) for each in ("step_time > +5%", "step_time > +90%", "span > +1%")]
    suite = _suite(judged(compared, gates, runs[0])[0])
    assert [case.get("name") for case in suite.iter("testcase")] == [gate.written for gate in gates]
    assert [[inner.tag for inner in case] for case in suite.iter("testcase")] == [
        ["failure"],
        ["system-out"],
        ["skipped"],
    ]
    strict = _suite(judged(compared, gates, runs[0], fail_on_inconclusive=True)[0])
    assert [[inner.tag for inner in case] for case in strict.iter("testcase")] == [
        ["failure"],
        ["system-out"],
        ["failure"],
    ]
    assert _suite(runs[0]).get("failures") == "0"


def test_junit_of_a_state_that_is_none():
    """Nothing but passed is a success."""
    assert _suite(Report("x", meta={"gates": [{"gate": "a", "state": "perhaps"}]})).get("failures") == "1"


def test_junit_of_hostile_text():
    gates = [{"gate": "a\x00<b>]]>&\ud800", "state": "crossed", "reason": '"</failure>\x1b'}]
    suite = _suite(Report("\x07<t>&", meta={"gates": gates}))
    assert suite.find("testcase/failure") is not None


@pytest.mark.parametrize(
    ("gates", "status"),
    [
        (["--fail-on", "step_time > +5%"], 1),
        (["--fail-on", "step_time > +50%"], 0),
        pytest.param(["--fail-on", "step_time > +50%", "--fail-on", "kernels > 1"], 1, marks=pytest.mark.slow),
        (["--fail-on", "span > +1%"], 0),
        (["--fail-on", "span > +1%", "--fail-on-inconclusive"], 1),
        (["--fail-on", "step_time > 5"], 2),
        pytest.param(["--fail-on", "nonsense > 5"], 2, marks=pytest.mark.slow),
        (["--fail-on", "step_time"], 2),
    ],
)
def test_exit_status_of_diff(files, tmp_path, capsys, gates, status):
    out = tmp_path / "out.json"
    assert main(["diff", *files, "-o", str(out), "-o", str(tmp_path / "out.xml"), *gates]) == status
    assert out.exists() == (status != 2)
    told = capsys.readouterr().err
    assert ("error: gate " in told) == (status == 1)


def test_report_with_gates(runs, tmp_path, capsys):
    """A saved report can be judged as well; what is about a change needs a base."""
    runs[0].write(tmp_path / "run.json")
    command = ["report", str(tmp_path / "run.json"), "-o", str(tmp_path / "out.json")]
    assert main([*command, "--fail-on", "step_time > 1 ms"]) == 1
    assert orjson.loads((tmp_path / "out.json").read_bytes())["meta"]["gates"][0]["state"] == "crossed"
    assert main([*command, "--fail-on", "step_time > 1 s"]) == 0
    assert main([*command, "--fail-on", "step_time > +5%"]) == 2
    assert "htareport diff BASE NEW" in capsys.readouterr().err


def test_gates_in_a_file(runs, tmp_path):
    runs[0].write(tmp_path / "run.json")
    (tmp_path / "htareport.toml").write_text('[report]\nfail_on = ["step_time > 1 ms"]\n')
    command = ["report", str(tmp_path / "run.json"), "-o", str(tmp_path / "out.json")]
    assert main([*command, "--config", str(tmp_path / "htareport.toml")]) == 1


def test_diff_of_folders(tmp_path):
    """From the command line, from traces."""
    for seed, name in ((1, "a"), (2, "b")):
        Job(seed=seed, ranks=1, steps=3, layers=1).write(tmp_path / name)
    outputs = ["-o", str(tmp_path / "x.html"), "-o", str(tmp_path / "x.md")]
    only = ["--only", "step_time,temporal_breakdown,step_work"]
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b"), *outputs, "-q", "-j", "1", *only]) == 0
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "b against a" in page
    assert page.index("What changed") < page.index("Temporal breakdown")
