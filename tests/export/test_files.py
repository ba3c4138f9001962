"""Where copies go, and that they stay apart from the traces."""

from __future__ import annotations

import gzip

import pytest
import zstandard
from builder import TraceBuilder
from export_content import content

from htareport.errors import OutputError, TraceFileError, UsageError
from htareport.export.counters import write_counters
from htareport.export.files import CopyFolder
from htareport.export.numbered import load_numbered
from htareport.trace import RankTrace, Trace


@pytest.fixture
def traces(tmp_path, two_steps):
    return two_steps.write(tmp_path / "traces" / "rank0.pt.trace.json").parent


def copied(folder, traces) -> list:
    trace = Trace.open(traces)
    made = CopyFolder(folder, list(trace.files.values()))
    return [path for rank, file in trace.files.items() for path in write_counters(RankTrace.load(rank, file), made)]


def test_the_folder_of_the_traces_is_refused(tmp_path, traces, monkeypatch):
    """Under any of its names; nothing is written."""
    (tmp_path / "link").symlink_to(traces)
    monkeypatch.chdir(traces)
    for folder in (traces, tmp_path / "link", tmp_path / "traces" / ".." / "traces", ".", ""):
        with pytest.raises(UsageError):
            copied(folder, traces)
    assert [path.name for path in traces.iterdir()] == ["rank0.pt.trace.json"]


def test_a_link_back_is_refused(tmp_path, traces):
    """A file of the copy's name that leads into the folder of the traces is not written through."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rank0.pt.trace_with_counters.json").symlink_to(traces / "rank0.pt.trace.json")
    before = (traces / "rank0.pt.trace.json").read_bytes()
    with pytest.raises(UsageError):
        copied(tmp_path / "out", traces)
    assert (traces / "rank0.pt.trace.json").read_bytes() == before


def test_copies_beside_traces_are_no_ranks(tmp_path, traces):
    """In one folder with traces they are left out; alone they load, as the rank that they are copies of."""
    path = copied(tmp_path / "out", traces)[0]
    (traces / path.name).write_bytes(path.read_bytes())
    found = Trace.open(traces)
    assert found.files == {0: traces / "rank0.pt.trace.json"}
    assert found.left_out == ((path.name, "a copy of a trace with something added"),)
    assert Trace.open([path, traces / "rank0.pt.trace.json"]).files == {0: traces / "rank0.pt.trace.json"}
    assert Trace.open(tmp_path / "out").files == {0: path}


def test_copies_below_traces_are_no_ranks(tmp_path, two_steps):
    """Nor are they where traces are looked for at any depth."""
    source = two_steps.write(tmp_path / "run" / "a" / "rank0.json")
    copied(tmp_path / "run" / "copies", source.parent)
    assert Trace.open(tmp_path / "run").files == {0: source}


def test_a_copy_keeps_its_rank(tmp_path, two_steps):
    """Also where neither the file nor its name says it, and other ranks have no copy."""
    for name in "ab":
        two_steps.rank = None
        two_steps.metadata.pop("distributedInfo", None)
        two_steps.write(tmp_path / "traces" / f"{name}.json")
    trace = Trace.open(tmp_path / "traces")
    assert list(trace.files) == [0, 1]
    folder = CopyFolder(tmp_path / "out", list(trace.files.values()))
    write_counters(RankTrace.load(1, trace.files[1]), folder)
    assert list(Trace.open(tmp_path / "out").files) == [1]


@pytest.mark.parametrize(("name", "pack", "copy"), [
    ("rank0.json", bytes, "rank0_with_counters.json"),
    ("rank0.json.gz", gzip.compress, "rank0_with_counters.json.gz"),
    ("rank0.json.zst", zstandard.compress, "rank0_with_counters.json.gz"),
    ("rank0.json", gzip.compress, "rank0_with_counters.json.gz"),
    ("rank0", bytes, "rank0_with_counters.json"),
])  # fmt: skip
def test_names(tmp_path, two_steps, name, pack, copy):
    """As the source is packed, by its content; always something that Perfetto reads."""
    source = tmp_path / "traces" / name
    source.parent.mkdir()
    source.write_bytes(pack(two_steps.json().encode()))
    assert [path.name for path in copied(tmp_path / "out", source.parent)] == [copy]
    assert content(tmp_path / "out" / copy)["traceEvents"][: len(two_steps.events)]


def test_an_archive(tmp_path, two_steps):
    """Its folder is that of the traces; copies are packed."""
    import zipfile

    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        archive.writestr("rank0.json", two_steps.json())
    with pytest.raises(UsageError):
        copied(tmp_path, tmp_path / "run.zip")
    assert [path.name for path in copied(tmp_path / "out", tmp_path / "run.zip")] == ["rank0_with_counters.json.gz"]


def test_equal_input_gives_equal_bytes(tmp_path, two_steps):
    two_steps.write(tmp_path / "traces" / "rank0.json.gz", gzip=True)
    one, other = (copied(tmp_path / name, tmp_path / "traces")[0].read_bytes() for name in ("a", "b"))
    assert one == other


def test_a_folder_that_cannot_be_made(tmp_path, traces):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        copied(tmp_path / "file" / "below", traces)


def test_a_damaged_source_leaves_nothing(tmp_path, traces):
    """A copy appears whole or not at all."""
    source = traces / "rank0.pt.trace.json"
    trace = load_numbered(0, source)
    source.write_bytes(source.read_bytes()[:-200])
    with pytest.raises(TraceFileError, match="ends early"):
        write_counters(trace, CopyFolder(tmp_path / "out", [source]))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_rank_without_series_gets_no_copy(tmp_path):
    TraceBuilder(0).cpu_op("a", 0, 5).write(tmp_path / "traces" / "rank0.json")
    assert copied(tmp_path / "out", tmp_path / "traces") == []
    assert not (tmp_path / "out").exists()
