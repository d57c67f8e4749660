"""Rows become tables for topics."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from barnabas.spark.sink_columns import SinkColumns, SinkColumnsError

HEADERS = "array<struct<key:string,value:binary>>"


def _schema(text: str) -> StructType:
    """Without a JVM, which a text of SQL would need."""
    from pyspark.sql import types as t

    kinds = {
        "string": t.StringType(),
        "binary": t.BinaryType(),
        "int": t.IntegerType(),
        "long": t.LongType(),
        HEADERS: t.ArrayType(
            t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())])
        ),
    }
    fields = [one.split(" ", 1) for one in text.split("; ")] if text else []
    return t.StructType([t.StructField(name, kinds[kind]) for name, kind in fields])


def test_columns_that_are_not_the_sinks_are_left_out() -> None:
    schema = _schema(f"key string; value binary; more long; partition int; headers {HEADERS}; topic long")
    columns = SinkColumns.of(schema, "t")
    assert columns == SinkColumns("t", ("key", "value", "headers", "partition"))
    batch = pa.record_batch({"value": ["a"], "more": [1], "key": [None], "partition": [2], "headers": [None]})
    [(topic, table)] = columns.tables(batch)
    assert topic == "t"
    assert table.schema.names == ["key", "value", "headers", "partition"]


@pytest.mark.parametrize(
    ("schema", "topic", "reason"),
    [
        ("", "t", "no column value, only none at all"),
        ("key string", "t", "no column value, only key"),
        ("value string", None, "neither an option topic nor a column topic"),
        ("value long", "t", "Column value must be a string or binary, and is bigint"),
        ("value string; key int", "t", "Column key must be a string or binary, and is int"),
        ("value string; partition long", "t", "Column partition must be an int, and is bigint"),
        ("value string; headers string", "t", "Column headers must be an array of structs"),
        ("value string; topic binary", None, "Column topic must be a string, and is binary"),
    ],
)
def test_what_is_wrong_is_told(schema: str, topic: str | None, reason: str) -> None:
    with pytest.raises(SinkColumnsError, match=reason):
        SinkColumns.of(_schema(schema), topic)


def test_rows_are_split_by_topic_in_their_order() -> None:
    columns = SinkColumns.of(_schema("topic string; value string"), None)
    batch = pa.record_batch({"topic": ["b", "a", "b", "c", "a", "b"], "value": ["1", "2", "3", "4", "5", "6"]})
    found = {topic: table.column("value").to_pylist() for topic, table in columns.tables(batch)}
    assert found == {"b": ["1", "3", "6"], "a": ["2", "5"], "c": ["4"]}
    one = pa.record_batch({"topic": ["x", "x"], "value": ["1", "2"]})
    [(topic, table)] = columns.tables(one)
    assert topic == "x"
    # The very same memory: nothing was moved.
    assert table.column("value").buffers()[2].address == one.column("value").buffers()[2].address


def test_a_topic_that_is_null_is_an_error() -> None:
    columns = SinkColumns.of(_schema("topic string; value string"), None)
    with pytest.raises(SinkColumnsError, match="rows whose topic is null"):
        list(columns.tables(pa.record_batch({"topic": ["a", None], "value": ["1", "2"]})))
