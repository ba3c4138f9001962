"""What holds of every analysis, one that is added tomorrow too."""

from __future__ import annotations

import pickle
from dataclasses import is_dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from builder import TraceBuilder

from htareport.analyses import analysis_classes
from htareport.errors import UsageError
from htareport.rank.capability import Capability
from htareport.rank.window import ALL
from htareport.report import Status, Unit
from htareport.run.runner import Work, analyze, summarize
from htareport.trace import RankTrace

CLASSES = analysis_classes()
KINDS = list(CLASSES.values())
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SHAPES = {"Input Dims": [[512], [64, 256], [256, 512]], "Input type": ["float"] * 3}
COUNTERS = {"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 1000.0, "dram__bytes_read.sum": 500}
ASKED = {"cost": {"gpu_hour": 2.0, "samples_per_step": 8.0}}  # What some are silent without.
CHART_COLUMNS = ("x", "y", "color", "low", "high", "q1", "q3", "x2", "text")


@pytest.fixture(params=list(CLASSES))
def kind(request):
    return CLASSES[request.param]


def busy_rank(rank: int = 0, scale: int = 1, devices: int = 1) -> TraceBuilder:
    """Three steps with every kind of work; gaps are far from the threshold of idle time."""
    trace = TraceBuilder(rank, world_size=2, devices=devices)
    for step in range(3):
        at = 1000 * step
        trace.step(step, at * scale, 1000 * scale)
        trace.cpu_op("aten::linear", (at + 10) * scale, 80 * scale)
        trace.cpu_op("aten::addmm", (at + 20) * scale, 50 * scale, **SHAPES)
        for device in range(devices):
            for name, start, dur in (("gemm", 100 + rank, 200), ("relu", 305, 10), ("gemm", 500, 100 + step)):
                launch = ((at + start - 60) * scale, 5 * scale)
                trace.kernel(name, (at + start) * scale, dur * scale, device=device, launch=launch)
            span = ((at + 250) * scale, 150 * scale)
            trace.collective(NCCL, "allreduce", *span, device=device, launch=((at + 80) * scale, 5 * scale))
            trace.memcpy("HtoD (Pinned -> Device)", (at + 380) * scale, 40 * scale, 4096, 0.1, 30, device)
            trace.memory((at + 30) * scale, 4096, 64 + device, 8192, 16384, device)
            trace.memory((at + 800) * scale, -4096, 64 + device, 4096, 16384, device)
            for kernel in range(4):
                trace.profiler_range("gemm", (at + 100 * kernel) * scale, 100 * scale, COUNTERS)
    return trace


def host_only(rank: int = 0) -> TraceBuilder:
    return TraceBuilder(rank).cpu_op("aten::mm", 0, 10, **SHAPES)


def text_streams(rank: int = 0) -> TraceBuilder:
    trace = busy_rank(rank)
    for event in trace.events:
        if "stream" in event.get("args", {}):
            event["args"]["stream"] = event["tid"] = f"stream {event['args']['stream']}"
    return trace


def no_length(rank: int = 0) -> TraceBuilder:
    trace = TraceBuilder(rank).step(0, 0, 5).cpu_op("a", 0, 0, **SHAPES).kernel("empty", 1, 0, launch=(0, 0))
    trace.kernel(NCCL, 2, 0, launch=(1, 0)).memset(3, 0, 0, launch=(2, 0))
    return trace.memory(3, 0, 64).profiler_range("empty", 1, 0, COUNTERS)


RANKS = {
    "rank": [busy_rank(0)],
    "3 and 17": [busy_rank(3), busy_rank(17)],
    "17 and 3": [busy_rank(17), busy_rank(3)],
    "devices": [busy_rank(0, devices=2)],
    "text": [text_streams(0)],
    "text and numbers": [text_streams(0), busy_rank(1)],
    "host first": [host_only(0), busy_rank(1), TraceBuilder(2)],
    "host and empty": [TraceBuilder(0), busy_rank(1), host_only(2)],
    "no length": [no_length(0)],
    "3 and 17, twice as long": [busy_rank(3, 2), busy_rank(17, 2)],
    "one kernel": [TraceBuilder(0).kernel("only", 5, 10)],
    "host": [host_only()],
    "empty": [TraceBuilder(0)],
}


def doubled(kind):
    """The options that are times, twice as long."""
    return {name: 2 * value for name, value in kind.options().items() if isinstance(value, float) and value > 1}


@pytest.fixture(scope="module")
def section_of(tmp_path_factory):
    """The section of an analysis over traces by name, read once for all analyses, as in a report."""

    @cache
    def report(name):
        folder = tmp_path_factory.mktemp("ranks") / "traces"
        for number, builder in enumerate(RANKS[name]):
            builder.write(folder / f"{number}.json")
        options = {kind: ASKED.get(kind.name, {}) | (doubled(kind) if "twice" in name else {}) for kind in KINDS}
        return analyze(folder, analyses=[kind(**chosen) for kind, chosen in options.items()])

    return lambda kind, name: report(name)[kind.name]


def test_help(kind):
    """A first paragraph, then what it computes and what to do."""
    first, _, rest = kind.help().partition("\n\n")
    assert first
    assert not first.startswith("#")
    assert "## How it is computed\n" in rest
    assert "## What to do\n" in rest
    assert rest.index("## How it is computed") < rest.index("## What to do")


def test_words(kind):
    """A title, a chapter, and every column has its label and its definition."""
    assert kind.title
    assert kind.tables
    names = [spec.name for spec in kind.tables]
    assert len(set(names)) == len(names)
    for spec in kind.tables:
        assert spec.title
        columns = [column.name for column in spec.columns]
        assert len(set(columns)) == len(columns)
        assert spec.measures
        for column in spec.columns:
            assert column.label, (spec.name, column.name)
            assert column.help or column.is_key, (spec.name, column.name)


def test_every_number_among_the_options_has_a_range(kind):
    """Which holds its default, and beyond which it is refused as wrong usage."""
    ranges = kind.ranges()
    for name, default in kind.options().items():
        if isinstance(default, bool | str):
            continue
        assert default in ranges[name], name
        minimum = ranges[name].minimum if ranges[name].minimum is not None else ranges[name].above
        with pytest.raises(UsageError, match=f"{kind.name}.{name}: .* is outside its range"):
            kind.configured({name: str(int(minimum) - 1)})


def test_name_is_that_of_the_module(kind):
    """So that the command line, the JSON and the tests agree."""
    assert kind.name == kind.__module__.rpartition(".")[2]


def test_instances_travel(kind):
    """To worker processes, options and all."""
    analysis = kind()
    copy = pickle.loads(pickle.dumps(analysis))  # noqa: S301  our own bytes
    assert type(copy) is kind
    assert copy.chosen_options() == analysis.chosen_options()
    assert is_dataclass(kind) or not kind.options()


def test_one_kernel(kind, section_of):
    """A trace of a single kernel gives numbers or a reason, never a failure."""
    section = section_of(kind, "one kernel")
    assert section.status is (Status.OK if section.tables else Status.NOT_APPLICABLE), section.reason
    assert section.status is Status.OK or section.reason


def test_a_trace_of_the_host_only(kind, section_of):
    """Is not applicable with the reason, unless the analysis is about the host."""
    section = section_of(kind, "host")
    if section.status is not Status.OK:
        assert section.status is Status.NOT_APPLICABLE
        assert section.reason in {kind.nothing, *(str(capability) for capability in Capability)}
        assert not section.tables


def test_an_empty_trace(kind, section_of):
    """Is not applicable either."""
    section = section_of(kind, "empty")
    assert section.status is Status.NOT_APPLICABLE
    assert section.reason


@pytest.mark.parametrize(
    "ranks",
    [
        *("3 and 17", "devices", "text", "text and numbers", "host first", "no length"),
        *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in ("rank", "host and empty")),
    ],
)
def test_whatever_the_trace_the_section_is_whole(kind, section_of, ranks):
    """Tables have their columns, of the kind that they say; charts refer to columns of their frames."""
    section = section_of(kind, ranks)
    assert section.status is Status.OK, section.reason
    assert [table.spec for table in section.tables] == list(kind.tables)
    for table in section.tables:
        for column in table.spec.columns:
            if not column.unit.is_text and column.unit is not Unit.ID:
                assert table.frame[column.name].dtype.kind in "if", (table.spec.name, column.name)
        assert "rank" not in table.frame or set(table.frame["rank"]) <= {each.rank for each in RANKS[ranks]}
    for chart in section.charts:
        used = [getattr(chart, field) for field in CHART_COLUMNS if getattr(chart, field) is not None]
        assert set(used) <= set(chart.frame.columns), chart.name
        assert len(chart.frame), chart.name
        assert chart.title
        assert chart.caption.endswith("."), chart.name
    for fact in section.facts:
        assert fact.label
        assert fact.help.endswith("."), fact.name


