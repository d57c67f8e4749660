from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas._kernels.varint import (
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
    size_of_varint,
    size_of_varlong,
)
from barnabas.common.errors import CorruptRecordError

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_encodings(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert encode_varlong(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


def test_widest_varlongs() -> None:
    assert encode_varlong(2**63 - 1).hex() == "feffffffffffffffff01"
    assert encode_varlong(-(2**63)).hex() == "ffffffffffffffffff01"


@given(INT32)
def test_varint_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    assert size_of_varint(value) == len(encoded) <= 5
    assert decode_varint(b"xy" + encoded + b"z", 2) == (value, 2 + len(encoded))


@given(INT64)
def test_varlong_round_trip(value: int) -> None:
    encoded = encode_varlong(value)
    assert size_of_varlong(value) == len(encoded) <= 10
    assert decode_varlong(memoryview(encoded)) == (value, len(encoded))


def test_padding_is_harmless() -> None:
    assert decode_varint(bytes.fromhex("8000")) == (0, 2)
    assert decode_varint(bytes.fromhex("8180808000")) == (-1, 5)


@pytest.mark.parametrize("decode", [decode_varint, decode_varlong])
@pytest.mark.parametrize("data", ["", "80", "ffff"])
def test_cut_off(decode: Callable[[bytes], tuple[int, int]], data: str) -> None:
    with pytest.raises(CorruptRecordError, match="cut off"):
        decode(bytes.fromhex(data))


def test_too_long() -> None:
    with pytest.raises(CorruptRecordError, match="within 5 bytes"):
        decode_varint(bytes.fromhex("808080808000"))
    with pytest.raises(CorruptRecordError, match="within 10 bytes"):
        decode_varlong(b"\x80" * 10 + b"\0")


def test_bits_beyond_the_width() -> None:
    with pytest.raises(CorruptRecordError, match="32 bits"):
        decode_varint(bytes.fromhex("ffffffff10"))
    with pytest.raises(CorruptRecordError, match="64 bits"):
        decode_varlong(b"\xff" * 9 + b"\x02")


def test_positions_outside_the_buffer() -> None:
    with pytest.raises(CorruptRecordError, match="negative position"):
        decode_varint(b"\x02", -1)
    with pytest.raises(CorruptRecordError, match="cut off"):
        decode_varint(b"\x02", 7)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_numbers_that_do_not_fit_in_a_varint(value: int) -> None:
    with pytest.raises(ValueError, match="32-bit"):
        encode_varint(value)
    assert len(encode_varlong(value)) == 5


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_numbers_that_do_not_fit_in_a_varlong(value: int) -> None:
    with pytest.raises(ValueError, match="64-bit"):
        encode_varlong(value)
