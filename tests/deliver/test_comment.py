"""`htareport comment`: its Markdown, and that one comment is written and then edited, on GitHub and GitLab."""

from __future__ import annotations

import json
import re

import pytest
from deliver.conftest import free_port, hostile
from render.sample import sample

from htareport.errors import UsageError
from htareport.render.comment import calm, comment, marker
from htareport.render.markdown import LIMIT
from htareport.report import Report

TOKEN = "ghs_stand_in_token"  # noqa: S105
MARKER = "<!-- htareport:report -->"


@pytest.fixture
def github(api, monkeypatch):
    given = {"GITHUB_API_URL": api.url, "GITHUB_REPOSITORY": "octo/repo", "GITHUB_REF": "refs/pull/7/merge",
             "GITHUB_TOKEN": TOKEN}  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return api


@pytest.fixture
def gitlab(api, monkeypatch):
    given = {"CI_API_V4_URL": f"{api.url}/api/v4", "CI_PROJECT_ID": "42", "CI_MERGE_REQUEST_IID": "7",
             "CI_PROJECT_URL": "https://gitlab.example/g/p", "GITLAB_TOKEN": TOKEN}  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return api


def test_written_once_then_edited_on_github(cli, github, saved):
    github.comments += [{"id": i, "body": f"> {MARKER}"} for i in range(150)]  # Two pages of others, which quote it.
    ran = cli("comment", saved)
    assert ran.status == 0, ran.err
    assert ran.out == f"comment written: {github.url}/pull/7#c1150\n"
    assert [(method, path.partition("?")[0]) for method, path, *_ in github.requests] == [
        ("GET", "/repos/octo/repo/issues/7/comments"), ("GET", "/repos/octo/repo/issues/7/comments"),
        ("POST", "/repos/octo/repo/issues/7/comments"),
    ]  # fmt: skip
    assert github.requests[-1][2]["Authorization"] == f"Bearer {TOKEN}"
    github.requests.clear()
    ran = cli("comment", saved, "--title", "Second")
    assert ran.out.startswith("comment edited: ")
    assert github.requests[-1][:2] == ("PATCH", "/repos/octo/repo/issues/comments/1150")
    assert len(github.comments) == 151
    assert github.comments[-1]["body"].startswith(f"{MARKER}\n### Training step: **267\u202fms**\n\n`Second`")
    assert cli("comment", saved, "--id", "inference", "-q").out == ""
    assert len(github.comments) == 152


def test_written_once_then_edited_on_gitlab(cli, gitlab, saved):
    gitlab.comments += [{"id": 1, "body": MARKER, "system": True}, {"id": 2, "body": "hello"}]
    assert cli("comment", saved).out == "comment written: https://gitlab.example/g/p/-/merge_requests/7#note_1002\n"
    assert cli("comment", saved).out == "comment edited: https://gitlab.example/g/p/-/merge_requests/7#note_1002\n"
    base = "/api/v4/projects/42/merge_requests/7/notes"
    calls = [(method, path.partition("?")[0]) for method, path, *_ in gitlab.requests]
    assert calls == [("GET", base), ("POST", base), ("GET", base), ("PUT", f"{base}/1002")]
    assert {headers.get("Private-Token") for *_, headers, _ in gitlab.requests} == {TOKEN}


def test_a_comment_of_somebody_else_is_left_alone(cli, github, saved):
    github.comments.append({"id": 5, "body": f"{MARKER} mine!", "locked": True})
    assert cli("comment", saved).out.startswith("comment written")
    assert github.comments[0]["body"] == f"{MARKER} mine!"


@pytest.mark.parametrize(
    "event",
    [{"pull_request": {"number": 7}}, {"issue": {"number": 7, "pull_request": {"url": "…"}}},
     {"workflow_run": {"pull_requests": [{"number": 7}]}}],
)  # fmt: skip
def test_the_number_comes_from_the_event_too(cli, github, saved, tmp_path, monkeypatch, event):
    monkeypatch.setenv("GITHUB_REF", "refs/heads/main")
    (tmp_path / "event.json").write_text(json.dumps(event))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
    assert cli("comment", saved).status == 0
    assert github.requests[-1][1] == "/repos/octo/repo/issues/7/comments"


