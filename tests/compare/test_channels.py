"""What the short channels tell of a comparison: comment, mail and PDF; names from traces stay inert."""

import re
from dataclasses import replace
from importlib.util import find_spec

import pytest
from compare.job import GEMM, Job

from htareport.compare import compare, judged
from htareport.compare.gates import parse
from htareport.render import highlights
from htareport.render.comment import comment
from htareport.render.mail import default_subject
from htareport.render.pdf import selected_blocks

HOSTILE = "<img src=x onerror=alert(1)> @all #1 | `x` </details>{{7*7}}\u202e\x1b[31m"


@pytest.fixture(scope="module")
def report(base, tmp_path_factory):
    base, folder = replace(base, title="main"), tmp_path_factory.mktemp("pair")
    new = Job(seed=2, factors={GEMM: 1.2}, renamed={"relu_kernel<float>": HOSTILE}).report(folder / "branch")
    return judged(compare(base, new), [parse("step_time > +5%"), parse("step_time > 1 s")], base)[0]


def test_the_comment(report):
    """The number with its change and the gate first, then five numbers of both runs, then what one looks up."""
    text = comment(report)
    heading = text.splitlines()[1]
    assert re.fullmatch(
        r"### Training step: \*\*4\.\d\d.ms\*\* \(\+1\d\.\d.% against main\): crossed step\\_time .*", heading
    )
    assert "| Key number | This run | Base | Change |" in text
    assert re.search(r"\| step time \| \*\*4\.\d\d.ms\*\* \| [34]\.\d\d.ms \| \+1\d\.\d.% \|", text)
    assert "| **crossed** |" in text
    assert "| passed |" in text
    assert f"| `{GEMM}` | `compute` | `slower calls` | +4" in text
    assert len(text) < 6_000


def test_hostile_names_are_inert_in_the_comment(report):
    text = comment(report)
    assert "<img" not in re.sub(r"`[^`]*`|``[^\n]*?``", "", text)
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert text.count("</details>") == text.count("<details>") + len(re.findall(r"`[^\n]*</details>", text))


def test_the_mail_s_subject(report):
    assert re.fullmatch(r"branch against main: training step 4\.\d\d ms \(\+1\d\.\d %\)", default_subject(report))


def test_the_pdf_has_the_comparison_first(report):
    names = [block.section.name for block in selected_blocks(report, 900)]
    assert names[:3] == ["gates", "compare", "compare_kernels"]
    assert "temporal_breakdown" in names


def test_a_report_of_one_run_is_no_comparison(base):
    assert not highlights.is_comparison(base)
    assert not highlights.numbers(base)
    assert not highlights.change(base)


@pytest.mark.skipif(not find_spec("cmarkgfm"), reason="needs cmarkgfm")
def test_github_s_own_renderer_makes_nothing_of_names(tmp_path):
    """Not even where raw HTML is let through: no element, link or picture comes from a name."""
    from cmarkgfm import github_flavored_markdown_to_html
    from cmarkgfm.cmark import Options

    names = (
        "<img src=x onerror=alert(1)> </td></tr></table> `</details><script>alert(1)</script>`",
        "@all #1 | x | [a](javascript:alert(1)) ![x](http://e.example/x.png) https://e.example www.e.example ``` ``x``",
        "<!-- --> a\nb\r\nc {{7*7}} \u202e $\\alpha$ ~~x~~ **b** _i_ :smile: <https://e.example>",
    )
    renamed = dict(zip((GEMM, "relu_kernel<float>", "softmax_kernel<float>"), names, strict=True))
    base = Job(seed=1, steps=6).report(tmp_path / "<b>base @x `<")
    new = Job(seed=2, steps=6, renamed=renamed, factors={GEMM: 1.2}).report(tmp_path / "new")
    text = comment(judged(compare(base, new), [parse("step_time > +5%")], base)[0])
    page = github_flavored_markdown_to_html(text, options=Options.CMARK_OPT_UNSAFE)
    elements = set(re.findall(r"<([a-zA-Z][^\s>]*)", page))
    ours = {"blockquote", "code", "details", "h3", "li", "p", "strong", "summary", "ul"}
    assert elements <= ours | {"table", "tbody", "td", "th", "thead", "tr"}
    assert not re.search(r"<[a-zA-Z][^>]*(href|src|on\w+)=", page)
    assert page.count("<details>") == page.count("</details>")
