"""Traces and reports behind URLs: the same bytes as from a folder, read in ranges, and no credentials in messages."""

from __future__ import annotations

import io
import shutil
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from builder import TraceBuilder

from htareport import analyze, diff, errors
from htareport.analyses.time.temporal_breakdown import TemporalBreakdown
from htareport.errors import NothingToReadError, OutputError, UsageError
from htareport.files import locations
from htareport.files.atomic import whole_file
from htareport.reading import cache
from htareport.rows.options import ReadOptions
from htareport.trace import Trace

pytest.importorskip("upath", reason="universal-pathlib is not installed")
import fsspec

from htareport.files import remote


@pytest.fixture
def memory():
    made = fsspec.filesystem("memory")
    yield made
    made.store.clear()
    made.pseudo_dirs[:] = [""]


@pytest.fixture
def folder(tmp_path, memory):
    """Three ranks here and in memory://, one of them with two files in one archive, and a saved report beside them."""
    path = tmp_path / "run"
    for rank in (0, 1, 5):
        trace = TraceBuilder(rank, world_size=6)
        for step in range(3):
            trace.step(step, 1000 * step, 900).kernel(
                "gemm", 1000 * step + 100, 300 + rank, launch=(1000 * step + 20, 5)
            )
        trace.write(path / f"rank{rank}.json", gzip=rank == 1)
    analyze(path, analyses=[TemporalBreakdown()]).write(path / "saved.json")
    (path / "notes.txt").write_text("nothing")
    memory.put(f"{path}/", "/store/run/", recursive=True)
    return path


def summary(source):
    return analyze(source, analyses=[TemporalBreakdown()]).to_json()


def test_the_same_bytes_as_from_a_folder(folder, memory):
    local = summary(folder)
    assert summary("memory://store/run") == local
    assert summary("memory://store/run/") == local
    assert summary(locations.located("memory://store/run")) == local
    memory.mv("/store/run", "/deep/run/below/run", recursive=True)
    assert Trace.open("memory://deep/run").files.keys() == {0, 1, 5}  # None directly inside, so those below.


def test_files_and_patterns(folder):
    names = [f"memory://store/run/{name}" for name in ("rank0.json", "rank1.json")]
    here = [str(folder / name) for name in ("rank0.json", "rank1.json")]
    assert summary("memory://store/run/rank[01].json") == summary(f"{folder}/rank[01].json")
    assert summary(names[1]) == summary(here[1])
    assert summary(names) == summary(here)
    assert summary(dict(enumerate(names))) == summary(dict(enumerate(here)))
    assert summary(f"file://{folder}") == summary(folder)


@pytest.mark.parametrize("kind", ["zip", "tar", "gztar"])
def test_archives(folder, memory, tmp_path, kind):
    made = shutil.make_archive(str(tmp_path / "packed"), kind, folder)
    url = f"memory://archives/{made.rpartition('/')[2]}"
    memory.put(made, url)
    assert summary(url) == summary(made)
    assert summary(f"{url}/rank0.json") == summary(f"{made}/rank0.json")


def test_only_the_head_is_read_until_a_rank_is_loaded(memory, tmp_path, monkeypatch):
    trace = TraceBuilder(3, world_size=4)
    monkeypatch.setattr(remote, "MIN_FETCH", 1 << 12)
    for number in range(1000):
        trace.cpu_op(f"aten::op{number}", 10 * number, 5)
    path = trace.write(tmp_path / "rank3.json")
    assert path.stat().st_size > 10 * remote.MIN_FETCH
    memory.put(str(path), "memory://big/rank3.json")
    read, original = [], remote.Stream._read

    def counted(self, at):
        read.append(len(given := original(self, at)))
        return given

    monkeypatch.setattr(remote.Stream, "_read", counted)
    files = Trace.open("memory://big").files
    assert sum(read) <= 2 * remote.MIN_FETCH
    read.clear()
    assert summary(dict(files)) == summary({3: path})
    assert len(read) < 3 + path.stat().st_size / remote.MIN_FETCH / 2  # In ever larger pieces.


