"""Traces damaged at random and cut anywhere: a trace or a sentence, in bounded time and memory; see mutants.py."""

from __future__ import annotations

import gzip
import random
import re

import mutants
import pytest

from htareport.errors import TraceFileError
from htareport.reading.text.decode import Reader
from htareport.reading.text.load import read_file
from htareport.rows.options import ReadOptions
from htareport.trace import RankTrace

LAYOUTS = pytest.mark.parametrize("layout", mutants.LAYOUTS)
PACKED = pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "gzip"])
SALVAGE = ReadOptions(salvage=True)


def kept(path):
    """How many events are salvaged of a file, 0 if it is refused."""
    try:
        return sum(RankTrace.load(0, path, options=SALVAGE).loaded.counts.values())
    except TraceFileError:
        return 0


@LAYOUTS
@PACKED
def test_mutants(layout, packed, tmp_path):
    """Whatever is wrong with the bytes: no other error, and with salvage no complete event before it is lost."""
    made, path, ended = mutants.original(layout), tmp_path / "rank0.pt.trace.json", set()
    data = gzip.compress(made.text, 1, mtime=0) if packed else made.text
    some = random.Random(f"{layout} {packed}")  # noqa: S311  the same in every run
    for number in range(18):
        path.write_bytes(mutants.mutated(data, some))
        ended.add(mutants.check(path, made))
        if number % 17 == 0:
            mutants.check_memory(path, len(mutants.unpacked(path.read_bytes())))
    assert "refused salvaged" in ended


@LAYOUTS
@pytest.mark.parametrize("size", [600, pytest.param(128 << 10, marks=pytest.mark.slow)])
def test_mutants_read_in_pieces(layout, size, tmp_path, chunks_of):
    """The same where a file is many chunks."""
    made, path = mutants.original(layout), tmp_path / "rank0.pt.trace.json"
    chunks_of(size)
    some = random.Random(f"{layout} {size}")  # noqa: S311
    for _ in range(12):
        path.write_bytes(mutants.mutated(made.text, some))
        mutants.check(path, made)


@LAYOUTS
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_cut_anywhere(layout, packed, tmp_path):
    """Without salvage a refusal with the place; with it exactly the events that were complete before the cut."""
    made, path = mutants.original(layout, steps=2), tmp_path / "rank0.pt.trace.json"
    data = gzip.compress(made.text, 6, mtime=0) if packed else made.text
    some = random.Random(f"{layout} {packed}")  # noqa: S311
    for cut in some.sample(range(20, len(data)), 14):
        path.write_bytes(data[:cut])
        content = mutants.unpacked(data[:cut])
        if content == made.text.rstrip() or (packed and content == made.text):
            continue
        with pytest.raises(TraceFileError, match=r"early, at byte \d+"):
            RankTrace.load(0, path)
        assert kept(path) == made.complete_before(len(content)), cut


def test_cut_at_every_byte_of_an_event(tmp_path):
    """From the bracket that opens the array to the last of the file."""
    made, path = mutants.original("kineto", steps=1), tmp_path / "a.json"
    begin = made.text.index(b"[", made.text.index(b"traceEvents"))
    for cut in [*range(begin + 1, made.ends[0] + 9, 2), *range(made.ends[-1] - 3, len(made.text), 2)]:
        path.write_bytes(made.text[:cut])
        assert kept(path) == made.complete_before(cut)


