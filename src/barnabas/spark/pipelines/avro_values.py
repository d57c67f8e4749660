"""Avro values with a given schema, decoded by fastavro."""

from __future__ import annotations

import io
from functools import partial
from typing import Any, Final

import pyarrow as pa

from barnabas.common.extras import extra
from barnabas.spark.pipelines.lake_values import Decode, DecodedValues, ValueFormatError, without_confluent_header

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("string", "uuid"): pa.string(),
}


def avro_values(schema: Any, *, confluent: bool = False) -> DecodedValues:
    """For records of this schema."""
    kind = arrow_type(schema, {})
    if not pa.types.is_struct(kind):
        raise ValueFormatError("the Avro schema of a value has to be a record")
    return DecodedValues(kind, partial(_make_decode, schema, confluent), "Avro")


def _make_decode(schema: Any, confluent: bool) -> Decode:
    with extra("lake", "values in Avro"):
        import fastavro  # on the executors

    parsed = fastavro.parse_schema(schema)

    def decode(value: bytes) -> Any:
        stream = io.BytesIO(without_confluent_header(value) if confluent else value)
        record = fastavro.schemaless_reader(stream, parsed, None)
        if rest := stream.read():
            raise ValueError(f"{len(rest)} bytes are left over")
        return plain(record)

    return decode


def plain(value: Any) -> Any:
    """Maps as lists of pairs, which is what Arrow takes for both of its kinds of maps; UUIDs as text."""
    import uuid

    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, uuid.UUID) else value


def arrow_type(schema: Any, named: dict[str, pa.DataType | None]) -> pa.DataType:
    """The Arrow type of an Avro schema. `named` has the types with a name that were met on the way.

    >>> arrow_type(["null", {"type": "array", "items": "long"}], {})
    ListType(list<item: int64>)
    """
    if isinstance(schema, list):
        options = [one for one in schema if one != "null"]
        if len(options) != 1:
            raise ValueFormatError(f"a union of several types cannot be a column: {schema}")
        return arrow_type(options[0], named)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        known = named.get(schema)
        if known is None:
            raise ValueFormatError(
                f"{schema} refers to itself, which no table can" if schema in named else f"there is no type {schema}"
            )
        return known
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind is None:
        raise ValueFormatError(f"this is no Avro schema: {schema}")
    if kind == "record":
        return _named(schema, named, lambda: pa.struct([_field(one, named) for one in schema["fields"]]))
    if kind == "enum":
        return _named(schema, named, pa.string)
    if kind == "fixed":
        return _named(schema, named, lambda: _decimal(schema) or pa.binary())
    if kind == "array":
        return pa.list_(arrow_type(schema["items"], named))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"], named))
    if not isinstance(kind, str):
        return arrow_type(kind, named)
    if kind == "bytes" and (decimal := _decimal(schema)) is not None:
        return decimal
    return _LOGICAL.get((kind, schema.get("logicalType", "")), arrow_type(kind, named))


def _field(field: Any, named: dict[str, pa.DataType | None]) -> pa.Field:
    return pa.field(field["name"], arrow_type(field["type"], named))


def _named(schema: Any, named: dict[str, pa.DataType | None], make: Any) -> pa.DataType:
    short = schema["name"].rpartition(".")[2]
    space = schema.get("namespace")
    names = {schema["name"], short, *((f"{space}.{short}",) if space else ())}
    named.update(dict.fromkeys(names))  # known, and not yet there: whoever refers to it now refers to itself
    made: pa.DataType = make()
    named.update(dict.fromkeys(names, made))
    return made


def _decimal(schema: Any) -> pa.DataType | None:
    if schema.get("logicalType") != "decimal":
        return None
    return pa.decimal128(schema["precision"], schema.get("scale", 0))
