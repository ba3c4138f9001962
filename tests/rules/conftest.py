"""Hand-made traces through rules."""

from __future__ import annotations

import pickle
from itertools import count

import pytest

from htareport.rules.engine.evaluate import evaluate_rank
from htareport.run.runner import analyze
from htareport.run.summaries import summary_classes
from htareport.run.summary_codec import decode, encode


@pytest.fixture(autouse=True)
def not_replayed(request, monkeypatch):
    """Let findings show what rules claim, as where a job cannot be replayed; not in tests marked `replayed`."""
    if "replayed" not in request.keywords:
        monkeypatch.setattr("htareport.rules.engine.savings.job_replay", lambda *_: "these tests are about claims")


@pytest.fixture
def tell(tmp_path, monkeypatch):
    """Write each builder's trace, one rank each, and return the section of findings of some rules.

    What they find is kept and sent as by a worker, and none of them may fail.
    """
    runs = count()

    def sent(*given):
        kept = decode(encode(evaluate_rank(*given), summary_classes()), summary_classes())
        return pickle.loads(pickle.dumps(kept))  # noqa: S301  our own bytes

    monkeypatch.setattr("htareport.run.runner.evaluate_rank", sent)

    def section(rules, *builders, steps="all"):
        folder = tmp_path / f"traces{next(runs)}"
        for number, builder in enumerate(builders):
            builder.write(folder / f"file{number:03}.json")
        made = analyze(folder, analyses=[], rules=rules, steps=steps)["findings"]
        assert not [note for note in made.notes if "failed" in note]
        return made

    return section


@pytest.fixture
def findings(tell):
    """Return the findings by code."""

    def by_code(rules, *builders, steps="all"):
        return {finding.code: finding for finding in tell(rules, *builders, steps=steps).findings}

    return by_code


@pytest.fixture
def saved(findings):
    """Return the savings in µs by code, of those that have one."""

    def by_code(rules, *builders, steps="all"):
        told = findings(rules, *builders, steps=steps)
        return {code: finding.saving_ns / 1000 for code, finding in told.items() if finding.saving_ns}

    return by_code
