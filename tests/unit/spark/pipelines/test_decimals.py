"""Decimals of records arrive digit by digit, whichever format has them."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.pipelines.change_keys import KeyFormat
from barnabas.spark.pipelines.connect_schemas import DECIMAL, ConnectSchemas
from barnabas.spark.pipelines.json_values import make_decode

UNSCALED = 12_345_678_901_234_567_890_123_456_789_012_345_678
EXACT = Decimal("123456789012345678901234567890123456.78")
COLUMN = pa.decimal128(38, 2)


def connect_value(amount: Any) -> pa.Scalar:
    """Decodes a value of Kafka Connect's JSON converter that has one decimal."""
    field = {"field": "amount", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}
    schema = {"type": "struct", "fields": [field]}
    found = ConnectSchemas().find(json.dumps(schema))
    text = f'{{"schema": {json.dumps(schema)}, "payload": {{"amount": {amount}}}}}'
    return pa.scalar(found.make_decode()(text.encode()), found.kind)["amount"]


@pytest.mark.parametrize(("number", "expected"), [(UNSCALED, str(EXACT)), (-UNSCALED, f"-{EXACT}"), (0, "0.00")])
def test_decimals_of_kafka_connect_keep_38_digits(number: int, expected: str) -> None:
    unscaled = base64.b64encode(number.to_bytes(16, signed=True)).decode()
    assert str(connect_value(json.dumps(unscaled)).as_py()) == expected


def test_decimals_that_kafka_connect_writes_as_numbers_keep_their_digits() -> None:
    assert connect_value(str(EXACT)).as_py() == EXACT


@pytest.mark.parametrize("text", [str(EXACT), f'"{EXACT}"'])
def test_numbers_in_json_keep_their_digits_in_a_decimal_column(text: str) -> None:
    kind = pa.struct([("items", pa.list_(pa.struct([("amount", COLUMN), ("rate", pa.float64())])))])
    decoded = make_decode(kind)(f'{{"items": [{{"amount": {text}, "rate": 0.1}}]}}'.encode())
    assert pa.scalar(decoded, kind).as_py() == {"items": [{"amount": EXACT, "rate": 0.1}]}


def test_decimal_keys_keep_their_digits() -> None:
    kind = pa.struct([("id", COLUMN)])
    decode = KeyFormat().for_columns(kind).find(0).make_decode()
    assert decode(str(EXACT).encode()) == {"id": EXACT}


@pytest.mark.parametrize("text", ["1e999999", "-1e400", "0.123", "true", "[]"])
def test_what_a_decimal_column_cannot_hold_is_refused(text: str) -> None:
    kind = pa.struct([("amount", COLUMN)])
    with pytest.raises((TypeError, ValueError)):
        pa.scalar(make_decode(kind)(f'{{"amount": {text}}}'.encode()), kind)
