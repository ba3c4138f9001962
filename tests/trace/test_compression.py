"""What a file is packed in is told by its content, and every way to pack it gives the same events."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import zipfile
import zlib
from itertools import pairwise

import pytest
from builder import TraceBuilder

from htareport.errors import TraceFileError
from htareport.reading.text import blocks, unpack
from htareport.trace import RankTrace, Trace


@pytest.fixture
def text() -> bytes:
    made = TraceBuilder(rank=None)
    for n in range(100):
        made.kernel(f"kernel {n % 7}", 10 * n, "3.5", launch=(10 * n - 5, 2))
    return made.json().encode()


def content(path):
    return b"".join(blocks.blocks(path))


def members(text, *sizes):
    """The text as one gzip member per piece."""
    limits = [0, *sizes, len(text)]
    return b"".join(gzip.compress(text[a:b]) for a, b in pairwise(limits))


PACKED = {
    "t.json": lambda text: text,
    "t.json.gz": gzip.compress,
    "plain.json.gz": lambda text: text,
    "gzip.json": gzip.compress,
    "stored.gz": lambda text: gzip.compress(text, 0),
    "members.gz": lambda text: members(text, 100, 5000, 5001),
    "empty member.gz": lambda text: gzip.compress(b"") + gzip.compress(text) + gzip.compress(b""),
    "padded.gz": lambda text: gzip.compress(text) + bytes(3000),
    "padded members.gz": lambda text: gzip.compress(text[:999]) + bytes(700) + gzip.compress(text[999:]) + bytes(5),
    "garbage.gz": lambda text: gzip.compress(text) + b"garbage!" * 9,
    "name.gz": lambda text: b"\x1f\x8b\x08\x08\0\0\0\0\0\x03name.json\0" + gzip.compress(text)[10:],
}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(("block", "read"), [(1 << 20, 1 << 18), (100, 512), (1, 513), (4096, 600)])
def test_plain_and_gzip(name, block, read, text, write, monkeypatch):
    """Also with several members, padding or garbage behind, under the wrong suffix, and read in any sizes."""
    path = write(name, PACKED[name](text))
    monkeypatch.setattr(unpack, "BLOCK", block)
    monkeypatch.setattr(unpack, "READ", read)
    assert content(path) == text


@pytest.mark.parametrize("read", range(40, 60))
def test_members_that_begin_at_the_edge_of_a_read(read, write, monkeypatch):
    """A member is seen even if only its first byte was read with the one before."""
    path = write("t.gz", b"".join(gzip.compress(bytes([each])) for each in b"abcdefgh"))
    monkeypatch.setattr(unpack, "READ", read)
    assert content(path) == b"abcdefgh"


@pytest.mark.parametrize("size", [100_000, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_what_shrinks_to_almost_nothing(size, write):
    """Output that is still due when all input was taken is not lost."""
    path = write("t.gz", gzip.compress(b" " * size))
    assert len(content(path)) == size


def test_zstd(text, write):
    """One frame or several, whatever the suffix; a damaged one is an error of the file."""
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.compress(text)
    assert content(write("t.json.zst", packed)) == text
    assert content(write("t.json", zstandard.compress(text[:100]) + zstandard.compress(text[100:]))) == text
    with pytest.raises(TraceFileError):
        RankTrace.load(0, write("damaged.zst", packed[:50] + b"\xff" * 50 + packed[100:]))
    with pytest.raises(TraceFileError, match="end early"):
        RankTrace.load(0, write("cut.zst", packed[: len(packed) // 2]))


def zipped(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def tarred(path, files, mode):
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def zstd_tarred(path, files):
    zstandard = pytest.importorskip("zstandard")
    plain = tarred(path.with_suffix(".plain"), files, "w")
    path.write_bytes(zstandard.compress(plain.read_bytes()))
    plain.unlink()
    return path


ARCHIVES = {
    "zip": lambda path, files: zipped(path.with_suffix(".zip"), files),
    "tar": lambda path, files: tarred(path.with_suffix(".tar"), files, "w"),
    "tar.gz": lambda path, files: tarred(path.with_suffix(".tar.gz"), files, "w:gz"),
    "tgz": lambda path, files: tarred(path.with_suffix(".tgz"), files, "w:gz"),
    "tar.zst": lambda path, files: zstd_tarred(path.with_suffix(".tar.zst"), files),
    "wrong suffix": lambda path, files: zipped(path.with_suffix(".json"), files),
}


@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.parametrize("prefix", ["", "./", "/", "folder/./", "a//b/"])
def test_archives(kind, prefix, text, tmp_path):
    """Every trace inside is a file of its own, wherever it lies; what is hidden or no JSON is passed over."""
    files = {f"{prefix}rank1.json": text, f"{prefix}rank0.json.gz": gzip.compress(text)}
    others = {f"{prefix}readme.txt": b"hello", f"__MACOSX/{prefix}._rank0.json": b"\0\5\x16\x07", ".git/x.json": text}
    path = ARCHIVES[kind](tmp_path / "run", files | others)
    for source in (path, tmp_path, [path], str(tmp_path / "run.*")):
        trace = Trace.open(source)
        assert sorted(trace.files) == [0, 1]
        assert not trace.unusable
        assert [len(RankTrace.load(rank, file).device_events) for rank, file in trace.files.items()] == [100, 100]
    again = Trace.open(trace.files)
    assert again.files == trace.files
    assert list(Trace.open(str(trace.files[1])).files.values()) == [trace.files[1]]


@pytest.mark.parametrize("kind", ARCHIVES)
def test_the_name_of_an_archive_has_the_rank(kind, text, tmp_path):
    """Where the member's name has none, and it is alone."""
    for rank in (3, 5):
        ARCHIVES[kind](tmp_path / f"rank{rank}", {"trace.json": text})
    trace = Trace.open(tmp_path)
    assert sorted(trace.files) == [3, 5]
    ARCHIVES[kind](tmp_path / "rank7", {"a.json": text, "b.json": text})
    assert sorted(Trace.open(tmp_path).files) == [0, 1, 3, 5]


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_stands_for_the_only_file_in_it(kind, text, tmp_path):
    """As the file of a rank; one of several files is an error that says so."""
    path = ARCHIVES[kind](tmp_path / "a", {"trace.json": text})
    assert len(RankTrace.load(0, Trace.open({0: path}).files[0]).device_events) == 100
    several = ARCHIVES[kind](tmp_path / "b", {"one.json": text, "two.json": text})
    with pytest.raises(TraceFileError, match="an archive of 2 files"):
        RankTrace.load(0, several)
    with pytest.raises(TraceFileError, match=r"no such|no gone\.json|damaged archive"):
        RankTrace.load(0, several / "gone.json")


