"""Builds the sections of the report from their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.report import charts
from barnabas.report.clients import ClientHealth
from barnabas.report.cluster_state import ClusterState
from barnabas.report.comparison import Amounts, Comparison, change, change_text
from barnabas.report.data import STREAMS
from barnabas.report.failures import Failures
from barnabas.report.latency import PARTS, TOTAL, Latency, LatencyRow
from barnabas.report.quota_use import Advice, QuotaUse
from barnabas.report.section import Cell, Section, SectionTable
from barnabas.report.table_reader import TableReader
from barnabas.report.traffic import Traffic
from barnabas.report.units import duration, moment, number, percent, rate, size

INSTANCE_LETTERS: Final = 8
"""The length of a shortened client instance ID, enough to tell them apart."""
CAPACITY: Final = " --capacity producer_byte_rate=50MB"
Rows = list[Sequence[Cell | str]]


def traffic_section(traffic: Traffic | None, tables: TableReader) -> Section:
    lead = "Bytes that tenants produced and fetched, from the request log."
    if traffic is None:
        return _missing("traffic", "Traffic", lead, _run(tables, "quotas"), "the table quotas/tenants_1m")
    headers = ("tenant", "requests", "produced", "fetched", "thread time", "throttled", "throttle time", "longest")
    rows: Rows = [
        (
            one.name,
            _number(one.requests),
            Cell(size(one.produced_bytes), one.produced_bytes),
            Cell(size(one.fetched_bytes), one.fetched_bytes),
            _duration(one.thread_ms),
            _number(one.throttled),
            Cell(duration(one.throttle_ms), one.throttle_ms, one.throttle_ms > 0),
            _duration(one.max_throttle_ms),
        )
        for one in traffic.tenants
    ]
    return Section(
        "traffic", "Traffic", lead, [charts.traffic_chart(traffic)], [SectionTable("Tenants", headers, rows)]
    )


def topic_section(cluster: ClusterState | None, tables: TableReader) -> Section:
    lead = (
        "What topics hold, and how far groups are behind, when this report was made. Sizes are those of the logs of "
        "all replicas."
    )
    title = "Topics and lag"
    if cluster is None:
        command = f"barnabas report --out {tables.out} --bootstrap-server HOST:PORT"
        return Section("topics", title, lead, [], [], f"No cluster was asked. Run: {command}")
    topics: Rows = [
        (one.name, _number(one.partitions), _number(one.records), Cell(size(one.bytes), one.bytes))
        for one in cluster.topics
    ]
    groups: Rows = [
        (
            one.group,
            one.topic,
            Cell(number(one.lag), one.lag, one.lag > 0 and one.is_abandoned),
            _number(one.largest),
            _number(one.partitions),
            _number(one.members),
            one.state,
        )
        for one in cluster.groups
    ]
    headers = ("group", "topic", "lag", "of one partition", "partitions", "members", "state")
    return Section(
        "topics",
        title,
        lead,
        [],
        [
            SectionTable("Groups", headers, groups),
            SectionTable("Topics", ("topic", "partitions", "records", "size"), topics),
        ],
    )


def latency_section(latency: Latency | None, tables: TableReader) -> Section:
    lead = (
        "The parts of the time of requests. Percentiles are of the time in the broker; the throttle time comes after "
        "it and is the part “throttled”."
    )
    if latency is None:
        return _missing("latency", "Latency", lead, _run(tables, "requests"), "the table requests/latency_1h")
    parts = [part.replace("_", " ") for part in PARTS]
    headers = ("API", "requests", "failed", *parts, "p50", "p99", "p99.9", "max")
    by_tenant = ("API", "tenant", "requests", "failed", "mean", "p50", "p99", "p99.9", "max", "p99 throttle")
    return Section(
        "latency",
        "Latency",
        lead,
        [charts.latency_chart(latency)],
        [
            SectionTable(
                "By API: mean parts, and percentiles of the total",
                headers,
                [_api_row(one) for one in latency.by_api],
            ),
            SectionTable("By API and tenant", by_tenant, [_tenant_row(one) for one in latency.by_tenant]),
        ],
    )


def _api_row(one: LatencyRow) -> list[Cell | str]:
    return [
        one.api,
        _number(one.requests),
        _failed(one),
        *(_duration(one.mean_ms[part]) for part in PARTS),
        *(_duration(value) for value in (one.p50, one.p99, one.p999, one.max)),
    ]


def _tenant_row(one: LatencyRow) -> list[Cell | str]:
    values = (one.mean_ms[TOTAL], one.p50, one.p99, one.p999, one.max, one.throttle_p99)
    return [one.api, one.tenant or "", _number(one.requests), _failed(one), *(_duration(value) for value in values)]


def _failed(one: LatencyRow) -> Cell:
    part = one.failed / one.requests if one.requests else 0.0
    # A share of few requests says little.
    text = f"{number(one.failed)} of {number(one.requests)}" if one.failed and one.requests < 100 else percent(part)
    return Cell(text, part, one.failures is Failures.ALARM)


def quota_section(use: QuotaUse | None, traffic: Traffic | None, tables: TableReader) -> Section:
    lead = (
        "Usage of quotas, their limits, and throttle times. Amounts are exact. A broker averages usage over "
        "quota.window.num windows of quota.window.size.seconds (default: 11 of 1 s), and throttles when "
        "that average exceeds the limit. The peaks below are of one interval of the usage topic, which is shorter, and "
        "may exceed the limit without throttling."
    )
    if use is None:
        what = "rows in quotas/usage (a broker writes them while quotas are set: barnabas quotas set)"
        return _missing("quotas", "Quotas", lead, _run(tables, "quotas"), what)
    headers = ("clients", "quota", "limit", "mean", "peak", "peak of limit", "throttled", "throttle time")
    rows: Rows = [
        (
            one.name,
            one.quota,
            Cell(rate(one.quota, one.limit), one.limit or 0.0),
            Cell(rate(one.quota, one.mean), one.mean),
            Cell(rate(one.quota, one.peak), one.peak),
            Cell(percent(one.peak_of_limit), one.peak_of_limit or 0.0, (one.peak_of_limit or 0.0) > 1),
            _number(one.throttle_count),
            Cell(duration(one.throttle_ms), one.throttle_ms, one.throttle_ms > 0),
        )
        for one in use.groups
    ]
    shown = [charts.quota_chart(use, traffic)] if use.used_of_limit else []
    if traffic is not None and traffic.series.by_tenant["throttle_ms"]:
        shown.append(charts.throttle_chart(traffic))
    return Section(
        "quotas", "Quotas", lead, shown, [SectionTable("Groups of clients that share a limit", headers, rows)]
    )


def noise_section(traffic: Traffic | None, tables: TableReader) -> Section:
    lead = (
        "Tenants that used at least twice their equal share of a resource in a minute, and how long requests of all "
        "others waited for a handler meanwhile. Idle clients, which moved no records and used less than 1 % of it, are "
        "not counted."
    )
    title = "Noisy neighbours"
    if traffic is None:
        return _missing("noise", title, lead, _run(tables, "quotas"), "the table quotas/tenants_1m")
    headers = ("tenant", "resource", "used", "share", "equal shares", "others waited", "minute", "broker")
    rows: Rows = [
        (
            one.tenant,
            charts.QUOTA_TITLES[one.quota],
            Cell(duration(one.amount) if one.quota == "request_percentage" else size(one.amount), one.amount),
            Cell(percent(one.share), one.share),
            Cell(f"{one.noise:.1f}", one.noise, one.noise >= 2),
            _duration(one.others_queue_ms),
            moment(one.minute_us),
            str(one.node_id),
        )
        for one in traffic.noise
    ]
    return Section(
        "noise",
        title,
        lead,
        [charts.share_chart(traffic)],
        [SectionTable("Minutes with a noisy tenant", headers, rows)],
    )


def advice_section(advice: Advice | None, traffic: Traffic | None, tables: TableReader) -> Section:
    lead = "Limits that would have kept all tenants within the capacity, and the result of a dry run of limits."
    title = "Advice and dry run"
    if advice is None:
        return _missing("advice", title, lead, _run(tables, "quota-advice", CAPACITY), "advice")
    span = f"The period is {moment(advice.start_us)} to {moment(advice.end_us)}."
    advised = ("clients", "quota", "verdict", "limit", "peak", "mean", "share", "fair share", "capacity")
    limit_rows: Rows = [
        (
            one.name,
            one.quota,
            Cell(one.verdict, one.verdict, one.verdict == "noisy"),
            *(Cell(rate(one.quota, value), value or 0.0) for value in (one.limit, one.peak, one.mean)),
            Cell(percent(one.share), one.share),
            *(Cell(rate(one.quota, value), value or 0.0) for value in (one.fair_share, one.capacity)),
        )
        for one in advice.limits
    ]
    tried = (
        "clients", "quota", "limit", "requests", "peak", "throttled", "throttle time", "longest", "latest", "recorded",
    )  # fmt: skip
    dry_rows: Rows = [
        (
            one.name,
            one.quota,
            *(Cell(rate(one.quota, value), value) for value in (one.limit,)),
            _number(one.requests),
            Cell(rate(one.quota, one.peak), one.peak),
            _number(one.throttled),
            Cell(duration(one.throttle_ms), one.throttle_ms, one.throttle_ms > 0),
            *(_duration(value) for value in (one.max_throttle_ms, one.max_behind_ms, one.recorded_throttle_ms)),
        )
        for one in advice.dry_run
    ]
    tables_shown = [SectionTable("Advised limits", advised, limit_rows)] if limit_rows else []
    if dry_rows:
        tables_shown.append(SectionTable("Dry run: the effect of these limits", tried, dry_rows))
    missing = None
    if not dry_rows:
        missing = f"There is no dry run yet. Run: {_run(tables, 'quota-dry-run', ' --advised')}"
    elif not limit_rows:
        missing = f"There is no advice yet. Run: {_run(tables, 'quota-advice', CAPACITY)}"
    return Section("advice", title, f"{lead} {span}", [charts.advice_chart(advice, traffic)], tables_shown, missing)


def client_section(health: ClientHealth | None, tables: TableReader) -> Section:
    lead = "The metrics that clients push (KIP-714). A dash means that the client does not push the metric."
    if health is None:
        what = "client metrics (subscribe to them: barnabas telemetry subscribe)"
        return _missing("clients", "Clients", lead, _run(tables, "telemetry"), what)
    headers = (
        "client", "software", "version", "records/s", "latency", "longest", "queue time", "longest throttle", "errors",
        "retries", "instance",
    )  # fmt: skip
    rows: Rows = [
        (
            one.client_id,
            one.software,
            one.version,
            _number(one.values.get("records_per_s")),
            *(_duration(one.values.get(name)) for name in ("latency_ms", "max_latency_ms", "queue_ms", "throttle_ms")),
            Cell(number(one.values.get("errors")), one.values.get("errors", -1.0), one.values.get("errors", 0.0) > 0),
            _number(one.values.get("retries")),
            one.instance_id[:INSTANCE_LETTERS],
        )
        for one in health.clients
    ]
    shown = [charts.client_chart(health)] if health.series else []
    return Section("clients", "Clients", lead, shown, [SectionTable("Client instances", headers, rows)])


def dead_letter_section(dead: Mapping[str, Mapping[str, int]], tables: TableReader) -> Section:
    lead = "Records that the pipelines could not use, or that arrived too late. They are in the tables dead_letters."
    title = "Dead letters"
    if not dead:
        return _missing("dead-letters", title, lead, _run(tables, "requests"), "a pipeline over topics")
    rows: Rows = []
    for pipeline, reasons in dead.items():
        found = sorted(reasons.items(), key=lambda one: -one[1]) or [("none", 0)]
        rows += [(pipeline, reason, Cell(number(count), count, count > 0)) for reason, count in found]
    return Section(
        "dead-letters", title, lead, [], [SectionTable("By pipeline", ("pipeline", "reason", "records"), rows)]
    )


def comparison_section(comparison: Comparison) -> Section:
    lead = (
        f"The earlier report is of {moment(comparison.start_us)} to {moment(comparison.end_us)}. "
        "Bytes are those produced and fetched; throttle times are per second of a report."
    )
    headers = ("tenant", "bytes before", "bytes now", "change", "p99 of Produce before", "now", "change",
               "throttle time before", "now")  # fmt: skip
    rows: Rows = []
    for one in comparison.tenants:
        pair = (one.before, one.now)
        before, now = (Amounts() if found is None else found for found in pair)
        rows.append(
            (
                one.name,
                *(Cell(f"{size(found.bytes_per_s)}/s", found.bytes_per_s) for found in (before, now)),
                _change(*(None if found is None else found.bytes_per_s for found in pair)),
                *(_duration(found.produce_p99_ms) for found in (before, now)),
                _change(before.produce_p99_ms, now.produce_p99_ms),
                *(
                    Cell(f"{duration(found.throttle_ms_per_s)}/s" if found.throttle_ms_per_s else "0",
                         found.throttle_ms_per_s)
                    for found in (before, now)
                ),
            )
        )  # fmt: skip
    return Section("changes", "Changes", lead, [], [SectionTable("Tenants before and now", headers, rows)])


def _change(before: float | None, now: float | None) -> Cell:
    return Cell(change_text(before, now), change(before, now) or 0.0)


def _run(tables: TableReader, pipeline: str, more: str = "") -> str:
    once = " --once" if pipeline in STREAMS else ""
    return f"barnabas pipeline run {pipeline}{once} --out {tables.out}{more}"


def _missing(name: str, title: str, lead: str, command: str, what: str) -> Section:
    return Section(name, title, lead, [], [], f"There is no data yet: this needs {what}. Run: {command}")


def _number(value: float | None) -> Cell:
    return Cell(number(value), -1.0 if value is None else value)


def _duration(value: float | None) -> Cell:
    return Cell(duration(value), -1.0 if value is None else value)
