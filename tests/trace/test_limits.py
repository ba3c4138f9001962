"""Archives and packed files made to do harm: bounded in bytes, in memory and in time, and they lead nowhere."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
import tracemalloc
import zipfile

import pytest
from builder import TraceBuilder

from htareport.errors import HtaReportError, NothingToReadError, TraceFileError
from htareport.reading.text import blocks, unpack
from htareport.rows.options import ReadOptions
from htareport.trace import RankTrace, Trace

MB = 1_000_000


@pytest.fixture
def text() -> bytes:
    return TraceBuilder(0).kernel("a", 0, 5).json().encode()


def bomb(size, begin=b'{"traceEvents": ['):
    """A packed trace of blanks: a thousandth of its size."""
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(begin)
        for _ in range(size // MB):
            file.write(b" " * MB)
    return made.getvalue()


def zipped(path, **files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(f"{name}.json", data)
    return path


def tarred(path, **files):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{name}.json")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("kind", ["gzip", "zip", "gzip in zip", "tar", "zstd"])
def test_bombs(kind, write, tmp_path, monkeypatch):
    """A few kilobytes that would unpack to many times what is allowed: refused as soon as they reach it."""
    monkeypatch.setattr(blocks, "MAX_UNPACKED_BYTES", 4 * MB)
    blank = b'{"traceEvents": [' + b" " * (40 * MB)
    match kind:
        case "gzip":
            path = write("a.json.gz", bomb(40 * MB))
        case "zip":
            path = zipped(tmp_path / "a.zip", a=blank)
        case "gzip in zip":
            path = zipped(tmp_path / "a.zip", a=gzip.compress(gzip.compress(blank)))
        case "tar":
            path = tarred(tmp_path / "a.tar.gz", a=blank)
        case "zstd":
            path = write("a.json.zst", pytest.importorskip("zstandard").compress(blank))
    for salvage in (False, True):
        start = time.process_time()
        tracemalloc.start()
        with pytest.raises(HtaReportError) as raised:
            RankTrace.load(0, path, options=ReadOptions(salvage=salvage))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        if kind != "gzip in zip":  # What is in it is no trace, and is not unpacked.
            assert str(raised.value) == (
                "holds more than 200 times its size, or 1 GB, once unpacked; --max-bytes allows more"
            )
        assert peak < 15 * MB
        assert time.process_time() - start < 3


def test_padding_without_end(write, tmp_path, text, monkeypatch):
    """Zero bytes behind a gzip member within a zip are unpacked, too, and count."""
    monkeypatch.setattr(blocks, "MAX_UNPACKED_BYTES", 4 * MB)
    path = zipped(tmp_path / "a.zip", a=gzip.compress(text) + bytes(60 * MB))
    with pytest.raises(TraceFileError, match="once unpacked"):
        RankTrace.load(0, path)


def test_the_limit_can_be_chosen(write, text):
    """Lower or higher than the default; it holds for each file."""
    path = write("a.json.gz", gzip.compress(text))
    with pytest.raises(TraceFileError, match=rf"holds more than {len(text) - 1:,} bytes once unpacked"):
        RankTrace.load(0, path, options=ReadOptions(max_bytes=len(text) - 1))
    assert len(RankTrace.load(0, path, options=ReadOptions(max_bytes=len(text))).events) == 1
    with pytest.raises(NothingToReadError, match="once unpacked"):
        Trace.open(path, options=ReadOptions(max_bytes=20))


@pytest.mark.parametrize(
    ("given", "status"), [("20", 3), ("0.1K", 3), ("20G", 0), ("1.5 MB", 0), ("a", 2), ("-1", 2), ("", 2), ("1e9", 2)]
)
def test_on_the_command_line(given, status, write, text, cli):
    """With a unit or without."""
    write("a.json.gz", gzip.compress(text))
    ran = cli("report", "a.json.gz", f"--max-bytes={given}", "-o", "a.json", "--only", "trace_quality")
    assert ran.status == status, ran.err
    assert ran.err.count("\n") == (status > 0)
    assert status != 2 or ran.err == f"error: --max-bytes: {given!r} is no number of bytes such as 20G\n"


def test_real_traces_are_far_from_the_default_limit(write):
    """However alike its events are, a trace packs to more than a hundredth."""
    made = TraceBuilder(0)
    for number in range(3000):
        made.kernel("the same kernel", 10 * number, 5, launch=(10 * number, 2))
    data = made.json().encode()
    assert len(data) / len(gzip.compress(data, 9)) < blocks.MAX_UNPACK_RATIO / 2


def test_links_in_an_archive_are_no_files(tmp_path, text):
    """Neither to a file outside nor to one inside."""
    (tmp_path / "outside.json").write_bytes(text)
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name, kind, target in (
            ("soft.json", tarfile.SYMTYPE, str(tmp_path / "outside.json")),
            ("hard.json", tarfile.LNKTYPE, "../outside.json"),
            ("device.json", tarfile.CHRTYPE, ""),
            ("pipe.json", tarfile.FIFOTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
    assert blocks.archive_members(path) == []
    with pytest.raises(NothingToReadError):
        Trace.open(path)
    with pytest.raises(TraceFileError, match=r"no soft\.json in a\.tar"):
        RankTrace.load(0, path / "soft.json")


def test_nothing_is_written_while_reading(tmp_path, text):
    """Members of archives are read where they are, whatever their names."""
    names = {"../../evil": text, "/abs/evil": text, "rank0": text}
    for path in (zipped(tmp_path / "a.zip", **names), tarred(tmp_path / "b.tar.gz", **names)):
        before = sorted(tmp_path.rglob("*"))
        trace = Trace.open(path)
        assert len(trace.files[0]) == 3
        RankTrace.load(0, trace.files[0])
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["plain", "gzip", "zip"])
def test_a_file_that_changes_meanwhile(kind, tmp_path, text, monkeypatch):
    """Is not used: it may be half old and half new. One that is deleted meanwhile is read to its end."""
    path = tmp_path / "a.json"
    if kind == "zip":
        zipped(path, a=text)
    else:
        path.write_bytes(text if kind == "plain" else gzip.compress(text))
    monkeypatch.setattr(unpack, "READ", 512)
    monkeypatch.setattr(unpack, "BLOCK", 100)
    found = blocks.blocks(path)
    next(found)
    os.utime(path, ns=(1, 1))
    with pytest.raises(TraceFileError, match="the file changed while it was read"):
        list(found)
    found = blocks.blocks(path)
    first = next(found)
    path.unlink()
    assert b"".join([first, *found]) == text


@pytest.mark.parametrize("kind", ["checksum", "content"])
def test_damage_within_a_zip(kind, tmp_path):
    """Is an error of that file; with salvage what was read before it is kept."""
    made = TraceBuilder(0)
    for number in range(4000):
        made.kernel(f"kernel {number * 7919 % 1000}", 10 * number, 5)
    text = made.json().encode()
    path = zipped(tmp_path / "a.zip", a=text)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        (info,) = archive.infolist()
    if kind == "checksum":
        data = data.replace(info.CRC.to_bytes(4, "little"), b"\1\2\3\4")
    else:
        data[info.header_offset + 60 + info.compress_size * 3 // 4] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(TraceFileError, match=r"^damaged archive: .*--salvage"):
        RankTrace.load(0, path)
    trace = RankTrace.load(0, path, options=ReadOptions(salvage=True))
    assert 0 < sum(trace.loaded.counts.values()) < 4000
    assert "damaged archive" in trace.salvaged[0]


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_a_tar_that_is_cut_off(kind, tmp_path):
    """Not used; with salvage the files before the cut are, and of the one that was cut what is complete."""
    path, files = tmp_path / f"run.{kind}", {}
    for rank in range(3):
        made = TraceBuilder(rank, 3)
        for number in range(400):
            made.kernel(f"kernel {number * 7919 % 100}", 10 * number, 5)
        files[f"rank{rank}"] = made.json().encode()
    with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{name}.json")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.5)])
    with pytest.raises(NothingToReadError, match=r"run\.tar(\.gz)?: .*--salvage"):
        Trace.open(path)
    trace = Trace.open(path, options=ReadOptions(salvage=True))
    assert sorted(trace.files) == [0, 1]
    assert trace.warnings[0].startswith(f"run.{kind} is salvaged: ")
    first, second = (RankTrace.load(rank, file, options=trace.options) for rank, file in trace.files.items())
    assert len(first.device_events) == 400
    assert first.salvaged == ()
    assert 100 < len(second.device_events) < 400
    assert second.salvaged
