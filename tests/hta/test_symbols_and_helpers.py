"""Symbols, patterns, helpers, settings."""

from __future__ import annotations

import json
import logging
import re

import pandas as pd
import pytest

from htareport.errors import UsageError
from htareport.hta.common import types
from htareport.hta.common.trace import Trace
from htareport.hta.common.trace_symbol_table import TraceSymbolTable
from htareport.hta.configs import env_options
from htareport.hta.configs.config import HtaConfig, setup_logger
from htareport.hta.utils import utils
from htareport.hta.utils.checker import is_valid_directory
from htareport.hta.utils.validate_trace import get_argument_spec, get_expected_arguments, main, validate_trace_format

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@pytest.fixture
def df(run):
    return Trace(trace_dir=run).get_trace(0)


# --- symbols --------------------------------------------------------------------------------


def test_a_symbols_id_is_its_text():
    table = TraceSymbolTable(["a", "b", "a"])
    assert table.get_sym_table() == ["a", "b"]
    assert (table.get_sym_table()[0], table.get_sym_table()["b"], table.get_sym_table()[:1]) == ("a", "b", ["a"])
    assert table.get_sym_id_map() == table.get_sym_index() == {"a": "a", "b": "b"}
    assert table.get_sym_table_series()["b"] == table.get_sym_index_series()["b"] == "b"
    assert table.get_symbol_names(["b", "c"]) == {"b": "b"}
    assert not table.is_empty()
    assert TraceSymbolTable().is_empty()


def test_look_ups(run):
    table = Trace(trace_dir=run).symbol_table
    assert table.find_matches(["^aten::", "gemm"]) == ["aten::linear", "aten::mm", "void gemm<float>(int)"]
    assert table.find_matched_symbols(["nothing"]) == []
    assert table.get_cpu_event_cat_ids() == ["cpu_op", "user_annotation"]
    assert table.get_gpu_kernel_cat_ids() == ["gpu_memcpy", "kernel"]
    assert table.get_memory_name_ids() == ["Memcpy HtoD (Pinned -> Device)"]
    assert table.get_kernel_launch_ids() == ["cudaLaunchKernel"]
    assert table.get_symbol_ids(types.ProfilerStepGroupingPattern).keys() == {"ProfilerStep#4", "ProfilerStep#5"}


def test_masks(df):
    table = TraceSymbolTable.create_from_df(df)
    assert table.get_operator_or_cuda_runtime_mask(df).sum() == 8
    assert table.get_runtime_launch_events_mask(df).sum() == 4
    assert table.get_events_mask(df, ["^aten"]).sum() == 4
    assert table.get_events_mask(df, None).sum() == 0


def test_frames(df):
    table = TraceSymbolTable()
    table.encode_df(df)
    assert "aten::mm" in table.get_sym_table()
    table.decode_df(df)
    assert df["s_name"].tolist() == df["name"].tolist()
    table.update_encoded_df(df, TraceSymbolTable(["x"]))
    assert "x" in table.get_sym_table()
    table.add_symbols_to_trace_df(df, "cat")
    assert df["s_cat"].tolist() == df["cat"].tolist()
    with pytest.raises(ValueError, match="as text"):
        TraceSymbolTable.create_from_df(pd.DataFrame({"name": [1], "cat": [2]}))


def test_tables_of_tables(tmp_path):
    one = TraceSymbolTable()
    one.add_symbols_mp([["a"], ["b, c"]])
    one.to_csv_file(tmp_path / "symbols.csv")
    read = TraceSymbolTable.from_csv_file(tmp_path / "symbols.csv")
    assert read.get_sym_table() == TraceSymbolTable.clone(one).get_sym_table() == ["a", "b, c"]
    both = TraceSymbolTable.combine_symbol_tables([one, TraceSymbolTable(["a", "d"])])
    assert both.get_sym_table() == ["a", "b, c", "d"]
    assert TraceSymbolTable.create_from_symbol_id_map({"x": 1, "y": 0}).get_sym_table() == ["y", "x"]


# --- patterns and helpers -------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [
    (NCCL, "COMMUNICATION"), ("Memcpy HtoD (Pinned -> Device)", "MEMORY"), ("SyncBatchNorm_kernel", "COMPUTATION"),
])  # fmt: skip
def test_classes_of_kernels(name, kind):
    """As in the report: by names, where SyncBatchNorm computes."""
    assert utils.get_kernel_type(name) == kind
    asked = (utils.is_comm_kernel(name), utils.is_memory_kernel(name), utils.is_compute_kernel(name))
    assert asked == tuple(kind == each for each in ("COMMUNICATION", "MEMORY", "COMPUTATION"))
    pattern = {"COMMUNICATION": "communicate", "MEMORY": "memory", "COMPUTATION": "compute"}[kind]
    matches = [key for key, each in types.common_grouping_patterns.items() if each.match(name)]
    assert matches == [f"{pattern}_kernels"]


def test_patterns():
    pattern = types.to_grouping_pattern(["a", "b"], "letters", inverse_match=True)
    assert not pattern.match("xb")
    assert pattern.match("c")
    assert types.to_grouping_pattern(pattern) is pattern
    assert types.to_grouping_pattern(re.compile("a")).match("a")
    assert len({pattern, types.to_grouping_pattern("a")}) == 2


