"""``df.write.format("barnabas")``: rows of batch queries go to topics, as by the stock connector (S04)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException

from barnabas._kernels import murmur2
from barnabas.spark import register
from spark.sink_streams import (
    committed_values,
    open_transactions,
    wait_for_no_transactions,
    wait_for_values,
)
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

partition_for_key = murmur2.partition_for_key

pytestmark = pytest.mark.mechanism("S04")


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def _save(rows: DataFrame, bootstrap: str, **options: str) -> None:
    writer = rows.write.format("barnabas").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.options(**options).save()


def _read(spark: SparkSession, bootstrap: str, *topics: str) -> list[tuple[Any, ...]]:
    rows = spark.read.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("includeHeaders", "true")
    found = rows.option("subscribe", ",".join(topics)).load().collect()
    return sorted(
        (row.topic, row.partition, row.key and bytes(row.key), row.value and bytes(row.value), _pairs(row.headers))
        for row in found
    )


def _pairs(headers: Any) -> Any:
    return headers and [(one.key, one.value and bytes(one.value)) for one in headers]


@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_all_columns(spark: SparkSession, bootstrap: str, topics: Topics, topic: str, exactly_once: str) -> None:
    """With a topic, a partition and headers for each row; what is null, and what is not the sink's, as well."""
    a, b = topics.create(f"{topic}-a", 3), topics.create(f"{topic}-b")
    rows = spark.sql(f"""
        SELECT * FROM VALUES
            ('{a}', 2, 'k', CAST('1' AS BINARY), array(named_struct('key', 'h', 'value', CAST('x' AS BINARY)))),
            ('{b}', NULL, NULL, CAST('2' AS BINARY), NULL),
            ('{a}', 0, NULL, NULL, NULL)
        AS rows(topic, partition, key, value, headers)
    """)
    _save(rows.selectExpr("*", "42 AS more").repartition(2), bootstrap, exactlyOnce=exactly_once)
    assert _read(spark, bootstrap, a, b) == [
        (a, 0, None, None, None),
        (a, 2, b"k", b"1", [("h", b"x")]),
        (b, 0, None, b"2", None),
    ]
    assert open_transactions(bootstrap) == []


def test_the_option_topic_wins_and_keys_choose_partitions_as_in_java(
    spark: SparkSession, bootstrap: str, topics: Topics, topic: str
) -> None:
    topics.create(topic, 4)
    rows = spark.range(20).selectExpr("'elsewhere' AS topic", "CAST(id AS STRING) AS key", "concat('v', id) AS value")
    _save(rows, bootstrap, topic=topic)

    found = _read(spark, bootstrap, topic)
    assert len(found) == 20
    assert all(partition == partition_for_key(key, 4) for _, partition, key, _, _ in found)


def test_what_cannot_be_written_is_told(spark: SparkSession, bootstrap: str, topics: Topics, topic: str) -> None:
    value = spark.sql("SELECT 'v' AS value")
    with pytest.raises(AnalysisException, match="neither an option topic nor a column topic"):
        _save(value, bootstrap)
    with pytest.raises(AnalysisException, match="Column value must be a string or binary, and is int"):
        _save(spark.sql("SELECT 1 AS value"), bootstrap, topic=topic)
    with pytest.raises(AnalysisException, match=r"kafka\.key\.serializer is not supported here"):
        _save(value, bootstrap, topic=topic, **{"kafka.key.serializer": "x"})
    overwriting = value.write.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    with pytest.raises(AnalysisException, match="cannot be overwritten, only appended to"):
        overwriting.mode("overwrite").save()
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        overwriting.mode("ignore").save()
    topics.create(topic)
    with pytest.raises(PythonException, match="rows whose topic is null"):
        _save(spark.sql(f"SELECT * FROM VALUES ('{topic}', 'v'), (NULL, 'w') AS r(topic, value)"), bootstrap)


def test_a_batch_in_transactions_is_there_as_a_whole_or_not_at_all(
    spark: SparkSession, bootstrap: str, topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    rows = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    failing = rows.selectExpr("if(value = '75', raise_error('injected'), value) AS value")
    # Small Arrow batches, so that some rows are sent before one fails.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        # The driver also aborts those that only then begin, before Spark gets round to ending them.
        with pytest.raises(Exception, match="injected"):
            _save(failing, bootstrap, topic=topic, exactlyOnce="true")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    wait_for_no_transactions(bootstrap)
    assert committed_values(bootstrap, topic) == []
    _save(rows, bootstrap, topic=topic, exactlyOnce="true")
    expected = sorted(str(one) for one in range(100))
    assert wait_for_values(bootstrap, topic, expected) == expected
