"""Every public name of HTA 0.6 is here with its parameters, in their order; what is not stands in a list with why."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

LINES = (Path(__file__).parent / "names_of_hta_0_6.txt").read_text("utf-8").splitlines()
DIFFERENCES = (Path(__file__).parents[2] / "examples" / "hta" / "README.md").read_text("utf-8")
NOT_HERE = {
    "inside of its own algorithms": {
        "PROFILE_TIMES", "CUDA_RUNTIME_EVENTS", "KERNEL_KERNEL_DELAY_THRESHOLD_US", "timeit",
        "CPGraph.BLOCKING_SYNC_CALLS", "EVENT_START", "EVENT_END", "OPEN_END", "CLOSE_END", "Event", "compare_events",
        "sort_events", "is_events_sorted", "DefaultTTL", "colorscheme", "IS_DEBUG_ENABLED", "MAX_NUM_PROCESSES_SMALL",
        "MAX_NUM_PROCESSES", "package_path", "ConfigValue", "IMPORT_EXECUTION_TRACE_SUCCESSFULLY",
    },
    "of the parser that it has instead of one list of arguments": {
        "DEFAULT_EVENT_ARGS_YAML", "IJSON_INSTRS", "parse_metadata_ijson", "main",
        *(f"ARGS_{name}_FUNC" for name in ("INDEX", "INPUT_SHAPE", "BANDWIDTH", "SYNC", "MINIMUM", "COMPLETE", "INFO",
                                           "COMMUNICATION", "TRITON_KERNELS", "DEFAULT")),
    },
    "times are exact, so there is nothing to round": {"round_down_time_stamps"},
    "visualize=True of the analysis shows the pictures": {
        "CudaKernelAnalysis.visualize_aten_op_kernels_and_overhead",
        "CudaKernelAnalysis.visualize_cuda_launch_kernel_info",
    },
    "of its own tests": {"HtaConfig.get_test_data_path", "get_test_data_dir", "data_provider"},
}  # fmt: skip
OTHER_PARAMETERS = {
    "CPGraph": "critical_path_analysis makes it",
    "CallStackGraph": "nodes are made of the frame, so they are no parameter",
    "CudaKernelAnalysis.get_aten_op_kernels_and_delay": "its first parameter is called t like that of the others",
}
MISSING = {name for names in NOT_HERE.values() for name in names}


def _parsed(line):
    module, rest = line.split(" ", 1)
    name, bracket, parameters = rest.partition("(")
    return module.strip("."), name, [each for each in parameters.rstrip(")").split(", ") if each] if bracket else None


@pytest.mark.parametrize("line", LINES)
def test_name(line):
    module, name, parameters = _parsed(line)
    if name in MISSING:
        return
    found = importlib.import_module(f"htareport.hta.{module}".rstrip("."))
    for part in name.split("."):
        fields = getattr(found, "__annotations__", {})
        found = getattr(found, part) if hasattr(found, part) else fields[part]
    if parameters is not None and name not in OTHER_PARAMETERS:
        mine = [each for each in inspect.signature(found).parameters if each != "self"]
        assert mine[: len(parameters)] == parameters


def test_names_that_are_not_here():
    """They really are not, so that the list does not grow old."""
    there = {_parsed(line)[1] for line in LINES}
    assert there >= MISSING
    for line in LINES:
        module, name, _ = _parsed(line)
        if name in MISSING and module != "utils.test_utils":
            home, _, last = name.rpartition(".")
            found = importlib.import_module(f"htareport.hta.{module}")
            assert not hasattr(getattr(found, home) if home else found, last), name


@pytest.mark.parametrize("name", sorted({*MISSING, *OTHER_PARAMETERS}))
def test_differences_are_told(name):
    """The page on differences names each, or its kind."""
    kind = re.sub(r"^ARGS_.*_FUNC$", "ARGS_…_FUNC", name)
    assert f"`{kind}`" in DIFFERENCES
