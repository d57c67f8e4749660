"""Serializers, in the formats of Kafka's own."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from barnabas.clients.producer import serialization as s
from barnabas.clients.producer.errors import SerializationError

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("serializer", "value", "expected"),
    [
        (s.ByteArraySerializer(), bytearray(b"x"), b"x"),
        (s.StringSerializer(), "é", "é".encode()),
        (s.StringSerializer("utf-16-be"), "a", b"\x00a"),
        (s.JsonSerializer(), {"a": 1}, b'{"a":1}'),
        (s.ShortSerializer(), -2, b"\xff\xfe"),
        (s.IntegerSerializer(), 1, b"\x00\x00\x00\x01"),
        (s.LongSerializer(), 1, bytes(7) + b"\x01"),
        (s.FloatSerializer(), 1.5, b"\x3f\xc0\x00\x00"),
        (s.DoubleSerializer(), 1.5, b"\x3f\xf8" + bytes(6)),
        (s.BooleanSerializer(), True, b"\x01"),
        (s.UUIDSerializer(), ID, str(ID).encode()),
        (s.CallableSerializer(str.encode), "x", b"x"),
    ],
)
def test_values(serializer: Any, value: object, expected: bytes) -> None:
    assert serializer.serialize("t", (), value) == expected
    assert serializer.serialize("t", (), None) is None


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (s.ByteArraySerializer(), "x"),
        (s.StringSerializer(), b"x"),
        (s.StringSerializer("ascii"), "é"),
        (s.JsonSerializer(), {1, 2}),
        (s.ShortSerializer(), 40_000),
        (s.BooleanSerializer(), 1),
        (s.UUIDSerializer(), "x"),
        (s.VoidSerializer(), b""),
    ],
)
def test_wrong_values(serializer: Any, value: object) -> None:
    with pytest.raises(SerializationError):
        serializer.serialize("t", (), value)


def test_configured() -> None:
    made = s.as_serializer(s.StringSerializer, {"key.serializer.encoding": "latin-1"}, is_key=True)
    assert made is not None
    assert made.serialize("t", (), "é") == b"\xe9"
    assert s.as_serializer(s.ByteArraySerializer, {}, is_key=True) is None
    assert s.VoidSerializer().serialize("t", (), None) is None
