"""HTA's `Trace`: frames by rank, with text for names and exact times."""

from __future__ import annotations

import gzip
import json

import pandas as pd
import pytest
from builder import BASE_NS, TraceBuilder

from htareport.errors import NothingToReadError, TraceFileError
from htareport.hta import TraceAnalysis
from htareport.hta.common.trace import Trace, trace_event_timestamp_to_unixtime_ns
from htareport.hta.common.trace_file import (
    convert_to_perfetto,
    create_rank_to_trace_dict,
    create_rank_to_trace_dict_from_dir,
    get_trace_files,
    read_trace,
    update_trace_rank,
    write_trace,
)
from htareport.hta.common.trace_parser import (
    get_default_trace_parsing_backend,
    infer_gpu_type,
    parse_trace_dict,
    parse_trace_file,
    set_default_trace_parsing_backend,
)
from htareport.hta.configs.default_values import AttributeSpec, ValueType, YamlVersion
from htareport.hta.configs.parser_config import AVAILABLE_ARGS, ParserBackend, ParserConfig
from htareport.hta.scripts import convert_to_perfetto as script

COLUMNS = [
    "index", "cat", "name", "pid", "tid", "ts", "dur", "end", "stream", "correlation", "bytes", "memory_bw_gbps",
    "wait_on_stream", "wait_on_cuda_event_record_corr_id", "input_dims", "input_type", "input_strides", "external_id",
    "python_id", "python_parent_id", "collective_name", "in_msg_nelems", "out_msg_nelems", "msg_dtype", "group_size",
    "process_rank", "in_split_size", "out_split_size", "index_correlation", "iteration",
]  # fmt: skip


@pytest.fixture
def trace(run):
    return Trace(trace_dir=run)


def test_frame(trace):
    """HTA's columns; rows in the order of the file."""
    df = trace.get_trace(0)
    assert sorted(df.columns) == sorted(COLUMNS)
    assert list(df.columns)[:8] == COLUMNS[:8]
    assert list(df.columns)[-2:] == ["index_correlation", "iteration"]
    assert df["index"].tolist() == list(df.index) == list(range(18))
    assert df["name"].tolist()[:5] == [
        "ProfilerStep#4", "aten::linear", "aten::mm", "cudaLaunchKernel", "void gemm<float>(int)",
    ]  # fmt: skip
    kernel, launch, copy = df.loc[4], df.loc[3], df.loc[6]
    assert (kernel["ts"], kernel["dur"], kernel["end"], kernel["stream"]) == (50, 20, 70, 7)
    assert (kernel["index_correlation"], launch["index_correlation"]) == (3, 4)
    assert (copy["bytes"], copy["memory_bw_gbps"], df.loc[0, "bytes"]) == (4000, 1.0, -1)
    assert df["iteration"].tolist() == [4] * 9 + [5] * 9
    assert df.loc[1, "input_dims"] == [[2, 3]]
    assert df.loc[1, "external_id"] == 40


def test_what_is_no_work_has_no_stream(trace):
    """Annotations of the device, and waits; HTA counts waits as GPU rows."""
    df = trace.get_trace(0)
    assert set(df.loc[df["stream"] >= 0, "cat"]) == {"kernel", "gpu_memcpy"}
    assert df.loc[df["cat"] == "cuda_sync", "wait_on_stream"].tolist() == [7, 7]


def test_the_same_frame_each_time(trace):
    """What is added to it stays."""
    trace.get_trace(0)["mine"] = 1
    assert "mine" in trace.get_trace(0)
    assert trace.traces[0] is trace.get_all_traces()[0] is trace.get_trace(0)
    with pytest.raises(ValueError, match=r"no rank 1; there are \[0, 3\]"):
        trace.get_trace(1)


def test_about_the_run(trace, run):
    assert trace.get_ranks() == [0, 3]
    assert trace.trace_files == {0: str(run / "rank0.json"), 3: str(run / "rank3.json")}
    assert trace.trace_path == str(run)
    assert not trace.is_parsed
    trace.parse_traces(max_ranks=1)
    assert not trace.is_parsed
    trace.parse_traces()
    assert trace.is_parsed
    assert trace.get_iterations() == trace.get_iterations(3) == [4, 5]
    assert trace.get_iterations(1) == []
    assert trace.get_trace_duration(0) == 200
    assert trace.get_device_type() == "NVIDIA GPU"
    assert trace.meta_data[3]["distributedInfo"]["rank"] == 3
    assert trace.meta_data[3]["device_type"] == "NVIDIA GPU"


