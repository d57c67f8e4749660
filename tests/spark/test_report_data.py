"""What the charts and tables of the report show is what the tables have."""

from __future__ import annotations

import doctest
import importlib
import json
import math
import pkgutil
import struct
from pathlib import Path

import pytest

import barnabas.report
from barnabas.report import charts
from barnabas.report.clients import read_clients
from barnabas.report.data import count_dead_letters
from barnabas.report.kll_sketch import quantiles, sketch_values
from barnabas.report.latency import PARTS, read_latency
from barnabas.report.page import make_report
from barnabas.report.quota_use import read_advice, read_quota_use
from barnabas.report.table_reader import ReportError, TableReader
from barnabas.report.tenancy import NAMELESS, OTHERS, TenantNames
from barnabas.report.traffic import MOST_TENANTS, find_noise, read_traffic
from barnabas.spark.pipelines.quota_proposal import Tenancy
from spark.report_tables import (
    MINUTE_US,
    START_US,
    advised,
    counts,
    latency,
    metric,
    minutes_with_idle_clients,
    point,
    sketch,
    tenant,
    traffic,
    tried,
    usage,
    write_table,
)

NAMES = TenantNames()


@pytest.mark.parametrize("name", sorted(module.name for module in pkgutil.iter_modules(barnabas.report.__path__)))
def test_doctests(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"barnabas.report.{name}")).failed == 0


def test_a_directory_without_tables_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"there is no directory .*absent; barnabas pipeline run"):
        TableReader(tmp_path / "absent")
    with pytest.raises(ReportError, match="there are no tables in"):
        TableReader(tmp_path)
    with pytest.raises(ReportError, match="not a local directory"):
        TableReader("hdfs://cluster/tables")


def test_a_table_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    write_table(tmp_path, "quotas", "tenants_1m", [tenant("orders")])
    (file,) = tmp_path.glob("quotas/tenants_1m/*.parquet")
    file.write_bytes(b"not parquet")
    with pytest.raises(ReportError, match=r"quotas/tenants_1m in .* cannot be read: [^\n]*$"):
        read_traffic(TableReader(tmp_path), NAMES)


def test_traffic_is_rates_in_steps(tmp_path: Path) -> None:
    write_table(tmp_path, "quotas", "tenants_1m", [tenant("orders", produced_bytes=4_000.0), tenant("dashboard")])
    write_table(
        tmp_path,
        "quotas",
        "traffic",
        [
            traffic("orders", 0.1),
            traffic("orders", 0.9),
            # Half of all requests were logged, so this one stands for two.
            traffic("orders", 3.5, sample_rate=0.5, throttle_time_ms=150),
            traffic("dashboard", 3.9, api="Fetch", request_bytes=70, response_bytes=5_000),
            traffic("operator", 3.9, api="CreateTopics", request_bytes=70, response_bytes=5_000),
        ],
    )
    found = read_traffic(TableReader(tmp_path), NAMES)
    assert found is not None
    series = found.series
    assert (series.start_us, series.step_s, series.steps) == (START_US, 1, 4)
    assert series.times_s[0] == START_US / 1e6 + 0.5
    assert list(series.by_tenant["produced_bytes"]) == ["orders"]
    assert series.by_tenant["produced_bytes"]["orders"].tolist() == [2_000, 0, 0, 2_000]
    assert series.by_tenant["fetched_bytes"]["dashboard"].tolist() == [0, 0, 0, 5_000]
    assert series.by_tenant["requests"]["orders"].tolist() == [2, 0, 0, 2]
    assert series.by_tenant["throttle_ms"]["orders"].tolist() == [0, 0, 0, 300]


def test_long_times_come_from_the_roll_up_by_minute(tmp_path: Path) -> None:
    rows = [tenant("orders", minute, produced_bytes=60_000.0) for minute in range(0, 240, 2)]
    # Before it is merged a roll-up has several rows for a minute.
    write_table(tmp_path, "quotas", "tenants_1m", [*rows, tenant("orders", 0, produced_bytes=60_000.0)])
    write_table(tmp_path, "quotas", "traffic", [traffic("orders", 1.0)])
    found = read_traffic(TableReader(tmp_path), NAMES)
    assert found is not None
    assert (found.series.step_s, found.series.steps) == (120, 120)
    assert found.series.by_tenant["produced_bytes"]["orders"].tolist() == [1_000.0, *[500.0] * 119]
    assert found.end_us - found.start_us == 239 * MINUTE_US
    assert found.tenants[0].produced_bytes == 121 * 60_000