def test_a_member_never_leads_outside_of_its_archive(text, tmp_path):
    """Absolute names and those that climb are names inside."""
    (tmp_path / "secret.json").write_bytes(text)
    for name in (str(tmp_path / "secret.json"), "../secret.json", "../../../../etc/x.json"):
        path = zipped(tmp_path / "z.zip", {name: b"[]"})
        assert all(path in member.parents and ".." not in member.parts for member in blocks.archive_members(path))


@pytest.mark.parametrize("kind", ARCHIVES)
def test_damaged_archives(kind, text, tmp_path):
    """Whatever byte is wrong: a trace, or an error of the file."""
    path = ARCHIVES[kind](tmp_path / "run", {"a.json": text[:3000], "b.json": text})
    data, random_ = path.read_bytes(), random.Random(5)  # noqa: S311  the same bytes in every run
    for _ in range(60):
        damaged = bytearray(data[: random_.choice([len(data), random_.randrange(len(data))])])
        for _ in range(random_.randrange(3)):
            if damaged:
                damaged[random_.randrange(len(damaged))] = random_.randrange(256)
        path.write_bytes(damaged)
        for member in (path, path / "a.json", path / "b.json"):
            reason = ""
            try:
                content(member)
            except TraceFileError as error:
                reason = str(error)
            assert "\n" not in reason


def test_locked_archives(text, tmp_path):
    """An encrypted member is an error of the file."""
    path = zipped(tmp_path / "run.zip", {"a.json": text})
    data = path.read_bytes()
    path.write_bytes(
        data[:6] + b"\x01" + data[7:].replace(b"PK\x01\x02\x14\x03\x14\0\0", b"PK\x01\x02\x14\x03\x14\0\x01")
    )
    with pytest.raises(TraceFileError, match="encrypted"):
        RankTrace.load(0, path / "a.json")


def test_without_the_fast_decompressor(text, write, monkeypatch):
    """The standard library's zlib gives the same."""
    monkeypatch.setattr(unpack, "_inflate", zlib)
    assert content(write("t.gz", members(text, 10, 5000))) == text
    with pytest.raises(TraceFileError, match="end early"):
        content(write("cut.gz", gzip.compress(text)[:-9]))
    with pytest.raises(TraceFileError, match="damaged behind byte"):
        content(write("damaged.gz", gzip.compress(text)[:-8] + bytes(8)))