def test_zero_is_the_earliest_event_of_any_rank(tmp_path):
    """Base times added; the exact ns are in the µs."""
    TraceBuilder(0, base_ns=BASE_NS + 1000).kernel("a", "5.001", 1).write(tmp_path / "rank0.json")
    TraceBuilder(1).kernel("b", 2, 1).write(tmp_path / "rank1.json")
    trace = Trace(trace_dir=tmp_path)
    assert trace.get_trace(0)["ts"].tolist() == [4.001]
    assert trace.get_trace(1)["ts"].tolist() == [0]
    assert trace.min_ts == 1
    assert trace.get_trace_start_unixtime_ns(0) == BASE_NS + 6001
    assert trace_event_timestamp_to_unixtime_ns(5.001, trace.meta_data[0]) == BASE_NS + 6001
    with pytest.raises(KeyError):
        trace_event_timestamp_to_unixtime_ns(5, {})


def test_without_the_last_step(run):
    """Rows of the host before it, and what is launched before it."""
    trace = Trace(trace_dir=run)
    trace.load_traces(include_last_profiler_step=False)
    df = trace.get_trace(0)
    assert set(df["iteration"]) == {4}
    assert len(df) == 9
    trace.align_and_filter_trace(include_last_profiler_step=True)
    assert len(trace.get_trace(0)) == 18


def test_names_as_text(trace):
    """A symbol's id is its text, so that scripts which translate ids go on."""
    df, table = trace.get_trace(0), trace.symbol_table
    assert table.get_sym_table()[df["name"].iloc[1]] == "aten::linear"
    assert df[df["name"] == table.get_sym_id_map()["aten::mm"]]["dur"].tolist() == [18, 18]
    assert df["name"].isin(table.get_profiler_step_ids()).sum() == 4
    trace.decode_symbol_ids()
    assert trace.get_trace(0)["s_name"].tolist()[4] == "gemm"
    assert trace.get_trace(3)["s_cat"].tolist()[4] == "kernel"
    trace.decode_symbol_ids(use_shorten_name=False)
    assert trace.get_trace(0)["s_name"].tolist()[4] == "void gemm<float>(int)"


def test_sources(run, tmp_path):
    """Files by rank or in a list, by name within the folder; what is not there."""
    assert Trace({5: "rank0.json"}, trace_dir=run).get_ranks() == [5]
    assert Trace([str(run / "rank3.json")]).get_ranks() == [3]
    with pytest.raises(NothingToReadError):
        Trace(trace_dir=tmp_path / "nothing")


def test_the_trace_of_an_analysis(run):
    """Shares its ranks; an analysis can be made of a trace."""
    analysis = TraceAnalysis(trace_dir=run, include_last_profiler_step=False)
    assert set(analysis.t.get_trace(3)["iteration"]) == {4}
    assert analysis.t is analysis.t
    again = TraceAnalysis.from_trace(analysis.t)
    assert again.t is analysis.t
    pd.testing.assert_frame_equal(again.get_temporal_breakdown(), analysis.get_temporal_breakdown())


def test_several_processes(run, lent_processes):
    """Give the same frames."""
    analysis = TraceAnalysis(trace_dir=run, jobs=2)
    assert lent_processes == [2]
    pd.testing.assert_frame_equal(analysis.t.get_trace(3), TraceAnalysis(trace_dir=run).t.get_trace(3))


def test_files_that_cannot_be_read(run):
    """Cost their rank, with a warning; without any rank left there is nothing."""
    (run / "rank3.json").write_text((run / "rank3.json").read_text()[:-200])
    with pytest.warns(UserWarning, match=r"rank3.json: not used: .*ends early.*rank 3 is missing"):
        analysis = TraceAnalysis(trace_dir=run)
    assert list(analysis.t.traces) == [0]
    with pytest.raises(NothingToReadError, match="rank 3"):
        Trace([run / "rank3.json"]).parse_traces()


# --- configuration --------------------------------------------------------------------------


