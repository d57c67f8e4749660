"""Small tables as the pipelines leave them, written without Spark."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import write_deltalake

MINUTE_US: Final = 60_000_000
START_US: Final = 1_794_754_800_000_000
"""2026-11-15 15:00:00 UTC"""


def write_table(out: Path, pipeline: str, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Adds rows to a table; columns with names of times become timestamps."""
    columns = pa.Table.from_pylist(list(rows))
    for number, name in enumerate(columns.column_names):
        if name in {"window_start", "timestamp", "start_time", "end_time"}:
            moments = columns.column(number).cast(pa.timestamp("us", "UTC"))
            columns = columns.set_column(number, name, moments)
        elif pa.types.is_null(columns.schema.field(number).type):
            columns = columns.set_column(number, name, columns.column(number).cast(pa.string()))
    write_deltalake(str(out / pipeline / table), columns, mode="append")


def sketch(values: Sequence[float]) -> bytes:
    """What Spark stores for a few values: all of them, in one level."""
    if len(values) == 1:
        return bytes([2, 2, 15, 4]) + struct.pack("<HBBd", 4_096, 8, 0, values[0])
    head = bytes([5, 1, 15, 0]) + struct.pack("<HBBqHBB", 4_096, 8, 0, len(values), 4_096, 1, 0)
    begin = struct.pack("<I", 4_096 - len(values))
    return head + begin + struct.pack(f"<{len(values) + 2}d", min(values), max(values), *values)


def latency(api: str, client_id: str, part: str, values: Sequence[float], **more: Any) -> dict[str, Any]:
    sample_rate = more.get("sample_rate", 1.0)
    return {
        "window_start": more.get("window_start", START_US),
        "node_id": 1,
        "api": api,
        "client_id": client_id,
        "principal": more.get("principal", "User:ANONYMOUS"),
        "sample_rate": sample_rate,
        "part": part,
        "count": len(values),
        "weight": len(values) / sample_rate,
        "sum": sum(values) / sample_rate,
        "min": min(values),
        "max": max(values),
        "sketch": sketch(values),
    }


def counts(api: str, client_id: str, requests: int, **more: Any) -> dict[str, Any]:
    return {
        "window_start": START_US,
        "node_id": 1,
        "api": api,
        "client_id": client_id,
        "principal": "User:ANONYMOUS",
        "sample_rate": 1.0,
        "requests": requests,
        "weight": float(requests),
        "failed": 0.0,
        "throttled": 0.0,
        "throttle_ms": 0.0,
        **more,
    }


def tenant(client_id: str | None, minute: int = 0, **amounts: Any) -> dict[str, Any]:
    """A row of ``quotas/tenants_1m``."""
    return {
        "window_start": START_US + minute * MINUTE_US,
        "node_id": 1,
        "principal": "User:ANONYMOUS",
        "client_id": client_id,
        "requests": 10.0,
        "produced_bytes": 0.0,
        "fetched_bytes": 0.0,
        "thread_ms": 0.0,
        "queue_ms": 0.0,
        "throttled": 0.0,
        "throttle_ms": 0.0,
        "max_throttle_ms": 0.0,
        **amounts,
    }


def minutes_with_idle_clients() -> list[dict[str, Any]]:
    """One producer, and clients that wait for records; in the minute after it, ten small producers beside it."""
    waiting = [tenant(f"waits{number}", requests=120.0, fetched_bytes=120 * 60.0, thread_ms=3.0) for number in range(3)]
    small = [tenant(f"small{number}", 1, requests=1.0, produced_bytes=100.0, thread_ms=0.1) for number in range(10)]
    loud: dict[str, Any] = {"requests": 1_000.0, "produced_bytes": 1e9, "thread_ms": 5_000.0}
    return [*waiting, tenant("loud", **loud), *small, tenant("loud", 1, **loud)]


def traffic(client_id: str | None, second: float, **fields: Any) -> dict[str, Any]:
    """A row of ``quotas/traffic``."""
    return {
        "timestamp": START_US + int(second * 1_000_000),
        "api": "Produce",
        "principal": "User:ANONYMOUS",
        "client_id": client_id,
        "request_bytes": 1_000,
        "response_bytes": 50,
        "throttle_time_ms": 0,
        "sample_rate": 1.0,
        **fields,
    }


def usage(client_id: str, second: int, rate: float, limit: float | None, **fields: Any) -> dict[str, Any]:
    """A row of ``quotas/usage``, for one second."""
    return {
        "node_id": 1,
        "start_time": START_US + second * 1_000_000,
        "end_time": START_US + (second + 1) * 1_000_000,
        "quota": "producer_byte_rate",
        "user": None,
        "client_id": client_id,
        "limit": limit,
        "amount": rate,
        "rate": rate,
        "used_of_limit": None if limit is None else rate / limit,
        "throttle_count": 0,
        "throttle_ms": 0.0,
        **fields,
    }


