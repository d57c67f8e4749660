from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.numerals import parse_double, parse_integer, shortened


@given(st.integers(-(2**64), 2**64), st.sampled_from([16, 32, 64]))
def test_whole_numbers_of_so_many_bits(number: int, bits: int) -> None:
    if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        assert parse_integer(str(number), bits) == number
    else:
        with pytest.raises(ValueError, match=f"does not fit into {bits} bits"):
            parse_integer(str(number), bits)


def test_signs_and_leading_zeros() -> None:
    assert parse_integer("+7") == 7
    assert parse_integer("-0") == 0
    assert parse_integer("-" + "0" * 100 + "12") == -12


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1_000", "0x10", "1.0", "--1", "+", "\u0661", "1e3", "nan"])
def test_what_only_python_takes_for_a_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        parse_integer(text)


def test_a_huge_text_costs_nothing() -> None:
    with pytest.raises(ValueError, match=r"^9+\.\.\. does not fit"):
        parse_integer("9" * 1_000_000, 64)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimal_numbers(number: float) -> None:
    assert parse_double(repr(number)) == number


def test_the_spellings_of_java() -> None:
    assert parse_double("1.5f") == parse_double("1.5d") == parse_double("15e-1D") == 1.5
    assert parse_double(".5") == parse_double("+0.5") == 0.5
    assert parse_double("5.") == 5.0
    assert math.isnan(parse_double("NaN"))
    assert parse_double("-Infinity") == -math.inf


@pytest.mark.parametrize("text", ["", "inf", "nan", "infinity", "1_0.5", " 1.5", "1.5ff", ".", "e5", "0x1p3"])
def test_what_is_no_decimal_number(text: str) -> None:
    with pytest.raises(ValueError, match="not a decimal number"):
        parse_double(text)


def test_shortened() -> None:
    assert shortened("abc") == "abc"
    assert shortened("a" * 100, 10) == "aaaaaaa..."