def test_small_tenants_are_shown_together(tmp_path: Path) -> None:
    rows = [traffic(f"t{number:02d}", 0.5, request_bytes=100 * (20 - number)) for number in range(12)]
    totals = [tenant(row["client_id"], produced_bytes=float(row["request_bytes"])) for row in rows]
    write_table(tmp_path, "quotas", "tenants_1m", totals)
    write_table(tmp_path, "quotas", "traffic", rows)
    found = read_traffic(TableReader(tmp_path), NAMES)
    assert found is not None
    produced = found.series.by_tenant["produced_bytes"]
    assert list(produced) == [*(f"t{number:02d}" for number in range(MOST_TENANTS)), OTHERS]
    assert produced[OTHERS].tolist() == [sum(100 * (20 - number) for number in range(MOST_TENANTS, 12))]
    shares = charts.tenant_shares(found.tenants, "produced_bytes", found.colors)
    assert list(shares) == list(produced)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares[OTHERS] == pytest.approx(float(produced[OTHERS][0]) / sum(row["request_bytes"] for row in rows))


def test_tenants_are_clients_or_users(tmp_path: Path) -> None:
    rows = [
        tenant(None, principal="User:alice", produced_bytes=1.0),
        tenant("orders", principal="User:alice", produced_bytes=2.0),
        tenant("orders", principal="User:bob", produced_bytes=4.0),
    ]
    write_table(tmp_path, "quotas", "tenants_1m", rows)
    expected = {
        Tenancy.CLIENT_ID: {"orders": 6.0, NAMELESS: 1.0},
        Tenancy.USER: {"bob": 4.0, "alice": 3.0},
        Tenancy.USER_CLIENT_ID: {"bob / orders": 4.0, "alice / orders": 2.0, f"alice / {NAMELESS}": 1.0},
    }
    for tenancy, amounts in expected.items():
        found = read_traffic(TableReader(tmp_path), TenantNames(tenancy))
        assert found is not None
        assert {one.name: one.produced_bytes for one in found.tenants} == amounts


def test_noise_is_what_the_pipeline_calls_so() -> None:
    rows = [
        tenant("loud", produced_bytes=900.0, requests=10.0, queue_ms=1.0),
        tenant("a", produced_bytes=50.0, requests=4.0, queue_ms=8.0),
        tenant("b", produced_bytes=50.0, requests=4.0, queue_ms=16.0),
        tenant("loud", 1, produced_bytes=10.0),
        tenant("a", 1, produced_bytes=10.0),
    ]
    (noise,) = find_noise(rows, NAMES)
    assert (noise.tenant, noise.quota, noise.minute_us) == ("loud", "producer_byte_rate", START_US)
    assert noise.share == pytest.approx(0.9)
    assert noise.noise == pytest.approx(2.7)
    assert noise.others_queue_ms == pytest.approx(3.0)


def test_an_idle_client_is_no_sharer() -> None:
    found = find_noise(minutes_with_idle_clients(), NAMES)
    assert {(one.tenant, one.minute_us) for one in found} == {("loud", START_US + 60_000_000)}
    assert {one.quota for one in found} == {"producer_byte_rate", "request_percentage"}
    # One that moves no records but uses much is a sharer: it may be the noisy one.
    asking = tenant("asks", requests=1e6, thread_ms=50_000.0)
    rows = [asking, *(tenant(f"t{number}", produced_bytes=1e6, thread_ms=100.0) for number in range(3))]
    (noise,) = find_noise(rows, NAMES)
    assert (noise.tenant, noise.quota) == ("asks", "request_percentage")
    assert noise.noise == pytest.approx(4 * 50_000 / 50_300)


