"""The pipeline ``quotas``: usage and throttling by client, and the traffic for quota-advice and quota-dry-run.

``__quota_usage`` has exact amounts by group of clients, but only while quotas are set. ``__request_log`` has a sample
of single requests, with or without quotas. Both are kept: the first for exact figures, the second for replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.common.topic_names import QUOTA_USAGE_TOPIC, REQUEST_LOG_TOPIC
from barnabas.spark.pipelines.config import PipelineConfig
from barnabas.spark.pipelines.json_records import JsonRecords, parse_json
from barnabas.spark.pipelines.request_log import REQUEST_RECORDS, duration_ms
from barnabas.spark.pipelines.rollup import MINUTE, window_start
from barnabas.spark.pipelines.stream import StreamPipeline
from barnabas.spark.pipelines.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

USAGE_SCHEMA: Final = (
    "schema_version int, node_id int, start_time_ms bigint, end_time_ms bigint, quota string, user string, "
    "client_id string, tags map<string, string>, limit double, amount double, unit string, throttle_count bigint, "
    "throttle_time_ms double"
)
USAGE_RECORDS: Final = JsonRecords(
    QUOTA_USAGE_TOPIC, USAGE_SCHEMA, 1, ("node_id", "start_time_ms", "end_time_ms", "quota", "amount")
)
IDLE_FETCH_BYTES: Final = 128
"""Fetch responses without records have less than this per request; one batch with one record has more."""
IDLE_SHARE: Final = 0.01
"""A client with at least this share of a resource counts as a tenant, even if it moves no records."""
RESOURCES: Final[Mapping[str, str]] = {
    "producer_byte_rate": "produced_bytes",
    "consumer_byte_rate": "fetched_bytes",
    "request_percentage": "thread_ms",
}
"""The quotas that requests are charged to, and the column of `TENANTS_1M` with the charged amount."""
NODE_APIS: Final = (
    "AllocateProducerIds",
    "AlterPartition",
    "AssignReplicasToDirs",
    "BeginQuorumEpoch",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ControllerRegistration",
    "EndQuorumEpoch",
    "Envelope",
    "FetchSnapshot",
    "UpdateRaftVoter",
    "Vote",
    "WriteTxnMarkers",
)
"""The APIs that only nodes of the cluster use. No quota applies to them."""
PRODUCE: Final = "Produce"
FETCH: Final = "Fetch"

_TENANT: Final = ("node_id", "principal", "client_id")
SUMS: Final = (
    "requests",
    "produced_bytes",
    "fetched_bytes",
    "thread_ms",
    "queue_ms",
    "throttled",
    "throttle_ms",
)
"""The columns of a minute's traffic that can be summed."""


