"""Which files are traces, and of which rank."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
import zipfile

import pytest
from builder import TraceBuilder

from htareport.errors import NothingToReadError
from htareport.trace import RankTrace, Trace

EVENT = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"stream": 7}}


def put(path, rank=None, **options):
    return TraceBuilder(rank=rank).kernel("k", 1, 2).write(path, **options)


def names(trace):
    return {
        rank: file.name if not isinstance(file, tuple) else tuple(f.name for f in file)
        for rank, file in trace.files.items()
    }


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run [1] *? ü"


def test_folder_file_glob_list_and_mapping(folder, monkeypatch):
    """All lead to the same files; brackets in a path are no pattern."""
    paths = [put(folder / f"t{n}.json.gz", n, gzip=True) for n in (3, 5)]
    assert Trace.open(folder).files == dict(zip((3, 5), paths, strict=True))
    assert Trace.open(folder).label == folder.name
    assert Trace.open(str(paths[0])).files == {3: paths[0]}
    assert Trace.open(paths[0]).label == "t3.json.gz"
    assert Trace.open(paths).files == Trace.open(map(str, reversed(paths))).files == Trace.open(folder).files
    monkeypatch.chdir(folder)
    assert names(Trace.open("t*.json.gz")) == {3: "t3.json.gz", 5: "t5.json.gz"}
    assert names(Trace.open("**/t[0-4].*")) == {3: "t3.json.gz"}
    assert names(Trace.open(".")) == {3: "t3.json.gz", 5: "t5.json.gz"}
    assert Trace.open({7: paths[0], 1: [str(paths[1])]}).files == {1: paths[1], 7: paths[0]}
    assert Trace.open(folder, ranks=frozenset({5, 9})).files == {5: paths[1]}
    with pytest.raises(NothingToReadError, match=r"no trace of the ranks asked for \(ranks found: 3, 5\)"):
        Trace.open(folder, ranks=frozenset({9}))


def test_folders_below_only_if_there_is_no_trace_directly_inside(folder):
    """Other JSON directly inside does not hide them; what is hidden is no candidate at either level."""
    put(folder / "a" / "b" / "rank1.json", 1)
    put(folder / ".cache" / "rank2.json", 2)
    put(folder / "a" / ".ipynb_checkpoints" / "rank3.json", 3)
    put(folder / ".rank4.json", 4)
    (folder / "config.json").write_text('{"rank": 8}')
    trace = Trace.open(folder)
    assert names(trace) == {1: "rank1.json"}
    assert trace.left_out == (("config.json", "JSON without traceEvents"),)
    put(folder / "rank0.json", 0)
    assert names(Trace.open(folder)) == {0: "rank0.json"}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("config.json", '{"rank": 3, "traceEvents": null}', "JSON without traceEvents"),
        ("memory.json", "[[1, 2], [3]]", "a JSON array, but not of trace events"),
        ("empty.json", "[]", "a JSON array, but not of trace events"),
        ("list.json", '[{"name": "ph"}]', "a JSON array, but not of trace events"),
        ("numbers.json", "[1, 2", "a JSON array, but not of trace events"),
        ("text.json", '"ph"', "not JSON"),
        ("notes.json", "hello", "not JSON"),
    ],
)
def test_json_that_is_no_trace_is_left_out_and_named(name, text, reason, folder):
    """Unless its name says that it is one: then it cannot be used."""
    put(folder / "rank0.json", 0)
    (folder / name).write_text(text)
    (folder / "readme.txt").write_text("hello")
    trace = Trace.open(folder)
    assert trace.left_out == ((name, reason),)
    assert not trace.unusable
    (folder / name).rename(folder / "host.123.pt.trace.json.gz")
    trace = Trace.open(folder)
    assert trace.unusable == (("host.123.pt.trace.json.gz", reason),)
    assert names(trace) == {0: "rank0.json"}


def test_a_trace_under_any_suffix(folder):
    """Content decides; other files are not even named."""
    put(folder / "trace", 0)
    put(folder / "trace.log", 1, gzip=True)
    put(folder / "trace.txt", 2, layout="compact")
    (folder / "x.bin").write_bytes(bytes(100))
    (folder / "x.pt.trace.json.xz").write_bytes(b"\xfd7zXZ")
    trace = Trace.open(folder)
    assert names(trace) == {0: "trace", 1: "trace.log", 2: "trace.txt"}
    assert trace.left_out == ()
    assert trace.unusable == (("x.pt.trace.json.xz", "packed by xz, which is not read; gzip and zstd are"),)


def packed(name, content, mode="w"):
    """An archive with one file in it, or none."""
    file = io.BytesIO()
    if mode == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            if content:
                archive.writestr(name, content)
        return file.getvalue()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        if content:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.tar.bz2", packed("rank0.json", b"[]", "w:bz2"), "packed by bzip2, which is not read; gzip and zstd are"),
        ("a.tar.xz", packed("rank0.json", b"[]", "w:xz"), "packed by xz, which is not read; gzip and zstd are"),
        ("a.zip", packed("b.zip", packed("rank0.json", b"[]", "zip"), "zip"),
         "an archive in an archive; unpack the outer one"),
        ("a.tar", packed("b.tar", packed("rank0.json", b"[]")), "an archive in an archive; unpack the outer one"),
        ("a.json.gz", gzip.compress(gzip.compress(b"[]")), "packed twice; unpack it once"),
        ("a.zip", packed("", b"", "zip"), "an empty archive"),
        ("a.json", packed("", b""), "zeros where JSON begins, as in an empty tar"),
    ],
    ids=["bzip2", "xz", "zip in zip", "tar in tar", "gzip in gzip", "empty zip", "zeros"],
)  # fmt: skip
def test_what_is_packed_otherwise_is_named(name, content, reason, folder):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    for source in (folder, folder / name):
        with pytest.raises(NothingToReadError, match=re.escape(f": {reason})")):
            Trace.open(source)


def test_files_that_cannot_be_read_are_named(folder):
    """With the reason: empty, cut off while compressed, a link to nothing."""
    put(folder / "rank0.json", 0)
    (folder / "rank1.json").write_bytes(b"")
    cut = put(folder / "rank2.json.gz", 2, gzip=True)
    cut.write_bytes(cut.read_bytes()[:15])
    (folder / "rank3.json").symlink_to(folder / "gone")
    (folder / "rank4.json.zip").write_bytes(b"PK\x03\x04")
    trace = Trace.open(folder)
    assert names(trace) == {0: "rank0.json"}
    found = dict(trace.unusable)
    assert found["rank1.json"] == "the file is empty"
    assert "the gzip data end early" in found["rank2.json.gz"]
    assert found["rank3.json"] == "No such file or directory"
    assert "damaged archive" in found["rank4.json.zip"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_files_without_permission(folder):
    """They are named, and so is a folder that cannot be listed."""
    put(folder / "rank0.json", 0)
    put(folder / "rank1.json", 1).chmod(0)
    assert Trace.open(folder).unusable == (("rank1.json", "Permission denied"),)
    folder.chmod(0)
    try:
        with pytest.raises(NothingToReadError, match="Permission denied"):
            Trace.open(folder)
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize(
    "prepare", [lambda _: None, lambda f: (f / "a.txt").write_text("x"), lambda f: (f / "a").mkdir()]
)
def test_nothing_in_the_folder(prepare, folder):
    """The sentence says what was looked for."""
    folder.mkdir()
    prepare(folder)
    with pytest.raises(
        NothingToReadError, match=r"JSON with traceEvents.* were looked for, and no such file was found"
    ):
        Trace.open(folder)


def test_nothing_usable(folder):
    """The sentence says what was found, for a folder, a file, a pattern and a list."""
    folder.mkdir()
    for n in range(5):
        (folder / f"{n}.json").write_text("{}")
    with pytest.raises(NothingToReadError, match=r"none is usable \(0\.json: JSON without .*; and 2 more\)"):
        Trace.open(folder)
    for source in (folder / "0.json", [folder / "0.json"], str(folder / "0.*").replace("[1]", "[[]1]")):
        with pytest.raises(NothingToReadError, match=r"none is usable \(0\.json: JSON without traceEvents\)"):
            Trace.open(source)


@pytest.mark.parametrize("source", ["gone", "gone/*.json", "gone.zip/a.json", "x" * 5000, {0: "gone.json"}, [], {}])
def test_nothing_there(source):
    """One sentence, no traceback."""
    with pytest.raises(NothingToReadError):
        Trace.open(source)


DISTRIBUTED = {"backend": "nccl", "rank": 6, "pg_config": [{"ranks": list(range(9)), "desc": "a } b"}] * 2000}


@pytest.mark.parametrize("where", ["before", "behind", "far behind", "among others"])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("rank", [6, "6"])
def test_rank_inside_the_file(where, indent, rank, folder, chunks_of):
    """Before or behind the events, also in files of many groups, and whatever stands behind it."""
    own = {"distributedInfo": DISTRIBUTED | {"rank": rank}}
    events = {"traceEvents": [EVENT | {"args": {"note": '"distributedInfo"', "distributedInfo": 3}}] * 300}
    rest = {"zz": [{"a": n} for n in range(30_000)]}
    trace = {
        "before": own | events,
        "behind": events | own,
        "far behind": events | own | rest,
        "among others": {"schemaVersion": 1} | own | events,
    }[where]
    folder.mkdir()
    (folder / "rank1.json").write_text(json.dumps(trace, indent=indent))
    assert names(Trace.open(folder)) == {6: "rank1.json"}
    chunks_of(5000)
    assert names(Trace.open(folder)) == {6: "rank1.json"}


@pytest.mark.parametrize("rank", [None, -1, "x", True, 2**40, [0], 1e400])
def test_a_rank_that_is_none(rank, folder):
    """Then the name decides, and the report says so."""
    folder.mkdir()
    trace = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": [EVENT]}
    (folder / "x_rank-4.json").write_text(json.dumps(trace))
    trace = Trace.open(folder)
    assert names(trace) == {4: "x_rank-4.json"}
    assert trace.warnings == ("no rank inside the files, so it is taken from their names: x_rank-4.json is rank 4",)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.json", 3), ("worker12_step.1.pt.trace.json", 12), ("x-Rank_07.json", 7), ("RANK 5.json", 5),
        ("rank-0-worker1.json", 0), ("rank20240412103000.json", 0), ("trace5.json", 0),
    ],
)  # fmt: skip
def test_rank_in_the_name(name, rank, folder):
    """A number behind rank or worker; one that is no rank is none."""
    put(folder / name)
    assert list(Trace.open(folder).files) == [rank]


def test_ranks_by_enumeration(folder):
    """The lowest free numbers in order of name; files of one process are one rank, in whatever folder each is."""
    put(folder / "a.json")
    put(folder / "b.json")
    put(folder / "c.json", 0)
    put(folder / "rank2.json")
    for stamp in (1733769848514071115, 1733769849366171800):
        put(folder / f"host_7.{stamp}.pt.trace.json")
    trace = Trace.open(folder)
    assert names(trace) == {
        0: "c.json",
        1: "a.json",
        2: "rank2.json",
        3: "b.json",
        4: ("host_7.1733769848514071115.pt.trace.json", "host_7.1733769849366171800.pt.trace.json"),
    }
    assert trace.warnings[-1] == (
        "no rank inside the files nor in their names, so they are numbered by name: "
        "a.json is rank 1, b.json is rank 3, host_7 is rank 4"
    )


def test_equal_names_in_several_folders(folder):
    """They are ranks of their own, and are named with their folder."""
    for part in ("x", "y"):
        put(folder / part / "trace.json")
    trace = Trace.open(folder)
    assert {rank: file.parent.name for rank, file in trace.files.items()} == {0: "x", 1: "y"}
    assert trace.warnings[0].endswith("numbered by name: x/trace.json is rank 0, y/trace.json is rank 1")


@pytest.mark.parametrize(
    "name",
    [
        "[Strategy]DDP rank 2.json",
        "ünï_ядро rank-2.json",
        "C:\\Users\\x\\rank2.json",
        "*rank2?.json",
        "rank2 'a\"&<b>.json",
    ],
)
def test_names_that_mean_something_elsewhere(name, tmp_path):
    """Brackets and stars are no pattern where such a file is there; blanks, quotes and other alphabets are letters."""
    folder = tmp_path / f"in {name[:5]}"
    path = TraceBuilder(None).kernel("k", 0, 5).write(folder / name)
    for source in (folder, path, str(path), [path]):
        trace = Trace.open(source)
        assert trace.files == {2: path}
        assert len(RankTrace.load(2, trace.files[2]).device_events) == 1


def test_two_files_of_one_rank(folder):
    """Both are kept until it is known whether they overlap in time."""
    put(folder / "a.json", 3)
    put(folder / "b.json", 3)
    trace = Trace.open(folder)
    assert names(trace) == {3: ("a.json", "b.json")}
    loaded = RankTrace.load(3, trace.files[3])
    assert loaded.problems == (("b.json", "overlaps in time with a.json of the same rank"),)
    assert len(loaded.device_events) == 1


def test_opening_reads_no_events(folder):
    """A file whose metadata stand in front is not read to its end."""
    path = put(folder / "a.json", 3)
    path.write_bytes(path.read_bytes()[:700])
    assert names(Trace.open(folder)) == {3: "a.json"}
    assert Trace.open(folder).total_bytes == 700


def test_a_large_file_without_events_is_not_kept(folder, monkeypatch):
    """Beyond what stands around the events of any trace, the search ends."""
    from htareport.reading.text import split

    monkeypatch.setattr(split, "MAX_HELD_BYTES", 5000)
    put(folder / "rank0.json", 0)
    (folder / "big.json").write_text(json.dumps({"a": "x" * 2_000_000, "traceEvents": []}))
    assert Trace.open(folder).left_out == (("big.json", "JSON without traceEvents"),)
