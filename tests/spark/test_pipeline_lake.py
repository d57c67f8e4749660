"""Topics as tables that others read: every record once, whatever happens to a batch."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from deltalake import DeltaTable
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyiceberg.catalog.sql import SqlCatalog

from barnabas.cli.main import run
from barnabas.cli.pipeline_lake import lake_config
from barnabas.spark.pipelines import lake
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.lake import LakeConfig, LakeWriter
from barnabas.spark.pipelines.lake_files import PLAN, LakeFiles
from barnabas.spark.pipelines.lake_formats import DeltaLakeTable, IcebergTable, ParquetTable
from barnabas.spark.pipelines.lake_values import JsonValues, RawValues, ValueFormatError, value_format
from barnabas.spark.pipelines.manifest import ForeignTablesError
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.mechanism("S08")

FORMATS = ("parquet", "delta", "iceberg")
RAW = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key string, value binary>>"
)
DAY_MS = 86_400_000
QUERY = "5b0f62a4-0000-0000-0000-000000000000"


class CrashError(Exception):
    pass


def records(spark: SparkSession, values: list[bytes | None], first: int = 0) -> DataFrame:
    """Two days of records."""
    import datetime as dt

    start = dt.datetime(2026, 11, 14, 23, 59, 59, tzinfo=dt.UTC)
    rows = [
        ("orders", 0, first + index, start + dt.timedelta(seconds=index), b"k", value, [("h", b"v")])
        for index, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RAW)


def numbers(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


def offsets(config: LakeConfig) -> list[int]:
    """As somebody else reads the table: without Spark, and without us."""
    place = config.location
    if config.table_format == "delta":
        table = DeltaTable(place).to_pyarrow_table()
    elif config.table_format == "iceberg":
        catalog = SqlCatalog("barnabas", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
        table = catalog.load_table("barnabas.orders").scan().to_arrow()
    else:
        import pyarrow.dataset as ds

        table = ds.dataset(place, format="parquet", partitioning="hive").to_table()
    return sorted(table.column("offset").to_pylist())


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., LakeConfig]:
    def make(table_format: str = "parquet", **settings: Any) -> LakeConfig:
        return LakeConfig(PipelineConfig(str(tmp_path)), ("orders",), table_format=table_format, **settings)

    return make


@pytest.mark.parametrize("table_format", FORMATS)
def test_batches_add_up(spark: SparkSession, make: Callable[..., LakeConfig], table_format: str) -> None:
    config = make(table_format)
    writer = LakeWriter(config)
    writer.write(records(spark, numbers(4)), QUERY, 0)
    writer.write(records(spark, numbers(3), first=4), QUERY, 1)
    writer.write(records(spark, []), QUERY, 2)
    assert offsets(config) == list(range(7))
    days = {one.name for one in Path(config.location).glob("date=*")}
    assert days == {"date=2026-11-14", "date=2026-11-15"}


MOVES, BEFORE, AFTER = "in the middle of the moves", "before the commit", "after the commit"
SHORT = {("parquet", MOVES), ("delta", AFTER), ("iceberg", BEFORE)}
"""One for each format and point; the others take as long, and are for the night."""


@pytest.mark.parametrize(
    ("table_format", "point"),
    [
        pytest.param(kind, point, marks=[] if (kind, point) in SHORT else [pytest.mark.nightly])
        for kind in FORMATS
        for point in (MOVES, BEFORE, AFTER)
    ],
)
def test_a_batch_that_crashes_is_done_once(
    spark: SparkSession,
    make: Callable[..., LakeConfig],
    table_format: str,
    point: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = make(table_format)
    writer = LakeWriter(config)
    writer.write(records(spark, numbers(3)), QUERY, 0)
    with monkeypatch.context() as patch:
        crash_at(patch, table_format, point)
        with pytest.raises(CrashError):
            # Other files than the next time: what is left of it must not stay beside the new ones.
            writer.write(records(spark, numbers(40), first=3).repartition(4), QUERY, 1)
    LakeWriter(config).write(records(spark, numbers(40), first=3).coalesce(1), QUERY, 1)
    assert offsets(config) == list(range(43))
    LakeWriter(config).write(records(spark, numbers(40), first=3), QUERY, 1)
    LakeWriter(config).write(records(spark, numbers(1), first=43), QUERY, 2)
    assert offsets(config) == list(range(44))


def crash_at(patch: pytest.MonkeyPatch, table_format: str, point: str) -> None:
    def crash(*_: Any) -> None:
        raise CrashError

    table = {"parquet": ParquetTable, "delta": DeltaLakeTable, "iceberg": IcebergTable}[table_format]
    if point == MOVES:
        from barnabas.spark.pipelines.file_system import FileSystem

        rename = FileSystem.rename
        seen: list[str] = []

        def some(self: FileSystem, source: str, target: str) -> None:
            seen.append(source)
            if len(seen) > 2:
                raise CrashError
            rename(self, source, target)

        patch.setattr(FileSystem, "rename", some)
    elif point == BEFORE:
        patch.setattr(table, "commit", crash)
    else:
        patch.setattr(LakeFiles, "set_mark", crash)


def test_a_plan_that_was_carried_out_is_not_undone(
    spark: SparkSession, make: Callable[..., LakeConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends after the mark is set, and before the plan is gone."""
    config = make()
    with monkeypatch.context() as patch:
        from barnabas.spark.pipelines.file_system import FileSystem

        delete = FileSystem.delete
        patch.setattr(FileSystem, "delete", lambda self, name: None if name == PLAN else delete(self, name))
        LakeWriter(config).write(records(spark, numbers(3)), QUERY, 0)
    LakeWriter(config).write(records(spark, numbers(2), first=3), QUERY, 1)
    assert offsets(config) == list(range(5))