def test_only_where_the_store_tells_a_time_is_anything_kept(folder, memory, monkeypatch):
    """Else a change in the middle of a file would go unnoticed."""
    monkeypatch.setattr(cache, "MIN_BYTES", 0)
    path = locations.located("memory://store/run/rank0.json")
    assert cache._key((path,), ReadOptions()) is None
    info = memory.info
    keys = []
    for day in (1, 2):
        told = {"LastModified": datetime(2026, 1, day, tzinfo=UTC)}
        monkeypatch.setattr(memory, "info", lambda place, told=told: info(place) | told)
        keys.append(cache._key((path,), ReadOptions()))
    assert all(keys)
    assert keys[0] != keys[1]


def test_outputs(cli, folder, memory):
    files = [f"-o{name}" for name in ("memory://out/r.json", "memory://out/r.json.gz", "r.json")]
    ran = cli("report", "memory://store/run", *files, "--only", "temporal_breakdown")
    assert ran.status == 0
    assert ran.out.splitlines()[-2].startswith("memory://out/r.json.gz  ")
    assert memory.cat("/out/r.json") == (folder.parent / "r.json").read_bytes()
    again = cli("report", "memory://out/r.json.gz", "-o", "memory://out/r.md", "-q")
    assert again.status == 0
    assert memory.cat("/out/r.md").startswith(b"# ")
    assert cli("report", "memory://store/run", "-o", "memory://store/run/rank0.json").status == 2  # One of the traces.
    assert cli("report", "memory://store/run", "-o", "memory://store/r.txt").status == 2


def test_reports(cli, folder, memory):
    saved = "memory://store/run/saved.json"
    assert (
        diff(saved, "memory://store/run", analyses=[TemporalBreakdown()]).to_json()
        == diff(str(folder / "saved.json"), folder, analyses=[TemporalBreakdown()]).to_json()
    )
    memory.pipe("/store/run/saved.html", b"<p>")
    assert cli("index", "memory://store").status == 0
    page = memory.cat("/store/index.html").decode()
    assert 'href="run/saved.html"' in page
    assert "Runs in store" in page
    assert cli("index", "memory://store", "-o", "here.html").status == 0
    assert 'href="memory://store/run/saved.html"' in (folder.parent / "here.html").read_text()
    assert cli("diff", saved, "memory://store/run", "-o", saved, "-q").status == 2  # Never written over.


def test_copies(cli, folder, memory):
    ran = cli("counters", "memory://store/run", "-o", "memory://copies/run")
    assert cli("counters", "run", "-o", "copies").status == ran.status == 0
    assert ran.out.startswith("memory://copies/run/rank0_with_counters.json  ")
    for copy in (folder.parent / "copies").iterdir():
        assert memory.cat(f"/copies/run/{copy.name}") == copy.read_bytes()


def test_half_an_object_is_never_seen(memory):
    path = locations.located("memory://out/half")

    def fail():
        with whole_file(path) as file:
            file.write(b"half")
            assert not path.exists()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not path.exists()
    with whole_file(path) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"


def test_what_is_not_there(cli, memory):
    ran = cli("report", "memory://nowhere/run")
    assert (ran.status, ran.err) == (3, "error: memory://nowhere/run: there is no such file or folder\n")
    memory.makedirs("/empty")
    assert "no such file was found" in cli("report", "memory://empty").err


def test_what_is_not_installed(cli, monkeypatch):
    with pytest.raises(UsageError, match="nope"):
        locations.located("nope://a/b")
    monkeypatch.setitem(sys.modules, "htareport.files.remote", None)
    ran = cli("report", "s3://bucket/run")
    assert ran.status == 2
    assert "pip install 'htareport[remote]'" in ran.err
    monkeypatch.undo()
    monkeypatch.chdir("/")
    for protocol, package, told in (("s3", "s3fs", "htareport[remote]"), ("abfs", "adlfs", "adlfs")):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, protocol, raising=False)
        monkeypatch.setitem(sys.modules, package, None)
        ran = cli("report", f"{protocol}://bucket/run")
        assert (ran.status, ran.out) == (2, "")
        assert told in ran.err
        assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ann:s3cret@example.org/a.json: gone", "https://example.org/a.json: gone"),
        ("https://example.org/a.json?sig=1: gone", "https://example.org/a.json?[redacted]: gone"),
        ("https://a:p@ss@example.org/a", "https://example.org/a"),
        ("'https://example.org/a.json?X-Amz-Signature=abc&b=1'", "'https://example.org/a.json?[redacted]'"),
        ("see (https://example.org/a?token) there", "see (https://example.org/a?[redacted]) there"),
        ("s3://bucket/run?/rank*.json and s3://key:secret@b/x", "s3://bucket/run?/rank*.json and s3://b/x"),
        ("abfs://c@account.net/x?sig=1", "abfs://account.net/x?[redacted]"),
        ("https://example.org/pull/3#comment-1, a@b.org?c=d", "https://example.org/pull/3#comment-1, a@b.org?c=d"),
    ],
)
def test_credentials_are_not_shown(text, shown):
    assert errors.without_credentials(text) == shown
    assert str(NothingToReadError(text)) == shown


