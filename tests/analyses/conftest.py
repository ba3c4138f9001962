"""Hand-made traces through one analysis."""

from __future__ import annotations

import pytest

from htareport.run.runner import analyze


@pytest.fixture
def run(tmp_path):
    """Write each builder's trace, one rank each, and return the section of one analysis."""

    def section(analysis, *builders, steps="all"):
        for number, builder in enumerate(builders):
            builder.write(tmp_path / "traces" / f"file{number:03}.json")
        return analyze(tmp_path / "traces", analyses=[analysis], steps=steps)[analysis.name]

    return section
