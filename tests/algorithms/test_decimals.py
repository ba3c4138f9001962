"""Decimal text to integers, against decimal.Decimal."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htareport.algorithms.decimals import MISSING, SEPARATOR, thousandths

MISSING_INT = int(MISSING)
NONSENSE = [
    "",
    "null",
    "true",
    "nan",
    "NaN",
    "Infinity",
    "-inf",
    '""',
    '"x"',
    "1.2.3",
    "--1",
    "[1,2]",
    '{"a": 1, "b": 2}',
]
NONSENSE += ["1e999999999", "-1e999999", "9" * 400, "1,5", '"1,5"', "1e", ".", "-", "1 2", "\u0664", "9" * 30 + ".5"]


def expected(token):
    with localcontext(prec=2000):
        value = int((Decimal(token) * 1000).to_integral_value(ROUND_HALF_EVEN))
    return value if -(2**63) < value < 2**63 else MISSING_INT


def found(*tokens):
    return thousandths(SEPARATOR.join(token.encode() for token in tokens)).tolist()


def decimal_text(sign, whole, decimals, exponent):
    return f"{sign}{whole}{'.' + decimals if decimals else ''}{exponent}"


DIGITS = st.text("0123456789", max_size=25)
TOKENS = st.one_of(
    st.builds(decimal_text, st.sampled_from(["", "-"]), st.integers(0, 10**20).map(str), DIGITS, st.just("")),
    st.builds(
        decimal_text,
        st.sampled_from(["", "-", "+"]),
        st.integers(0, 10**6).map(str),
        DIGITS,
        st.sampled_from(["", "e3", "E-2", "e+15", "e-30"]),
    ),
    st.integers(-(2**64), 2**64).map(str),
    st.builds("{}.{:03d}".format, st.integers(0, 2 * 10**15), st.integers(0, 999)),
)


@settings(derandomize=True, deadline=None, max_examples=200, database=None)
@given(st.lists(st.one_of(TOKENS, st.sampled_from(NONSENSE)), min_size=1, max_size=8), st.booleans())
def test_like_decimal(tokens, quoted):
    """Every number is its exact value in thousandths, rounded half to even; anything else is missing and stays one."""
    written = [f'"{token}"' if quoted and token not in NONSENSE else token for token in tokens]
    assert found(*written) == [MISSING_INT if token in NONSENSE else expected(token) for token in tokens]


@pytest.mark.parametrize(
    ("token", "value"),
    [
        ("1712195495519689.047", 1712195495519689047),
        ('"1712195495519689.047"', 1712195495519689047),
        ("0", 0),
        ("7", 7000),
        ("7.5", 7500),
        ("0.0005", 0),
        ("0.0015", 2),
        ("0.0025", 2),
        ("0.00250000000000000000000000000000000000000000000000000000000000000000001", 3),
        ("-0.0015", -2),
        ("1e3", 1_000_000),
        ("1.5E-3", 2),
        ("9223372036854775.807", 2**63 - 1),
        ("9223372036854775.808", MISSING_INT),
        ("-9223372036854775.807", -(2**63) + 1),
        ("0000000000000000000001.5", 1500),
        (" 3 ", 3000),
        *((token, MISSING_INT) for token in NONSENSE),
    ],
)
def test_on_paper(token, value):
    """Single tokens, alone and among others."""
    assert found(token) == [value]
    assert found("1", token, "2.25") == [1000, value, 2250]


def test_no_tokens_of_equal_length_disturb_each_other():
    """Digits, points and letters at the same places."""
    assert found("1.234", "12.34", "123.4", "12345", "1x345", "1.2.3") == [
        1234, 12340, 123400, 12345000, MISSING_INT, MISSING_INT]  # fmt: skip
