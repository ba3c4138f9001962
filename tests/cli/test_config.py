"""Options from a TOML file and from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from htareport.cli.config import ReportOptions, report_options
from htareport.errors import UsageError


def _options(tmp_path, text, **given):
    path = tmp_path / "htareport.toml"
    path.write_text(text, encoding="utf-8")
    return report_options(given, str(path))


def test_nothing_given():
    assert report_options({}) == ReportOptions()


def test_same_keys_as_the_command_line(tmp_path):
    text = """
        [report]
        output = ["a.html", "b.json"]
        title = "Nightly"
        ranks = "0,3-5"
        steps = 3
        only = ["one", "two"]
        jobs = 4
        allow-partial = true
        [set.one]
        ratio = 0.5
        flag = false
    """
    assert _options(tmp_path, text) == ReportOptions(
        output=("a.html", "b.json"),
        title="Nightly",
        ranks=frozenset({0, 3, 4, 5}),
        steps="3",
        only=("one", "two"),
        jobs=4,
        allow_partial=True,
        set={"one": {"ratio": "0.5", "flag": "False"}},
    )


def test_the_cache(tmp_path):
    """A folder named on the command line is used, whatever the file says."""
    text = "[report]\ncache = 'kept'\nno-cache = true\n"
    options = _options(tmp_path, text)
    assert (options.cache, options.no_cache) == (Path("kept"), True)
    assert not _options(tmp_path, text, cache="other").no_cache
    with pytest.raises(UsageError, match="--cache, --no-cache: "):
        _options(tmp_path, text, cache="other", no_cache=True)
    (tmp_path / "file").touch()
    for wrong in ("", str(tmp_path / "file"), "x" * 300, "s3://bucket/kept"):
        with pytest.raises(UsageError, match="--cache: "):
            report_options({"cache": wrong})


def test_command_line_wins(tmp_path):
    text = 'report = {output = "a.html", title = "x"}\n[set.one]\na = 1\nb = 2\n'
    options = _options(tmp_path, text, output=["b.md"], set=["one.b=3", "two.c=x = y"])
    assert (options.output, options.title) == (("b.md",), "x")
    assert options.set == {"one": {"a": "1", "b": "3"}, "two": {"c": "x = y"}}


def test_amounts_are_options_of_the_analysis_of_cost(tmp_path):
    """From a file, from the command line over it, and by --set over both."""
    text = "[report]\ngpu-hour = 2.5\nsamples-per-step = 64\n[set.cost]\nnum_gpus = 8\n"
    assert _options(tmp_path, text).set == {"cost": {"gpu_hour": "2.5", "samples_per_step": "64", "num_gpus": "8"}}
    given = _options(tmp_path, text, gpu_hour="3", samples_per_step="32", set=["cost.gpu_hour=4"])
    assert given.set["cost"] == {"gpu_hour": "4", "samples_per_step": "32", "num_gpus": "8"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[reprot]\n", "unknown table 'reprot': did you mean report? (there are: report, set)"),
        ("[report]\ntitel = 'x'\n", "unknown key 'titel': did you mean title? (there are: "),
        ("[report]\nset = 'x'\n", "unknown key 'set'"),
        ("[report]\nranks = 'x'\n", "htareport.toml: ranks: 'x' is not a list of ranks"),
        ("[report]\nallow-partial = 'yes'\n", "neither true nor false"),
        ("[report]\ntitle = 1\n", "1 is not text"),
        ("[set]\nx = 1\n", "belongs into a table"),
        ("report = 1\n", "are tables"),
        ("[report\n", "htareport.toml: Expected"),
    ],
)
def test_slips_are_named(tmp_path, text, message):
    with pytest.raises(UsageError) as error:
        _options(tmp_path, text)
    assert message in str(error.value)


def test_file_reaches_the_report(cli, traces, tmp_path):
    (tmp_path / "c.toml").write_text('[report]\noutput = "c.md"\nonly = "temporal_breakdown"\n')
    assert cli("report", traces, "--config", "c.toml").out.startswith("c.md  ")
