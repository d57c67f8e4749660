"""The pipeline ``telemetry``: metrics that clients push (KIP-714), as tables.

A record of ``__client_telemetry`` is one push of one client: OTLP, with some dozens of values. Spark's own reader of
Protobuf needs a jar that is not in the package, so the values are read in Python, a batch of Arrow at a time.

Windows go by the time at which the broker got the push, not by the time that the client put into it: the clock of a
client may be anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.common.errors import InvalidRecordError
from barnabas.common.topic_names import CLIENT_TELEMETRY_TOPIC
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.dead_letter import ORIGIN, PROBLEM
from barnabas.spark.pipelines.rollup import HOUR, MINUTE, SCHEMA, measures, merge_rows, window_start, with_percentiles
from barnabas.spark.pipelines.stream import StreamPipeline
from barnabas.spark.pipelines.tables import Table
from barnabas.telemetry.otlp import MetricPoint, iterate_metrics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA_VERSION: Final = "1"
HEADERS: Final = (
    "client_instance_id",
    "client_id",
    "principal",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "node_id",
    "push_interval_ms",
    "terminating",
)
"""What the tables take over of what the broker says about a push."""
POINT_COLUMNS: Final = (
    "client_instance_id string, client_id string, principal string, client_software_name string, "
    "client_software_version string, client_source_address string, node_id int, push_interval_ms bigint, "
    "terminating boolean, metric string, kind string, attributes string, value double, count bigint, "
    "temporality string, is_monotonic boolean, unit string, start_time timestamp, time timestamp"
)
PARSED: Final = (
    "topic string, partition int, offset bigint, timestamp timestamp, problem string, key binary, value_bytes binary, "
    + POINT_COLUMNS
)
KEYS: Final = (
    "client_instance_id",
    "client_id",
    "principal",
    "client_software_name",
    "client_software_version",
    "metric",
    "kind",
    "temporality",
    "attributes",
)
_ROLLUP: Final = "window_start timestamp, " + ", ".join(f"{key} string" for key in KEYS) + ", " + SCHEMA
_ROWS_PER_BATCH: Final = 10_000


def _merge(rows: DataFrame) -> DataFrame:
    return merge_rows(rows, KEYS)


POINTS: Final = Table("points", "timestamp timestamp, " + POINT_COLUMNS, "timestamp")
METRICS_1M: Final = Table("metrics_1m", _ROLLUP, "window_start", _merge)
METRICS_1H: Final = Table("metrics_1h", _ROLLUP, "window_start", _merge)


def parse(raw: DataFrame, config: PipelineConfig) -> DataFrame:  # noqa: ARG001 - all pipelines are asked so
    """Metric points of pushes."""
    parsed = raw.select(*ORIGIN, PROBLEM, "key", "value", "headers").mapInArrow(parse_pushes, PARSED)
    return parsed.withColumnsRenamed({"value": "metric_value", "value_bytes": "value"})


def rows(points: DataFrame, config: PipelineConfig) -> Mapping[str, DataFrame]:
    from pyspark.sql import functions as sf

    # A push without a single value: it was no mistake, and has nothing to say.
    points = points.where(sf.col("metric").isNotNull()).drop("value", "key")
    points = points.withColumnRenamed("metric_value", "value")
    minutes = by_minute(points, config)
    return {
        POINTS.name: points,
        METRICS_1M.name: minutes,
        METRICS_1H.name: merge_rows(minutes, KEYS, HOUR),
    }


def by_minute(points: DataFrame, config: PipelineConfig) -> DataFrame:
    """Roll-up rows of points. Of a histogram or a summary that has a sum and a count, the value is the mean."""
    from pyspark.sql import functions as sf

    value = sf.when(sf.col("count").isNull(), sf.col("value")).when(
        sf.col("count") > 0, sf.col("value") / sf.col("count")
    )
    known = points.withColumn("_value", value).where("_value is not null and not isnan(_value)")
    rolled = known.groupBy(window_start("timestamp", MINUTE), *KEYS).agg(
        *measures("_value", sf.lit(1.0), config.sketch_k)
    )
    return with_percentiles(rolled)


def parse_pushes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: pushes in, a row for each value out; one row that says why for a push that cannot be read."""
    from barnabas.spark.pipelines.arrow_rows import ArrowRows  # runs where Spark's workers are

    made = ArrowRows(PARSED)
    for batch in batches:
        for record in batch.to_pylist():
            for row in _rows_of(record):
                made.add(row)
            if len(made) >= _ROWS_PER_BATCH:
                yield made.take()
    if len(made):
        yield made.take()


def _rows_of(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    origin = {name: record[name] for name in ORIGIN}
    headers = {header["key"]: header["value"] for header in record["headers"] or ()}
    try:
        if record[PROBLEM] is not None:
            raise ValueError(record[PROBLEM])
        pushed_by = _read_headers(headers)
        found = list(iterate_metrics(bytes(record["value"] or b"")))
    except (ValueError, InvalidRecordError) as error:
        yield {**origin, "problem": str(error), "key": record["key"], "value_bytes": record["value"]}
        return
    # At least one row, so that the push is seen to have been read.
    if not found:
        yield {**origin, **pushed_by}
    for point in found:
        yield {**origin, **pushed_by, **_columns(point)}


def _read_headers(headers: Mapping[str, bytes | None]) -> dict[str, Any]:
    def text(name: str) -> str | None:
        value = headers.get(name)
        return None if value is None else bytes(value).decode("utf-8", "replace")

    version = text("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {version!r}, and this reads {SCHEMA_VERSION}")
    content = text("content_type")
    if content != "OTLP":
        raise ValueError(f"content_type is {content!r}, and this reads 'OTLP'")
    values: dict[str, Any] = {name: text(name) for name in HEADERS}
    for name in ("node_id", "push_interval_ms"):
        try:
            values[name] = None if values[name] is None else int(values[name])
        except ValueError:
            raise ValueError(f"{name} is {values[name]!r}, which is no number") from None
    values["terminating"] = values["terminating"] == "true"
    return values


def _columns(point: MetricPoint) -> dict[str, Any]:
    labels = {**point.resource, **point.attributes}
    return {
        "metric": point.name,
        "kind": point.kind,
        "attributes": json.dumps(labels, sort_keys=True, default=_bytes_as_text),
        "value": None if point.value is None else float(point.value),
        "count": point.count,
        "temporality": point.temporality,
        "is_monotonic": point.is_monotonic,
        "unit": point.unit,
        "start_time": point.start_time_unix_nano // 1_000 or None,
        "time": point.time_unix_nano // 1_000 or None,
    }


def _bytes_as_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


TELEMETRY: Final = StreamPipeline(
    "telemetry",
    "metrics that clients push: points, and roll-ups by minute and hour with percentiles",
    (CLIENT_TELEMETRY_TOPIC,),
    (POINTS, METRICS_1M, METRICS_1H),
    parse,
    rows,
)


def build(spark: SparkSession, config: PipelineConfig) -> StreamingQuery:
    """Starts the pipeline."""
    return TELEMETRY.build(spark, config)
