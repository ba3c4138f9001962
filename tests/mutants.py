"""Traces damaged at random, the same in every run: what holds of each, however it was damaged.

python tests/mutants.py 10000          # A long run: says what it did, and stops at the first that does not hold.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import sys
import tempfile
import time
import tracemalloc
import zlib
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from builder import Layout, TraceBuilder

from htareport.cli import main
from htareport.errors import HtaReportError
from htareport.reading.text.load import read_file
from htareport.rows.options import ReadOptions
from htareport.trace import RankTrace, Trace

LAYOUTS: tuple[Layout, ...] = ("kineto", "compact", "indent", "array")
SECONDS_PER_MB, LEAST_SECONDS = 5.0, 3.0
TIMES_THE_SIZE, LEAST_MEMORY = 20, 8_000_000  # Bytes: imports, and buffers that do not depend on the trace.
PIECES = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\0",
    b"\n",
    b"\xff",
    b"nan",
    b"-inf",
    b"}, {",
    b'"ph": "X"',
)


@dataclass(frozen=True)
class Original:
    """A good trace: its text, and where each of its events ends."""

    text: bytes
    ends: tuple[int, ...]

    def complete_before(self, place: int) -> int:
        """How many events end at a byte or before."""
        return sum(end <= place for end in self.ends)


def original(layout: Layout, seed: int = 0, steps: int = 4) -> Original:
    """Make a trace of some hundred events of most kinds, names and arguments that are hard to read among them."""
    some = random.Random(seed)  # noqa: S311  the same in every run
    made = TraceBuilder(rank=0, world_size=2)
    for step in range(steps):
        at = 1000 * step
        made.step(step, at, 1000).cpu_op("aten::mm", at + 1, 30, **{"External id": step, "Input Dims": [[2, 3], []]})
        for n in range(12):
            name = some.choice(["gemm", 'void f<int, 4>("x")', "a\\b", "grüße", "}, {", "line\nbreak"])
            made.kernel(
                name, at + 50 * n + 40, some.randrange(1, 45), launch=(at + 50 * n, 5), note=[{"name": "x"}, {}]
            )
        made.memcpy("HtoD (Pinned -> Device)", at + 700, 20, 4096, 12.5).memory(at + 720, 64, 1 << 40)
        made.collective("ncclDevKernel_AllReduce", "allreduce", at + 750, 90, launch=(at + 745, 2))
        made.python_function("train.py(3): step", at, 900)
    made.event({"ph": "M", "name": "process_name", "pid": 1000, "tid": 0, "ts": 0, "args": {"name": "python"}})
    text = made.json(layout).encode()
    return Original(text, tuple(_ends(text)))


def _ends(text: bytes) -> list[int]:
    """Where the events of a good trace end, by Python's own parser."""
    as_str = text.decode("latin-1")
    array = re.search(r'(?:"traceEvents": ?|^)\[', as_str)
    assert array
    at, ends = array.end(), []
    while begin := re.compile(r"[\s,]*\{").match(as_str, at):
        at = json.JSONDecoder().raw_decode(as_str, begin.end() - 1)[1]
        ends.append(at)
    return ends


def mutated(data: bytes, some: random.Random) -> bytes:
    """Damage bytes: cut, flipped, deleted, inserted, copied, overwritten, or swapped."""
    out = bytearray(data)
    for _ in range(some.choice([1, 1, 1, 2, 5])):
        at = some.randrange(len(out)) if out else 0
        match some.randrange(8):
            case 0:
                del out[at:]
            case 1 if out:
                out[at] ^= 1 << some.randrange(8)
            case 2:
                del out[at : at + some.randrange(1, 200)]
            case 3:
                out[at:at] = some.choice(PIECES)
            case 4:
                out[at:at] = out[(start := some.randrange(len(out) or 1)) : start + some.randrange(300)]
            case 5:
                out[at : at + some.randrange(1, 64)] = bytes(some.randrange(64))
            case 6:
                out[at : at + 1] = some.choice(PIECES)
            case _:
                other = some.randrange(len(out) or 1)
                out[at : at + 8], out[other : other + 8] = out[other : other + 8], out[at : at + 8]
    return bytes(out)


def unpacked(data: bytes) -> bytes:
    """What gzip data hold up to their first fault, by the standard library."""
    if data[:2] != b"\x1f\x8b":
        return data
    out, inflate = bytearray(), zlib.decompressobj(31)
    for step in (4096, 1):  # Byte by byte only around the fault.
        for at in range(0, len(data), step):
            before = inflate.copy()
            try:
                out += inflate.decompress(data[at : at + step])
            except zlib.error:
                inflate, data = before, data[at:]
                break
        else:
            break
    return bytes(out)


