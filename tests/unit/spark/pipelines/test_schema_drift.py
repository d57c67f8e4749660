"""Columns follow the schemas of records; JSON and Kafka Connect's types as Arrow's."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.pipelines.change_envelopes import Debezium, NoEnvelope
from barnabas.spark.pipelines.change_keys import KeyFormat
from barnabas.spark.pipelines.connect_schemas import ConnectSchemas
from barnabas.spark.pipelines.json_values import json_schema_of
from barnabas.spark.pipelines.schema_drift import DriftError, merged_type, plain_type
from barnabas.spark.pipelines.value_schemas import FoundSchemas, OneSchema, ValueFormatError, ValueSchema

pytestmark = pytest.mark.mechanism("S10")


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


def test_new_fields_become_columns_at_every_depth() -> None:
    table = struct(
        id=pa.int64(), lines=pa.list_(struct(sku=pa.string())), tags=pa.map_(pa.string(), struct(a=pa.int32()))
    )
    record = struct(
        lines=pa.large_list(struct(n=pa.int32(), sku=pa.large_string())),
        tags=pa.map_(pa.string(), struct(b=pa.bool_())),
        id=pa.int32(),
        note=pa.large_string(),
    )
    merged = merged_type(table, record)
    assert merged == struct(
        id=pa.int64(),
        lines=pa.list_(struct(sku=pa.string(), n=pa.int32())),
        tags=pa.map_(pa.string(), struct(a=pa.int32(), b=pa.bool_())),
        note=pa.string(),
    )
    # What was merged once changes nothing any more.
    assert merged_type(merged, record) == merged_type(merged, table) == merged == plain_type(merged)


@pytest.mark.parametrize(
    ("table", "record"),
    [
        (pa.int32(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.int64(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.timestamp("us", "UTC"), pa.int64()),
        (pa.list_(pa.int64()), pa.int64()),
        (struct(x=pa.int64()), pa.string()),
    ],
)
def test_other_types_are_refused(table: pa.DataType, record: pa.DataType) -> None:
    with pytest.raises(DriftError, match=r"column row\.total is .* in the table and .* in the record's schema"):
        merged_type(struct(row=struct(total=table)), struct(row=struct(total=record)))


def test_narrower_numbers_fit() -> None:
    for table, record in (
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.decimal128(20, 2), pa.decimal128(9, 2)),
    ):
        assert merged_type(table, record) == table
    with pytest.raises(DriftError, match="in the case of its letters only"):
        merged_type(struct(id=pa.int64()), struct(ID=pa.int64()))


def test_schemas_that_do_not_fit_are_named_and_the_others_used() -> None:
    kinds = {1: struct(a=pa.int64()), 2: struct(a=pa.string()), 3: struct(b=pa.string()), 4: pa.int64()}

    def row_of(kind: pa.DataType) -> pa.DataType:
        if not pa.types.is_struct(kind):
            raise ValueFormatError("no row")
        return kind

    found = FoundSchemas({token: ValueSchema(kind, lambda: bytes) for token, kind in kinds.items()}, {9: "unknown"})
    assert found.merged_type(None, row_of) == struct(a=pa.int64(), b=pa.string())
    assert list(found.usable) == [1, 3]
    assert set(found.problems) == {2, 4, 9}
    assert FoundSchemas().merged_type(None) is None


# ---------------------------------------------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.int64(), (7, 7), 7.5),
        (pa.int32(), (7, 7), True),
        (pa.float64(), (7, 7.0), "7"),
        (pa.string(), ("7", "7"), 7),
        (pa.bool_(), (True, True), 1),
        (pa.binary(), ("AQI=", b"\1\2"), "?"),
        (pa.decimal128(9, 2), ("1.25", Decimal("1.25")), True),
        (pa.list_(pa.int64()), ([1, None], [1, None]), {}),
        (pa.map_(pa.string(), pa.int64()), ({"a": 1}, [("a", 1)]), []),
        (pa.timestamp("us", "UTC"), ("1970-01-01T00:00:01Z", 1_000_000), 1),
        (struct(a=pa.int64()), ({"a": 1, "b": 2}, {"a": 1}), 1),
    ],
)
def test_json_is_never_cut_down_to_fit(kind: pa.DataType, good: tuple[Any, Any], bad: Any) -> None:
    decode = json_schema_of(struct(x=kind)).make_decode()
    assert decode(json.dumps({"x": good[0]}).encode()) == {"x": good[1]}
    assert decode(b'{"x": null}') == decode(b"{}") == {"x": None}
    with pytest.raises((TypeError, ValueError)):
        decode(json.dumps({"x": bad}).encode())


def test_kafka_connects_types() -> None:
    fields = [
        {"field": "id", "type": "int64"},
        {"field": "small", "type": "int8", "optional": True},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "ms", "type": "int64", "name": "io.debezium.time.Timestamp"},
        {"field": "ns", "type": "int64", "name": "io.debezium.time.NanoTimestamp"},
        {"field": "zoned", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        {
            "field": "price",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "9"},
        },
        {"field": "tags", "type": "array", "items": {"type": "string"}},
        {"field": "more", "type": "map", "keys": {"type": "string"}, "values": {"type": "double"}},
        {"field": "uuid", "type": "string", "name": "io.debezium.data.Uuid"},
    ]
    schema = ConnectSchemas().find(json.dumps({"type": "struct", "fields": fields}))
    payload = {
        "id": 1,
        "small": None,
        "day": 1,
        "ms": 2,
        "ns": 3_000,
        "zoned": "1970-01-01T00:00:00.000004Z",
        "price": base64.b64encode((-125).to_bytes(2, signed=True)).decode(),
        "tags": ["a"],
        "more": {"x": 1.5},
        "uuid": "u",
    }
    row = pa.scalar(schema.make_decode()(json.dumps({"schema": {}, "payload": payload}).encode()), schema.kind)
    micros = {name: row[name].value for name in ("ms", "ns", "zoned")}
    assert micros == {"ms": 2_000, "ns": 3, "zoned": 4}
    assert row["day"].as_py().isoformat() == "1970-01-02"
    assert row["price"].as_py() == Decimal("-1.25")
    assert (row["tags"].as_py(), row["more"].as_py(), row["uuid"].as_py()) == (["a"], [("x", 1.5)], "u")
    for bad in ('{"type": "odd"}', "[]", "nonsense", "{}", '{"type": "struct"}'):
        with pytest.raises(ValueFormatError):
            ConnectSchemas().find(bad)


# ---------------------------------------------------------------------------------------------------- envelopes


def test_the_row_within_a_value() -> None:
    row = struct(id=pa.int64(), name=pa.string())
    envelope = struct(before=row, after=row, op=pa.string(), source=struct(lsn=pa.int64()))
    assert Debezium().row_type(envelope) == row
    assert NoEnvelope().row_type(struct(id=pa.int64(), name=pa.string(), __deleted=pa.string())) == row
    for kind in (row, pa.string(), struct(after=pa.string(), op=pa.string())):
        with pytest.raises(ValueFormatError, match="not an envelope of Debezium"):
            Debezium().row_type(kind)
    with pytest.raises(ValueFormatError, match="_offset: the table has columns of its own"):
        NoEnvelope().row_type(struct(_offset=pa.int64()))


def test_the_keys_of_records() -> None:
    one, two = struct(id=pa.int64()), struct(a=pa.string(), b=pa.int64())

    def decode(keys: KeyFormat, kind: pa.DataType, value: bytes) -> Any:
        return keys.for_columns(kind).find(0).make_decode()(value)

    assert decode(KeyFormat("json"), one, b'{"id": 7}') == decode(KeyFormat("json"), one, b"7") == {"id": 7}
    assert decode(KeyFormat("text"), one, b"7") == {"id": 7}
    assert decode(KeyFormat("text"), struct(id=pa.string()), b"7") == {"id": "7"}
    assert decode(KeyFormat("json"), two, b'{"a": "x", "b": 1}') == {"a": "x", "b": 1}
    with pytest.raises(TypeError):
        decode(KeyFormat("json"), two, b"7")
    with pytest.raises(ValueFormatError, match="for one key column"):
        decode(KeyFormat("text"), two, b"7")
    scalar = KeyFormat("avro", OneSchema(lambda: ValueSchema(pa.int64(), lambda: int), "Avro"))
    assert decode(scalar, one, b"7") == {"id": 7}
    with pytest.raises(ValueFormatError, match="several key columns"):
        scalar.for_columns(two).find(0)