def test_devices(df):
    assert types.infer_device_type(df) is types.DeviceType.UNKNOWN
    assert types.infer_device_type(df[df["stream"] < 0]) is types.DeviceType.CPU
    assert types.infer_device_type(df[df["stream"] >= 0]) is types.DeviceType.GPU
    assert types.infer_device_type(df.iloc[:0]) is types.DeviceType.UNKNOWN


def test_helpers(monkeypatch, tmp_path):
    merged = utils.merge_kernel_intervals(pd.DataFrame({"ts": [5.0, 0.0, 20.0], "dur": [5.0, 5.0, 0.5]}))
    assert merged.to_dict("list") == {"ts": [0, 20], "end": [10, 20.5]}
    assert utils.shorten_name("void a<b<c>>::k<1>(int, f(x))") == "a::k"
    assert utils.shorten_name("Memcpy HtoD (Pinned -> Device)") == "Memcpy HtoD (Pinned -> Device)"
    assert utils.get_memory_kernel_type("Memcpy DtoH (Device -> Pageable)") == "Memcpy DtoH"
    frame = pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("c", "")]))
    utils.flatten_column_names(frame)
    assert frame.columns.tolist() == ["a_b", "c"]
    assert utils.get_symbol_column_names(pd.DataFrame(columns=["s_name", "cat"])) == ("s_name", "cat")
    streams = pd.DataFrame({"stream": ["7", None, "0x0"]})
    utils.normalize_gpu_stream_numbers(streams)
    assert streams["stream"].tolist() == [7, -1, -1]
    assert utils.get_value_from_dict({"a": 1}, "a") == 1
    assert utils.get_value_from_dict(None, "a", 2) == 2
    monkeypatch.setattr(utils, "usable_cores", lambda: 8)
    monkeypatch.setattr(utils, "free_memory", lambda: 1000)
    assert [utils.get_mp_pool_size(size, 5) for size in (1, 400, 10_000)] == [5, 2, 1]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert utils.normalize_path("~/x") == str(tmp_path / "x")


def test_folders(tmp_path):
    assert is_valid_directory(str(tmp_path), must_be_writable=True).success
    assert "no folder" in is_valid_directory(tmp_path / "no").reason


# --- settings -------------------------------------------------------------------------------


def test_settings(tmp_path, monkeypatch, caplog):
    """Of the home folder, then here, then a named file."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / ".hta").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "home" / ".hta" / "trace_analyzer.json").write_text(json.dumps({"a": {"b": 1}, "c": 2}))
    (tmp_path / "here" / "trace_analyzer.json").write_text(json.dumps({"c": 3}))
    (tmp_path / "named.json").write_text(json.dumps({"d": 4}))
    config = HtaConfig(str(tmp_path / "named.json"))
    assert len(config.get_config_file_paths()) == 3
    assert config.get_config() == {"a": {"b": 1}, "c": 3, "d": 4}
    assert config.get_config("a.b") == 1
    assert config.get_config("a.x.y", "none") == config.get_config("c.b", "none") == "none"
    assert HtaConfig(load_default_paths=False).get_config() == {}
    with caplog.at_level(logging.INFO, "htareport.hta"):
        config.show()
    assert '"d": 4' in caplog.text
    (tmp_path / "named.json").write_text("[]")
    with pytest.raises(UsageError, match=r"named.json: settings are a JSON object"):
        HtaConfig(str(tmp_path / "named.json"))


def test_logging(tmp_path):
    """By the standard library."""
    before = logging.getLogger("htareport.hta").level
    try:
        setup_logger()
        assert logging.getLogger("htareport.hta").level == logging.INFO
    finally:
        logging.getLogger("htareport.hta").setLevel(before)


def test_switches(monkeypatch):
    """In the environment, read at each use."""
    monkeypatch.setenv(env_options.CP_LAUNCH_EDGE_ENV, "0")
    options = env_options.HTAEnvOptions.instance()
    for each in env_options._NAMES:
        monkeypatch.setenv(each, "0")
    for name in (name.removeprefix("set_") for name in dir(options) if name.startswith("set_")):
        getattr(options, f"set_{name}")(value=True)
        assert getattr(env_options, name)()
        getattr(options, f"set_{name}")(value=False)
        assert not getattr(options, name)()
    assert "CRITICAL_PATH_ADD_ZERO_WEIGHT_LAUNCH_EDGE=0" in env_options.get_options()


# --- validator ------------------------------------------------------------------------------


def test_valid_and_not(run, tmp_path, capsys):
    """Types of arguments; unknown ones only if asked for; what is no trace."""
    path = run / "rank0.json"
    assert validate_trace_format(path) == (True, {})
    fine, errors = validate_trace_format(path, "minimal", ignore_missing_arguments=False)
    assert not fine
    assert errors["skipped_arguments"]["bytes"] == 2
    path.write_text(path.read_text().replace('"bytes": 4000', '"bytes": "many"', 1))
    fine, errors = validate_trace_format(path)
    assert errors == {"type_violations": {"bytes": "event 6: bytes is str, not Int: 'many'"}}
    assert "trace_read_error" in validate_trace_format(tmp_path / "no.json")[1]
    assert main([str(path)]) == 1
    assert main([str(run / "rank3.json"), "--level", "complete", "--all"]) == 0
    assert capsys.readouterr().out.split()[0] == "not"
    with pytest.raises(ValueError, match="there are minimal"):
        get_argument_spec("other")


def test_expected_arguments():
    frame = get_expected_arguments(get_argument_spec("minimal"))
    assert frame["name"].tolist() == ["stream", "correlation"]