def test_the_table_of_another_query_is_left_alone(spark: SparkSession, make: Callable[..., LakeConfig]) -> None:
    LakeWriter(make()).write(records(spark, numbers(1)), QUERY, 0)
    with pytest.raises(ForeignTablesError, match="another checkpoint"):
        LakeWriter(make()).write(records(spark, numbers(1)), "other", 0)


# ---------------------------------------------------------------------------------------------------- values


def test_json(spark: SparkSession, make: Callable[..., LakeConfig]) -> None:
    config = make(values=JsonValues("id bigint, tags array<string>"))
    values = [b'{"id": 1, "tags": ["a"], "more": 2}', b'{"id": "x"}', b"nonsense", None, b"{}"]
    LakeWriter(config).write(records(spark, values), QUERY, 0)
    rows = spark.read.parquet(config.location).orderBy("offset").collect()
    found = [(row["offset"], row["value"].asDict() if row["value"] else None) for row in rows]
    assert found == [(0, {"id": 1, "tags": ["a"]}), (3, None), (4, {"id": None, "tags": None})]
    dead = spark.read.parquet(f"{config.location}/_dead_letters").orderBy("offset").collect()
    assert [(row["offset"], bytes(row["value"])) for row in dead] == [(1, values[1]), (2, values[2])]
    assert all("not JSON" in row["reason"] for row in dead)


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {
                            "name": "price",
                            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                        }
                    ],
                },
            },
        },
    ],
}


@pytest.mark.parametrize("confluent", [False, True])
def test_avro(spark: SparkSession, make: Callable[..., LakeConfig], tmp_path: Path, confluent: bool) -> None:
    import datetime as dt
    from decimal import Decimal

    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    order = {
        "id": 7,
        "note": None,
        "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        "state": "PAID",
        "before": "NEW",
        "counts": {"a": 1},
        "lines": [{"price": Decimal("1.25")}],
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), order)
    header = b"\0\0\0\0\x09" if confluent else b""
    good = header + stream.getvalue()
    config = make(values=value_format("avro", str(schema), confluent=confluent))
    LakeWriter(config).write(records(spark, [good, good[:-3], good + b"!", b"", None]), QUERY, 0)
    rows = spark.read.parquet(config.location).orderBy("offset").collect()
    assert [row["offset"] for row in rows] == [0, 4]
    value = rows[0]["value"].asDict(recursive=True)
    assert value["at"] == dt.datetime(2026, 1, 2)  # noqa: DTZ001 - in the session's zone, which is UTC
    assert {**value, "at": order["at"]} == order
    dead = spark.read.parquet(f"{config.location}/_dead_letters")
    assert dead.count() == 3


