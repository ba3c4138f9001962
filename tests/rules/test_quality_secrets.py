"""What the trace files hold that is nobody else's business."""

from __future__ import annotations

from builder import TraceBuilder

from htareport.analyses.quality.trace_quality import TraceQuality
from htareport.rules.quality.secrets import Sensitive
from htareport.run.runner import analyze

TOKEN = "hf_" + 9 * "aB1d"
HOME = "/home/somebody/train.py(3): step"


def kernel(**metadata):
    return TraceBuilder(**metadata).step(1, 0, 100).kernel("a", 10, 20, launch=(5, 1))


def test_a_token_is_counted_and_not_shown(findings):
    trace = kernel(note=f"login with {TOKEN}").python_function(HOME, 1, 50)
    told = findings([Sensitive()], trace)["Q10"]
    assert told.title == "The trace files hold tokens"
    assert told.severity == "low"  # It costs no time, and stands behind what does.
    assert "Replace tokens" in told.advice
    assert "files: 1 token and 1 home folder. " in told.evidence
    assert "stand-ins" in told.advice
    assert TOKEN not in str(told)
    assert "somebody" not in str(told)


def test_names_alone_need_no_new_tokens(findings):
    told = findings([Sensitive()], kernel().python_function(HOME, 1, 50), kernel(rank=1))["Q10"]
    assert (told.title, told.ranks) == ("The trace files hold home folders", (0,))
    assert "Replace tokens" not in told.advice


def test_a_report_that_keeps_them_says_so(tmp_path):
    path = kernel(note=f"login with {TOKEN}").write(tmp_path / "rank0.json")
    [told] = analyze(path, analyses=[], rules=[Sensitive()], redact=False)["findings"].findings
    assert told.title.endswith("tokens, and so does this report: it was made with `--no-redact`")
    assert "without `--no-redact` before" in told.advice
    assert TOKEN not in str(told)


def test_the_host_in_the_name_of_the_file_is_there_for_all_to_see(tmp_path):
    path = tmp_path / "node17_4242.1750000000000000000.pt.trace.json"
    path.write_text(kernel().json().replace("rank0.json", path.name))
    report = analyze(path, rules=[Sensitive()], analyses=[TraceQuality()])
    assert report["trace_quality"].table("redacted")["kind"].tolist() == ["host names"]
    assert not report["findings"].findings
    path.write_text(kernel().annotation("on node17", 1, 2).json().replace("rank0.json", path.name))
    [told] = analyze(path, rules=[Sensitive()], analyses=[])["findings"].findings
    assert told.evidence.startswith("In the distinct texts of the files: 1 host name.")


def test_nothing_to_hide(findings):
    assert findings([Sensitive()], kernel().cpu_op("aten::mm", 1, 2)) == {}
    assert findings([Sensitive(fewest=2)], kernel().python_function(HOME, 1, 50)) == {}
