"""The report as numbers: the output of ``barnabas report --json``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from barnabas.report.conclusions import Conclusion
from barnabas.report.data import ReportData
from barnabas.report.latency import TOTAL
from barnabas.report.table_reader import TableReader
from barnabas.report.units import percent

PRODUCE: Final = "Produce"


def make_summary(data: ReportData) -> dict[str, Any]:
    """Returns the data of the sections, without charts. A section without tables is null."""
    tables, traffic, latency, use = data.tables, data.traffic, data.latency, data.quota_use
    advice, health = data.advice, data.clients
    tenants = traffic.tenants if traffic else ()
    by_api = {row.api: row for row in latency.by_api} if latency else {}
    produce = by_api.get(PRODUCE)
    return {
        "tables": str(tables.out),
        "pipelines": list(tables.pipelines),
        "start_us": traffic.start_us if traffic else None,
        "end_us": traffic.end_us if traffic else None,
        "sampling": _sampling(tables),
        "requests": sum(one.requests for one in tenants),
        "produced_bytes": sum(one.produced_bytes for one in tenants),
        "fetched_bytes": sum(one.fetched_bytes for one in tenants),
        "throttle_ms": sum(one.throttle_ms for one in tenants),
        "produce_p99_ms": produce.p99 if produce else None,
        "dead_letters": sum(sum(reasons.values()) for reasons in (data.dead_letters or {}).values()),
        "tenants": [
            {
                "tenant": one.name,
                "requests": one.requests,
                "produced_bytes": one.produced_bytes,
                "fetched_bytes": one.fetched_bytes,
                "thread_ms": one.thread_ms,
                "throttled": one.throttled,
                "throttle_ms": one.throttle_ms,
                "max_throttle_ms": one.max_throttle_ms,
                "is_noisy": traffic is not None and any(found.tenant == one.name for found in traffic.noise),
            }
            for one in tenants
        ],
        "latency": None if latency is None else [_latency(row) for row in (*latency.by_api, *latency.by_tenant)],
        "quotas": None
        if use is None
        else [
            {
                "quota": one.quota,
                "who": one.name,
                "limit": one.limit,
                "mean": one.mean,
                "peak": one.peak,
                "peak_of_limit": one.peak_of_limit,
                "throttle_count": one.throttle_count,
                "throttle_ms": one.throttle_ms,
            }
            for one in use.groups
        ],
        "advice": None
        if advice is None
        else [
            {"quota": one.quota, "who": one.name, "verdict": one.verdict, "limit": one.limit, "peak": one.peak}
            for one in advice.limits
        ],
        "dry_run": None
        if advice is None
        else [
            {
                "quota": one.quota,
                "who": one.name,
                "limit": one.limit,
                "throttled": one.throttled,
                "throttle_ms": one.throttle_ms,
                "recorded_throttle_ms": one.recorded_throttle_ms,
            }
            for one in advice.dry_run
        ],
        "clients": None
        if health is None
        else [
            {
                "client_id": one.client_id,
                "client_instance_id": one.instance_id,
                "software": one.software,
                "version": one.version,
                **one.values,
            }
            for one in health.clients
        ],
        "topics": None if data.cluster is None else [asdict(one) for one in data.cluster.topics],
        "groups": None if data.cluster is None else [asdict(one) for one in data.cluster.groups],
    }


def conclusions_json(conclusions: Iterable[Conclusion]) -> list[dict[str, Any]]:
    """Returns the conclusions for other programs."""
    return [
        {
            "rule": one.rule,
            "level": one.level.name.lower(),
            "text": one.text,
            "commands": [command.line for command in one.commands],
        }
        for one in conclusions
    ]


def _latency(row: Any) -> dict[str, Any]:
    return {
        "api": row.api,
        "tenant": row.tenant,
        "requests": row.requests,
        "failed": row.failed,
        "failures": row.failures.value,
        "mean_ms": row.mean_ms[TOTAL],
        "p50_ms": row.p50,
        "p99_ms": row.p99,
        "p999_ms": row.p999,
        "max_ms": row.max,
    }


def _sampling(tables: TableReader) -> str:
    """Describes which fraction of requests the log has; numbers are estimates unless it has all."""
    import pyarrow.compute as pc  # an extra

    rates = tables.read("requests", "counts_1m", ("sample_rate",))
    if rates is None:
        rates = tables.read("quotas", "traffic", ("sample_rate",))
    if rates is None:
        return "no requests in the log"
    bounds = pc.min_max(rates["sample_rate"]).as_py()
    if bounds["min"] >= 1:
        return "all requests"
    if bounds["min"] == bounds["max"]:
        return f"estimated from {percent(bounds['min'])} of all requests"
    return f"estimated from {percent(bounds['min'])} to {percent(bounds['max'])} of all requests"