def descriptors() -> bytes:
    """What ``protoc --descriptor_set_out`` makes of a small file."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=9, label=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="lines", number=2, type=11, label=3, type_name=".shop.Line")
    order.field.add(name="first", number=3, type=11, label=1, type_name=".shop.Line")
    order.field.add(name="state", number=4, type=14, label=1, type_name=".shop.State")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


@pytest.mark.parametrize("confluent", [False, True])
def test_protobuf(spark: SparkSession, make: Callable[..., LakeConfig], tmp_path: Path, confluent: bool) -> None:
    path = tmp_path / "order.desc"
    path.write_bytes(descriptors())
    pool: Any = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    cls: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    order = cls(id=7, state=1)
    order.lines.add(sku="a")
    order.lines.add()
    # The second message of its file, as a registry's serializer says: one number, which is 1.
    header = b"\0\0\0\0\x09\x02\x02" if confluent else b""
    config = make(values=value_format("protobuf", str(path), "shop.Order", confluent=confluent))
    LakeWriter(config).write(records(spark, [header + order.SerializeToString(), b"\xff\xff", None]), QUERY, 0)
    rows = spark.read.parquet(config.location).orderBy("offset").collect()
    assert [row["offset"] for row in rows] == [0, 2]
    expected = {"id": 7, "lines": [{"sku": "a"}, {"sku": ""}], "first": None, "state": "PAID"}
    assert rows[0]["value"].asDict(recursive=True) == expected
    (dead,) = spark.read.parquet(f"{config.location}/_dead_letters").collect()
    assert (dead["offset"], bytes(dead["value"])) == (1, b"\xff\xff")
    assert "not Protobuf" in dead["reason"]


def test_schemas_that_cannot_be_used(tmp_path: Path) -> None:
    count = itertools.count()

    def avro(schema: Any) -> str:
        path = tmp_path / f"{next(count)}.avsc"
        path.write_text(json.dumps(schema))
        return str(path)

    def record(kind: Any) -> Any:
        return {"type": "record", "name": "Node", "fields": [{"name": "next", "type": kind}]}

    for kind, schema, message in (
        ("raw", "id int", "raw values have no schema"),
        ("json", None, "json values need a schema"),
        ("xml", avro({}), "there is no format xml"),
        ("avro", "missing.avsc", "there is no file"),
        ("avro", avro(record(["null", "Node"])), "refers to itself"),
        ("avro", avro(record(["int", "string"])), "a union of several types"),
        ("avro", avro(record("Other")), "there is no type Other"),
        ("avro", avro("string"), "has to be a record"),
        ("avro", avro({}), "no Avro schema"),
        ("protobuf", avro({}), "need the name of a message"),
    ):
        with pytest.raises(ValueFormatError, match=message):
            value_format(kind, schema)
    path = tmp_path / "order.desc"
    path.write_bytes(descriptors())
    with pytest.raises(ValueFormatError, match=r"no message shop\.Nothing; there are shop\.Line, shop\.Order"):
        value_format("protobuf", str(path), "shop.Nothing")
    assert isinstance(value_format("raw", None), RawValues)


def test_configurations_that_make_no_sense() -> None:
    pipeline = PipelineConfig("out")
    for topics, table_format, message in (
        ((), "delta", "no topic"),
        (("a", "b"), "delta", "needs a name"),
        (("a",), "csv", "no table format csv"),
    ):
        with pytest.raises(ValueError, match=message):
            LakeConfig(pipeline, topics, table_format=table_format)


# ---------------------------------------------------------------------------------------------------- a broker


def test_a_topic_becomes_a_table_incrementally(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.create(topic, 2)
    config = LakeConfig(
        PipelineConfig(str(tmp_path), topics.bootstrap_servers, once=True),
        (topic,),
        values=JsonValues("n bigint"),
        table_format="delta",
    )
    for start in (0, 10):
        for number in range(start, start + 10):
            topics.send(topic, [json.dumps({"n": number})], partition=number % 2)
        lake.build(spark, config).awaitTermination(120)
    rows = DeltaTable(config.location).to_pyarrow_table().to_pylist()
    assert sorted(row["value"]["n"] for row in rows) == list(range(20))
    assert {(row["topic"], row["partition"]) for row in rows} == {(topic, 0), (topic, 1)}


# ---------------------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "lake needs a --topic"),
        (["--topic", "a", "--values", "json"], "json values need a schema"),
        (["--topic", "a", "--topic", "b"], "a table of several topics needs a name"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "run", "lake", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_commands_options_become_a_configuration() -> None:
    config = lake_config(
        PipelineConfig("out"),
        topics=["a", "b"],
        table="both",
        table_format="delta",
        values="json",
        schema="n int",
        message=None,
        registry_header=False,
        catalog=None,
    )
    assert (config.topics, config.name, config.location) == (("a", "b"), "both", "out/lake/both")
    assert isinstance(config.values, JsonValues)