def test_latency_is_of_all_rows_together(tmp_path: Path) -> None:
    fast = [float(value) for value in range(1, 100)]
    write_table(
        tmp_path,
        "requests",
        "latency_1h",
        [
            latency("Produce", "orders", "total", fast),
            latency("Produce", "orders", "local", [1.0] * 99),
            latency("Produce", "orders", "throttle", [0.0] * 99),
            # Of every hundred requests one was logged.
            latency("Produce", "reports", "total", [1_000.0], sample_rate=0.01),
            latency("Produce", "reports", "local", [500.0], sample_rate=0.01),
            latency("Produce", "reports", "throttle", [70.0], sample_rate=0.01),
            latency("Fetch", "orders", "total", [3.0]),
        ],
    )
    write_table(tmp_path, "requests", "counts_1m", [counts("Produce", "orders", 99, failed=5.0)])
    found = read_latency(TableReader(tmp_path), NAMES)
    assert found is not None
    produce, fetch = found.by_api
    assert (produce.api, fetch.api) == ("Produce", "Fetch")
    assert produce.requests == pytest.approx(199)
    assert produce.failed == 5
    assert produce.mean_ms["total"] == pytest.approx((sum(fast) + 100_000) / 199)
    assert produce.mean_ms["local"] == pytest.approx((99 + 50_000) / 199)
    # 99 requests below 100 ms and 100 of a second: the median is a second.
    assert (produce.p50, produce.p99, produce.max) == (1_000.0, 1_000.0, 1_000.0)
    by_tenant = {(row.api, row.tenant): row for row in found.by_tenant}
    orders = by_tenant["Produce", "orders"]
    assert (orders.p50, orders.p99, orders.p999, orders.throttle_p99) == (50.0, 99.0, 99.0, 0.0)
    assert by_tenant["Produce", "reports"].throttle_p99 == 70.0
    shares = charts.part_shares(produce)
    assert list(shares) == list(PARTS)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["throttle"] == pytest.approx(7_000 / (50_099 + 7_000))


def test_sketches_have_weights_by_level() -> None:
    # Three values that stand for themselves, two that stand for two each.
    head = bytes([5, 1, 15, 0]) + struct.pack("<HBBqHBB", 200, 8, 0, 7, 200, 2, 0)
    data = head + struct.pack("<II", 195, 198) + struct.pack("<7d", 1, 40, 7, 8, 9, 10, 40)
    values, weights = sketch_values(data)
    assert values.tolist() == [7, 8, 9, 10, 40]
    assert weights.tolist() == [1, 1, 1, 2, 2]
    assert quantiles([(data, 1.0)], (0.0, 3 / 7, 0.5, 5 / 7, 1.0)) == [7.0, 9.0, 10.0, 10.0, 40.0]
    empty = bytes([2, 1, 15, 1, 200, 0, 8, 0])
    assert quantiles([(empty, 1.0), (sketch([5.0]), 1.0)], (0.5,)) == [5.0]
    assert quantiles([(empty, 1.0)], (0.5, 0.9)) == [None, None]


@pytest.mark.parametrize("data", [b"", b"12345678", sketch([1.0, 2.0])[:-3], sketch([1.0, 2.0])[:30]])
def test_bytes_that_are_no_sketch_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="KLL sketch"):
        sketch_values(data)


def test_use_of_quotas(tmp_path: Path) -> None:
    rows = [
        usage("reports", 0, 500.0, 1_000.0),
        usage("reports", 1, 1_500.0, 1_000.0, throttle_count=2, throttle_ms=750.0),
        usage("reports", 2, 600.0, 500.0, throttle_count=1, throttle_ms=200.0),
        usage("orders", 0, 100.0, 1_000.0),
        usage("orders", 1, 900.0, 1_000.0, node_id=2),
        usage("orders", 1, 300.0, 1_000.0),
        usage("free", 1, 5.0, None),
        usage("", 0, 30.0, 20.0, quota="request_percentage", user="alice", amount=300.0),
    ]
    write_table(tmp_path, "quotas", "usage", rows)
    found = read_quota_use(TableReader(tmp_path))
    assert found is not None
    assert (found.step_s, found.steps) == (1, 3)
    produced = found.used_of_limit["producer_byte_rate"]
    assert list(produced) == ["reports", "orders"]
    assert produced["reports"].tolist() == [0.5, 1.5, 1.2]
    assert produced["orders"][:2].tolist() == [0.1, 0.9]
    groups = {(one.quota, one.name): one for one in found.groups}
    reports = groups["producer_byte_rate", "reports"]
    assert (reports.limit, reports.peak, reports.peak_of_limit) == (500.0, 1_500.0, 1.5)
    assert (reports.throttle_count, reports.throttle_ms) == (3, 950.0)
    assert reports.mean == pytest.approx(2_600 / 3)
    assert groups["producer_byte_rate", "free"].limit is None
    assert groups["request_percentage", "alice"].mean == pytest.approx(30.0)