@pytest.mark.parametrize("what", ["checksum", "length", "bit"])
def test_damaged_gzip(what, tmp_path):
    """Everything that can be unpacked is kept; that it may be wrong is said."""
    made, path = mutants.original("kineto"), tmp_path / "a.json.gz"
    data = bytearray(gzip.compress(made.text, 6, mtime=0))
    data[{"checksum": -8, "length": -1, "bit": len(data) // 2}[what]] ^= 16
    path.write_bytes(data)
    with pytest.raises(TraceFileError, match=r"^the gzip data are damaged behind byte \d+ of the content: .*--salvage"):
        RankTrace.load(0, path)
    trace = RankTrace.load(5, path, options=SALVAGE)
    before = mutants.first_difference(mutants.unpacked(bytes(data)), made.text)
    assert sum(trace.loaded.counts.values()) >= made.complete_before(before) > 0
    assert trace.warnings[0].startswith("rank 5 is salvaged: a.json.gz: the gzip data are damaged behind byte ")
    if what != "bit":
        assert f"; {len(made.ends)} complete events are kept, within" in trace.warnings[0]


def test_what_was_kept_is_said(tmp_path):
    """Events and bytes, of how many, with place and reason; the metadata before the events hold."""
    made, path = mutants.original("kineto"), tmp_path / "rank0.json"
    cut = made.ends[9] + 30
    path.write_bytes(made.text[:cut])
    trace = RankTrace.load(0, path, options=SALVAGE)
    line = made.text[:cut].count(b"\n") + 1
    (told,) = trace.salvaged
    assert told == (
        f"rank 0 is salvaged: rank0.json: the file ends early, at byte {cut} (line {line}): the array of events is not "
        f"closed; 10 complete events are kept, within the first {made.ends[9]:,} of {cut:,} bytes of JSON; "
        "what is missing may be of any time"
    )
    assert trace.device_name(0) == "NVIDIA H100 80GB HBM3"
    whole = RankTrace.load(0, mutants_file(tmp_path, made))
    assert trace.start_ns == whole.start_ns
    assert whole.salvaged == ()


def mutants_file(folder, made):
    path = folder / "whole.json"
    path.write_bytes(made.text)
    return path


@LAYOUTS
def test_damage_in_the_middle(layout, tmp_path):
    """Costs the event that has it, and no other."""
    made, path = mutants.original(layout), tmp_path / "rank0.json"
    text = bytearray(made.text)
    for number in (20, 22, 50, 90):
        at = text.index(b'"ph"', made.ends[number - 1])
        text[at : at + 4] = b"\0" * 4
    path.write_bytes(text)
    with pytest.raises(TraceFileError, match=r"not valid JSON at byte \d+"):
        RankTrace.load(0, path)
    trace = RankTrace.load(0, path, options=SALVAGE)
    assert sum(trace.loaded.counts.values()) == len(made.ends) - 4
    first = text.index(b"\0")
    told = re.search(r"4 damaged pieces passed over, the first at byte (\d+) \(line (\d+)\): ", trace.salvaged[0])
    assert abs(int(told[1]) - first) <= 1
    assert int(told[2]) == text[:first].count(b"\n") + 1


@pytest.mark.parametrize("behind", [b'l10"x"}}', b"}", b"\x00", b":1", b"}]}"])
@pytest.mark.parametrize("is_last", [False, True])
def test_damage_right_behind_an_event(tmp_path, behind, is_last):
    """It is complete all the same, the last of the file or not; what is no event is none for that."""
    event = b'{"ph":"X","cat":"cpu_op","name":"%d","pid":1,"tid":1,"ts":%d,"dur":1,"args":{"a":{"b":1}}}'
    events = [event % (number, number) for number in range(6)]
    cut = 6 if is_last else 3
    head, tail = b",".join(events[:cut]), b"," + b",".join(events[cut:]) if cut < 6 else b""
    path = tmp_path / "rank0.json"
    path.write_bytes(b'{"schemaVersion":1,"traceEvents":[' + head + behind + tail + b"]}")
    names = set(RankTrace.load(0, path, options=SALVAGE).events["cpu_op"]["name"])
    assert names >= set(map(str, range(cut)))  # Of those behind, the first may be lost.
    assert len(names) >= len(events) - 1
    path.write_bytes(path.read_bytes().replace(b'"name":"%d",' % (cut - 1), b""))
    assert kept(path) >= cut - 1


def test_damaged_metadata(tmp_path):
    """The events are kept, and of the metadata what tells time and rank."""
    made, path = mutants.original("kineto"), tmp_path / "rank0.json"
    text = made.text.replace(b'"schemaVersion"', b'"schemaVersion').replace(b'"rank": 0', b'"rank": 3')
    path.write_bytes(text)
    with pytest.raises(TraceFileError, match="the metadata around the events are not valid JSON at byte"):
        RankTrace.load(0, path)
    trace = RankTrace.load(0, path, options=SALVAGE)
    assert sum(trace.loaded.counts.values()) == len(made.ends)
    assert trace.captures[0].base_ns > 0
    assert trace.captures[0].meta["distributedInfo"]["rank"] == 3


def test_a_good_file_is_not_salvaged(tmp_path):
    """Asking for it changes nothing, and the slow road is never entered."""
    for layout in mutants.LAYOUTS:
        path = tmp_path / f"{layout}.json"
        path.write_bytes(mutants.original(layout).text)
        content = read_file(path, Reader(), SALVAGE)
        assert content.salvaged is None
        assert content.repairs.entered == 0
