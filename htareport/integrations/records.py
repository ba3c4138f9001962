"""Records that each rank writes next to its traces: which files are complete, and whether the rank is done.

A record lists files that were renamed into place before, and is itself renamed into place: no reader sees half of one.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

log = logging.getLogger(__name__)

FOLDER = ".ranks"  # Hidden: whoever looks for traces passes it by.

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 2.0  # Between two looks; a shared file system wants few.


@dataclass(frozen=True)
class Record:
    """One rank's part in one profiled run of one process."""

    rank: int
    world_size: int
    host: str
    pid: int
    job: str  # What the launcher calls the job; empty without one.
    number: int  # Of the profiled run within the process, from 1: ranks of one run agree on it.
    started_ns: int
    files: tuple[str, ...] = ()
    done: bool = False

    @property
    def stem(self) -> str:
        """What the names of its files begin with; the rank first, since hosts are called worker-3, too."""
        return f"rank{self.rank}.{_plain(self.host)}.{self.pid}"

    def file_name(self, stamp_ns: int) -> str:
        """Name a trace file."""
        return f"{self.stem}.{stamp_ns}.pt.trace.json.gz"

    def write(self, traces: Path) -> None:
        """Leave the record, in place of an earlier one of this run."""
        path = self._path(traces)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")
        temporary.replace(path)

    def remove(self, traces: Path) -> None:
        """Take the record away."""
        self._path(traces).unlink(missing_ok=True)

    def _path(self, traces: Path) -> Path:
        return traces / FOLDER / f"{self.started_ns}.{self.stem}.{self.number}.json"

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Return what `asdict` made, also after a trip through JSON."""
        return cls(**{**data, "files": tuple(data["files"])})

    def is_of_run(self, other: Record) -> bool:
        """Whether both ranks took part in one run, as far as the launcher and the order of runs tell."""
        return (self.job, self.number, self.world_size) == (other.job, other.number, other.world_size)

    def is_of_process(self, other: Record) -> bool:
        """Whether both come from one process."""
        return (self.host, self.pid, self.rank) == (other.host, other.pid, other.rank)


@dataclass(frozen=True)
class Gathered:
    """The files of a run by rank, and the ranks that left none or did not say that they were done."""

    files: dict[int, tuple[Path, ...]]
    missing: tuple[int, ...] = ()
    unfinished: tuple[int, ...] = ()
    records: tuple[Record, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every rank left its files and said that these are all."""
        return not self.missing and not self.unfinished


def gather(  # noqa: PLR0913  the clock is a parameter so that tests need not wait
    traces: Path,
    own: Record,
    *,
    ranks: Collection[int],
    since_ns: int = 0,
    wait_s: float = 0,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Gathered:
    """Collect the files of the run that `own` took part in; the process that left `own` has ended.

    Other ranks have `wait_s` to say that they are done. Nobody waits for a process that is known to have ended. Records
    from before `since_ns` are of earlier runs.
    """
    expected = sorted(ranks)
    deadline, pause = now() + wait_s, _FIRST_PAUSE_S
    while True:
        records = records_of_run(traces, own, since_ns)
        awaited = [rank for rank in expected if rank not in records or not _has_ended(records[rank], own)]
        if not awaited or (left := deadline - now()) <= 0:
            break
        sleep(min(pause, left))
        pause = min(2 * pause, _MAX_PAUSE_S)
    files = {rank: _present(traces, record) for rank, record in sorted(records.items()) if rank in expected}
    files = {rank: paths for rank, paths in files.items() if paths}
    return Gathered(
        files,
        missing=tuple(rank for rank in expected if rank not in files),
        unfinished=tuple(rank for rank in files if not (records[rank].done or records[rank].is_of_process(own))),
        records=tuple(records.values()),
    )


def records_of_run(traces: Path, own: Record, since_ns: int) -> dict[int, Record]:
    """Return the records of one run by rank, of several processes of a rank the last."""
    records = [record for record in _records(traces, since_ns) if record.is_of_run(own)]
    if own.world_size == 1:  # Records of other processes are runs of their own.
        records = [record for record in records if record.is_of_process(own)]
    return {record.rank: record for record in sorted(records, key=lambda record: record.started_ns)}


def _records(traces: Path, since_ns: int) -> Iterator[Record]:
    for path in (traces / FOLDER).glob("*.json"):
        started = path.name.partition(".")[0]
        if not started.isdecimal() or int(started) < since_ns:
            continue
        try:
            yield Record.from_data(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError) as error:  # Removed meanwhile, or another version's.
            log.debug("%s: %s", path, error)


def _present(traces: Path, record: Record) -> tuple[Path, ...]:
    return tuple(path for name in record.files if (path := traces / name).is_file())


def _has_ended(record: Record, own: Record) -> bool:
    if record.done or record.is_of_process(own):
        return True
    return record.host == own.host and not _runs(record.pid)


def _runs(pid: int) -> bool:
    if os.name != "posix":  # Elsewhere the signal 0 is one.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # Somebody else's.
        return True
    return True


def this_host() -> str:
    """Name this host, and this container where process ids are its own."""
    try:
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  not a path: pid:[4026531836]
    except OSError:
        space = ""
    return f"{socket.gethostname()}/{space}"


def _plain(host: str) -> str:
    """Return a host's name as part of a file name."""
    name = host.partition("/")[0]
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in name) or "host"


def process_start_ns() -> int:
    """Return when this process began, since the epoch; where the system does not say, when this module was loaded."""
    try:
        ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return _LOADED_NS
    started = time.time_ns() - int(age_s * 1e9)
    return started if age_s > 0 else _LOADED_NS


_LOADED_NS = time.time_ns()


def finished(record: Record) -> Record:
    """Return the record of a rank that is done."""
    return replace(record, done=True)
