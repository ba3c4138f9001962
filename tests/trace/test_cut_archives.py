"""Archives that were cut off or damaged: refused, or salvaged to the last complete event of each file in them."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import time
import zipfile
import zlib

import mutants
import pytest

from htareport.errors import HtaReportError, NothingToReadError, TraceFileError
from htareport.reading.text import blocks, cut_zip
from htareport.rows.options import ReadOptions
from htareport.trace import RankTrace, Trace

SALVAGE = ReadOptions(salvage=True)
MADE = mutants.original("kineto", steps=2)
TEXTS = [MADE.text.replace(b'"rank": 0', b'"rank": %d' % rank) for rank in range(3)]
FILES = {"rank0.json": TEXTS[0], "run/rank1.json.gz": gzip.compress(TEXTS[1], 1, mtime=0), "rank2.json": TEXTS[2]}


class Pipe(io.BytesIO):
    """What cannot be sought in, as where an archive is written to another program."""

    def seek(self, *where):
        """Refuse."""
        raise io.UnsupportedOperation(where)

    tell = seek


def zip_of(method=zipfile.ZIP_DEFLATED, *, piped=False, zip64=False):
    """An archive of the files, as the standard library writes it to a file or a pipe."""
    file = Pipe() if piped else io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in FILES.items():
            with archive.open(name, "w", force_zip64=zip64) as member:
                member.write(data)
    return file.getvalue()


def unsigned(data):
    """The same with no signature before what stands behind the data of a member, which is as legal."""
    assert data.count(b"PK\x07\x08") == len(FILES)
    return data.replace(b"PK\x07\x08", b"")


def unfinished(data):
    """The same as if nobody had come back to fill in sizes and checksums."""
    pieces = data.split(b"PK\x03\x04")
    return b"PK\x03\x04".join(each and each[:10] + bytes(12) + each[22:] for each in pieces)


ZIPS = {
    "deflated": zip_of(),
    "stored": zip_of(zipfile.ZIP_STORED),
    "zip64": zip_of(zip64=True),
    "piped": zip_of(piped=True),
    "piped, stored": zip_of(zipfile.ZIP_STORED, piped=True),
    "piped, zip64": zip_of(piped=True, zip64=True),
    "piped, unsigned": unsigned(zip_of(piped=True)),
    "piped, zip64, unsigned": unsigned(zip_of(zipfile.ZIP_STORED, piped=True, zip64=True)),
    "unfinished": unfinished(zip_of()),
}


def starts(data):
    """Where the data of each member begin, and its header; going by the names alone."""
    headers = [data.index(name.encode()) - 30 for name in FILES]
    sizes = [int.from_bytes(data[at + 28 : at + 30], "little") for at in headers]
    return [(at, at + 30 + len(name) + size) for at, name, size in zip(headers, FILES, sizes, strict=True)]


def whole_events(data, cut):
    """How many events of each rank are complete in a zip that is cut there."""
    begins = starts(data)
    for number, (_, begin) in enumerate(begins):
        if cut > begin:
            behind = begins[number + 1][0] if number + 1 < len(begins) else len(data)
            content = data[begin : min(cut, behind)]
            if data[begins[0][0] + 8] == zipfile.ZIP_DEFLATED:
                content = inflated(content)
            content = mutants.unpacked(content) if number == 1 else content
            yield number, MADE.complete_before(len(content))


def inflated(data):
    try:
        return zlib.decompressobj(-15).decompress(data)
    except zlib.error as error:
        raise AssertionError from error


def kept(path, **options):
    """How many events are salvaged of each rank of an archive; none if it is refused."""
    try:
        files = Trace.open(path, options=SALVAGE).files
    except NothingToReadError:
        return {}
    events = {}
    for rank, file in files.items():
        try:
            events[rank] = sum(RankTrace.load(rank, file, options=SALVAGE).loaded.counts.values())
        except TraceFileError:
            events[rank] = 0
    return events


@pytest.mark.parametrize("kind", ZIPS)
def test_zips_cut_anywhere(kind, tmp_path):
    """Refused; with salvage, exactly the events before the cut of every file in it, and all of those before."""
    data, path = ZIPS[kind], tmp_path / "run.zip"
    directory = data.index(b"PK\x01\x02")
    some = random.Random(kind)  # noqa: S311  the same in every run
    for cut in {*some.sample(range(60, directory), 6), directory, directory + 50, len(data) - 1}:
        path.write_bytes(data[:cut])
        with pytest.raises(NothingToReadError, match="damaged archive: its directory, which stands at the end, is mis"):
            Trace.open(path)
        expected = {rank: events for rank, events in whole_events(data, min(cut, directory)) if events}
        assert {rank: events for rank, events in kept(path).items() if events} == expected, cut


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_tars_cut_anywhere(kind, tmp_path):
    """The same of a tar, compressed or not."""
    plain, path = io.BytesIO(), tmp_path / f"run.{kind}"
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, data in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    with tarfile.open(fileobj=io.BytesIO(plain.getvalue())) as archive:
        offsets = [(each.offset_data, each.size) for each in archive]
    data = plain.getvalue() if kind == "tar" else gzip.compress(plain.getvalue(), 6, mtime=0)
    some = random.Random(kind)  # noqa: S311
    for cut in some.sample(range(len(data) // 20, len(data) * 9 // 10), 12):
        path.write_bytes(data[:cut])
        there, expected = mutants.unpacked(data[:cut]), {}
        for rank, (begin, size) in enumerate(offsets):
            content = there[begin : begin + size]
            expected[rank] = MADE.complete_before(len(mutants.unpacked(content)))
        found = kept(path)
        assert {rank: events for rank, events in found.items() if events} == {
            rank: events for rank, events in expected.items() if events
        }, cut
        if len(there) < sum(offsets[-1]) + 512:
            with pytest.raises(NothingToReadError, match=r"--salvage \(salvage=True\) keeps what is complete"):
                Trace.open(path)


def test_of_what_a_place_is(tmp_path):
    """Where a compressed tar ends is a place in the tar, and what is kept one in the JSON within it."""
    plain, path = io.BytesIO(), tmp_path / "run.tar.gz"
    with tarfile.open(fileobj=plain, mode="w") as archive:
        member = tarfile.TarInfo("rank0.json")
        member.size = len(TEXTS[0])
        archive.addfile(member, io.BytesIO(TEXTS[0]))
    data = gzip.compress(plain.getvalue(), mtime=0)
    path.write_bytes(data[: len(data) // 2])
    there = len(mutants.unpacked(data[: len(data) // 2]))
    (file,) = Trace.open(path, options=SALVAGE).files.values()
    (told,) = RankTrace.load(0, file, options=SALVAGE).salvaged
    assert f"the gzip data end early, at byte {there} of the tar; " in told
    assert f" of {there - 512:,} bytes of JSON; " in told


def test_a_damaged_header_is_no_end_of_a_tar(tmp_path):
    """Nor is one that is cut; where there is no mark at the end, more files may be missing."""
    path, file = tmp_path / "run.tar", io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for rank in range(2):
            member = tarfile.TarInfo(f"rank{rank}.json")
            member.size = len(TEXTS[rank])
            archive.addfile(member, io.BytesIO(TEXTS[rank]))
    data = file.getvalue()
    second, end = data.index(b"rank1.json\0"), len(data.rstrip(b"\0")) // 512 * 512 + 512
    for damaged in (data[: second + 100], data[:second] + b"x" + data[second + 1 :]):
        for packed in (damaged, gzip.compress(damaged)):
            path.write_bytes(packed)
            with pytest.raises(
                NothingToReadError, match=r"damaged archive: (truncated header|bad checksum); --salvage"
            ):
                Trace.open(path)
            trace = Trace.open(path, options=SALVAGE)
            assert list(trace.files) == [0]
            assert "1 file found in it, others may be missing" in trace.warnings[0]
    path.write_bytes(data[:end])
    assert list(Trace.open(path).files) == [0, 1]
    assert Trace.open(path).warnings == ("run.tar may be cut off: it has no mark at its end; files may be missing",)
    path.write_bytes(data[: end + 512])
    assert Trace.open(path).warnings == ()


def test_a_zip_without_directory_is_searched_once(tmp_path, monkeypatch):
    """However many files are in it; but again once it has changed."""
    searched, members = [], cut_zip.members
    monkeypatch.setattr(cut_zip, "members", lambda file: searched.append(1) or members(file))
    path = tmp_path / "cut.zip"
    for number, end in enumerate((-1, -2), 1):
        path.write_bytes(ZIPS["deflated"].partition(b"PK\x01\x02")[0][:end])
        trace = Trace.open(path, options=SALVAGE)
        for rank, file in trace.files.items():
            assert RankTrace.load(rank, file, options=SALVAGE).loaded.counts
        assert (len(trace.files), len(searched)) == (3, number)


def test_what_was_kept_of_a_zip_is_said(tmp_path, cli):
    """The files that were found, and of the last, how far it is there."""
    data = ZIPS["piped"]
    (tmp_path / "run.zip").write_bytes(data[: starts(data)[2][1] + 900])
    ran = cli("report", "run.zip", "-o", "a.json", "--only", "trace_quality")
    assert ran.status == 3
    assert ran.err.endswith("is missing or damaged; --salvage (salvage=True) keeps what is complete)\n")
    ran = cli("report", "run.zip", "-o", "a.json", "--only", "trace_quality", "--salvage")
    assert ran.status == 0
    assert "run.zip is salvaged: damaged archive: its directory, which stands at the end, is missing" in ran.err
    assert "3 files found in it, others may be missing" in ran.err
    assert "rank 2 is salvaged: rank2.json: the zip data end early, at byte " in ran.err
    assert "rank 0 is salvaged" not in ran.err


def test_damage_within_a_zip_without_directory(tmp_path):
    """Costs what is behind it in that file, and no other file."""
    for kind in ("deflated", "piped"):
        data = bytearray(ZIPS[kind][: ZIPS[kind].index(b"PK\x01\x02")])
        begin = starts(bytes(data))[0][1]
        at = begin + 900
        data[at : at + 60] = bytes(60)
        path = tmp_path / "run.zip"
        path.write_bytes(data)
        events = kept(path)
        assert 0 < events[0] < len(MADE.ends)
        assert events[1] == events[2] == len(MADE.ends)


def test_a_wrong_checksum_is_said(tmp_path):
    """Of what is stored nothing else would tell."""
    for kind in ("stored", "piped, stored"):
        data = bytearray(ZIPS[kind][: ZIPS[kind].index(b"PK\x01\x02")])
        at = data.index(b'"dur": ') + 7
        data[at] = ord("7") if data[at] != ord("7") else ord("8")
        path = tmp_path / "run.zip"
        path.write_bytes(data)
        trace = RankTrace.load(0, path / "rank0.json", options=SALVAGE)
        assert "damaged archive: the checksum of rank0.json is wrong" in trace.warnings[0]
        with pytest.raises(TraceFileError, match="checksum"):
            RankTrace.load(0, path / "rank0.json")


def test_names_without_a_directory_lead_nowhere(tmp_path):
    """They are names inside, and what is encrypted or packed in another way is said."""
    (tmp_path / "rank7.json").write_bytes(MADE.text)
    path, file = tmp_path / "z.zip", io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("../rank7.json", str(tmp_path / "rank8.json"), "..\\rank9.json", "C:/rank10.json", "a/"):
            archive.writestr(name, b"{}")
        archive.writestr("rank3.json", MADE.text, zipfile.ZIP_BZIP2)
    data = file.getvalue()
    path.write_bytes(data[: data.index(b"PK\x01\x02")])
    members = blocks.archive_members(path, SALVAGE)
    assert len(members) == 5
    assert all(path in member.parents and ".." not in member.parts for member in members)
    with pytest.raises(TraceFileError, match="no traceEvents"):
        RankTrace.load(0, path / "rank7.json", options=SALVAGE)
    with pytest.raises(TraceFileError, match=r"rank3\.json is packed by method 12"):
        RankTrace.load(0, path / "rank3.json", options=SALVAGE)
    path.write_bytes(data[:6] + b"\x01" + data[7 : data.index(b"PK\x01\x02")])
    with pytest.raises(TraceFileError, match=r"rank7\.json is encrypted"):
        RankTrace.load(0, path / "rank7.json", options=SALVAGE)


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04" * 100_000,
        b"PK\x03\x04" + b"PK\x01\x02" * 100_000,
        (b"PK\x03\x04\x14\0\x08\0\x08" + bytes(17) + b"\x01\0\0\0a") * 20_000,
        (b"PK\x03\x04\x14\0\0\0\x08" + bytes(9) + b"\xff\xff\0\0" * 2 + b"\x01\0\0\0a") * 20_000,
    ],
    ids=["signatures", "directory", "headers", "headers of large files"],
)
def test_headers_without_end(data, tmp_path):
    """Time and memory follow the size."""
    path, begin = tmp_path / "a.zip", time.process_time()
    path.write_bytes(data)
    with pytest.raises(HtaReportError):
        RankTrace.load(0, path, options=SALVAGE)
    assert time.process_time() - begin < 3


def test_bombs_without_directory(tmp_path, monkeypatch):
    """What a member holds is bounded as in any archive."""
    monkeypatch.setattr(blocks, "MAX_UNPACKED_BYTES", 1 << 20)
    path, file = tmp_path / "a.zip", io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank0.json", b'{"traceEvents": [' + b" " * (12 << 20))
    data = file.getvalue()
    path.write_bytes(data[: data.index(b"PK\x01\x02")])
    with pytest.raises(HtaReportError, match="once unpacked; --max-bytes allows more"):
        RankTrace.load(0, path / "rank0.json", options=SALVAGE)
    small = ReadOptions(salvage=True, max_bytes=1000)
    with pytest.raises(HtaReportError, match="holds more than 1,000 bytes once unpacked"):
        RankTrace.load(0, path / "rank0.json", options=small)