def advised(client_id: str, verdict: str, limit: float, peak: float) -> dict[str, Any]:
    return {
        "quota": "producer_byte_rate",
        "user": None,
        "client_id": client_id,
        "verdict": verdict,
        "limit": limit,
        "peak": peak,
        "mean": peak / 2,
        "share": 0.5,
        "fair_share": 900_000.0,
        "capacity": 1_000_000.0,
        "crowded_spans": 7,
        "sample_rate": 1.0,
        "start_time": START_US,
        "end_time": START_US + MINUTE_US,
    }


def tried(client_id: str, throttle_ms: float, recorded_ms: float) -> dict[str, Any]:
    return {
        "quota": "producer_byte_rate",
        "user": None,
        "group_client_id": client_id,
        "principal": "User:ANONYMOUS",
        "client_id": client_id,
        "limit": 900_000.0,
        "requests": 100.0,
        "peak": 2_000_000.0,
        "throttled": 3.0,
        "throttle_ms": throttle_ms,
        "max_throttle_ms": throttle_ms,
        "max_behind_ms": throttle_ms,
        "recorded_throttle_ms": recorded_ms,
        "start_time": START_US,
        "end_time": START_US + MINUTE_US,
    }


def metric(client_id: str, name: str, value: float, **more: Any) -> dict[str, Any]:
    """A row of ``telemetry/metrics_1h``, of ``count`` values."""
    count = more.get("count", 1)
    return {
        "window_start": START_US,
        "client_instance_id": more.get("instance", f"id-of-{client_id}"),
        "client_id": client_id,
        "client_software_name": more.get("software", "barnabas"),
        "client_software_version": "0.1.0",
        "metric": f"org.apache.kafka.{name}",
        "weight": float(count),
        "sum": value * count,
        "max": more.get("max", value),
    }


def point(client_id: str, second: float, name: str, value: float) -> dict[str, Any]:
    return {
        "timestamp": START_US + int(second * 1_000_000),
        "client_id": client_id,
        "metric": f"org.apache.kafka.{name}",
        "value": value,
    }


def all_tables(out: Path) -> None:
    """A bit of everything: two tenants that write, one of them noisy, and one that reads."""
    rows = []
    for client_id, factor, delay in (("orders", 1.0, 0.0), ("reports", 2.0, 4.0)):
        parts = {"queue": 0.1, "local": 0.2, "remote": 0.3, "response_queue": 0.2, "send": 0.2, "total": 1.0}
        for part, share in parts.items():
            rows.append(latency("Produce", client_id, part, [factor * share * value for value in (1.0, 2.0, 3.0)]))
        rows.append(latency("Produce", client_id, "throttle", [delay] * 3))
    write_table(out, "requests", "latency_1h", rows)
    write_table(
        out, "requests", "counts_1m", [counts("Produce", "orders", 3), counts("Produce", "reports", 3, failed=1.0)]
    )
    write_table(
        out,
        "quotas",
        "tenants_1m",
        [
            tenant("orders", produced_bytes=10_000.0, thread_ms=5.0),
            tenant(
                "reports",
                produced_bytes=90_000.0,
                thread_ms=50.0,
                throttled=2.0,
                throttle_ms=800.0,
                max_throttle_ms=500.0,
            ),
            tenant("dashboard", fetched_bytes=100_000.0, thread_ms=10.0, queue_ms=20.0),
        ],
    )
    write_table(
        out,
        "quotas",
        "traffic",
        [
            *(traffic("orders", second) for second in range(10)),
            *(traffic("reports", second, request_bytes=9_000) for second in range(10)),
            *(traffic("dashboard", second, api="Fetch", response_bytes=10_000) for second in range(10)),
            traffic("reports", 9.5, request_bytes=0, throttle_time_ms=800),
        ],
    )
    write_table(
        out,
        "quotas",
        "usage",
        [
            *(usage("orders", second, 1_000.0, 10_000.0) for second in range(10)),
            *(usage("reports", second, 9_000.0, 6_000.0, throttle_count=1, throttle_ms=80.0) for second in range(10)),
        ],
    )
    write_table(out, "quota-advice", "limits", [advised("reports", "noisy", 900_000.0, 2_000_000.0),
                                                 advised("orders", "well-behaved", 125_000.0, 100_000.0)])  # fmt: skip
    write_table(out, "quota-dry-run", "summary", [tried("reports", 5_000.0, 800.0), tried("orders", 0.0, 0.0)])
    write_table(
        out,
        "telemetry",
        "metrics_1h",
        [
            metric("orders", "producer.request.latency.avg", 2.0),
            metric("orders", "producer.record.send.rate", 250.0),
            metric("dashboard", "consumer.fetch.manager.fetch.latency.avg", 12.0, software="confluent-kafka-python"),
        ],
    )
    write_table(
        out,
        "telemetry",
        "points",
        [point("orders", second, "producer.request.latency.avg", 2.0 + second) for second in range(5)],
    )