def test_advice_and_dry_run(tmp_path: Path) -> None:
    write_table(tmp_path, "quota-advice", "limits", [advised("orders", "well-behaved", 2.0, 1.0),
                                                      advised("reports", "noisy", 9.0, 20.0)])  # fmt: skip
    found = read_advice(TableReader(tmp_path))
    assert found is not None
    assert [(one.name, one.verdict, one.limit, one.peak) for one in found.limits] == [
        ("reports", "noisy", 9.0, 20.0),
        ("orders", "well-behaved", 2.0, 1.0),
    ]
    assert found.dry_run == []
    write_table(tmp_path, "quota-dry-run", "summary", [tried("orders", 0.0, 0.0), tried("reports", 500.0, 80.0)])
    found = read_advice(TableReader(tmp_path))
    assert found is not None
    assert [(one.name, one.throttle_ms, one.recorded_throttle_ms) for one in found.dry_run] == [
        ("reports", 500.0, 80.0),
        ("orders", 0.0, 0.0),
    ]
    assert (found.start_us, found.end_us) == (START_US, START_US + MINUTE_US)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_a_client_that_pushes_no_finite_number_does_not_break_the_report(tmp_path: Path, value: float) -> None:
    names = [
        f"producer.{one}"
        for one in ("request.latency.avg", "request.latency.max", "record.send.rate", "record.error.total")
    ]
    rows = [metric("odd", name, value) for name in names]
    write_table(tmp_path, "telemetry", "metrics_1h", [*rows, metric("good", names[0], 5.0)])
    points = [point("odd", second, name, value) for name in names for second in (1, 2)]
    write_table(tmp_path, "telemetry", "points", [*points, point("odd", 3, names[0], 7.0)])
    report = make_report(tmp_path)
    assert "odd" in report.html()
    json.dumps(report.summary, allow_nan=False)
    found = read_clients(TableReader(tmp_path))
    assert found is not None
    good, odd = found.clients
    assert good.values == {"latency_ms": 5.0}
    assert "latency_ms" not in odd.values
    assert [[value for _, value in one.by_client["odd"]] for one in found.series] == [[7.0]]


def test_clients_by_what_they_push(tmp_path: Path) -> None:
    write_table(
        tmp_path,
        "telemetry",
        "metrics_1h",
        [
            metric("orders", "producer.request.latency.avg", 2.0, count=3),
            metric("orders", "producer.request.latency.avg", 6.0, count=1),
            # Each node apart: only where there is nothing better.
            metric("orders", "producer.node.request.latency.avg", 77.0),
            metric("orders", "producer.request.latency.max", 9.0, max=30.0),
            metric("orders", "producer.record.error.total", 2.0, count=2),
            metric("orders", "producer.produce.throttle.time.max", 5.0, max=40.0),
            metric("search", "producer.node.request.latency.avg", 4.0, software="confluent-kafka-python"),
            metric("silent", "producer.metadata.age", 4.0),
        ],
    )
    write_table(
        tmp_path,
        "telemetry",
        "points",
        [
            point("orders", 0.0, "producer.request.latency.avg", 1.0),
            point("orders", 0.5, "producer.request.latency.avg", 3.0),
            point("orders", 2.0, "producer.request.latency.avg", 5.0),
            point("orders", 2.0, "producer.node.request.latency.avg", 99.0),
            point("orders", 1.0, "producer.record.send.rate", 250.0),
            point("search", 1.0, "producer.node.request.latency.avg", 4.0),
        ],
    )
    found = read_clients(TableReader(tmp_path), ("search",))
    assert found is not None
    orders, search, silent = found.clients
    assert orders.values == {"latency_ms": 3.0, "max_latency_ms": 30.0, "errors": 4.0, "throttle_ms": 40.0}
    assert (search.software, search.values) == ("confluent-kafka-python", {"latency_ms": 4.0})
    assert silent.values == {}
    assert found.order == ["search", "orders", "silent"]
    seen, records = found.series
    start = START_US / 1e6
    assert seen.by_client["orders"] == [(start + 0.5, 2.0), (start + 2.5, 5.0)]
    assert seen.by_client["search"] == [(start + 1.5, 4.0)]
    assert list(records.by_client) == ["orders"]


def test_dead_letters_are_counted_by_reason(tmp_path: Path) -> None:
    letters = [
        {"topic": "__request_log", "reason": "late: 5 ms after its window was closed"},
        {"topic": "__request_log", "reason": "late: 7 ms after its window was closed"},
        {"topic": "__request_log", "reason": "no value"},
    ]
    write_table(tmp_path, "requests", "dead_letters", letters)
    tables = TableReader(tmp_path)
    assert count_dead_letters(tables, "requests") == {"__request_log: late": 2, "__request_log: no value": 1}
    assert tables.count("requests", "dead_letters") == 3
