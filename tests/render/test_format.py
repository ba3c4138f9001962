"""Units become text in one place."""

import math

import numpy as np
import pandas as pd
import pytest

from htareport.render.charts import ticks as fmt
from htareport.report import Unit
from htareport.report.units import counted

S = fmt.NNBSP


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (226_800_000, Unit.NANOSECONDS, f"227{S}ms"),
        (999_700, Unit.NANOSECONDS, f"1.00{S}ms"),
        (51_000, Unit.NANOSECONDS, f"51.0{S}µs"),
        (512, Unit.NANOSECONDS, f"512{S}ns"),
        (0, Unit.NANOSECONDS, f"0{S}ns"),
        (1.2e13, Unit.NANOSECONDS, f"12,000{S}s"),
        (-1_234_567, Unit.NANOSECONDS, f"−1.23{S}ms"),
        (math.inf, Unit.NANOSECONDS, "∞"),
        (0.125, Unit.RATIO, f"12.5{S}%"),
        (1, Unit.RATIO, f"100{S}%"),
        (0.0034, Unit.RATIO, f"0.34{S}%"),
        (1e-6, Unit.RATIO, f"<0.01{S}%"),
        (0, Unit.RATIO, f"0{S}%"),
        (3 * 2**30, Unit.BYTES, f"3.00{S}GiB"),
        (1023, Unit.BYTES, f"1,023{S}B"),
        (2**30, Unit.BYTES, f"1.00{S}GiB"),
        (1_234_567, Unit.TIME_CHANGE, f"+1.23{S}ms"),
        (-1_234_567, Unit.TIME_CHANGE, f"−1.23{S}ms"),
        (0, Unit.TIME_CHANGE, f"0{S}ns"),
        (0.125, Unit.RATIO_CHANGE, f"+12.5{S}%"),
        (-0.125, Unit.RATIO_CHANGE, f"−12.5{S}%"),
        (3.35e12, Unit.BYTES_PER_SECOND, f"3,350{S}GB/s"),
        (12e6, Unit.BYTES_PER_SECOND, f"12.0{S}MB/s"),
        (49_873_000_000, Unit.FLOP, f"49.9{S}GFLOP"),
        (989.5e12, Unit.FLOP_PER_SECOND, f"990{S}TFLOP/s"),
        (5e9, Unit.FLOP_PER_SECOND, f"5.00{S}GFLOP/s"),
        (34, Unit.FLOP, f"34{S}FLOP"),
        (12345, Unit.COUNT, "12,345"),
        (1.5, Unit.COUNT, "1.5"),
        (7.0, Unit.ID, "7"),
        (1234567, Unit.ID, "1234567"),
        (2.0, Unit.RANK, "rank 2"),
        (12345, Unit.STEP, "step 12345"),
        (True, Unit.TEXT, "yes"),
        ("a|b", Unit.TEXT, "a|b"),
    ],
)
def test_three_digits_and_a_unit(value, unit, text):
    assert fmt.text(value, unit) == text


@pytest.mark.parametrize("missing", [None, math.nan, pd.NA, pd.NaT, np.float64("nan")])
@pytest.mark.parametrize("unit", list(Unit))
def test_what_is_missing_is_a_dash(missing, unit):
    assert fmt.text(missing, unit) == "–"


def test_numpy_and_huge_numbers():
    assert fmt.text(np.int64(1_000_000), Unit.NANOSECONDS) == f"1.00{S}ms"
    assert fmt.text(10**400, Unit.COUNT) == str(10**400)
    assert "nan" not in fmt.text(1e300, Unit.NANOSECONDS)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 226.8, ["0", "50", "100", "150", "200"]),
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (-5, 5, ["−4", "−2", "0", "2", "4"]),
        (150, 163, ["150", "155", "160"]),
    ],
)
def test_ticks_are_round(low, high, labels):
    assert fmt.tick_labels(fmt.ticks(low, high)) == labels


def test_ticks_of_no_range_still_exist():
    assert fmt.ticks(0, 0)
    assert fmt.ticks(5, 5)
    assert all(tick.is_integer() for tick in fmt.ticks(0, 3, only_integers=True))


def test_one_unit_an_axis():
    scale = fmt.axis_scale(0, 226_800_000, Unit.NANOSECONDS)
    assert fmt.axis_title("step time", scale) == "step time (ms)"
    assert fmt.axis_title("rank", fmt.axis_scale(0, 7, Unit.ID)) == "rank"


def test_log_ticks_go_by_powers():
    assert [text for _, text in fmt.log_ticks(800, 3e6, Unit.NANOSECONDS)] == [
        f"1{S}µs", f"10{S}µs", f"100{S}µs", f"1{S}ms",
    ]  # fmt: skip
    assert fmt.log_ticks(1024, 4096, Unit.BYTES)[0] == (1024.0, f"1{S}KiB")


def test_counted():
    assert [counted(number, "call") for number in (0, 1, 1.0, 0.5, 2.25, 1204)] == [
        "0 calls", "1 call", "1 call", "0.5 calls", "2.25 calls", "1,204 calls",
    ]  # fmt: skip
    assert [counted(number, "copy has", "copies have") for number in (1, 2)] == ["1 copy has", "2 copies have"]