def test_arguments_that_become_columns(run):
    """Sets, one's own, all; types and defaults."""
    own = AttributeSpec("grid", "correlation", ValueType.String, "none", YamlVersion(1, 0, 0))
    config = ParserConfig(ParserConfig.ARGS_MINIMUM)
    config.add_args([own, own])
    df = Trace(trace_dir=run, parser_config=config).get_trace(0)
    assert list(df.columns)[8:] == ["stream", "correlation", "grid", "index_correlation", "iteration"]
    assert df.loc[4, "grid"] == "1"
    assert df.loc[0, "grid"] == "none"
    every = Trace(trace_dir=run, parser_config=ParserConfig(parse_all_args=True)).get_trace(0)
    assert {"bytes", "device", "external_id", "input_dims", "wait_on_stream"} <= set(every)
    assert "python_id" not in every
    chosen = ParserConfig(parse_all_args=True).set_args_selector(["index::external_id", "no such key"])
    assert "bytes" not in Trace(trace_dir=run, parser_config=chosen).get_trace(0)


def test_categories_that_are_left_out(run):
    config = ParserConfig(skip_event_types={"cuda_sync"})
    config.set_drop_gpu_user_annotation(should_drop=True)
    df = Trace(trace_dir=run, parser_config=config).get_trace(0)
    assert set(df["cat"]) == {"user_annotation", "cpu_op", "cuda_runtime", "kernel", "gpu_memcpy"}
    assert df.loc[4, "name"] == "void gemm<float>(int)", "places in the file stay"


def test_default_configuration():
    """Of the process; what it gives is a copy."""
    try:
        ParserConfig.set_default_cfg(ParserConfig(ParserConfig.ARGS_MINIMUM))
        ParserConfig.get_default_cfg().add_args([AVAILABLE_ARGS["data::bytes"]])
        assert len(ParserConfig.get_default_cfg().get_args()) == 2
        ParserConfig.enable_communication_args()
        assert "collective_name" in {spec.name for spec in ParserConfig.get_default_cfg().get_args()}
        set_default_trace_parsing_backend(ParserBackend.IJSON)
        assert get_default_trace_parsing_backend() is ParserBackend.IJSON
        ParserConfig.set_global_parser_config_version(YamlVersion(1, 2, 0))
        assert ParserConfig.get_default_cfg().version == (1, 2, 0)
    finally:
        ParserConfig._default = None
    assert get_default_trace_parsing_backend() is ParserBackend.JSON


@pytest.mark.parametrize(("name", "column"), [
    ("External id", "external_id"), ("est. achieved occupancy %", "est_achieved_occupancy"),
    ("memory bandwidth (GB/s)", "memory_bandwidth"), ("name", "arg_name"), ("a/b-c", "a_b_c"),
])  # fmt: skip
def test_column_names(name, column):
    assert ParserConfig.transform_arg_name(name) == column


def test_inferred_columns():
    """Types by value; known arguments keep their own."""
    args = pd.Series([{"a": 1, "b": 2.5}, None, {"c": "x", "d": [1], "bytes": 4, "a": "y"}])
    found = ParserConfig.infer_attribute_specs(args, AVAILABLE_ARGS)
    kinds = {name: (spec.value_type.name, spec.default_value) for name, spec in found.items()}
    assert kinds == {
        "a": ("Int", 0), "b": ("Float", 0.0), "c": ("String", ""), "d": ("Object", None), "bytes": ("Int", -1),
    }  # fmt: skip


def test_versions():
    """Later ones know more; there is none beyond."""
    assert len(ParserConfig.get_versioned_cfg(YamlVersion.from_string("1.2.0")).get_args()) == len(COLUMNS) - 10
    assert YamlVersion(1, 2, 0).get_version_str() == "1.2.0"
    with pytest.raises(ValueError, match=r"there are 1.0.0 to 1.2.0"):
        ParserConfig(version=YamlVersion(2, 0, 0))
    one, other = ParserConfig(), ParserConfig(parse_all_args=True)
    assert one.get_fingerprint_key() == one.clone().get_fingerprint_key() != other.get_fingerprint_key()
    assert "external_id" in repr(one)


# --- files ----------------------------------------------------------------------------------


