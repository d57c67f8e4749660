"""Topics as tables that others read: every record once, whatever happens to a batch."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from deltalake import DeltaTable
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyiceberg.catalog.sql import SqlCatalog

from barnabas.cli.main import run
from barnabas.cli.pipeline_lake import ValueOptions, lake_config
from barnabas.spark.pipelines import lake
from barnabas.spark.pipelines.config import TABLE_FORMATS, PipelineConfig, TableOptions
from barnabas.spark.pipelines.lake import LakeConfig, lake_writer
from barnabas.spark.pipelines.lake_values import JsonValues, RawValues, ValueSettings, value_format
from barnabas.spark.pipelines.table_formats import DeltaTableFormat, IcebergTableFormat
from barnabas.spark.pipelines.tables import ForeignTablesError, TableStore
from barnabas.spark.pipelines.value_schemas import ValueFormatError
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.mechanism("S08")

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
    """As another engine reads the table: without Spark, and without our code."""
    place = config.location
    if Path(place, "catalog.db").exists():
        with SqlCatalog("barnabas", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}") as catalog:
            table = catalog.load_table("barnabas.orders").scan().to_arrow()
    else:
        table = DeltaTable(place).to_pyarrow_table()
    return sorted(table.column("offset").to_pylist())


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., LakeConfig]:
    def make(table_format: str = "delta", **settings: Any) -> LakeConfig:
        return LakeConfig(PipelineConfig(str(tmp_path), tables=TableOptions(table_format)), ("orders",), **settings)

    return make


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_batches_add_up(spark: SparkSession, make: Callable[..., LakeConfig], table_format: str) -> None:
    config = make(table_format)
    writer = lake_writer(config)
    writer.write(records(spark, numbers(4)), QUERY, 0)
    writer.write(records(spark, numbers(3), first=4), QUERY, 1)
    writer.write(records(spark, []), QUERY, 2)
    assert offsets(config) == list(range(7))
    days = {one.name for one in Path(config.location).rglob("date=*")}
    assert days == {"date=2026-11-14", "date=2026-11-15"}


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_small_files_of_a_day_become_one(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    """Every 60 batches, by default."""
    pipeline = PipelineConfig(str(tmp_path), tables=TableOptions(table_format), compact_every=3)
    config = LakeConfig(pipeline, ("orders",), values=JsonValues("id bigint"))
    writer = lake_writer(config)
    values: list[bytes | None] = [b'{"id": 1}', None, b'{"id": 3}', b"{}"]
    for batch in range(3):
        writer.write(records(spark, values, first=4 * batch).coalesce(1), QUERY, batch)
    opened = config.store().open_named("orders", "")
    days = [one.path.split("/")[-2] for one in opened.files()]
    assert sorted(days) == ["date=2026-11-14", "date=2026-11-15"]
    assert opened.last_batch(QUERY) == 2
    assert offsets(config) == list(range(12))
    # A day with one small file is left alone.
    before = {one.path for one in opened.files()}
    writer.write(records(spark, values[:1], first=12), QUERY, 5)
    after = {one.path for one in opened.files()}
    assert len(after - before) == 1
    assert len(before & after) == 1
    assert offsets(config) == list(range(13))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_time_that_has_no_day_is_a_dead_letter(
    spark: SparkSession, make: Callable[..., LakeConfig], table_format: str
) -> None:
    """As of a producer that sends microseconds for milliseconds. An error would stop the pipeline for good."""
    from pyspark.sql import functions as sf

    config = make(table_format)
    time_us = sf.when(sf.col("offset") == 1, sf.lit(1_700_000_000_000_000_000)).otherwise(sf.unix_micros("timestamp"))
    batch = records(spark, numbers(3)).withColumn("timestamp", sf.timestamp_micros(time_us))
    lake_writer(config).write(batch, QUERY, 0)
    assert offsets(config) == [0, 2]
    dead = config.store().read(spark, config.dead_letters_table())
    reasons = [(row["offset"], row["reason"]) for row in dead.select("offset", "reason").collect()]
    assert reasons == [(1, "the timestamp is not between the years 1 and 9999")]
    assert config.store().state().dead_letters == 1


@pytest.fixture
def other_zone(spark: SparkSession) -> Iterator[None]:
    """A session of a user in another time zone."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    yield
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.usefixtures("other_zone")
@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_days_are_in_utc(spark: SparkSession, make: Callable[..., LakeConfig], table_format: str) -> None:
    config = make(table_format)
    lake_writer(config).write(records(spark, numbers(4)), QUERY, 0)
    days = {one.name for one in Path(config.location).rglob("date=*")}
    assert days == {"date=2026-11-14", "date=2026-11-15"}
    assert offsets(config) == list(range(4))


FILES, COMMIT, STATE = "after the files", "after the commit", "after the state"
SHORT = {("delta", COMMIT), ("iceberg", FILES)}
"""The others take as long, and are for the night."""


