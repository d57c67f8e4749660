"""The pipeline ``requests``: latency tables from the request log, by API, client and principal.

They divide the time of requests: waiting for a handler, in the handler, waiting for a replica or for more data, waiting
for the network thread, sending. They also have the throttle time of clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.common.topic_names import REQUEST_LOG_TOPIC
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.json_records import parse_json
from barnabas.spark.pipelines.request_log import PARTS, REQUEST_RECORDS, duration_ms
from barnabas.spark.pipelines.rollup import HOUR, MINUTE, SCHEMA, measures, merge_rows, window_start, with_percentiles
from barnabas.spark.pipelines.stream import StreamPipeline
from barnabas.spark.pipelines.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

GROUP: Final = ("node_id", "api", "client_id", "principal", "sample_rate")
KEYS: Final = (*GROUP, "part")
_ROLLUP: Final = (
    "window_start timestamp, node_id int, api string, client_id string, principal string, sample_rate double, "
    "part string, " + SCHEMA
)
_COUNTS: Final = ("requests", "weight", "request_bytes", "response_bytes", "failed", "throttled", "throttle_ms")


def _merge(rows: DataFrame) -> DataFrame:
    return merge_rows(rows, KEYS)


def _merge_counts(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    return rows.groupBy("window_start", *GROUP).agg(*(sf.sum(name).alias(name) for name in _COUNTS))


LATENCY_1M: Final = Table("latency_1m", _ROLLUP, "window_start", _merge)
LATENCY_1H: Final = Table("latency_1h", _ROLLUP, "window_start", _merge)
COUNTS_1M: Final = Table(
    "counts_1m",
    "window_start timestamp, node_id int, api string, client_id string, principal string, sample_rate double, "
    "requests bigint, weight double, request_bytes double, response_bytes double, failed double, throttled double, "
    "throttle_ms double",
    "window_start",
    _merge_counts,
)


def parse(raw: DataFrame, config: PipelineConfig) -> DataFrame:  # noqa: ARG001 - the signature of all pipelines
    return parse_json(raw, {"request": REQUEST_RECORDS})


def rows(parsed: DataFrame, config: PipelineConfig) -> Mapping[str, DataFrame]:
    log = parsed.select("timestamp", "request.*")
    minutes = latency_by_minute(log, config)
    return {
        LATENCY_1M.name: minutes,
        LATENCY_1H.name: merge_rows(minutes, KEYS, HOUR),
        COUNTS_1M.name: counts_by_minute(log),
    }


def latency_by_minute(log: DataFrame, config: PipelineConfig) -> DataFrame:
    """Returns roll-up rows: one for each part of the time of each group of requests.

    All parts are aggregated in one pass over the requests and then split into rows. A row for each part of each request
    would mean seven times as many rows to shuffle.
    """
    from pyspark.sql import functions as sf

    weight = 1.0 / sf.col("sample_rate")
    timed = log.select("timestamp", *GROUP, weight.alias("_weight"), *(duration_ms(one).alias(one) for one in PARTS))
    columns = [
        sf.struct(sf.lit(part).alias("part"), *measures(sf.col(part), "_weight", config.sketch_k)).alias(f"_{part}")
        for part in PARTS
    ]
    grouped = timed.groupBy(window_start("timestamp", MINUTE), *GROUP).agg(*columns)
    tall = grouped.select("window_start", *GROUP, sf.explode(sf.array(*(f"_{part}" for part in PARTS))).alias("_row"))
    return with_percentiles(tall.select("window_start", *GROUP, "_row.*"))


def counts_by_minute(log: DataFrame) -> DataFrame:
    """Returns the numbers of requests, bytes, errors and delays, all of them weighted except ``requests``."""
    from pyspark.sql import functions as sf

    weight = 1.0 / sf.col("sample_rate")

    def weighted(amount: Column, name: str) -> Column:
        return sf.sum(weight * amount).alias(name)

    has_failed = sf.coalesce(sf.size("errors") > 0, sf.lit(False)).cast("int")
    throttle_ms = sf.coalesce("throttle_time_ms", sf.lit(0))
    return log.groupBy(window_start("timestamp", MINUTE), *GROUP).agg(
        sf.count("*").alias("requests"),
        sf.sum(weight).alias("weight"),
        weighted(sf.coalesce("request_bytes", sf.lit(0)), "request_bytes"),
        weighted(sf.coalesce("response_bytes", sf.lit(0)), "response_bytes"),
        weighted(has_failed, "failed"),
        weighted((throttle_ms > 0).cast("int"), "throttled"),
        weighted(throttle_ms, "throttle_ms"),
    )


REQUESTS: Final = StreamPipeline(
    "requests",
    "where the time of requests goes, by API, client and principal, with percentiles",
    (REQUEST_LOG_TOPIC,),
    (LATENCY_1M, LATENCY_1H, COUNTS_1M),
    parse,
    rows,
)


def build(spark: SparkSession, config: PipelineConfig) -> StreamingQuery:
    """Starts the pipeline."""
    return REQUESTS.build(spark, config)