@pytest.fixture(scope="module")
def long_summary(tmp_path_factory):
    """What leaves a worker that has read ten thousand kernels of fifty names in twenty steps."""
    trace = TraceBuilder(0)
    for step in range(20):
        trace.step(step, 100_000 * step, 100_000)
        for number in range(500):
            start = 100_000 * step + 190 * number
            name = f"void at::native::elementwise_kernel<{number % 50}, at::native::functor>(int, float*)"
            trace.cpu_op(f"aten::op{number % 50}", start, 5).kernel(
                name, start + 20, 100 + number, launch=(start + 1, 3)
            )
    path = trace.write(tmp_path_factory.mktemp("long") / "rank0.json")
    return summarize(0, path, Work([kind() for kind in KINDS], [], ALL))


def test_summaries_are_small(kind, long_summary):
    """What leaves a worker is far smaller than the 10,000 kernels of the trace."""
    assert not long_summary.errors
    frames = {kind.name: long_summary.frames[kind.name]} if kind.name in long_summary.frames else {}
    assert sum(len(frame) for packed in frames.values() for frame in packed.frames().values()) <= 2_500
    assert len(pickle.dumps(replace(long_summary, frames=frames))) < 25_000


def test_mapping_changes_nothing(kind, tmp_path):
    """The frames of a trace are shared by all analyses."""
    trace = RankTrace.load(0, busy_rank(0).write(tmp_path / "rank0.json"))
    frames = {"events": trace.device_events, "launches": trace.launches, "steps": trace.steps}
    before = {name: frame.copy(deep=True) for name, frame in frames.items()}
    columns = {c: {n: v.copy() for n, v in t.items()} for c, t in trace.loaded.tables.items()}
    kind().map(trace)
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(frame, before[name])
    for category, table in trace.loaded.tables.items():
        for name, values in table.items():
            np.testing.assert_array_equal(values, columns[category][name])  # Which takes nan for equal.