def test_no_pull_request(cli, github, saved, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_REF", "refs/heads/main")
    ran = cli("comment", saved)
    assert ran.status == 2
    assert "--pull-request" in ran.err
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    ran = cli("comment", saved, "--step-summary")
    assert (ran.status, github.requests) == (0, [])
    assert "no pull request" in ran.err
    assert cli("comment", saved, "--pull-request", "9").status == 0
    assert github.requests[-1][1] == "/repos/octo/repo/issues/9/comments"


def test_step_summary_is_added_to(cli, github, saved, tmp_path, monkeypatch):
    assert cli("comment", saved, "--step-summary").status == 2  # The variable is not set.
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    assert cli("comment", saved, "--step-summary").status == 0
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{MARKER}\n### Training step")
    assert github.comments[0]["body"] in text
    path.write_bytes(b"x" * 1024 * 1024)
    assert cli("comment", saved, "--step-summary").status == 5


@pytest.mark.parametrize(
    ("fail", "said"),
    [((403, {"message": "Resource not accessible by integration"}), "pull-requests: write"),
     ((401, {"message": "Bad credentials"}), "401 Bad credentials"), ((404, b"<html>"), "404"),
     ((500, b""), "500"), ((200, b"<html>hello"), "no JSON"), ((200, {"a": 1}), "not a list"),
     ((307, b""), "--api-url")],
)  # fmt: skip
def test_what_an_api_says_is_told(cli, github, saved, fail, said):
    github.fail = fail
    ran = cli("comment", saved)
    assert ran.status == 5
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert TOKEN not in ran.err + ran.out
    assert len(github.requests) == 1  # Nor was a redirect followed, with the token.


def test_nobody_answers(cli, github, saved, monkeypatch):
    ran = cli("comment", saved, "--api-url", f"http://127.0.0.1:{free_port()}")
    assert ran.status == 5
    assert "refused" in ran.err


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["--api-url", "file:///etc/passwd"], {}), (["--api-url", "http://u:p@127.0.0.1"], {}), (["--id", "a b"], {}),
     (["--id", "-->"], {}), (["--id", "a--b"], {}), (["--artifact-url", "javascript:alert(1)"], {}),
     (["--artifact-url", "https://x y"], {}), (["--pull-request", "x"], {}), ([], {"GITHUB_TOKEN": ""}),
     ([], {"GITHUB_TOKEN": "a\nb"}), ([], {"GITHUB_REPOSITORY": "../x"}), (["--token-env", "NO_SUCH"], {}),
     (["--host", "gitlab"], {})],
)  # fmt: skip
def test_wrong_usage(cli, github, saved, monkeypatch, arguments, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ran = cli("comment", saved, *arguments)
    assert ran.status == 2, ran.err
    assert not github.requests


def test_no_ci_and_no_report(cli, saved, tmp_path):
    assert cli("comment", saved).status == 2
    assert cli("comment", saved, "--dry-run").out.startswith(MARKER)
    (tmp_path / "x.json").write_text("{}")
    assert cli("comment", tmp_path / "x.json", "--dry-run").status == 3


def test_the_comment_says_the_essentials():
    text = comment(sample(), artifact_url="https://ci.example/a_b?c=(1)&d=2")
    lines = text.splitlines()
    assert lines[:2] == [MARKER, "### Training step: **264\u202fms**"]
    for part in ("| Step time | **264\u202fms** |", "- **High**: Rank 2 computes 18 % longer", "up to 33.0\u202fms",
                 "<details><summary>Top kernels (10 of 400)</summary>", "NVIDIA H100",
                 "> - Rank 5: 2 events"):  # fmt: skip
        assert part in text
    assert lines[-1] == "[Full report](https://ci.example/a_b?c=%281%29&d=2) · htareport 0.1.0"
    assert len(text) < 6000


def test_a_comment_never_grows_too_long():
    long = "<&\"' 核@x" * 20_000
    report = sample(ranks=64)
    grown = Report(long, long, {"software": {long: long}, "source": long}, (long,) * 50, report.sections)
    assert all(len(comment(one)) <= LIMIT for one in (grown, hostile(), Report("")))


def test_hostile_names_are_inert():
    markdown_it = pytest.importorskip("markdown_it", reason="needs markdown-it-py")
    text = comment(hostile())
    assert text.count("<!--") - text.count("\\<!--") == 1
    tokens = markdown_it.MarkdownIt("commonmark").enable("table").parse(text)
    inner = [child for token in tokens for child in token.children or ()]
    blocks = [token.content.strip() for token in tokens if token.type == "html_block"]
    assert blocks[0] == MARKER
    assert all(re.fullmatch(r"</?details>(<summary>[\w ()]+</summary>)?", block) for block in blocks[1:])
    kinds = {child.type for child in inner}
    assert not kinds & {"html_inline", "image", "link_open"}
    shown = " ".join(child.content for child in inner if child.type == "text")
    assert not re.search(r"[@#!%~$][\w]|GH-\d|://", shown)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e\u2066]", text)


@pytest.mark.parametrize(
    "text", ["@octocat", "#12", "octo/repo#12", "GH-12", "!12", "https://x.example", "~bug", "&epic"]
)
def test_nobody_is_called(text):
    assert "&#8203;" in calm(text)
    assert calm("a 5 % of b & c: d") == "a 5 % of b \\& c: d"


def test_markers():
    assert marker("run-7.b") == "<!-- htareport:run-7.b -->"
    with pytest.raises(UsageError):
        marker("a" * 65)
