"""Two parts of what brokers write about a busy minute, with some of it broken; and tables as they can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from barnabas.common.topic_names import CLIENT_TELEMETRY_TOPIC, QUOTA_USAGE_TOPIC, REQUEST_LOG_TOPIC
from spark.pipeline_records import SECOND, push, record, request, usage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows = list[tuple[Any, ...]]

PARTS: Final = 2
SECONDS_PER_PART: Final = 8
LATENCY: Final = "org.apache.kafka.producer.request.latency.avg"
TOTAL: Final = "org.apache.kafka.producer.record.send.total"
_RANKS: Final = [rank / 20 for rank in range(21)]


def pushes(start_us: int, part: int) -> Rows:
    """Of three clients, twice a second, with two values each; and two that cannot be read."""
    first_us = start_us + part * SECONDS_PER_PART * SECOND
    places = range(SECONDS_PER_PART * 2)
    good = [
        push(0, first_us + place * SECOND // 2, {LATENCY: place * 1.5 + client, TOTAL: 10.0}, client_id=f"c{client}")
        for place in places
        for client in range(3)
    ]
    known = {"schema_version": "1", "content_type": "OTLP"}
    return [
        *good,
        record(CLIENT_TELEMETRY_TOPIC, 0, first_us, b"\xff\xff\xff", headers=known),
        push(0, first_us, {LATENCY: 1.0}, schema_version="2"),
    ]


def request_log(start_us: int, part: int) -> Rows:
    """Three tenants: quiet, with 10,000 bytes/s, middle, with 30,000, and noisy, with 90,000 over two connections.

    All send at the same moments, so that who comes first of them is nothing that the times say. One record is no JSON.
    """
    first_us = start_us + part * SECONDS_PER_PART * SECOND
    connections = (("quiet", "a", 1_000), ("middle", "b", 3_000), ("noisy", "c", 3_000), ("noisy", "d", 6_000))
    good = [
        request(
            place,
            first_us + place * SECOND // 10,
            client_id=f"{tenant}-1",
            principal=f"User:{tenant}",
            connection_id=connection,
            request_bytes=size,
            throttle_time_ms=40 if tenant == "noisy" and place % 10 == 0 else 0,
        )
        for place in range(SECONDS_PER_PART * 10)
        for tenant, connection, size in connections
    ]
    return [*good, record(REQUEST_LOG_TOPIC, 0, first_us, b"not JSON")]


def quota_usage(start_us: int, part: int) -> Rows:
    """A record of each tenant; and one of a version that is not known."""
    end_us = start_us + (part + 1) * SECONDS_PER_PART * SECOND
    good = [
        usage(0, end_us, user=user, client_id=None, tags={"user": user}, amount=amount, throttle_count=throttled,
              throttle_time_ms=throttled * 40.0)
        for user, amount, throttled in (("quiet", 80_000.0, 0), ("middle", 240_000.0, 0), ("noisy", 720_000.0, 16))
    ]  # fmt: skip
    return [
        *good,
        record(QUOTA_USAGE_TOPIC, 0, end_us, good[0][1].replace(b'"schema_version": 1', b'"schema_version": 2')),
    ]


def write_records(bootstrap_servers: str, rows: Iterable[tuple[Any, ...]], timeout_s: float = 30) -> None:
    """Brokers write to such topics themselves, and let nobody else but administrators do so.

    Each record is written once, even if the broker is restarted meanwhile.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "__admin_client",
            "enable.metrics.push": False,
            "enable.idempotence": True,
            "batch.num.messages": 20,  # a task takes several requests to read them
        }
    )
    failed: list[Any] = []
    for key, value, topic, _, _, time, _, headers in rows:
        producer.produce(
            topic,
            value,
            key,
            timestamp=round(time.timestamp() * 1_000),
            headers=headers,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(timeout_s) == 0
    assert failed == []


def comparable_rows(frame: DataFrame) -> list[str]:
    """The rows of a table in some order; of a sketch what it says, for its bytes depend on the order of the merges."""
    from pyspark.sql import functions as sf

    if "sketch" in frame.columns:
        ranks = sf.array(*(sf.lit(rank) for rank in _RANKS))
        said = sf.struct(
            sf.kll_sketch_get_n_double("sketch").alias("n"),
            sf.kll_sketch_get_quantile_double("sketch", ranks).alias("quantiles"),
        )
        frame = frame.withColumn("sketch", said)
    return sorted(map(str, frame.collect()))
