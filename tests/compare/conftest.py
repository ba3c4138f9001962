"""The two runs that most tests compare, made once: nobody changes a report."""

from __future__ import annotations

import pytest
from compare.job import GEMM, Job


@pytest.fixture(scope="package")
def base(tmp_path_factory):
    """The run against which others are compared."""
    return Job(seed=1).report(tmp_path_factory.mktemp("runs") / "base")


@pytest.fixture(scope="package")
def new(tmp_path_factory):
    """A run of which the kernel takes 20 % longer, about 12 % of the step."""
    return Job(seed=2, factors={GEMM: 1.2}).report(tmp_path_factory.mktemp("runs") / "new")