def _merge_tenants(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    return rows.groupBy("window_start", *_TENANT).agg(
        *(sf.sum(name).alias(name) for name in SUMS), sf.max("max_throttle_ms").alias("max_throttle_ms")
    )


USAGE: Final = Table(
    "usage",
    "node_id int, start_time timestamp, end_time timestamp, quota string, user string, client_id string, "
    "tags map<string, string>, limit double, amount double, unit string, rate double, used_of_limit double, "
    "throttle_count bigint, throttle_ms double",
    "end_time",
)
TRAFFIC: Final = Table(
    "traffic",
    "timestamp timestamp, node_id int, sample_rate double, api string, principal string, client_id string, "
    "connection_id string, correlation_id int, answered boolean, request_bytes bigint, response_bytes bigint, "
    "start_time_us bigint, answer_time_us bigint, busy_us bigint, send_us bigint, throttle_time_ms bigint",
    "timestamp",
)
TENANTS_1M: Final = Table(
    "tenants_1m",
    "window_start timestamp, node_id int, principal string, client_id string, requests double, produced_bytes double, "
    "fetched_bytes double, thread_ms double, queue_ms double, throttled double, throttle_ms double, "
    "max_throttle_ms double",
    "window_start",
    _merge_tenants,
)


def parse(raw: DataFrame, config: PipelineConfig) -> DataFrame:  # noqa: ARG001 - the signature of all pipelines
    """Parses the records of both topics; each row has a struct for its topic, and null for the other."""
    return parse_json(raw, {"usage": USAGE_RECORDS, "request": REQUEST_RECORDS})


def rows(parsed: DataFrame, config: PipelineConfig) -> Mapping[str, DataFrame]:  # noqa: ARG001
    from pyspark.sql import functions as sf

    usage = parsed.where(sf.col("usage").isNotNull()).select("usage.*")
    traffic = traffic_of(charged_requests(parsed))
    return {USAGE.name: usage_rows(usage), TRAFFIC.name: traffic, TENANTS_1M.name: tenants_by_minute(traffic)}


def charged_requests(parsed: DataFrame) -> DataFrame:
    """Returns the requests that are charged to quotas: not forwarded, and not internal to the cluster."""
    from pyspark.sql import functions as sf

    # A forwarded request is charged on the broker to which the client is connected.
    log = parsed.where("request is not null and not coalesce(request.forwarded, false)")
    return log.where(~sf.col("request.api").isin(*NODE_APIS)).select("timestamp", "request.*")


def usage_rows(usage: DataFrame) -> DataFrame:
    """Returns the quota usage of groups of clients, per second and as a fraction of the limit."""
    from pyspark.sql import functions as sf

    seconds = sf.greatest(sf.col("end_time_ms") - sf.col("start_time_ms"), sf.lit(1)) / 1_000.0
    # A request quota is in percent of a thread: 10 ms per second are 1 %.
    units = sf.when(sf.col("quota") == "request_percentage", sf.lit(10.0)).otherwise(sf.lit(1.0))
    rate = sf.col("amount") / units / seconds
    return usage.select(
        "node_id",
        sf.timestamp_millis("start_time_ms").alias("start_time"),
        sf.timestamp_millis("end_time_ms").alias("end_time"),
        "quota",
        "user",
        "client_id",
        "tags",
        "limit",
        "amount",
        "unit",
        rate.alias("rate"),
        sf.when(sf.col("limit") > 0, rate / sf.col("limit")).alias("used_of_limit"),
        sf.coalesce("throttle_count", sf.lit(0).cast("bigint")).alias("throttle_count"),
        sf.coalesce("throttle_time_ms", sf.lit(0.0)).alias("throttle_ms"),
    )


def traffic_of(log: DataFrame) -> DataFrame:
    """Returns the requests, with only the columns that quotas need."""
    from pyspark.sql import functions as sf

    zero = sf.lit(0).cast("bigint")
    return log.select(
        "timestamp",
        "node_id",
        "sample_rate",
        "api",
        "principal",
        "client_id",
        "connection_id",
        "correlation_id",
        (sf.col("response") == "send").alias("answered"),
        sf.coalesce("request_bytes", zero).alias("request_bytes"),
        sf.coalesce("response_bytes", zero).alias("response_bytes"),
        "start_time_us",
        sf.col("response_complete_time_us").alias("answer_time_us"),
        (duration_ms("local") * 1_000).cast("bigint").alias("busy_us"),
        (duration_ms("send") * 1_000).cast("bigint").alias("send_us"),
        sf.coalesce("throttle_time_ms", zero).alias("throttle_time_ms"),
        duration_ms("queue").alias("queue_ms"),
    )


def tenants_by_minute(traffic: DataFrame) -> DataFrame:
    """Returns usage and throttling by tenant and minute; estimates, unless the log has all requests."""
    from pyspark.sql import functions as sf

    weight = 1.0 / sf.col("sample_rate")

    def of(api: str, column: str) -> Column:
        return sf.when(sf.col("api") == api, sf.col(column)).otherwise(sf.lit(0))

    amounts = {
        "requests": sf.lit(1),
        "produced_bytes": of(PRODUCE, "request_bytes"),
        "fetched_bytes": of(FETCH, "response_bytes"),
        "thread_ms": (sf.col("busy_us") + sf.col("send_us")) / 1_000.0,
        "queue_ms": sf.col("queue_ms"),
        "throttled": (sf.col("throttle_time_ms") > 0).cast("int"),
        "throttle_ms": sf.col("throttle_time_ms"),
    }
    return traffic.groupBy(window_start("timestamp", MINUTE), *_TENANT).agg(
        *(sf.sum(weight * amount).alias(name) for name, amount in amounts.items()),
        sf.max("throttle_time_ms").cast("double").alias("max_throttle_ms"),
    )


def noisy_neighbours(tenants: DataFrame, at_least: float = 2.0) -> DataFrame:
    """Returns the tenants that used much more than an equal share, and how long the others waited.

    For each minute, broker and resource: ``share`` is the tenant's fraction of the total use. ``noise`` is the share as
    a multiple of an equal share (a tenant with 3/4 of the use of 4 tenants has a noise of 3). ``others_queue_ms`` is
    the mean time for which requests of all others waited for a handler. Rows with a noise below ``at_least`` are left
    out.

    Idle clients are not counted as tenants: they moved no records, and used less than `IDLE_SHARE` of the resource.
    Otherwise a few consumers that wait for records would make the only producer a noisy neighbour.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    moves = (sf.col("produced_bytes") > 0) | (sf.col("fetched_bytes") > sf.col("requests") * IDLE_FETCH_BYTES)
    everybody = Window.partitionBy("window_start", "node_id")
    others = sf.sum("requests").over(everybody) - sf.col("requests")
    waited = sf.sum("queue_ms").over(everybody) - sf.col("queue_ms")
    tall = tenants.withColumn("others_queue_ms", sf.when(others > 0, waited / others)).select(
        "window_start",
        *_TENANT,
        "others_queue_ms",
        "throttle_ms",
        moves.alias("_moves_records"),
        sf.explode(
            sf.array(
                *(
                    sf.struct(sf.lit(quota).alias("quota"), sf.col(column).alias("amount"))
                    for quota, column in RESOURCES.items()
                )
            )
        ).alias("_used"),
    )
    kept = ("window_start", *_TENANT, "others_queue_ms", "throttle_ms")
    used = tall.select(*kept, "_moves_records", "_used.*").where("amount > 0")
    same = Window.partitionBy("window_start", "node_id", "quota")
    share = sf.col("amount") / sf.sum("amount").over(same)
    is_sharing = sf.col("_moves_records") | (sf.col("share") >= IDLE_SHARE)
    shares = used.withColumn("share", share).withColumn("tenants", sf.count_if(is_sharing).over(same))
    noise = shares.withColumn("noise", sf.col("share") * sf.col("tenants")).where(sf.col("noise") >= at_least)
    return noise.drop("_moves_records")


QUOTAS: Final = StreamPipeline(
    "quotas",
    "usage and throttling by client, and the traffic for quota-advice and quota-dry-run",
    (QUOTA_USAGE_TOPIC, REQUEST_LOG_TOPIC),
    (USAGE, TRAFFIC, TENANTS_1M),
    parse,
    rows,
)


def build(spark: SparkSession, config: PipelineConfig) -> StreamingQuery:
    """Starts the pipeline."""
    return QUOTAS.build(spark, config)
