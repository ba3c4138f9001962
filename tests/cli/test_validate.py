"""`htareport validate`."""

from __future__ import annotations

import pytest
from builder import TraceBuilder


def test_complete_traces(cli, traces):
    ran = cli("validate", traces)
    assert (ran.status, ran.err) == (0, "")
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[0] == ["rank", "file", "size", "events", "devices", "steps", "usable"]
    assert [row[:2] + row[-3:] for row in rows[1:3]] == [
        ["0", "rank0.json", "1", "2", "yes"],
        ["1", "rank1.json", "1", "2", "yes"],
    ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_is_missing_for_what(cli, tmp_path, lent_processes, jobs):
    TraceBuilder(0, 2).cpu_op("aten::mm", 0, 10).write(tmp_path / "t" / "rank0.json")
    TraceBuilder(1, 2).step(1, 0, 20).kernel("gemm", 5, 10, launch=(1, 2)).write(tmp_path / "t" / "rank1.json")
    ran = cli("validate", "t", "-j", jobs)
    assert (ran.status, lent_processes) == (0, [jobs])
    step_time = next(line for line in ran.out.splitlines() if line.startswith("step_time"))
    assert " 0 " in step_time


def test_some_files_cannot_be_used(cli, traces):
    whole = (traces / "rank0.json").read_bytes()
    (traces / "rank2.json").write_bytes(whole[: len(whole) // 2].replace(b'"rank": 0', b'"rank": 2'))
    ran = cli("validate", traces)
    assert ran.status == 4
    assert "rank2.json" in ran.err


def test_no_file_can_be_used(cli, tmp_path):
    assert cli("validate", "nosuch").status == 3
    whole = TraceBuilder(0).kernel("gemm", 0, 10).json().encode()
    (tmp_path / "rank0.json").write_bytes(whole[: len(whole) // 2])
    ran = cli("validate", "rank0.json")
    assert ran.status == 3
    assert ran.err.startswith("error: ")
