"""Changes of rows as a table that is up to date, as engines other than Spark read it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from barnabas.cli.main import run
from barnabas.spark.pipelines import changes
from barnabas.spark.pipelines.change_envelopes import Debezium, NoEnvelope
from barnabas.spark.pipelines.change_keys import KeyFormat
from barnabas.spark.pipelines.changes import ChangesConfig, changes_writer, json_rows, parse_changes
from barnabas.spark.pipelines.config import TABLE_FORMATS, PipelineConfig, TableOptions
from barnabas.spark.pipelines.connect_schemas import ConnectSchemas
from barnabas.spark.pipelines.dead_letter import PROBLEM
from barnabas.spark.pipelines.table_formats import DeltaTableFormat, IcebergTableFormat
from barnabas.spark.pipelines.tables import TableStore
from spark.change_records import Record, connect, envelope, frame, json_bytes, table_rows
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.mechanism("S10")

QUERY = "5b0f62a4-0000-0000-0000-000000000000"
COLUMNS = "id bigint, name string"


class CrashError(Exception):
    pass


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., ChangesConfig]:
    def make(table_format: str = "delta", **settings: Any) -> ChangesConfig:
        pipeline = PipelineConfig(str(tmp_path), tables=TableOptions(table_format), compact_every=3, keep_hours=0)
        settings = {"schemas": json_rows(COLUMNS, Debezium()), "key": ("id",), **settings}
        return ChangesConfig(pipeline, ("shop.public.orders",), "orders", **settings)

    return make


def names(config: ChangesConfig) -> dict[int, str]:
    return {row["id"]: row["name"] for row in table_rows(config.location, "orders")}


def reasons(config: ChangesConfig) -> list[str]:
    rows = DeltaTable(f"{config.location}/_dead_letters").to_pyarrow_table().sort_by("offset").to_pylist()
    return [row["reason"] for row in rows]


@pytest.mark.parametrize("table_format", ["delta", pytest.param("iceberg", marks=pytest.mark.nightly)])
def test_rows_follow_their_changes(spark: SparkSession, make: Callable[..., ChangesConfig], table_format: str) -> None:
    config = make(table_format)
    writer = changes_writer(config)
    writer.write(
        frame(
            spark,
            [
                Record(0, 0, b'{"id":1}', envelope("r", None, {"id": 1, "name": "a"})),
                Record(0, 1, b'{"id":2}', envelope("c", None, {"id": 2, "name": "b"})),
                Record(0, 2, b'{"id":2}', envelope("u", None, {"id": 2, "name": "bb"})),
                Record(1, 0, b'{"id":3}', envelope("c", None, {"id": 3, "name": "c"})),
                Record(1, 1, b'{"id":4}', envelope("c", None, {"id": 4, "name": "d"})),
                Record(1, 2, b"?", b"nonsense"),
            ],
        ),
        QUERY,
        0,
    )
    assert names(config) == {1: "a", 2: "bb", 3: "c", 4: "d"}
    second = [
        Record(0, 3, b'{"id":1}', envelope("d", {"id": 1, "name": None})),
        Record(0, 4, b'{"id":1}', None),
        Record(1, 3, b'{"id":3}', None),
        Record(1, 4, b'{"id":4}', envelope("d", {"id": 4})),
        Record(1, 5, b'{"id":4}', envelope("c", None, {"id": 4, "name": "again"})),
        # What the table has already, and what is older than that.
        Record(0, 1, b'{"id":2}', envelope("c", None, {"id": 2, "name": "old"})),
    ]
    writer.write(frame(spark, second), QUERY, 1)
    assert names(config) == {2: "bb", 4: "again"}
    changes_writer(config).write(frame(spark, second), QUERY, 1)
    writer.write(frame(spark, []), QUERY, 2)
    assert names(config) == {2: "bb", 4: "again"}
    (row,) = table_rows(config.location, "orders", "* exclude _timestamp")[1:]
    assert row == {"id": 4, "name": "again", "_topic": "shop.public.orders", "_partition": 1, "_offset": 5}
    assert config.store().state().dead_letters == 1


def test_changes_that_cannot_be_used_have_a_problem(spark: SparkSession, make: Callable[..., ChangesConfig]) -> None:
    import pyarrow as pa

    records = [
        Record(0, 0, None, envelope("c", None, {"id": 1, "name": "a"})),
        Record(0, 1, None, envelope("m", None, {"id": 1, "name": "a"})),
        Record(0, 2, None, envelope("u", {"id": 1})),
        Record(0, 3, None, envelope("c", None, {"name": "without"})),
        Record(0, 4, None, envelope("d", {"name": "without"})),
        Record(0, 5, None, envelope("t")),
    ]
    known = pa.struct([("id", pa.int64()), ("name", pa.string())])
    parsed = parse_changes(frame(spark, records), make(), known)
    try:
        found = {row["offset"]: row[PROBLEM] for row in parsed.frame.select("offset", PROBLEM).collect()}
    finally:
        parsed.decoded.unpersist()
    assert found == {
        0: None,
        1: "not a change of a row: its op is none of c, r, u, d and t",
        2: "there is no row in it",
        3: "the key column id is null",
        4: "the key column id is null",
        5: None,
    }


COMMIT, STATE = "after the commit", "after the state"


@pytest.mark.nightly
@pytest.mark.parametrize("table_format", TABLE_FORMATS)
@pytest.mark.parametrize("point", [COMMIT, STATE])
def test_a_batch_that_crashes_is_merged_once(
    spark: SparkSession,
    make: Callable[..., ChangesConfig],
    table_format: str,
    point: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = make(table_format)
    changes_writer(config).write(
        frame(spark, [Record(0, 0, None, envelope("c", None, {"id": 1, "name": "a"}))]), QUERY, 0
    )
    second = [
        Record(0, 1, None, envelope("u", None, {"id": 1, "name": "b"})),
        Record(0, 2, None, envelope("c", None, {"id": 2, "name": "c"})),
        Record(0, 3, None, b"nonsense"),
    ]
    with monkeypatch.context() as patch:
        owner: Any = {"delta": DeltaTableFormat, "iceberg": IcebergTableFormat}[table_format]
        name = "replace"
        if point == STATE:
            owner, name = TableStore, "set_state"
        original = getattr(owner, name)

        def crash(self: Any, *arguments: Any, **settings: Any) -> None:
            original(self, *arguments, **settings)
            raise CrashError

        patch.setattr(owner, name, crash)
        with pytest.raises(CrashError):
            changes_writer(config).write(frame(spark, second), QUERY, 1)
    changes_writer(config).write(frame(spark, second), QUERY, 1)
    assert names(config) == {1: "b", 2: "c"}
    assert config.store().state().dead_letters == 1
    assert config.store().open(config.rows_table(spark.createDataFrame([], "id int").schema)).last_batch(QUERY) == 1


@pytest.mark.nightly
def test_a_truncation_removes_what_was_before(spark: SparkSession, make: Callable[..., ChangesConfig]) -> None:
    config = make()
    writer = changes_writer(config)
    rows = [Record(0, n, None, envelope("c", None, {"id": n, "name": "old"}), seconds=n) for n in range(3)]
    rows.append(Record(1, 0, None, envelope("c", None, {"id": 10, "name": "later"}), seconds=60))
    writer.write(frame(spark, rows), QUERY, 0)
    second = [
        Record(0, 3, None, envelope("u", None, {"id": 1, "name": "before"}), seconds=10),
        Record(0, 4, None, envelope("t"), seconds=11),
        Record(0, 5, None, envelope("c", None, {"id": 2, "name": "after"}), seconds=11),
        Record(1, 1, None, envelope("u", None, {"id": 11, "name": "earlier"}), seconds=9),
    ]
    writer.write(frame(spark, second), QUERY, 1)
    assert names(config) == {2: "after", 10: "later"}


def test_the_schemas_of_records_add_columns(spark: SparkSession, make: Callable[..., ChangesConfig]) -> None:
    config = make(schemas=ConnectSchemas(), keys=KeyFormat("connect", ConnectSchemas()))
    writer = changes_writer(config)
    first = {"id": "int64", "at": {"type": "int64", "name": "io.debezium.time.Timestamp"}}
    tombstone = json_bytes(
        {
            "schema": {"type": "struct", "fields": [{"field": "id", "type": "int64"}]},
            "payload": {"id": 2},
        }
    )
    writer.write(frame(spark, [Record(0, 9, tombstone, None), Record(0, 10, None, b"{}")]), QUERY, 0)
    assert reasons(config) == ["not JSON of Kafka Connect with the name of its schema"]
    batch = [Record(0, 11, None, connect(first, "c", None, {"id": n, "at": 1_000 * n})) for n in (1, 2)]
    writer.write(frame(spark, [batch[0], batch[1]._replace(offset=12)]), QUERY, 1)
    second = {"id": "int32", "note": "string", "at": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}}
    bad = {"id": "int64", "at": "string"}
    writer.write(
        frame(
            spark,
            [
                Record(0, 13, None, connect(second, "u", None, {"id": 1, "at": 5, "note": "new"})),
                Record(0, 14, None, connect(bad, "u", None, {"id": 3, "at": "noon"})),
                Record(0, 15, tombstone, None),
                Record(0, 16, None, connect({"other": "string"}, "c", None, {"other": "x"})),
            ],
        ),
        QUERY,
        2,
    )
    (row,) = table_rows(config.location, "orders", 'id, epoch_us("at") as "at", note')
    assert row == {"id": 1, "at": 5, "note": "new"}
    assert reasons(config)[1:] == [
        "column at is timestamp[us, tz=UTC] in the table and string in the record's schema",
        "its rows have no column id, which is to be the key",
    ]


@pytest.mark.nightly
def test_rows_without_an_envelope_by_the_key_of_the_record(
    spark: SparkSession, make: Callable[..., ChangesConfig]
) -> None:
    config = make(schemas=json_rows("name string", NoEnvelope()), envelope=NoEnvelope(), key=())
    writer = changes_writer(config)
    writer.write(
        frame(
            spark,
            [
                Record(0, 0, b"a", json_bytes({"name": "one"})),
                Record(0, 1, b"b", json_bytes({"name": "two"})),
                Record(0, 2, b"c", json_bytes({"name": "three"})),
                Record(0, 3, None, json_bytes({"name": "nobody"})),
            ],
        ),
        QUERY,
        0,
    )
    writer.write(
        frame(
            spark,
            [
                Record(0, 4, b"a", None),
                Record(0, 5, b"b", json_bytes({"name": "2", "__deleted": "false"})),
                Record(0, 6, b"c", json_bytes({"name": "3", "__deleted": "true"})),
            ],
        ),
        QUERY,
        1,
    )
    rows = table_rows(config.location, "orders", "_key, name, _offset", "_key")
    assert rows == [{"_key": b"b", "name": "2", "_offset": 5}]
    assert reasons(config) == ["the record has no key"]


@pytest.mark.nightly
@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_random_changes_as_a_model_has_them(
    spark: SparkSession, make: Callable[..., ChangesConfig], table_format: str
) -> None:
    """Many batches with compactions, of three partitions, with batches that are repeated."""
    chance = random.Random(32)
    config = make(table_format)
    model: dict[int, str] = {}
    ends = [0, 0, 0]
    for batch_id in range(12):
        records = []
        for number in range(200):
            key = chance.randrange(60)
            partition = key % 3
            op = chance.choice("cruuud")
            value = envelope(op, {"id": key}, None if op == "d" else {"id": key, "name": f"{batch_id}-{number}"})
            if op == "d":
                model.pop(key, None)
                value = chance.choice([value, None])  # type: ignore[assignment]
            else:
                model[key] = f"{batch_id}-{number}"
            records.append(Record(partition, ends[partition], json_bytes({"id": key}), value, seconds=batch_id))
            ends[partition] += 1
        shuffled = chance.sample(records, len(records))
        for _ in range(chance.choice([1, 1, 2])):
            changes_writer(config).write(frame(spark, shuffled), QUERY, batch_id)
        assert names(config) == model


@pytest.mark.nightly
def test_a_topic_of_changes(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.create(topic, 1)
    config = ChangesConfig(
        PipelineConfig(str(tmp_path), topics.bootstrap_servers, once=True),
        (topic,),
        schemas=json_rows(COLUMNS, Debezium()),
        key=("id",),
    )
    for name in ("one", "two"):
        topics.send(topic, [json.dumps({"op": "u", "after": {"id": 1, "name": name}})])
        changes.build(spark, config).awaitTermination(120)
    (row,) = table_rows(config.location, topic)
    assert (row["id"], row["name"], row["_offset"]) == (1, "two", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "changes needs a --topic"),
        (["--topic", "a"], "changes needs --values"),
        (["--topic", "a", "--values", "avro"], "avro values need a schema"),
        (["--topic", "a", "--values", "json", "--registry", "nowhere"], "must be a URL"),
        (["--topic", "a", "--values", "json", "--registry", "http://h", "--registry-option", "x=y"], "no setting x"),
        (["--topic", "a", "--values", "json", "--registry-option", "api=apicurio"], "is for a --registry"),
        (["--topic", "a", "--values", "connect", "--reader-schema", "latest"], "a reader schema needs a registry"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "run", "changes", *arguments]) == 2
    assert message in capsys.readouterr().err
