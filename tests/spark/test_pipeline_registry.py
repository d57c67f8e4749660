"""Tables of topics whose schemas are in a registry, which may be down for a while."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from deltalake import DeltaTable

from barnabas.spark.pipelines.change_keys import KeyFormat
from barnabas.spark.pipelines.changes import ChangesConfig, changes_writer
from barnabas.spark.pipelines.config import TABLE_FORMATS, PipelineConfig, TableOptions
from barnabas.spark.pipelines.lake import LakeConfig, lake_writer
from barnabas.spark.pipelines.lake_values import SchemaValues
from barnabas.spark.pipelines.registry_schemas import RegistrySchemas
from barnabas.spark.pipelines.schema_registry import RegistryConfig, RegistryError
from schema_registry_fixtures import ScriptedRegistry, running_registry
from spark.change_records import Record, frame, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.mechanism("S10")

QUERY = "5b0f62a4-0000-0000-0000-000000000000"


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with running_registry() as running:
        yield running


def record_schema(name: str, **fields: Any) -> dict[str, Any]:
    """A record whose fields may be null."""
    described = [{"name": field, "type": ["null", kind], "default": None} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": described}


def avro(registry: ScriptedRegistry, subject: str, schema: Any, value: Any) -> bytes:
    """A value as a registry's serializer writes it; the schema is registered."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return b"\0" + registry.register(subject, schema).to_bytes(4) + stream.getvalue()


def schemas(registry: ScriptedRegistry) -> RegistrySchemas:
    return RegistrySchemas("avro", RegistryConfig(registry.url, {"retries": "0"}))


def test_the_columns_of_a_lake_table_follow_the_registry(
    spark: SparkSession, registry: ScriptedRegistry, tmp_path: Path
) -> None:
    config = LakeConfig(PipelineConfig(str(tmp_path)), ("orders",), values=SchemaValues(schemas(registry)))

    def write(batch_id: int, *values: bytes | None) -> None:
        records = [Record(0, 10 * batch_id + n, None, value) for n, value in enumerate(values)]
        lake_writer(config).write(frame(spark, records), QUERY, batch_id)

    # Before the first schema is seen there is no column for values.
    write(0, None, b"no header", b"\0\0\0\0\x63body")
    first = record_schema("Order", id="long", line=record_schema("Line", sku="string"))
    write(1, avro(registry, "orders-value", first, {"id": 1, "line": {"sku": "a"}}))
    second = record_schema("Order", id="long", line=record_schema("Line", sku="string", count="int"), note="string")
    other = record_schema("Order", id="string")
    good = avro(registry, "orders-value", second, {"id": 2, "line": {"sku": "b", "count": 3}, "note": "new"})
    bad = avro(registry, "orders-value", other, {"id": "three"})
    registry.script = [(503, b"")]
    with pytest.raises(RegistryError, match="status 503"):
        write(2, good, bad)
    write(2, good, bad)
    # Three batches, and columns added twice: no commit more.
    assert DeltaTable(config.location).version() == 3 + 2
    rows = DeltaTable(config.location).to_pyarrow_table().sort_by("offset").to_pylist()
    assert [(row["offset"], row["value"]) for row in rows] == [
        (0, None),
        (10, {"id": 1, "line": {"sku": "a", "count": None}, "note": None}),
        (20, {"id": 2, "line": {"sku": "b", "count": 3}, "note": "new"}),
    ]
    dead = DeltaTable(f"{config.location}/_dead_letters").to_pyarrow_table().sort_by("offset").to_pylist()
    assert [(row["offset"], row["reason"]) for row in dead] == [
        (1, "not Avro with the name of its schema"),
        (2, "the schema registry has no schema 99"),
        (21, "column id is int64 in the table and string in the record's schema"),
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_debeziums_avro_with_a_registry(
    spark: SparkSession, registry: ScriptedRegistry, tmp_path: Path, table_format: str
) -> None:
    found = schemas(registry)
    config = ChangesConfig(
        PipelineConfig(str(tmp_path), tables=TableOptions(table_format)),
        ("shop.public.orders",),
        "orders",
        schemas=found,
        key=("id",),
        keys=KeyFormat("avro", found.for_keys()),
    )
    key_schema = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    ends = iter(range(100))

    def change(row: dict[str, Any], op: str, before: Any, after: Any) -> Record:
        value = {"type": "record", "name": "Value", "fields": record_schema("Value", **row)["fields"]}
        fields = [
            {"name": "before", "type": ["null", value]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ]
        schema = {"type": "record", "name": "Envelope", "namespace": "shop", "fields": fields}
        content = {"before": before, "after": after, "op": op}
        return Record(0, next(ends), None, avro(registry, "orders-value", schema, content))

    def tombstone(key: int) -> Record:
        return Record(0, next(ends), avro(registry, "orders-key", key_schema, {"id": key}), None)

    first = {"id": "long", "at": {"type": "long", "connect.name": "io.debezium.time.Timestamp"}}
    batches = [
        [change(first, "r", None, {"id": n, "at": 1_000 * n}) for n in range(4)],
        [
            change({**first, "note": "string"}, "u", None, {"id": 1, "at": 5, "note": "new"}),
            change(first, "d", {"id": 2, "at": None}, None),
            tombstone(3),
        ],
    ]
    for batch_id, records in enumerate(batches):
        changes_writer(config).write(frame(spark, records), QUERY, batch_id)
    assert table_rows(config.location, "orders", 'id, epoch_us("at") as "at", note') == [
        {"id": 0, "at": 0, "note": None},
        {"id": 1, "at": 5_000, "note": "new"},
    ]
