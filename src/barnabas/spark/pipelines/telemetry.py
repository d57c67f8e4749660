"""The pipeline ``telemetry``: tables of the metrics that clients push (KIP-714).

A record of ``__client_telemetry`` is one push of one client: OTLP, with some dozens of values. Spark's own Protobuf
reader needs a jar that PySpark does not contain, so Python parses the values, one Arrow batch at a time.

Windows use the time at which the broker received the push, not the client's time: the clock of a client may be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.common.topic_names import CLIENT_TELEMETRY_TOPIC
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.dead_letter import ORIGIN, PROBLEM
from barnabas.spark.pipelines.rollup import HOUR, MINUTE, SCHEMA, measures, merge_rows, window_start, with_percentiles
from barnabas.spark.pipelines.stream import StreamPipeline
from barnabas.spark.pipelines.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POINT_COLUMNS: Final = (
    "client_instance_id string, client_id string, principal string, client_software_name string, "
    "client_software_version string, client_source_address string, node_id int, push_interval_ms bigint, "
    "terminating boolean, metric string, kind string, attributes string, value double, count bigint, "
    "temporality string, is_monotonic boolean, unit string, start_time timestamp, time timestamp"
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


def _merge(rows: DataFrame) -> DataFrame:
    return merge_rows(rows, KEYS)


POINTS: Final = Table("points", "timestamp timestamp, " + POINT_COLUMNS, "timestamp")
METRICS_1M: Final = Table("metrics_1m", _ROLLUP, "window_start", _merge)
METRICS_1H: Final = Table("metrics_1h", _ROLLUP, "window_start", _merge)


def parse(raw: DataFrame, config: PipelineConfig) -> DataFrame:  # noqa: ARG001 - the signature of all pipelines
    """Returns the metric points of pushes.

    A column function parses the push, not a function of the whole frame (``mapInArrow``): that would resolve the
    frame's columns, which a declared pipeline does not allow while it is defined.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    from barnabas.spark.pipelines.telemetry_pushes import ROWS, parse_pushes  # needs pyarrow

    read = arrow_udf(parse_pushes, from_arrow_type(ROWS))  # type: ignore[call-overload]  # found by its type hints
    push = sf.struct(*ORIGIN, PROBLEM, "key", "value", "headers")
    parsed = raw.select(sf.explode(read(push)).alias("_row")).select("_row.*")
    return parsed.withColumnsRenamed({"value": "metric_value", "value_bytes": "value"})


def points_of(parsed: DataFrame) -> DataFrame:
    """Returns the rows of the table of points. A push without a value has none."""
    from pyspark.sql import functions as sf

    value = sf.col("metric_value").alias("value")
    # No drop() and no rename: Spark resolves them at once, when a declared pipeline has no tables yet.
    columns = [value if name == "value" else sf.col(name) for name in POINTS.column_names]
    return parsed.where(sf.col("metric").isNotNull()).select(*columns)


def rows(parsed: DataFrame, config: PipelineConfig) -> Mapping[str, DataFrame]:
    points = points_of(parsed)
    minutes = by_minute(points, config)
    return {
        POINTS.name: points,
        METRICS_1M.name: minutes,
        METRICS_1H.name: merge_rows(minutes, KEYS, HOUR),
    }


def by_minute(points: DataFrame, config: PipelineConfig) -> DataFrame:
    """Returns roll-up rows of points. The value of a histogram or summary with a sum and a count is the mean."""
    from pyspark.sql import functions as sf

    value = sf.when(sf.col("count").isNull(), sf.col("value")).when(
        sf.col("count") > 0, sf.col("value") / sf.col("count")
    )
    known = points.withColumn("_value", value).where("_value is not null and not isnan(_value)")
    rolled = known.groupBy(window_start("timestamp", MINUTE), *KEYS).agg(
        *measures("_value", sf.lit(1.0), config.sketch_k)
    )
    return with_percentiles(rolled)


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
