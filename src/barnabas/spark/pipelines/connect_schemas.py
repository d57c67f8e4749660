"""Kafka Connect's types: the schema that its JSON converter writes beside each value, and names for types of databases.

    {"schema": {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}, "payload": {"id": 7}}

A *semantic name* says what an integer, a text or bytes stand for, such as ``io.debezium.time.MicroTimestamp``. Avro
schemas made by Connect have it as ``connect.name``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from barnabas.spark.pipelines.json_values import Convert, converter, expected, integer, parser, timestamp
from barnabas.spark.pipelines.value_schemas import Decode, Token, ValueFormatError, ValueSchema

if TYPE_CHECKING:
    from pyspark.sql import Column

_TIME: Final = pa.timestamp("us", "UTC")
SEMANTIC_TYPES: Final[Mapping[str, tuple[pa.DataType, Convert]]] = {
    "org.apache.kafka.connect.data.Date": (pa.date32(), integer),
    "org.apache.kafka.connect.data.Timestamp": (_TIME, lambda value: integer(value) * 1_000),
    "io.debezium.time.Date": (pa.date32(), integer),
    "io.debezium.time.Timestamp": (_TIME, lambda value: integer(value) * 1_000),
    "io.debezium.time.MicroTimestamp": (_TIME, integer),
    "io.debezium.time.NanoTimestamp": (_TIME, lambda value: integer(value) // 1_000),
    "io.debezium.time.ZonedTimestamp": (_TIME, timestamp),
}
"""Arrow's type of a semantic name, and how a value of the base type becomes one."""
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_MOST_DIGITS: Final = 38
_BASE: Final = {
    "boolean": pa.bool_(),
    "int8": pa.int32(),
    "int16": pa.int32(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_SCHEMA: Final = "schema"
_PAYLOAD: Final = "payload"


class ConnectSchemas:
    """Values of Kafka Connect's JSON converter with ``schemas.enable=true``."""

    name = "JSON of Kafka Connect"
    many = True

    def token(self, value: Column) -> Column:
        from pyspark.sql import functions as sf  # an extra

        return sf.get_json_object(value.cast("string"), f"$.{_SCHEMA}")

    def find(self, token: Token) -> ValueSchema:
        try:
            schema = json.loads(str(token))
            return ValueSchema(connect_type(schema)[0], partial(_make_decode, schema))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueFormatError(f"not a schema of Kafka Connect: {type(error).__name__}: {error}") from None


def _make_decode(schema: Any) -> Decode:
    kind, convert = connect_type(schema)
    parse = parser(kind)
    return lambda value: convert(parse(value)[_PAYLOAD])


def connect_type(schema: Any) -> tuple[pa.DataType, Convert]:
    """The Arrow type of a schema of Kafka Connect, and the function that makes a value of it."""
    kind, convert = _type(schema)
    return kind, lambda value: None if value is None else convert(value)


def _type(schema: Any) -> tuple[pa.DataType, Convert]:
    name, base = schema.get("name"), schema["type"]
    if name in SEMANTIC_TYPES:
        return SEMANTIC_TYPES[name]
    if name == DECIMAL:
        parameters = schema["parameters"]
        digits = int(parameters.get("connect.decimal.precision", _MOST_DIGITS))
        scale = int(parameters["scale"])
        return pa.decimal128(min(digits, _MOST_DIGITS), scale), partial(_decimal, scale)
    if base == "struct":
        return _struct([(one["field"], *connect_type(one)) for one in schema["fields"]])
    if base == "array":
        kind, item = connect_type(schema["items"])
        return pa.list_(kind), lambda value: [item(one) for one in expected(value, list, "an array")]
    if base == "map":
        kind, item = connect_type(schema["values"])
        if schema["keys"]["type"] != "string":
            raise ValueFormatError("a map whose keys are no texts cannot be a column")
        return (
            pa.map_(pa.string(), kind),
            lambda value: [(key, item(one)) for key, one in expected(value, dict, "an object").items()],
        )
    if base not in _BASE:
        raise ValueFormatError(f"Kafka Connect has no type {base}")
    return _BASE[base], converter(_BASE[base])


def _struct(fields: list[tuple[str, pa.DataType, Convert]]) -> tuple[pa.DataType, Convert]:
    def convert(value: Any) -> dict[str, Any]:
        found = expected(value, dict, "an object")
        return {name: one(found.get(name)) for name, _, one in fields}

    return pa.struct([(name, kind) for name, kind, _ in fields]), convert


def _decimal(scale: int, value: Any) -> Decimal:
    """Of the unscaled number, as bytes in Base64; the converter may also be set to write numbers or texts."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return Decimal(str(value))
    unscaled = int.from_bytes(base64.b64decode(expected(value, str, "a text in Base64"), validate=True), signed=True)
    return Decimal(f"{unscaled}e{-scale}")  # exactly: scaleb() would round to the 28 digits of Python's context