@pytest.mark.mechanism("S10")
@pytest.mark.parametrize(
    ("table_format", "point"),
    [
        pytest.param(kind, point, marks=[] if (kind, point) in SHORT else [pytest.mark.nightly])
        for kind in TABLE_FORMATS
        for point in (FILES, COMMIT, STATE)
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
    writer = lake_writer(config)
    writer.write(records(spark, numbers(3)), QUERY, 0)
    with monkeypatch.context() as patch:
        crash_at(patch, table_format, point)
        with pytest.raises(CrashError):
            # Other files than the next time: those of the crash must not count beside the new ones.
            writer.write(records(spark, numbers(40), first=3).repartition(4), QUERY, 1)
    lake_writer(config).write(records(spark, numbers(40), first=3).coalesce(1), QUERY, 1)
    assert offsets(config) == list(range(43))
    lake_writer(config).write(records(spark, numbers(40), first=3), QUERY, 1)
    lake_writer(config).write(records(spark, numbers(1), first=43), QUERY, 2)
    assert offsets(config) == list(range(44))


def crash_at(patch: pytest.MonkeyPatch, table_format: str, point: str) -> None:
    owner: Any = {"delta": DeltaTableFormat, "iceberg": IcebergTableFormat}[table_format]
    name = "replace"
    if point == STATE:
        owner, name = TableStore, "set_state"
    original = getattr(owner, name)

    def crash(self: Any, *arguments: Any, **settings: Any) -> None:
        if point != FILES:
            original(self, *arguments, **settings)
        raise CrashError

    patch.setattr(owner, name, crash)


def test_the_table_of_another_query_is_left_alone(spark: SparkSession, make: Callable[..., LakeConfig]) -> None:
    lake_writer(make()).write(records(spark, numbers(1)), QUERY, 0)
    with pytest.raises(ForeignTablesError, match="another checkpoint"):
        lake_writer(make()).write(records(spark, numbers(1)), "other", 0)


# ---------------------------------------------------------------------------------------------------- values


def table_rows(spark: SparkSession, location: str) -> list[Any]:
    """The rows of a Delta table by offset, from the files that it lists."""
    return spark.read.parquet(*DeltaTable(location).file_uris()).orderBy("offset").collect()


def test_json(spark: SparkSession, make: Callable[..., LakeConfig]) -> None:
    config = make(values=JsonValues("id bigint, tags array<string>"))
    values = [b'{"id": 1, "tags": ["a"], "more": 2}', b'{"id": "x"}', b"nonsense", None, b"{}"]
    lake_writer(config).write(records(spark, values), QUERY, 0)
    rows = table_rows(spark, config.location)
    found = [(row["offset"], row["value"].asDict() if row["value"] else None) for row in rows]
    assert found == [(0, {"id": 1, "tags": ["a"]}), (3, None), (4, {"id": None, "tags": None})]
    dead = table_rows(spark, f"{config.location}/_dead_letters")
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
    config = make(values=value_format(ValueSettings("avro", str(schema), confluent=confluent)))
    lake_writer(config).write(records(spark, [good, good[:-3], good + b"!", b"", None]), QUERY, 0)
    rows = table_rows(spark, config.location)
    assert [row["offset"] for row in rows] == [0, 4]
    value = rows[0]["value"].asDict(recursive=True)
    assert value["at"] == dt.datetime(2026, 1, 2)  # noqa: DTZ001 - in the session's zone, which is UTC
    assert {**value, "at": order["at"]} == order
    assert len(table_rows(spark, f"{config.location}/_dead_letters")) == 3


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
    config = make(values=value_format(ValueSettings("protobuf", str(path), "shop.Order", confluent=confluent)))
    lake_writer(config).write(records(spark, [header + order.SerializeToString(), b"\xff\xff", None]), QUERY, 0)
    rows = table_rows(spark, config.location)
    assert [row["offset"] for row in rows] == [0, 2]
    expected = {"id": 7, "lines": [{"sku": "a"}, {"sku": ""}], "first": None, "state": "PAID"}
    assert rows[0]["value"].asDict(recursive=True) == expected
    (dead,) = table_rows(spark, f"{config.location}/_dead_letters")
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
            value_format(ValueSettings(kind, schema))
    path = tmp_path / "order.desc"
    path.write_bytes(descriptors())
    with pytest.raises(ValueFormatError, match=r"no message shop\.Nothing; there are shop\.Line, shop\.Order"):
        value_format(ValueSettings("protobuf", str(path), "shop.Nothing"))
    assert isinstance(value_format(ValueSettings("raw")), RawValues)


def test_configurations_that_make_no_sense() -> None:
    pipeline = PipelineConfig("out")
    for topics, message in (((), "no topic"), (("a", "b"), "needs a name")):
        with pytest.raises(ValueError, match=message):
            LakeConfig(pipeline, topics)
    with pytest.raises(ValueError, match="unknown table format csv"):
        TableOptions("csv")


# ---------------------------------------------------------------------------------------------------- a broker


def test_a_topic_becomes_a_table_incrementally(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.create(topic, 2)
    config = LakeConfig(
        PipelineConfig(str(tmp_path), topics.bootstrap_servers, once=True),
        (topic,),
        values=JsonValues("n bigint"),
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
    options = ValueOptions(["a", "b"], "both", "json", "n int", None, False, None, [], None, None)
    config = lake_config(PipelineConfig("out"), options)
    assert (config.topics, config.name, config.location) == (("a", "b"), "both", "out/lake/both")
    assert isinstance(config.values, JsonValues)
