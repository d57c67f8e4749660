"""Avro values as Arrow types: logical types, and names with namespaces."""

from __future__ import annotations

import io
import uuid
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from barnabas.spark.pipelines.avro_values import AvroSchema, avro_schema


def decode(schema: Any, value: bytes, reader: Any = None) -> tuple[pa.DataType, Any]:
    """Returns the type of a schema, and a value as the table has it."""
    found = avro_schema(AvroSchema(schema), None, None if reader is None else AvroSchema(reader))
    return found.kind, pa.array([found.make_decode()(value)], found.kind).to_pylist()[0]


def encode(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def record(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}], **more}


@pytest.mark.parametrize(
    ("base", "logical", "number"),
    [
        ("int", "time-millis", 86_399_999),
        ("long", "time-micros", 86_400_000_000),
        ("long", "local-timestamp-millis", 1_700_000_000_000),
        ("long", "local-timestamp-micros", -(2**63)),
    ],
)
@pytest.mark.parametrize("connect", [{}, {"connect.name": "org.apache.kafka.connect.data.Time", "connect.version": 1}])
def test_logical_types_without_a_column_type_become_their_base_type(
    base: str, logical: str, number: int, connect: dict[str, Any]
) -> None:
    schema = record(["null", {"type": base, "logicalType": logical, **connect}])
    value = encode(record(["null", base]), {"x": number})
    expected = pa.struct([("x", pa.int32() if base == "int" else pa.int64())])
    assert decode(schema, value) == (expected, {"x": number})
    assert decode(schema, value, reader=schema) == (expected, {"x": number})


INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "id", "type": {"type": "string", "logicalType": "uuid"}}],
}
ID = uuid.UUID(int=7)


@pytest.mark.parametrize("reference", ["Inner", "shop.Inner", {"type": "Inner"}, {"type": "shop.Inner"}])
@pytest.mark.parametrize("outer", [{"name": "Outer", "namespace": "shop"}, {"name": "shop.Outer"}])
def test_a_type_is_found_in_the_namespace_around_it(reference: Any, outer: dict[str, str]) -> None:
    def schema(inner: Any) -> Any:
        fields = [{"name": "one", "type": INNER}, {"name": "other", "type": ["null", inner]}]
        return {"type": "record", **outer, "fields": fields}

    value = encode(schema("shop.Inner"), {"one": {"id": ID}, "other": {"id": ID}})
    _, found = decode(schema(reference), value)
    assert found == {"one": {"id": str(ID)}, "other": {"id": str(ID)}}


def test_types_of_the_same_name_in_two_namespaces_are_told_apart() -> None:
    mine = {"type": "record", "name": "Line", "namespace": "a", "fields": [{"name": "x", "type": "int"}]}
    theirs = {"type": "record", "name": "Line", "namespace": "b", "fields": [{"name": "x", "type": "string"}]}
    fields = [{"name": "mine", "type": mine}, {"name": "theirs", "type": theirs}, {"name": "again", "type": "Line"}]
    schema = {"type": "record", "name": "Order", "namespace": "a", "fields": fields}
    row = {"mine": {"x": 1}, "theirs": {"x": "text"}, "again": {"x": 2}}
    assert decode(schema, encode(schema, row))[1] == row
