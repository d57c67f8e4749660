"""The pipeline ``quotas``: who uses what, who was held back, and the traffic that advice and dry run work on.

``__quota_usage`` has exact amounts by group of clients, while there are quotas. ``__request_log`` has single requests,
whether or not there are quotas, but of a sample of them. Both are kept: the first to know, the second to replay.
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
"""The part of a resource from which on a client counts as one that shares it, even if it moves no records."""
RESOURCES: Final[Mapping[str, str]] = {
    "producer_byte_rate": "produced_bytes",
    "consumer_byte_rate": "fetched_bytes",
    "request_percentage": "thread_ms",
}
"""The quotas that requests are charged for, and the column of `TENANTS_1M` that has what they are charged."""
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
"""What only nodes of the cluster ask each other. No quota counts for it."""
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
"""The columns of the traffic of a minute that add up."""


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


def parse(raw: DataFrame, config: PipelineConfig) -> DataFrame:  # noqa: ARG001 - all pipelines are asked so
    """Records of both topics; a struct for what they are, and null for what they are not."""
    return parse_json(raw, {"usage": USAGE_RECORDS, "request": REQUEST_RECORDS})


def rows(parsed: DataFrame, config: PipelineConfig) -> Mapping[str, DataFrame]:  # noqa: ARG001
    from pyspark.sql import functions as sf

    usage = parsed.where(sf.col("usage").isNotNull()).select("usage.*")
    traffic = traffic_of(charged_requests(parsed))
    return {USAGE.name: usage_rows(usage), TRAFFIC.name: traffic, TENANTS_1M.name: tenants_by_minute(traffic)}


def charged_requests(parsed: DataFrame) -> DataFrame:
    """Returns the requests that count for quotas: no forwarded ones, and none that only nodes send."""
    from pyspark.sql import functions as sf

    # A request that another broker has forwarded is charged where the client is connected.
    log = parsed.where("request is not null and not coalesce(request.forwarded, false)")
    return log.where(~sf.col("request.api").isin(*NODE_APIS)).select("timestamp", "request.*")


def usage_rows(usage: DataFrame) -> DataFrame:
    """What groups of clients have used of their quotas, per second and as a part of the limit."""
    from pyspark.sql import functions as sf

    seconds = sf.greatest(sf.col("end_time_ms") - sf.col("start_time_ms"), sf.lit(1)) / 1_000.0
    # A request quota is in percent of a thread: 10 ms of a second are one.
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
    """Requests, with what quotas charge them for and no more."""
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
    """Who used what, and who was told to wait; estimates, where not all requests are in the log."""
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
    """Tenants that used much more than an equal share of what was used, and what the others felt of it.

    For each minute, broker and resource: ``share`` is the tenant's part of all that was used, ``noise`` how many equal
    shares that is (3 of 4 tenants' use by one of them is a noise of 3), ``others_queue_ms`` the mean time for which
    requests of all others waited for a handler in that minute. Rows with a noise below ``at_least`` are left out.

    An idle client is not one of the ``tenants`` that share: it moved no records, and used less than `IDLE_SHARE` of the
    resource. Otherwise a few consumers that wait for records would make the only producer a noisy neighbour.
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
    "who uses what, who was held back and how long, and the traffic for quota-advice and quota-dry-run",
    (QUOTA_USAGE_TOPIC, REQUEST_LOG_TOPIC),
    (USAGE, TRAFFIC, TENANTS_1M),
    parse,
    rows,
)


def build(spark: SparkSession, config: PipelineConfig) -> StreamingQuery:
    """Starts the pipeline."""
    return QUOTAS.build(spark, config)
