"""Batch queries on topics: rows, positions, projections, filters, tasks, lost data, and what is refused (S01)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.mechanism("S01")


@pytest.fixture
def read(spark: SparkSession, bootstrap: str, topic: str) -> Any:
    """Loads the test's topic with some options, given as keywords with ``_`` for dots."""

    def load(**options: str) -> DataFrame:
        given = {name.replace("_", "."): value for name, value in options.items()}
        given.setdefault("kafka.bootstrap.servers", bootstrap)
        if not given.keys() & {"assign", "subscribePattern"}:
            given.setdefault("subscribe", topic)
        return spark.read.format("barnabas").options(**given).load()

    return load


@pytest.fixture
def filter_push_down(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def _values(rows: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows.select("value").collect())


def _tasks(rows: DataFrame) -> list[int]:
    """How many rows each task has."""
    counted = rows.groupBy(F.spark_partition_id().alias("task")).count().collect()
    return [row["count"] for row in sorted(counted, key=lambda row: row["task"])]


def test_rows(topics: Topics, topic: str, read: Any) -> None:
    topics.create(topic, 2, message_timestamp_type="LogAppendTime")
    topics.send(topic, ["a", None], key=b"k")
    topics.send(topic, ["c"], partition=1, headers=[("h", b"\x00\xff"), ("h", None), ("e", b"")])
    rows = read(includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(row.key, row.value, row.topic, row.partition, row.offset, row.timestampType) for row in rows] == [
        (b"k", b"a", topic, 0, 0, 1),
        (b"k", None, topic, 0, 1, 1),
        (None, b"c", topic, 1, 0, 1),
    ]
    assert abs((rows[0].timestamp.astimezone(UTC) - datetime.now(UTC)).total_seconds()) < 300
    assert rows[0].headers is None
    assert [tuple(header) for header in rows[2].headers] == [("h", b"\x00\xff"), ("h", None), ("e", b"")]
    assert read().columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_a_topic_without_records_has_no_rows(topics: Topics, topic: str, read: Any) -> None:
    topics.create(topic, 2)
    assert read().count() == 0


def test_positions(topics: Topics, topic: str, read: Any) -> None:
    topics.create(topic, 2)
    for partition in (0, 1):
        for second in range(5):
            topics.send(
                topic, [f"{partition}{second}"], partition=partition, timestamp=1_700_000_000_000 + 1000 * second
            )
    offsets = f'{{"{topic}":{{"0":3,"1":-2}}}}'
    ends = f'{{"{topic}":{{"0":-1,"1":1}}}}'
    assert _values(read(startingOffsets=offsets, endingOffsets=ends)) == ["03", "04", "10"]
    assert _values(read(startingTimestamp="1700000003000", startingOffsets=offsets)) == ["03", "04", "13", "14"]
    times = f'{{"{topic}":{{"0":1700000000000,"1":1700000009999}}}}'
    assert _values(read(endingOffsetsByTimestamp=times)) == [f"1{second}" for second in range(5)]
    with pytest.raises(PySparkException, match=rf"all records are older in {topic}-1"):
        read(startingOffsetsByTimestamp=times).collect()
    latest = read(startingOffsetsByTimestamp=times, startingOffsetsByTimestampStrategy="latest")
    assert _values(latest) == [f"0{second}" for second in range(5)]
    with pytest.raises(PySparkException, match=r"must name all of them.*Specified: \S+-0\. Assigned: \S+-0, \S+-1"):
        read(startingOffsets=f'{{"{topic}":{{"0":3}}}}').collect()
    assert _values(read(assign=f'{{"{topic}":[1]}}', endingOffsets=f'{{"{topic}":{{"1":1}}}}')) == ["10"]


def test_columns(topics: Topics, topic: str, read: Any) -> None:
    topics.create(topic)
    topics.send(topic, ["a", "b", "c"])
    rows = read(columns="offset, VALUE")
    assert rows.columns == ["offset", "value"]
    assert [tuple(row) for row in rows.collect()] == [(0, b"a"), (1, b"b"), (2, b"c")]
    # The offset is needed to cut the last batch off, and yet is no column.
    ends = f'{{"{topic}":{{"0":2}}}}'
    assert [tuple(row) for row in read(columns="topic", endingOffsets=ends).collect()] == [(topic,)] * 2


def test_tasks(topics: Topics, topic: str, read: Any) -> None:
    topics.create(topic, 2)
    topics.send(topic, map(str, range(90)))
    topics.send(topic, map(str, range(10)), partition=1)
    split = read(minPartitions="4", maxRecordsPerPartition="50")
    assert _tasks(split) == [25, 25, 25, 25]  # the last one has the rest of the first partition and the second
    assert split.select("partition", "offset").distinct().count() == 100


def test_filters(topics: Topics, topic: str, read: Any, filter_push_down: None) -> None:
    topics.create(topic, 2)
    for second in range(6):
        topics.send(topic, [f"0{second}"], timestamp=1_700_000_000_000 + 1000 * second)
    topics.send(topic, ["10", "11"], partition=1, timestamp=1_700_000_000_000)
    pushed = read(pushDownFilters="true")
    assert _values(pushed) == ["00", "01", "02", "03", "04", "05", "10", "11"]
    assert _values(pushed.where("partition = 1 and offset > 0")) == ["11"]
    rows = pushed.where("partition in (0) and offset >= 1 and offset < 4")
    assert _values(rows) == ["01", "02", "03"]
    assert _tasks(rows) == [3]  # and no more than these were read
    assert (
        "offset" not in rows._jdf.queryExecution().executedPlan().toString().partition("Filter")[2].partition("\n")[0]
    )
    assert _values(pushed.where("partition <> 0")) == ["10", "11"]
    assert _values(pushed.where("timestamp >= timestamp_millis(1700000004000)")) == ["04", "05"]
    assert _values(pushed.where("offset = 99")) == []


def test_filters_are_not_pushed_without_being_asked_for(topics: Topics, topic: str, read: Any) -> None:
    topics.create(topic)
    topics.send(topic, ["a", "b"])
    assert _values(read().where("offset = 1")) == ["b"]
    with pytest.raises(PySparkException, match=r"filterPushdown\.enabled"):
        read(pushDownFilters="true").where("offset = 1").collect()


def test_lost_records(topics: Topics, topic: str, read: Any) -> None:
    topics.create(topic)
    topics.send(topic, ["a", "b", "c", "d"])
    topics.delete_records(topic, 0, 2)
    assert _values(read()) == ["c", "d"]  # the earliest that there are
    starts = {"startingOffsets": f'{{"{topic}":{{"0":1}}}}'}
    with pytest.raises(PySparkException, match=r"the records before offset 2 are gone, and 1 is the next to read"):
        read(**starts).collect()
    assert _values(read(**starts, failOnDataLoss="false")) == ["c", "d"]


def test_an_end_that_does_not_come(topics: Topics, topic: str, read: Any) -> None:
    topics.create(topic)
    topics.send(topic, ["a"])
    beyond = read(
        endingOffsets=f'{{"{topic}":{{"0":9}}}}', kafkaConsumer_pollTimeoutMs="300", kafka_fetch_max_wait_ms="100"
    )
    with pytest.raises(PySparkException, match="cannot read offset 1 within 300 ms"):
        beyond.collect()


def test_compressed_batches_and_small_fetches(topics: Topics, topic: str, read: Any) -> None:
    """Many fetches for a range, whose edges are in the middle of batches."""
    topics.create(topic, compression_type="zstd")
    for first in range(0, 2000, 500):
        topics.send(topic, (f"{number:05}" for number in range(first, first + 500)))
    rows = read(
        kafka_max_partition_fetch_bytes="1024",
        startingOffsets=f'{{"{topic}":{{"0":250}}}}',
        endingOffsets=f'{{"{topic}":{{"0":1750}}}}',
        minPartitions="3",
    )
    assert _values(rows) == [f"{number:05}" for number in range(250, 1750)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "Only one of the options"),
        ({"subscribe": " "}, "subscribe names no topic"),
        ({"startingOffset": "earliest"}, r"no option startingoffset for this source\. Did you mean startingOffsets"),
        ({"kafka_auto_offset_reset": "latest"}, r"kafka\.auto\.offset\.reset is not supported here"),
        ({"kafka_fetch_mim_bytes": "1"}, r"no Kafka option kafka\.fetch\.mim\.bytes.*mean kafka\.fetch\.min\.bytes"),
        ({"columns": "value,size"}, "'size', which is not one of key"),
    ],
)
def test_wrong_options_are_found_by_load(read: Any, options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisException, match=message):
        read(**options)


def test_wrong_options_of_batches(spark: SparkSession, topics: Topics, topic: str, bootstrap: str, read: Any) -> None:
    with pytest.raises(PySparkException, match="startingOffsets can't be latest for batch queries"):
        read(startingOffsets="latest").collect()
    topics.create(topic)
    source = spark.read.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    with pytest.raises(PySparkException, match="fixed schema"):
        source.schema("value string").load().collect()
    missing = read(subscribe=f"{topic}-missing", fetchOffset_numRetries="1", fetchOffset_retryIntervalMs="10")
    with pytest.raises(PySparkException, match="topics that do not exist"):
        missing.collect()
