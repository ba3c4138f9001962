"""What was done to the files, by rank and file, on paper values."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from htareport import analyze
from htareport.analyses.quality.trace_quality import TraceQuality
from htareport.report import Status

HOUR = 3600 * 10**6


def section_of(folder, **options):
    return analyze(folder, analyses=[TraceQuality()], **options)["trace_quality"]


@pytest.fixture
def folder(tmp_path):
    """Three ranks: one that was mended, one with two files and impossible times, one that ends early."""
    mended = TraceBuilder(0, 3).kernel("a@b", 10, 5).kernel("a@b", 20, 5).memcpy("HtoD", 30, 5, 64, 2.0)
    path = mended.write(tmp_path / "rank0.json")
    path.write_text(path.read_text().replace("a@b", 'a"b').replace('(GB/s)": 2.0', '(GB/s)": inf'))
    for number, stamp in enumerate((10**10, 10**10 + 1)):
        made = TraceBuilder(1, 3, base_ns=0).kernel("a", (2 + number) * HOUR, 5).cpu_op("b", (2 + number) * HOUR, -1)
        made.kernel("c", 0, 5).kernel("c", 0, 5).write(tmp_path / f"heron-n1_7.{stamp}.pt.trace.json")
    last = TraceBuilder(2, 3).kernel("a", 10, 5).kernel("b", 20, 5).write(tmp_path / "rank2.json")
    last.write_bytes(last.read_bytes()[:-60])
    return tmp_path


def test_tables(folder):
    """Each with its rank and file; the places of repairs are those of the first."""
    section = section_of(folder, salvage=True)
    text = (folder / "rank0.json").read_text()
    lines = {name: text[: text.index(name)].count("\n") + 1 for name in ('a"b', "inf")}
    repairs = section.table("repairs").to_dict("records")
    assert [(row["rank"], row["file"], row["what"], row["count"], row["line"]) for row in repairs] == [
        (0, "rank0.json", "stray quotes", 2, lines['a"b']),
        (0, "rank0.json", "values that are no numbers", 1, lines["inf"]),
    ]
    assert [row["byte"] for row in repairs] == [text.index('a"b') + 1, text.index("inf")]
    captures = [f"heron-n1_7.{stamp}.pt.trace.json" for stamp in (10**10, 10**10 + 1)]
    assert section.table("set_aside").to_numpy().tolist() == [
        row
        for name in captures
        for row in ([1, name, "device", "at time 0", 2], [1, name, "host", "ending before the start", 1])
    ]
    (kept,) = section.table("salvaged").to_dict("records")
    size = (folder / "rank2.json").stat().st_size
    assert (kept["rank"], kept["file"], kept["events"], kept["all_bytes"]) == (2, "rank2.json", 1, size)
    files = section.table("files").set_index("file")
    assert files["events"].to_dict() == {"rank0.json": 3, captures[0]: 1, captures[1]: 1, "rank2.json": 1}
    assert files["repairs"].to_dict() == {"rank0.json": 3, captures[0]: 0, captures[1]: 0, "rank2.json": 0}
    assert files["set_aside"].tolist() == [0, 3, 3, 0]
    assert files["kept"].to_dict() == {
        "rank0.json": 1, captures[0]: 1, captures[1]: 1, "rank2.json": kept["kept_bytes"] / size,
    }  # fmt: skip
    assert files["host"].tolist() == ["", "host-1", "host-1", ""]
    texts = section.table("warnings")
    assert texts[texts["rank"] == 2]["text"].tolist()[0].startswith("rank 2 is salvaged: rank2.json: the file ends")
    assert section.notes[1] == (
        "1 file salvaged; 3 slips of the writer repaired; 6 events with impossible times set aside."
    )


def test_a_file_with_nothing_to_say(tmp_path):
    """Says just that."""
    TraceBuilder(0).kernel("a", 1, 2).write(tmp_path / "a.json")
    section = section_of(tmp_path)
    assert section.notes == ("Every file was read as it is: nothing was repaired, set aside, salvaged or redacted.",)
    assert [len(table.frame) for table in section.tables] == [0, 0, 0, 0, 1, 0, 0]


def test_redactions_are_counted(tmp_path):
    """By rank and kind; none if they are kept."""
    for rank in range(2):
        made = TraceBuilder(rank, 2, user="heron")
        made.kernel("/home/heron/k", 1, 2).kernel("/home/heron/l by heron", 5, 2).write(tmp_path / f"{rank}.json")
    section = section_of(tmp_path)
    assert section.table("redacted").to_numpy().tolist() == [
        row for rank in range(2) for row in ([rank, "home folders", 2], [rank, "user names", 2])
    ]
    assert section.notes == ("8 places redacted.",)
    assert not len(section_of(tmp_path, redact=False).table("redacted"))


def test_files_of_one_name(tmp_path):
    """From two folders, captures of one rank: told apart by their order."""
    for number in range(2):
        TraceBuilder(0).kernel("a", 1000 * number, 2).write(tmp_path / str(number) / "rank0.json")
    section = section_of(tmp_path)
    assert section.status is Status.OK
    assert section.table("files")["file"].tolist() == ["rank0.json (1)", "rank0.json (2)"]


def test_overlaps_on_a_stream(tmp_path):
    """[0, 100] holds [10, 20] whole and shares 40 with [60, 120]; touching, other streams and other devices do not."""
    made = TraceBuilder(0, devices=2)
    for start, dur in ((0, 100), (10, 10), (60, 60), (120, 5)):
        made.kernel("a", start, dur, stream=7).kernel("b", 200 + start, dur, stream=7, device=1)
    made.kernel("c", 0, 50, stream=8).kernel("c", 50, 50, stream=8)
    path = made.write(tmp_path / "a.json")
    path.write_text(path.read_text().replace('"tid": 7', '"tid": "seven"').replace('"stream": 8', '"stream": "eight"'))
    table = section_of(tmp_path).table("overlaps")
    assert table.to_numpy().tolist() == [[0, 0, 7, 2, 40_000], [0, 1, 7, 2, 40_000]]