class Path:
    """Stands for the path of a store that fails, or that gives files from their beginning only."""

    protocol = "store"

    def __init__(self, content, failures=(), *, seeks=True):
        self.content, self.failures, self.seeks, self.opened = content, list(failures), seeks, 0

    def open(self, _mode, **_):
        """Open it anew."""
        self.opened += 1
        outer = self

        class File(io.BytesIO):
            def read(self, size=-1):
                if outer.failures:
                    raise outer.failures.pop(0)
                return super().read(size)

            def seek(self, *place):
                if not outer.seeks:
                    raise ValueError("no")
                return super().seek(*place)

        return File(self.content)


class StoreError(Exception):
    """A fault of a kind that the language does not know."""


@pytest.fixture
def pauses(monkeypatch):
    made = []
    monkeypatch.setattr(remote.time, "sleep", made.append)
    return made


CONTENT = bytes(range(256)) * 3000


def test_a_bad_moment_is_lived_through(pauses):
    path = Path(CONTENT, [StoreError("503"), TimeoutError(), ConnectionResetError()])
    assert remote.Stream(path).read() == CONTENT
    assert pauses == list(remote.PAUSES)  # Ever longer.
    assert path.opened == 4


@pytest.mark.parametrize(
    ("failures", "kind", "text", "tries"),
    [
        ([StoreError("https://a:b@host/x is down")] * 9, OSError, "https://host/x is down", 4),
        ([FileNotFoundError("bucket/x")], FileNotFoundError, "No such file or directory", 1),
        ([PermissionError("Access Denied")], PermissionError, "Access Denied", 1),
    ],
)
def test_what_keeps_failing(pauses, failures, kind, text, tries):
    with pytest.raises(kind) as caught:
        remote.Stream(Path(CONTENT, failures))
    assert caught.value.strerror == text
    assert len(pauses) == tries - 1


def test_whether_it_is_a_file_is_asked_again(pauses):
    """At a bad moment a library says no, and a rank would be missing from its folder without a word."""
    answers = [StoreError("503"), {"type": "file"}, FileNotFoundError("a"), *[StoreError("503")] * 4]

    def info(_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    path = SimpleNamespace(fs=SimpleNamespace(info=info), path="a")
    assert locations.is_file(path)
    assert not locations.is_file(path)
    with pytest.raises(OSError, match="503"):
        locations.is_file(path)
    assert len(pauses) == 1 + len(remote.PAUSES)


def test_what_is_forbidden_is_not_tried_again(pauses):
    class ForbiddenError(StoreError):
        status = 403

    with pytest.raises(PermissionError):
        remote.Stream(Path(CONTENT, [ForbiddenError("Forbidden")]))
    assert not pauses


@pytest.mark.parametrize("seeks", [True, False])
def test_going_back_and_forth(seeks):
    path = Path(CONTENT, seeks=seeks)
    stream = remote.Stream(path)
    for place in (0, 400_000, 5, 700_000, 699_999):
        stream.seek(place)
        assert stream.read(1000) == CONTENT[place : place + 1000]
    assert path.opened == (1 if seeks else 3)
    if not seeks:
        with pytest.raises(OSError, match="from the beginning only"):
            stream.seek(0, 2)


def test_an_output_that_cannot_be(cli, folder, monkeypatch):
    def refuse(*_, **__):
        raise NotImplementedError

    report = analyze(folder, analyses=[TemporalBreakdown()])
    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "_open", refuse)
    with pytest.raises(OutputError, match=r"memory://out/r\.json: files cannot be written there"):
        report.write("memory://out/r.json")
