"""Spark's own Kafka connector works against our broker, unchanged: it reads, streams and writes (S02)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark.conftest import stock_connector_jars, unavailable
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.mechanism("S02"), pytest.mark.java]


@pytest.fixture(autouse=True)
def _jars() -> None:
    if not any(jar.name.startswith("spark-sql-kafka") for jar in stock_connector_jars()):
        unavailable("the stock connector's jars are not in target/spark-jars (make jars)")


@pytest.fixture
def options(bootstrap: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}


def _values(rows: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows.select("value").collect())


def test_batch(spark: SparkSession, topics: Topics, topic: str, options: dict[str, str]) -> None:
    topics.create(topic, 2)
    topics.send(topic, ["a", "b"], key=b"k", timestamp=1_700_000_000_123)
    topics.send(topic, ["c", None], partition=1, headers=[("h", b"1"), ("h", None)])
    rows = spark.read.format("kafka").options(**options).option("includeHeaders", "true").load()
    found = [tuple(row) for row in rows.orderBy("partition", "offset").collect()]
    assert [(row[0], row[1], row[2:5], row[6]) for row in found] == [
        (b"k", b"a", (topic, 0, 0), 0),
        (b"k", b"b", (topic, 0, 1), 0),
        (None, b"c", (topic, 1, 0), 0),
        (None, None, (topic, 1, 1), 0),
    ]
    assert found[0][5].timestamp() == pytest.approx(1_700_000_000.123)
    assert found[0][7] is None
    assert [tuple(header) for header in found[2][7]] == [("h", b"1"), ("h", None)]
    ours = spark.read.format("barnabas").options(**options).option("includeHeaders", "true").load()
    assert ours.schema == rows.schema
    assert [tuple(row) for row in ours.orderBy("partition", "offset").collect()] == found


def test_offsets_and_timestamps(spark: SparkSession, topics: Topics, topic: str, options: dict[str, str]) -> None:
    topics.create(topic)
    for second in range(10):
        topics.send(topic, [str(second)], timestamp=1_700_000_000_000 + 1000 * second)

    def read(**more: Any) -> list[str]:
        both = [_values(spark.read.format(name).options(**options, **more).load()) for name in ("kafka", "barnabas")]
        assert both[0] == both[1]
        return both[0]

    assert read(startingOffsets=f'{{"{topic}":{{"0":3}}}}', endingOffsets=f'{{"{topic}":{{"0":5}}}}') == ["3", "4"]
    assert read(startingTimestamp="1700000006500", endingTimestamp="1700000008000") == ["7"]
    starts = f'{{"{topic}":{{"0":1700000009000}}}}'
    assert read(startingOffsetsByTimestamp=starts) == ["9"]


def test_stream(spark: SparkSession, topics: Topics, topic: str, options: dict[str, str], tmp_path: Path) -> None:
    topics.create(topic, 2)
    topics.send(topic, ["a", "b", "c"])

    def run() -> None:
        rows = spark.readStream.format("kafka").options(**options)
        rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "2")
        query = (
            rows.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        assert query.awaitTermination(120)
        assert query.exception() is None

    run()
    assert _values(spark.read.parquet(str(tmp_path / "table"))) == ["a", "b", "c"]
    topics.send(topic, ["d"], partition=1)
    run()
    assert _values(spark.read.parquet(str(tmp_path / "table"))) == ["a", "b", "c", "d"]


def test_pattern(spark: SparkSession, topics: Topics, topic: str, bootstrap: str) -> None:
    for suffix in ("-x", "-y", "-other"):
        topics.create(topic + suffix)
        topics.send(topic + suffix, [suffix])
    for name in ("kafka", "barnabas"):
        rows = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap)
        assert _values(rows.option("subscribePattern", f"{topic}-[xy]").load()) == ["-x", "-y"]


def test_read_committed(spark: SparkSession, topics: Topics, topic: str, options: dict[str, str]) -> None:
    topics.create(topic)
    topics.send_transaction(topic, ["aborted"], commit=False)
    topics.send_transaction(topic, ["committed"], commit=True)
    open_transaction = topics.open_transaction(topic, ["open"])
    for name in ("kafka", "barnabas"):
        rows = spark.read.format(name).options(**options)
        assert _values(rows.load()) == ["aborted", "committed", "open"]
        assert _values(rows.option("kafka.isolation.level", "read_committed").load()) == ["committed"]
    open_transaction.abort_transaction(30)


def test_sink(spark: SparkSession, topics: Topics, topic: str, options: dict[str, str], tmp_path: Path) -> None:
    topics.create(topic, 2)
    made = spark.createDataFrame(
        [(b"k", b"batch", 1, [("h", bytearray(b"v"))])],
        "key binary, value binary, partition int, headers array<struct<key string, value binary>>",
    )
    sink = {"kafka.bootstrap.servers": options["kafka.bootstrap.servers"], "topic": topic}
    made.write.format("kafka").options(**sink).option("includeHeaders", "true").save()
    rows = spark.read.format("kafka").options(**options).option("includeHeaders", "true").load().collect()
    assert [(row.key, row.value, row.partition) for row in rows] == [(b"k", b"batch", 1)]
    assert [tuple(header) for header in rows[0].headers] == [("h", b"v")]
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "file").write_text("streamed\n")
    query = (
        spark.readStream.format("text")
        .load(str(tmp_path / "input"))
        .writeStream.format("kafka")
        .options(**sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert _values(spark.read.format("kafka").options(**options).load()) == ["batch", "streamed"]