def test_twice_the_times_are_twice_the_times(kind, section_of):
    """Where all times and thresholds double, times in the tables do, rates may halve and nothing else changes."""
    once, twice = section_of(kind, "3 and 17"), section_of(kind, "3 and 17, twice as long")
    for table in once.tables:
        other = twice.table(table.spec.name)
        for column in table.spec.columns:
            ours, theirs = table.frame[column.name], other[column.name]
            if column.unit is Unit.NANOSECONDS:
                # Percentiles may come from histograms, and are then within 1 % on both sides.
                pd.testing.assert_series_equal(2.0 * ours, theirs.astype(float), rtol=0.02, atol=0)
                if ours.dtype.kind == "i":
                    assert (2 * ours == theirs).all()
            elif column.unit in {
                Unit.BYTES_PER_SECOND,
                Unit.FLOP_PER_SECOND,
            }:  # Worked out from times, or as the trace gives it.
                assert ours.equals(theirs) or (ours / 2).equals(theirs)
            elif column.unit is Unit.RATIO:
                pd.testing.assert_series_equal(ours, theirs)
            elif column.unit is Unit.NUMBER:  # Of money or work for a time.
                assert any(np.allclose(times * ours, theirs, rtol=1e-12, equal_nan=True) for times in (1, 2, 0.5))
            else:
                assert ours.astype(object).where(ours.notna(), "none").tolist() == (
                    theirs.astype(object).where(theirs.notna(), "none").tolist()
                )


def test_order_of_ranks_changes_nothing(kind, section_of):
    """Whichever file comes first; only its name differs."""
    one, two = section_of(kind, "3 and 17"), section_of(kind, "17 and 3")
    for ours, theirs in zip(one.tables, two.tables, strict=True):
        frames = (each.frame.drop(columns="file", errors="ignore") for each in (ours, theirs))
        pd.testing.assert_frame_equal(*frames)
