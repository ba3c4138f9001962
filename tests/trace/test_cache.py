"""What was read is read again from the cache, and never anything else."""

from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from builder import TraceBuilder

from htareport import analyze
from htareport.analyses.quality.trace_quality import TraceQuality
from htareport.analyses.time.temporal_breakdown import TemporalBreakdown
from htareport.export.numbered import load_numbered
from htareport.reading import cache, cache_folder, capture
from htareport.rows.capture import Capture, Loaded
from htareport.rows.options import ReadOptions
from htareport.trace import RankTrace, Trace

needs_pyarrow = pytest.mark.skipif(cache.find_spec("pyarrow") is None, reason="there is no cache without pyarrow")
SALVAGE = ReadOptions(salvage=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the cache; files of any size are kept in it, also those that were written just now."""
    monkeypatch.setattr(cache, "MIN_BYTES", 0)
    monkeypatch.setattr(cache, "MIN_EVENTS", 0)
    monkeypatch.setattr(cache, "SETTLED_NS", -(10**18))
    monkeypatch.setenv("HTAREPORT_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def readings(monkeypatch):
    """The files that were parsed, as they are."""
    found = []
    load = capture.load_rank
    monkeypatch.setattr(capture, "load_rank", lambda paths, *rest: found.append(paths) or load(paths, *rest))
    return found


def _same(one, other, place=""):
    """Assert that two values are the same to the last type and bit."""
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes()), place
        return
    assert type(one) is type(other), place
    if is_dataclass(one):
        one, other = ({each.name: getattr(value, each.name) for each in fields(value)} for value in (one, other))
    if isinstance(one, dict):
        assert list(one) == list(other), place
        for key in one:
            _same(one[key], other[key], f"{place}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), place
        for number, pair in enumerate(zip(one, other, strict=True)):
            _same(*pair, f"{place}[{number}]")
    else:
        assert one == other, place


# --- the same as without


def _odd() -> TraceBuilder:
    """Ids of all kinds, and numbers that no column holds."""
    made = TraceBuilder(rank=0, world_size=2, host="node7", odd={"nested": [1.5, None, {"ü": 2**63}]})
    for pid, tid in (("Spans", -1), (2**64 - 1, 2**70), (1.5, None), (True, "é\u0000")):
        made.complete("cpu_op", f"op {pid}", pid, tid, (1, 2), {"Fwd thread id": 2**64 - 1, "Sequence number": -5})
        made.event({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"process {pid}"}})
    made.cpu_op("aten::conv2d", 5, 1, **{"Input Dims": [[number] * 8 for number in range(3000)]})
    made.complete("a category of its own", "x", 1, 1, (7, 1), {"stream": 3})
    return made.kernel("k", 10, 5, launch=(9, 1)).kernel("late", 20, 10**13)


def _memory() -> TraceBuilder:
    made = TraceBuilder().step(1, 0, 100).memory(5, 512, 512, 2048).memory(9, -512, 0, 2048)
    return made.profiler_range("aten::mm", 1, 5, {"flops": 1e12}).collective("ncclDevKernel_X", "allreduce", 20, 5)


TRACES = {
    "odd": _odd,
    "memory": _memory,
    "no events": TraceBuilder,
    "metadata only": lambda: TraceBuilder().event({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}),
    "host only": lambda: TraceBuilder(None).cpu_op("aten::add", 1, 2).step(3, 0, 10),
}


def _twice(files, readings, options=None):
    """Load a rank twice, the second time from the cache; return what came."""
    one = RankTrace.load(0, files, options=options)
    assert len(readings) == 1
    other = RankTrace.load(0, files, options=options)
    assert len(readings) == 1, "it was parsed again"
    _same(one.loaded, other.loaded)
    assert one.warnings == other.warnings
    assert other.captures[0].path == one.captures[0].path
    return other


@needs_pyarrow
@pytest.mark.parametrize("name", TRACES)
def test_all_that_was_read_is_the_same(name, folder, readings, tmp_path):
    _twice(TRACES[name]().write(tmp_path / "rank0.json"), readings)


@needs_pyarrow
def test_everything_kineto_writes(builder, folder, readings, tmp_path):
    trace = _twice(builder.write(tmp_path / "rank3.json.gz", gzip=True), readings)
    assert len(trace.device_events)
    assert trace.capabilities == RankTrace.load(0, tmp_path / "rank3.json.gz").capabilities


@needs_pyarrow
@pytest.mark.parametrize("cut", [0.4, 0.8])
def test_repaired_and_salvaged(cut, builder, folder, readings, tmp_path):
    """Repairs, what was kept and what was set aside are told as the first time."""
    builder.complete("cpu_op", "backwards", 1, 1, (900, -5), {})
    text = builder.json().replace('"end', r'"\q end').encode()
    path = tmp_path / "cut.json"
    path.write_bytes(text[: int(len(text) * cut)])
    assert _twice(path, readings, SALVAGE).salvaged


@needs_pyarrow
def test_captures_and_files_that_cannot_be_used(folder, readings, tmp_path):
    """What is wrong with one of several files is told again; paths may have changed, names not."""
    for number in range(3):
        TraceBuilder().step(number, 1000 * number, 100).kernel("k", 1000 * number + 5, 5).write(
            tmp_path / f"rank0.{number}.json"
        )
    TraceBuilder().step(0, 10, 50).write(tmp_path / "rank0.overlaps.json")
    (tmp_path / "rank0.damaged.json").write_text('{"traceEvents": [{"ph": "X", "na', encoding="utf-8")
    files = tuple(tmp_path.glob("*.json"))
    trace = _twice(files, readings)
    assert (len(trace.captures), len(trace.problems)) == (3, 2)


@needs_pyarrow
def test_a_report_is_the_same_to_the_byte(builder, folder, readings, tmp_path):
    """Whatever the steps, and with secrets redacted or not: what is kept depends on neither."""
    builder.cpu_op("read /home/alice/data", 3000, 5).write(tmp_path / "t" / "rank3.json")
    chosen = [TemporalBreakdown(), TraceQuality()]
    for how in ({}, {"redact": False}, {"steps": "1"}):
        without = analyze(tmp_path / "t", analyses=chosen, cache=False, **how).to_json()
        assert analyze(tmp_path / "t", analyses=chosen, **how).to_json() == without
    assert len(readings) == 4  # Three times without, and once to be kept.


@needs_pyarrow
def test_places_of_events_serve_those_who_need_none(builder, folder, readings, tmp_path):
    path = builder.write(tmp_path / "rank3.json")
    _same(load_numbered(0, path).loaded, load_numbered(0, path).loaded)
    assert len(readings) == 1
    found = RankTrace.load(0, path).loaded
    assert len(readings) == 1
    _same(found, capture.load_rank((path,)))


@needs_pyarrow
def test_places_of_events_are_not_missing(builder, folder, readings, tmp_path):
    path = builder.write(tmp_path / "rank3.json")
    RankTrace.load(0, path)
    assert "position" in load_numbered(0, path).loaded.tables["cpu_op"]


def test_every_field_is_kept():
    """Whoever adds one has to say how it is kept."""
    stored = pytest.importorskip("htareport.reading.stored", exc_type=ImportError)
    others = {"devices", "processes", "slips", "set_aside", "salvaged", "path", "options"}
    assert {each.name for each in fields(Capture)} == {*stored.CAPTURE_FIELDS, *others}
    of_rank = {"tables", "collectives", "memory", "strings", "threads", "lanes", "captures", "counts", "warnings"}
    of_rank |= {"device_categories", "problems"}
    without_content = {"is_transient", "is_redacted", "redactions"}
    assert {each.name for each in fields(Loaded)} == of_rank | without_content


# --- never wrong


@pytest.fixture
def rank(folder, tmp_path):
    """A file that was read and kept."""
    path = TraceBuilder(0).kernel("first", 0, 10).cpu_op("x" * 70_000, 0, 1).cpu_op("y" * 70_000, 0, 1)
    path = path.kernel("second", 20, 10).write(tmp_path / "t" / "rank0.json")
    RankTrace.load(0, path)
    return path


def _names(path, **options):
    return sorted(set(RankTrace.load(0, path, options=ReadOptions(**options)).device_events["name"]))


@needs_pyarrow
def test_a_file_that_was_written_again(rank, readings):
    TraceBuilder(0).kernel("new", 0, 10).write(rank)
    assert _names(rank) == ["new"]


@needs_pyarrow
@pytest.mark.parametrize(
    ("old", "new"), [(b"first", b"other"), (b"second", b"others"), (b'"yyyyyyyyyy', b'"zzzzzzzzzz')]
)
def test_same_size_and_time(old, new, rank):
    """At the beginning, near the end and where no byte is looked at, its time of modification set back."""
    before, text = rank.stat(), rank.read_bytes()
    with rank.open("r+b") as file:
        file.write(text.replace(old, new))
    os.utime(rank, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = rank.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert new[-10:].decode() in "".join(RankTrace.load(0, rank).loaded.strings)


@needs_pyarrow
def test_another_file_in_its_place(rank, tmp_path):
    """Of its size and time, brought here by renaming."""
    before, text = rank.stat(), rank.read_bytes()
    (tmp_path / "other").write_bytes(text.replace(b"yyyy", b"zzzz"))
    os.utime(tmp_path / "other", ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "other").replace(rank)
    assert "zzzz" in "".join(RankTrace.load(0, rank).loaded.strings)


@needs_pyarrow
def test_a_file_that_changes_while_it_is_read(folder, tmp_path, monkeypatch):
    """What is kept under the key of the old content would be the new one's."""
    path = TraceBuilder(0).kernel("old", 0, 10).write(tmp_path / "rank0.json")
    load = capture.load_rank

    def changed(*given):
        TraceBuilder(0).kernel("new name", 0, 10).write(path)
        return load(*given)

    monkeypatch.setattr(capture, "load_rank", changed)
    assert _names(path) == ["new name"]
    assert not folder.exists()


@needs_pyarrow
def test_a_file_written_just_now(folder, tmp_path, monkeypatch):
    """Could be written to once more without its time showing it."""
    monkeypatch.undo()
    monkeypatch.setattr(cache, "MIN_BYTES", 0)
    monkeypatch.setattr(cache, "MIN_EVENTS", 0)
    path = TraceBuilder(0).kernel("k", 0, 10).write(tmp_path / "rank0.json")
    for now, kept_files in ((0, 0), (3 * 10**9, 1)):
        monkeypatch.setattr(cache.time, "time_ns", lambda later=now: path.stat().st_ctime_ns + later)
        RankTrace.load(0, path, options=ReadOptions(cache=folder))
        assert len(list(folder.glob("*"))) == kept_files


@needs_pyarrow
def test_what_the_content_depends_on(rank, readings, monkeypatch):
    """Its name, the options and the code that reads are part of the key; its folder is not."""
    _names(rank)
    assert not readings
    for options in ({"salvage": True}, {"max_bytes": 10**6}):
        _names(rank, **options)
        _names(rank, **options)
    assert len(readings) == 2
    monkeypatch.setattr(cache, "_code", lambda: ["changed"])
    _names(rank)
    assert len(readings) == 3


@needs_pyarrow
def test_code_of_the_loader_is_in_the_key():
    """As text, so that nobody has to count versions."""
    version, source, *others = cache._code()
    assert len(source) == 64
    assert all(isinstance(each, str) and each for each in (version, *others))


def test_all_that_reading_loads_is_in_the_key():
    """A module that moves to another room would else change what is read, and nobody would read again."""
    loads = "import sys, htareport.reading.cache"
    names = "[module.__file__ for name, module in sys.modules.items() if name.startswith('htareport')]"
    command = [sys.executable, "-c", f"{loads}; print(*{names}, sep='\\n')"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=cache.PACKAGE.parent)
    loaded = {Path(name).resolve() for name in done.stdout.splitlines()}
    assert cache.PACKAGE / "reading" / "cache.py" in loaded
    assert loaded <= set(cache.sources_of_reading())


@needs_pyarrow
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_files_in_an_archive(kind, folder, readings, tmp_path):
    """Each is known by its name in it, and forgotten once the archive changes."""

    def archived(*kernels):
        for number, name in enumerate(kernels):
            TraceBuilder(number, 2).kernel(name, 0, 10).write(tmp_path / f"rank{number}.json")
        files = [tmp_path / f"rank{number}.json" for number in range(len(kernels))]
        if kind == "zip":
            with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
                for file in files:
                    archive.write(file, f"in/{file.name}")
        else:
            with tarfile.open(tmp_path / "run.zip", "w:gz") as archive:
                for file in files:
                    archive.add(file, f"in/{file.name}")
        trace = Trace.open(tmp_path / "run.zip")
        return [_names(path) for path in trace.files.values()]

    assert archived("a", "b") == [["a"], ["b"]]
    assert len(readings) == 2
    trace = Trace.open(tmp_path / "run.zip")
    assert [_names(path) for path in trace.files.values()] == [["a"], ["b"]]
    assert len(readings) == 2
    assert archived("c", "d") == [["c"], ["d"]]


@needs_pyarrow
def test_a_problem_that_may_pass_is_not_kept(folder, tmp_path):
    TraceBuilder(0).kernel("k", 0, 10).write(tmp_path / "a.json")
    trace = RankTrace.load(0, (tmp_path / "a.json", tmp_path / "b.json"))
    assert trace.problems == (("b.json", "No such file or directory"),)
    assert not folder.exists()


def test_files_without_times_have_no_key(folder, tmp_path):
    """As those of a path that leads elsewhere than to a disk."""

    class Elsewhere(type(tmp_path)):
        def stat(self, **options):
            found = super().stat(**options)
            return SimpleNamespace(st_mode=found.st_mode, st_size=found.st_size)

    path = TraceBuilder(0).kernel("k", 0, 10).write(tmp_path / "rank0.json")
    assert cache._key((path,), ReadOptions())
    assert cache._key((Elsewhere(path),), ReadOptions()) is None


# --- its files


@needs_pyarrow
def test_damaged_files_of_the_cache(rank, folder, readings):
    """Cut anywhere, with any byte changed: the trace is read, and the file is written again."""
    (file,) = folder.iterdir()
    good, count = file.read_bytes(), 0
    cuts = [good[:size] for size in range(0, len(good), len(good) // 8)]
    places = range(7, len(good), len(good) // 20)
    flips = [good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :] for at in places]
    for damaged in (*cuts, *flips, b"", b"{}", b"PAR1" * 10):
        file.write_bytes(damaged)
        assert _names(rank) == ["first", "second"]
        if len(readings) > count:  # A few bytes mean nothing: dates of the members, for example.
            count = len(readings)
            assert file.read_bytes()[:4] == b"PK\x03\x04"
    assert count > 0.8 * (len(cuts) + len(flips))


@needs_pyarrow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"threads":[[', b'"threads":[],"was":[['),
        (b'"strings":', b'"strings":1,"was":'),
        (b'"lanes":[[', b'"lanes":[],"was":[['),
        (b'["thread","int8",null]', b'["threads","int8",null]'),
        (b'["thread","int8",null]', b'["thread","int64",null]'),
        (b'["thread","int8",null]', b'["thread","O",null]'),
        (b'["thread","int8",null]', b'["thread","int8",7]'),
        (b'["dur","int32",null],', b""),
        (b'["ts","int64",null],', b""),
        (b'"captures":[{', b'"captures":[],"was":[{'),
        (b'["cpu_op",', b'["cpu_op",99,'),
        (b'"name":"', b'"name":"another'),
        (b"", b"["),
    ],
)
def test_files_that_say_what_is_not_so(old, new, rank, folder, readings):
    """With every checksum right."""
    (file,) = folder.iterdir()
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert old in members["rank.json"]
    members["rank.json"] = members["rank.json"].replace(old, new, 1)
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert _names(rank) == ["first", "second"]
    assert len(readings) == 1
    assert _names(rank) == ["first", "second"]
    assert len(readings) == 1


@needs_pyarrow
def test_only_the_user_can_read_them_and_others_are_not_believed(rank, folder, readings, monkeypatch):
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    _names(rank)
    assert len(readings) == 1


@needs_pyarrow
def test_a_full_disk_costs_a_line_in_the_log(folder, tmp_path, monkeypatch, caplog):
    """And leaves nothing behind."""
    path = TraceBuilder(0).kernel("k", 0, 10).write(tmp_path / "rank0.json")

    def full(loaded, paths, file, name):
        file.write(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("htareport.reading.stored.write", full)
    with caplog.at_level(logging.INFO):
        assert _names(path) == ["k"]
    assert "No space left" in caplog.text
    assert not list(folder.iterdir())


@needs_pyarrow
def test_a_folder_that_cannot_be(tmp_path, folder, caplog):
    path = TraceBuilder(0).kernel("k", 0, 10).write(tmp_path / "rank0.json")
    (tmp_path / "file").touch()
    with caplog.at_level(logging.INFO):
        assert _names(path, cache=tmp_path / "file" / "below") == ["k"]
    assert "Not a directory" in caplog.text


@needs_pyarrow
def test_many_at_once(folder, tmp_path):
    """Write and read the same files, which are whole at any time."""
    path = TraceBuilder(0).kernel("k", 0, 10).write(tmp_path / "rank0.json")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: _names(path), range(24)))
    assert found == [["k"]] * 24
    assert len(list(folder.iterdir())) == 1


def test_the_folder_is_bounded(tmp_path):
    """Those not used for longest go first; what was never finished goes after a day, and nothing else ever."""
    for number, name in enumerate(["a", "b", "c", "d"]):
        cache_folder.put(tmp_path, name, lambda file: file.write(bytes(100)))
        os.utime(tmp_path / f"{name}.rank", (number, number))
    (tmp_path / "mine.txt").write_bytes(bytes(1000))
    (tmp_path / "old.part").touch()
    os.utime(tmp_path / "old.part", (1, 1))
    (tmp_path / "new.part").touch()
    assert cache_folder.find_file(tmp_path, "a")
    cache_folder.tidy(tmp_path, 250)
    assert {each.name for each in tmp_path.iterdir()} == {"a.rank", "d.rank", "mine.txt", "new.part"}


def test_writing_tidies(tmp_path, monkeypatch):
    """At first and then now and again."""
    monkeypatch.setattr(cache_folder, "MAX_BYTES", 250)
    monkeypatch.setattr(cache_folder, "_BETWEEN", 1000)
    counts = []
    for number in range(25):
        cache_folder.put(tmp_path, str(number), lambda file: file.write(bytes(100)))
        counts.append(len(list(tmp_path.iterdir())))
    assert max(counts) < 15
    assert any(after < before for before, after in pairwise(counts))


# --- whether


def test_small_ranks_are_read_and_no_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("HTAREPORT_CACHE", str(tmp_path / "kept"))
    path = TraceBuilder(0).kernel("k", 0, 10).write(tmp_path / "rank0.json")
    assert path.stat().st_size < cache.MIN_BYTES
    os.utime(path, (1, 1))
    assert _names(path) == ["k"]
    assert not (tmp_path / "kept").exists()


def test_without_pyarrow(cli, folder, tmp_path, monkeypatch):
    """There is no cache, and only who asks for one is told."""
    monkeypatch.setattr(cache, "find_spec", lambda _: None)
    path = TraceBuilder(0).kernel("k", 0, 10).write(tmp_path / "rank0.json")
    assert _names(path) == ["k"]
    assert "pyarrow" not in cli("validate", str(path)).err
    told = cli("validate", str(path), "--cache", str(folder)).err
    assert "warning: --cache: nothing is kept without pyarrow: pip install 'htareport[cache]'\n" in told
    assert not folder.exists()


@needs_pyarrow
def test_on_the_command_line(cli, folder, readings, tmp_path):
    TraceBuilder(0).kernel("k", 0, 10).write(tmp_path / "t" / "rank0.json")
    few = ("--only", "temporal_breakdown", "-q")
    assert cli("report", "t", "--no-cache", "-o", "without.json", *few).status == 0
    assert not folder.exists()
    assert cli("report", "t", "--cache", "mine", "-o", "first.json", *few).status == 0
    assert cli("report", "t", "--cache", "mine", "-o", "second.json", *few).status == 0
    assert cli("validate", "t", "--cache", "mine").status == 0
    assert len(readings) == 2
    without, first, second = ((tmp_path / f"{name}.json").read_bytes() for name in ("without", "first", "second"))
    assert without == first == second
    assert not folder.exists()
    assert len(list((tmp_path / "mine").iterdir())) == 2  # What was read, and what was measured.


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HTAREPORT_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/htareport"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/htareport"),
        ({}, "/home/me/.cache/htareport"),
    ],
)
def test_where_it_is(variables, expected, monkeypatch):
    for name in ("HTAREPORT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(cache_folder.sys, "platform", "linux")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder.folder(setting=True) == Path(expected)
    assert cache_folder.folder(setting=False) is None
    assert cache_folder.folder(Path("x")) == Path("x")