def test_whole_files(run, tmp_path):
    """Read and written, plain or packed."""
    raw = Trace(trace_dir=run).get_raw_trace_for_one_rank(3)
    assert raw["distributedInfo"]["rank"] == 3
    assert len(raw["traceEvents"]) == 18
    for name in ("copy.json", "copy.json.gz"):
        write_trace(raw, tmp_path / name)
        assert read_trace(tmp_path / name) == parse_trace_dict(tmp_path / name) == raw
    Trace(trace_dir=run).write_raw_trace(tmp_path / "raw.json", raw)
    assert json.loads((tmp_path / "raw.json").read_text()) == raw
    with pytest.raises(TraceFileError):
        read_trace(__file__)


def test_rank_of_a_file(tmp_path):
    """Written in place; times keep their exact text."""
    path = TraceBuilder(None).kernel("a", "1682725898237042.991", 1).write(tmp_path / "x.json.gz", gzip=True)
    update_trace_rank(path, 7)
    assert b"1682725898237042.991" in gzip.decompress(path.read_bytes())
    assert get_trace_files(tmp_path) == {7: str(path)}
    assert create_rank_to_trace_dict_from_dir(tmp_path) == create_rank_to_trace_dict([path]) == (True, {7: str(path)})
    assert create_rank_to_trace_dict_from_dir(tmp_path / "no") == create_rank_to_trace_dict([]) == (False, {})


def test_only_events(run, tmp_path, capsys):
    convert_to_perfetto(run / "rank0.json", tmp_path / "a.json")
    assert list(json.loads((tmp_path / "a.json").read_text())) == ["traceEvents"]
    assert script.main([str(run / "rank0.json"), str(tmp_path / "b.json")]) == 0
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "a.json").read_bytes()
    assert script.main([__file__, str(tmp_path / "c.json")]) == 3
    assert capsys.readouterr().err.startswith("error: ")


def test_one_file_as_a_frame(run):
    meta, df, symbols = parse_trace_file(run / "rank0.json")
    assert meta["device_type"] == "NVIDIA GPU"
    assert df["ts"].min() == 0
    assert "aten::mm" in symbols.get_sym_table()


@pytest.mark.parametrize(("metadata", "names", "kind"), [
    ({}, ["cudaLaunchKernel"], "NVIDIA GPU"), (None, ["hipLaunchKernel"], "AMD GPU"), (None, None, "UNKNOWN GPU"),
    ({"distributedInfo": {"backend": "cpu:gloo,mtia:hccl"}}, ["hipLaunchKernel"], "MTIA"),
    ({}, ["runFunction - job_prep_and_submit_for_execution"], "MTIA"),
])  # fmt: skip
def test_kinds_of_devices(metadata, names, kind):
    assert infer_gpu_type(metadata, names) == kind


# --- events of one's own --------------------------------------------------------------------


def test_series_as_events(trace):
    """In the time of the file."""
    series = pd.DataFrame({"pid": [0, 0], "tid": [7, 7], "ts": [1.5, 2.0], "id": [7, 7], "n": [1, 2]})
    first, second = trace.convert_time_series_to_events(series, "Queue Length", "n")
    assert first == {"ph": "C", "name": "Queue Length", "pid": 0, "ts": 1.5, "args": {"Queue Length": 1}, "id": 7}
    assert second["ts"] == 2
    assert "id" not in trace.convert_time_series_to_events(series.drop(columns="id"), "n", "n")[0]
    start = Trace.flow_event(1, 0, 7, 5.0, is_start=True, name="a", cat="b", args={"x": 1})
    assert start == {"ph": "s", "id": 1, "pid": 0, "tid": 7, "ts": 5.0, "cat": "b", "name": "a", "args": {"x": 1}}
    assert Trace.flow_event(1, 0, 7, 5.0, is_start=False, name="a", cat="b")["bp"] == "e"


def test_salvaged_files(run):
    """Frames have the arguments of what is complete, and copies hold just that."""
    path = run / "rank3.json"
    path.write_text(path.read_text()[:-700])
    with pytest.warns(UserWarning, match=r"rank 3 is salvaged: rank3.json: the file ends early"):
        analysis = TraceAnalysis(trace_dir=run, salvage=True)
    df = analysis.t.get_trace(3)
    assert df.loc[1, "input_dims"] == [[2, 3]]
    assert 9 < len(df) < 18
    copies = analysis.generate_trace_with_counters(ranks=[3])
    assert len(read_trace(copies[0])["traceEvents"]) >= len(df)