def first_difference(one: bytes, other: bytes) -> int:
    """Return the offset of the first byte that differs."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def check(path: Path, made: Original) -> str:
    """Assert what holds of any damaged file; return how it ended."""
    raw = unpacked(path.read_bytes())
    before = made.complete_before(first_difference(raw, made.text))
    outcome = ""
    for salvage in (False, True):
        start = time.process_time()
        try:
            trace = _loaded(path, ReadOptions(salvage=salvage))
        except HtaReportError as error:
            ended, events, told = "refused", 0, str(error)
        else:
            told = ""
            events = sum(trace.loaded.counts.values())
            ended = "salvaged" if trace.salvaged else "repaired" if trace.captures[0].slips else "read"
        assert len(told) < 600, told
        spent = time.process_time() - start
        assert spent <= max(LEAST_SECONDS, SECONDS_PER_MB * len(raw) / 1e6), (salvage, spent)
        if salvage and _is_trace(raw, made):
            assert events >= before, (events, before)
        outcome += f"{ended} "
    assert outcome not in {"refused read ", "refused repaired "}, "what is used on request only is marked"
    return outcome.strip()


def _is_trace(raw: bytes, made: Original) -> bool:
    """Whether the damage lies behind the beginning of the events."""
    return made.complete_before(first_difference(raw, made.text)) > 0


def _loaded(path: Path, options: ReadOptions) -> RankTrace:
    """Load the file as the program does, and make the tables that analyses start from."""
    opened = Trace.open(path, options=options)
    ((rank, files),) = opened.files.items()
    trace = RankTrace.load(rank, files, options=options)
    assert len(trace.device_events) + len(trace.host) + len(trace.steps) >= 0
    assert all(isinstance(warning, str) for warning in trace.warnings)
    return trace


def check_memory(path: Path, raw_size: int) -> None:
    """Assert that reading takes no more memory than its size allows."""
    from htareport.reading.text.decode import Reader

    tracemalloc.start()
    try:
        read_file(path, Reader(), ReadOptions(salvage=True))
    except HtaReportError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak <= LEAST_MEMORY + TIMES_THE_SIZE * raw_size, (peak, raw_size)


def check_command(path: Path, out: Path, *, salvage: bool) -> int:
    """Assert that the command line ends with 0, 3 or 4 and a sentence; return its status."""
    printed = io.StringIO()
    with redirect_stderr(printed), redirect_stdout(printed):
        status = main(["report", str(path), "-o", str(out), "-q", *(["--salvage"] if salvage else [])])
    assert status in {0, 3, 4}, (status, printed.getvalue())
    assert "Traceback" not in printed.getvalue()
    assert "internal error" not in printed.getvalue()
    assert status == 0 or printed.getvalue()
    return status


def run(count: int, seed: int = 7) -> None:
    """Check many mutants, some of them with memory and by the command line, and say how they ended."""
    some, ended, begin, longest = random.Random(seed), Counter[str](), time.monotonic(), 0.0  # noqa: S311
    originals = [original(layout, seed, steps) for layout in LAYOUTS for seed, steps in ((0, 4), (1, 40))]
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "rank0.pt.trace.json"), Path(folder, "report.json")
        for number in range(count):
            made = some.choice(originals)
            packed = some.random() < 0.3
            path.write_bytes(mutated(gzip.compress(made.text, 1, mtime=0) if packed else made.text, some))
            start = time.process_time()
            try:
                ended[check(path, made)] += 1
                if number % 20 == 0:
                    check_memory(path, len(unpacked(path.read_bytes())))
                if number % 100 == 0:
                    ended[f"status {check_command(path, out, salvage=number % 200 == 0)}"] += 1
            except BaseException:
                Path("mutant.json").write_bytes(path.read_bytes())
                print(f"mutant {number} is kept as mutant.json", file=sys.stderr)  # noqa: T201
                raise
            longest = max(longest, time.process_time() - start)
    print(f"{count} mutants in {time.monotonic() - begin:.0f} s, the longest took {longest:.2f} s of CPU")  # noqa: T201
    for how, number in ended.most_common():
        print(f"{number:7}  {how}")  # noqa: T201


if __name__ == "__main__":
    run(*map(int, sys.argv[1:3] or ["1000"]))
