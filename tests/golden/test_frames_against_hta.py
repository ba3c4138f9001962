"""Frames, filters and links against those of HTA 0.6, where its values are at hand and no fault of it is in the way."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from htareport.export.numbered import index_of
from htareport.hta.common import trace_filter, trace_stack_filter
from htareport.hta.common.trace import Trace
from htareport.hta.common.trace_call_graph import CallGraph
from htareport.hta.configs.parser_config import ParserConfig
from htareport.hta.utils.validate_trace import validate_trace_format

SHARED = Path(__file__).parents[3] / "shared"
RUNS = ("nccl_args_a100", "bert_h100")  # Stream 7, and no rows of cuda_sync: HTA_FAULTS 4, 12.
WAITING = {"cuda_sync"}  # HTA_FAULTS 4: HTA gives these rows a stream.
CALL = re.compile(r"(\w+)\((.*)\)$")
ABSOLUTE_END = {"AfterOperatorFilter", "BeforeOperatorFilter"}  # HTA_FAULTS 13: they find nothing there.
ROUNDED = {"ZeroDurationFilter", "TimeRangeFilter", "QueryFilter", "CompositeFilter"}  # HTA_FAULTS 2.
EXPLAINED = {
    ("nccl_args_a100", "## forward ##"),  # Times that are cut to whole µs put rows within it, or out of it.
    ("bert_h100", "gpu=True"),  # HTA_FAULTS 9: launches of the driver are not seen.
}

pytestmark = pytest.mark.skipif(not (SHARED / "golden" / "hta").is_dir(), reason=f"needs HTA's values in {SHARED}")


def golden(run, name):
    file = SHARED / "golden" / "hta" / run / f"{name}.json.gz"
    return json.loads(gzip.decompress(file.read_bytes()))


@pytest.mark.parametrize("run", [path.name for path in sorted((SHARED / "golden" / "hta").glob("*"))])
def test_rows(run):
    """By category, stream, step; the columns."""
    found = golden(run, "load__include_last_profiler_step=True")
    if found["status"] != "ok":
        pytest.skip(f"HTA fails here: {found.get('error', '')[:60]}")
    trace = Trace(trace_dir=SHARED / "traces" / run)
    for rank, theirs in found["result"]["per_rank"].items():
        df = trace.get_trace(int(rank))
        named = [name for name in theirs["columns"] if not name.startswith("smsp__")]
        assert set(named) <= set(df)
        if sum(theirs["rows_by_cat"].values()) == len(df):  # HTA_FAULTS 6: it drops rows without a launch.
            assert df.groupby("cat").size().to_dict() == theirs["rows_by_cat"]
            if not WAITING & set(theirs["rows_by_cat"]):
                streams = df.groupby("stream").size()
                assert {str(stream): count for stream, count in streams.items()} == theirs["rows_by_stream"]
    if found["result"]["min_ts"] and len(trace.get_ranks()) == 1:
        assert trace.min_ts == pytest.approx(found["result"]["min_ts"], abs=1.5)


@pytest.mark.parametrize("run", RUNS)
def test_steps_and_links(run):
    theirs = golden(run, "load__include_last_profiler_step=True")["result"]["per_rank"]["0"]
    df = Trace(trace_dir=SHARED / "traces" / run).get_trace(0)
    steps = df.groupby("iteration").size()
    assert {str(step): count for step, count in steps.items()} == theirs["rows_by_iteration"]
    assert (df["index_correlation"] >= 0).sum() == theirs["index_correlation_pos"]


def _filter(text):
    """The filter that a golden value is of, None for one that HTA gets wrong."""
    name, given = CALL.match(text).groups() if "(" in text else (text, "")
    made = getattr(trace_filter, name, None) or getattr(trace_stack_filter, name, None)
    if name in ABSOLUTE_END | ROUNDED or made is None:
        return None
    if name in {"NameFilter", "MemCopyEventFilter"}:
        return made(given)
    if name == "UnderOperatorFilter":
        operator, position, kernels = given.rsplit(",", 2)
        return made(operator, int(position), include_gpu_kernels=kernels == "gpu=True")
    return None if given in {"first", "all"} else made(json.loads(given)) if given else made()


@pytest.mark.parametrize("run", RUNS)
def test_filters(run):
    trace = Trace(trace_dir=SHARED / "traces" / run)
    trace.load_traces(include_last_profiler_step=False)
    df, compared = trace.get_trace(0), 0
    for text, theirs in golden(run, "filters")["result"].items():
        made = _filter(text)
        if made is None or any(run == where and what in text for where, what in EXPLAINED):
            continue
        found = made(df)
        assert len(found) == theirs["rows"], text
        assert int(found["index"].sum()) == theirs["index_sum"], text
        compared += 1
    assert compared >= 10


@pytest.mark.parametrize("run", [*RUNS, "bert_mi300x", "critical_path_alexnet", "resnet_ddp_mi300x"])
def test_all_arguments(run):
    """The same rows and columns."""
    theirs = golden(run, "parser_parse_all_args")["result"]["parse_all_args"]
    df = Trace(trace_dir=SHARED / "traces" / run, parser_config=ParserConfig(parse_all_args=True)).get_trace(0)
    assert len(df) == theirs["rows"]
    assert sorted(df) == theirs["cols"]


@pytest.mark.parametrize("run", ["bert_h100", "critical_path_alexnet", "compile_graph_a100"])
def test_call_graph(run):
    """The tree is that of the report's own table: HTA's has parents that are around nothing (HTA_FAULTS 10)."""
    trace = Trace(trace_dir=SHARED / "traces" / run)
    CallGraph(trace, [0])
    host = trace.rank(0).host_with_python.frame()
    index, parent = index_of(trace.rank(0), host), host["parent"].to_numpy()
    expected = np.where(parent >= 0, index[parent], -1)
    assert trace.get_trace(0).loc[index, "parent"].tolist() == expected.tolist()


@pytest.mark.parametrize("run", ["nccl_args_a100", "critical_path_alexnet", "cupti_counters"])
@pytest.mark.parametrize("level", ["minimal", "standard", "complete"])
def test_validator(run, level):
    """Valid or not, and how often unknown arguments occur in complete events; HTA counts other events too."""
    (file,) = Trace(trace_dir=SHARED / "traces" / run).trace_files.values()
    for ignored in (False, True):
        name = f"validate_trace_format__level={level},ignore_missing={ignored}"
        (theirs,) = golden(run, name)["result"].values()
        fine, errors = validate_trace_format(file, level, ignore_missing_arguments=ignored)
        assert fine == theirs["ok"]
        skipped = errors.get("skipped_arguments", {})
        assert {key: theirs["errors"].get("skipped_arguments", {}).get(key) for key in skipped} == skipped
