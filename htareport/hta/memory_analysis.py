"""Memory of tensors by category over time, from the raw file of PyTorch's `export_memory_timeline`."""

from __future__ import annotations

import enum
import gzip
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pandas as pd
from numpy.typing import NDArray

from htareport.algorithms.live import thinned
from htareport.errors import TraceFileError
from htareport.report import Chart, Mark, Unit


class Category(enum.Enum):
    """What a tensor is for."""

    INPUT = enum.auto()
    TEMPORARY = enum.auto()
    ACTIVATION = enum.auto()
    GRADIENT = enum.auto()
    AUTOGRAD_DETAIL = enum.auto()
    PARAMETER = enum.auto()
    OPTIMIZER_STATE = enum.auto()


CATEGORIES = (
    *("Parameter", "Optimizer state", "Input", "Temporary", "Activation", "Gradient"),
    *("Autograd detail", "Unknown"),
)
_UNKNOWN = len(CATEGORIES) - 1
_FIELDS = 4  # Time (ns), action, bytes (negative where they go), category.
_MAX_POINTS = 1_000


class Peak(NamedTuple):
    """The largest total, when (ns after the first event), and the bytes of each category then."""

    bytes: int
    at_ns: int
    composition: dict[str, int]


class MemoryAnalysis:
    """Memory over time from the raw file (`….raw.json.gz`, or plain JSON) of `export_memory_timeline`.

    The file is a list of [time in ns, action, bytes, category]. Tensors from before profiling have a negative time and
    count from the first event on.
    """

    def __init__(self, path: str | Path) -> None:
        """Read the file. TraceFileError if it is no such file."""
        self.path = Path(path)
        self.times, self.sizes = _levels(*_events_of(self.path))

    def _process_raw_events(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Times (ns) and bytes by time and category, as HTA's method of that name."""
        return self.times, self.sizes

    def timeline(self) -> pd.DataFrame:
        """Bytes by category after each change: time (ns after the first event), a column for each category, total."""
        frame = pd.DataFrame(self.sizes, columns=list(CATEGORIES))
        frame.insert(0, "time", self.times - self.times.min(initial=np.iinfo(np.int64).max))
        return frame.assign(total=self.sizes.sum(axis=1))

    def peak(self) -> Peak:
        """Return the time of the largest total, and its bytes by category."""
        frame = self.timeline()
        if not len(frame):
            return Peak(0, 0, {})
        row = frame.iloc[int(frame["total"].to_numpy().argmax())]
        composition = {name: int(row[name]) for name in CATEGORIES if row[name]}
        return Peak(int(row["total"]), int(row["time"]), dict(sorted(composition.items(), key=lambda item: -item[1])))

    def chart(self) -> Chart:
        """Memory by category over time."""
        frame = self.timeline()
        frame = frame.iloc[thinned(frame["total"].to_numpy(), _MAX_POINTS)]
        used = [name for name in CATEGORIES if frame[name].any()]
        long = frame.melt("time", used, var_name="category", value_name="bytes")
        return Chart(
            "memory",
            "Memory by category",
            Mark.AREA,
            long,
            "time",
            "bytes",
            "category",
            x_label="time",
            x_unit=Unit.NANOSECONDS,
            y_unit=Unit.BYTES,
            caption="Memory of tensors by what they are for, in units of 1024.",
        )

    def plot_memory_timeline(self, save_graph: bool = False) -> None:
        """Show memory by category over time, in GiB; or save the figure as images/memory_plot.html."""
        from htareport.render.charts.plotly import figure  # noqa: PLC0415  only who asks for pictures loads Plotly

        memory_figure = figure(self.chart())
        if not save_graph:
            memory_figure.show()
            return
        Path("images").mkdir(exist_ok=True)
        memory_figure.write_html("images/memory_plot.html")


def _events_of(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Times, bytes and categories of the file's events."""
    try:
        data = path.read_bytes()
        events = orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (OSError, EOFError, zlib.error, orjson.JSONDecodeError) as error:
        raise TraceFileError(f"{path}: {error}") from error
    if not isinstance(events, list) or not all(isinstance(event, list) and len(event) >= _FIELDS for event in events):
        raise TraceFileError(f"{path}: not a raw memory timeline (a list of [time, action, bytes, category])")
    try:
        times = np.array([event[0] for event in events], np.int64)
        sizes = np.array([event[2] for event in events], np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TraceFileError(f"{path}: times and bytes must be whole numbers ({error})") from error
    return times, sizes, np.array([_category(event[3]) for event in events], np.int64)


def _category(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < _UNKNOWN else _UNKNOWN


def _levels(
    times: NDArray[np.int64], sizes: NDArray[np.int64], categories: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Time and bytes by category after the last change of each time."""
    times = np.where(times < 0, times[times >= 0].min(initial=np.iinfo(np.int64).max), times)
    order = np.argsort(times, kind="stable")
    times = times[order]
    changes = np.zeros((len(order), len(CATEGORIES)), np.int64)
    changes[np.arange(len(order)), categories[order]] = sizes[order]
    last = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, np.bool_)
    return times[last], np.cumsum(changes, axis=0)[last]
