"""Records of changes, as Debezium and others write them, and batches of them for Spark."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key string, value binary>>"
)
START = dt.datetime(2026, 11, 14, 23, 59, 59, tzinfo=dt.UTC)


class Record(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    seconds: int = 0
    topic: str = "shop.public.orders"


def frame(spark: SparkSession, records: Iterable[Record]) -> DataFrame:
    rows: list[tuple[Any, ...]] = [
        (one.topic, one.partition, one.offset, START + dt.timedelta(seconds=one.seconds), one.key, one.value, [])
        for one in records
    ]
    return spark.createDataFrame(rows, RAW)


def envelope(op: str, before: Any = None, after: Any = None) -> bytes:
    """Debezium's, without a schema."""
    source = {"connector": "postgresql", "ts_ms": 1, "lsn": 7}
    return json.dumps({"op": op, "before": before, "after": after, "source": source, "ts_ms": 2}).encode()


def json_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def connect(fields: Mapping[str, Any], op: str, before: Any = None, after: Any = None) -> bytes:
    """Debezium's envelope by Kafka Connect's JSON converter with schemas. ``fields``: type, or type and name."""
    columns = [
        {"field": name, "optional": True, **({"type": kind} if isinstance(kind, str) else dict(kind))}
        for name, kind in fields.items()
    ]
    row = {"type": "struct", "fields": columns, "optional": True, "name": "shop.orders.Value"}
    schema = {
        "type": "struct",
        "name": "shop.orders.Envelope",
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ],
    }
    payload = {"op": op, "before": before, "after": after, "ts_ms": 3}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def table_rows(location: str, name: str, columns: str = "*", order: str = "id") -> list[dict[str, Any]]:
    """The rows as DuckDB reads them from the files that the format's own library lists."""
    catalog_file = Path(location, "catalog.db")
    if catalog_file.exists():
        with SqlCatalog("barnabas", uri=f"sqlite:///{catalog_file}", warehouse=f"file://{location}") as catalog:
            found = catalog.load_table(("changes", name)).scan().to_arrow()
    else:
        found = DeltaTable(location).to_pyarrow_table()
    connection = duckdb.connect()
    connection.register("found", found)
    rows: list[dict[str, Any]] = (
        connection.sql(f"select {columns} from found order by {order}").to_arrow_table().to_pylist()
    )
    return rows
