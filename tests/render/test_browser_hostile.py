"""Markup in every text of the traces, and in the names of their files: it stays text in whatever is written of them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from email import message_from_bytes, policy
from importlib.util import find_spec
from itertools import count

import pytest
from compare.job import ANALYSES, GEMM, Job
from render.sample import HOSTILE
from render.test_browser import chromium, pytestmark, selenium, wait

from htareport.compare import compare, judged
from htareport.compare.gates import parse
from htareport.files.output import encoded
from htareport.render.comment import comment
from htareport.run.runner import analyze

__all__ = ["pytestmark", "selenium"]
MARK = "from-a-name"  # The class of every element that a name tries to make.
EVIL = [
    f'"\'><img class={MARK} src=http://evil.invalid/i onerror="alert(1)"><svg class={MARK} onload=alert(2)>',
    f"</script></style></title></textarea></td></table><script class={MARK}>alert(3)</script>",
    f'[a](javascript:alert(4)) ![i](http://evil.invalid/m.png) <a class={MARK} href="javascript:alert(5)">x</a>',
    f"``` ` | \n\n<iframe class={MARK} srcdoc='<script>parent.alert(6)</script>'></iframe> <http://evil.invalid/l>",
    f"--> ]]> <!-- &lt;b class={MARK}&gt; %{{customdata}} {{{{7*7}}}} <style class={MARK}>*{{display:none}}</style>",
    f"<link class={MARK} rel=stylesheet href=//evil.invalid/s><base class={MARK} href=http://evil.invalid/>",
]
KEPT = {"ph", "cat", "s", "displayTimeUnit", "backend"}  # What tells the loader what an event is.
WATCH = """
window.seen = [];
for (const each of ['alert', 'confirm', 'prompt', 'print']) window[each] = (text) => { seen.push(`${each} ${text}`); };
document.addEventListener('securitypolicyviolation', (e) => seen.push(`policy ${e.violatedDirective} ${e.blockedURI}`));
window.addEventListener('error', (e) => seen.push(`error ${e.message}`));
"""
MADE = f"""return [...document.querySelectorAll(
    '.{MARK}, iframe, object, embed, base, link[href], [onerror], [onload], svg a, img[src^=http], [href^=javascript]'
)].map((each) => each.outerHTML.slice(0, 200))"""


def soiled(value, numbers, key=""):
    """A value of a trace with markup behind each text in it; steps keep their names."""
    if isinstance(value, dict):
        return {each: soiled(inner, numbers, each) for each, inner in value.items()}
    if isinstance(value, list):
        return [soiled(each, numbers, key) for each in value]
    if not isinstance(value, str) or key in KEPT or value.startswith("ProfilerStep"):
        return value
    return f"{value}{EVIL[next(numbers) % len(EVIL)]}"


def run(folder, job, **options):
    """The report of a job whose traces are soiled, read under names that are no better."""
    folder.mkdir()
    for rank in range(job.ranks):
        made = job._rank(rank)
        made.annotation("forward", 1400, 300).memcpy("HtoD (Pinned -> Device)", 1450, 9, bytes=99, launch=(1440, 3))
        made.python_function("train.py(1): step", 1400, 900).memory(1500, 4096, 1, 4096, 8192)
        made.complete("odd <b>", "odd", 1, 1, (1400, 5), {"stream": 7})
        made.event({"ph": "M", "name": "process_name", "pid": made.pid, "tid": 0, "ts": 0, "args": {"name": "python"}})
        made.metadata |= {"hostname": "host", "pytorch_version": "2.9", "custom": {"k": "v"}}
        made.metadata["with_flops"] = "yes"
        data = soiled(json.loads(made.json()), count())
        data["traceEvents"] = [
            event | {"name": name} for event, name in zip(data["traceEvents"], _names(data), strict=True)
        ]
        name = f"rank{rank} <img class={MARK} src=x onerror=alert(7)>`{EVIL[0][:3]}".replace(os.sep, "")
        (folder / f"{name}.json").write_text(json.dumps(data))
    return analyze(folder, redact=False, title=f"Title {' '.join(EVIL)}", **options)


def _names(data):
    """Names of the events: of equal names with equal markup, so that they are one kernel or operator."""
    for event in data["traceEvents"]:
        plain = event["name"]
        for evil in EVIL:
            plain = plain.removesuffix(evil)
        is_kept = plain.startswith(("ProfilerStep", "[memory]", "process_name"))
        yield plain if is_kept else f"{plain}{EVIL[len(plain) % len(EVIL)]}"


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    base = run(folder / "base <b>`| @x", Job(seed=1, steps=3, layers=2), analyses=ANALYSES)
    new = run(folder / "new", Job(seed=2, steps=3, layers=2, factors={GEMM: 1.4}, load=2000))
    new = replace(new, verdict=f"{new.verdict} {EVIL[1]}", warnings=(*new.warnings, *HOSTILE, *EVIL))
    diff = judged(compare(base, new), [parse("step_time > +5%")], base)[0]
    return {"report": new, "diff": diff}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = chromium(tmp_path_factory.mktemp("profile"))
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    yield driver
    driver.quit()


def opened(browser, path, every=1):
    """Open a page, and in it what can be opened, of its charts every so many; return what names have made of it."""
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(path.as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    browser.execute_script("document.querySelectorAll('.more, th button').forEach((each) => each.click())")
    figures = browser.execute_script("return document.querySelectorAll('figure.zoomable').length")
    for number in range(0, figures, every):
        figure = f"document.querySelectorAll('figure.zoomable')[{number}]"
        browser.execute_script(f"{figure}.scrollIntoView()")
        wait(browser, f"return {figure}.querySelector('.plot .main-svg')")
    log = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    asked = [each["params"]["request"]["url"] for each in log if each["method"] == "Network.requestWillBeSent"]
    return {
        "seen": browser.execute_script("return window.seen"),
        "made": browser.execute_script(MADE),
        "asked": [url for url in asked if not url.startswith(("data:", "blob:")) and url != path.as_uri()],
        "console": [entry["message"] for entry in browser.get_log("browser") if entry["level"] != "INFO"],
    }


NOTHING = {"seen": [], "made": [], "asked": [], "console": []}


def test_the_watch_sees_what_names_would_do(browser, tmp_path):
    """Markup that is let through is noticed; without a policy it asks, too."""
    page = "<!doctype html><meta charset=utf-8>{}<body>" + EVIL[0] + EVIL[1]
    path = tmp_path / "through.html"
    path.write_text(page.format(""))
    found = opened(browser, path)
    assert len(found["made"]) >= 2
    assert "alert 2" in found["seen"]
    assert "alert 3" in found["seen"]
    assert found["asked"] == ["http://evil.invalid/i"]
    path.write_text(page.format("<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\">"))
    found = opened(browser, path)
    assert any(each.startswith("policy script-src") for each in found["seen"])
    assert any(each.startswith("policy img-src http://evil.invalid") for each in found["seen"])
    assert found["console"]


@pytest.mark.parametrize(
    ("which", "every"),
    [("report", 12), ("diff", 6), *(pytest.param(which, 1, marks=pytest.mark.slow) for which in ("report", "diff"))],
)
def test_the_page(which, every, browser, reports, tmp_path):
    """No violation of its policy, no request, no dialog, no element."""
    path = tmp_path / f"{which}.html"
    path.write_bytes(encoded(reports[which], ".html"))
    assert path.read_bytes().count(MARK.encode()) > 50
    assert opened(browser, path, every) == NOTHING
    assert browser.execute_script("return document.querySelectorAll('figure.live').length") > 2
    assert browser.execute_script("return document.body.innerText").count(MARK) > 20


@pytest.mark.skipif(not find_spec("cmarkgfm"), reason="needs cmarkgfm")
@pytest.mark.parametrize("made", ["markdown", "comment"])
@pytest.mark.parametrize("which", ["report", "diff"])
def test_markdown_as_github_renders_it(made, which, browser, reports, tmp_path):
    """The same on a page without any policy, where raw HTML is let through; no links, either."""
    from cmarkgfm import github_flavored_markdown_to_html
    from cmarkgfm.cmark import Options

    text = encoded(reports[which], ".md").decode() if made == "markdown" else comment(reports[which])
    assert MARK in text.replace("\\", "")
    path, page = tmp_path / "a.html", github_flavored_markdown_to_html(text, options=Options.CMARK_OPT_UNSAFE)
    path.write_text(f"<!doctype html><meta charset=utf-8><body>{page}", "utf-8")
    assert opened(browser, path) == NOTHING
    assert browser.execute_script("return document.querySelectorAll('a, img, script, style').length") == 0


@pytest.mark.parametrize("which", ["report", "diff"])
def test_the_mail(which, browser, reports, tmp_path, monkeypatch):
    """The same of its body, which has no policy; pictures stand in the mail itself."""
    monkeypatch.setattr("htareport.render.pdf.pdf", lambda _report, **_: b"%PDF-1.7 stand-in")
    message = message_from_bytes(encoded(reports[which], ".eml"), policy=policy.default)
    page = message.get_body(("html",)).get_content()
    assert MARK in page
    path = tmp_path / "mail.html"
    path.write_text(page, "utf-8")
    found = opened(browser, path)
    assert {url.partition(":")[0] for url in found.pop("asked")} <= {"cid"}
    found["console"] = [each for each in found["console"] if "cid:" not in each]
    found["seen"] = [each for each in found["seen"] if "cid:" not in each]
    assert found == {"seen": [], "made": [], "console": []}
    assert browser.execute_script("return document.querySelectorAll('a, script, style, svg').length") == 0
