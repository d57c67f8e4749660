"""Who has used how much of which quota: exact sums out of windows that forget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.common.scheduler import MockScheduler
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_entity import QuotaEntity
from barnabas.records.batch import iter_batches
from barnabas.records.reader import read_records
from barnabas.security.principal import KafkaPrincipal
from barnabas.telemetry.quota_usage import QuotaUsageEncoder, QuotaUsageEntry, QuotaUsageReporter, SampleDifference
from barnabas.telemetry.topic_writer import TopicWriter
from quota_fixtures import QuotaBench, quota_bench
from telemetry_fixtures import Appends, OneTopic

ALICE = QuotaEntity(user="alice")


class Bench:
    """All quotas of a node, reported every ten seconds."""

    def __init__(self, quotas: QuotaBench, interval_ms: int = 10_000) -> None:
        self.quotas = quotas
        self.clock = quotas.clock
        self.scheduler = MockScheduler(quotas.clock)
        self.appends = Appends()
        cache = OneTopic()
        cache.leaders = [1]
        self.writer: TopicWriter[QuotaUsageEntry] = TopicWriter(
            "__quota_usage",
            QuotaUsageEncoder(5),
            1,
            cache,
            self.appends,
            lambda _name: None,
            lambda: None,
            self.scheduler,
            self.clock,
            MetricsRegistry(self.clock),
            linger_ms=0,
        )
        self.reporter = QuotaUsageReporter(
            quotas.managers.clients, quotas.metrics, self.writer, self.scheduler, self.clock
        )
        self.reporter.interval_ms = interval_ms

    def take(self) -> list[dict[str, Any]]:
        """What was written since the last call."""
        self.writer.flush()
        found = [
            json.loads(bytes(record.value or b""))
            for _, _, data in self.appends.batches
            for batch in iter_batches(data)
            for record in read_records(batch)
        ]
        self.appends.batches.clear()
        return found


@pytest.fixture
def bench() -> Iterator[Bench]:
    with quota_bench() as quotas:
        yield Bench(quotas)


def test_an_interval_of_a_client_that_is_held_back(bench: Bench) -> None:
    quotas = bench.quotas
    quotas.managers.produce.update_quota(ALICE, 1_000.0)
    start = bench.clock.milliseconds()
    for _ in range(9):
        bench.scheduler.advance(1_000)
        delay = quotas.produce(2_000, "alice", "c")
        if delay:
            quotas.managers.produce.throttle(quotas.request("alice", "c"), _Nobody(), delay)
    bench.scheduler.advance(1_000)
    (record,) = bench.take()
    assert record["throttle_count"] > 0
    assert record["throttle_time_ms"] > record["throttle_count"]
    del record["throttle_count"], record["throttle_time_ms"]
    assert record == {
        "schema_version": 1,
        "node_id": 5,
        "start_time_ms": start,
        "end_time_ms": start + 10_000,
        "quota": "producer_byte_rate",
        "user": "alice",
        "client_id": None,
        "tags": {"user": "alice", "client-id": ""},
        "limit": 1_000.0,
        "amount": 18_000.0,
        "unit": "bytes",
    }


def test_every_byte_is_counted_once_whatever_the_windows_do(bench: Bench) -> None:
    quotas = bench.quotas
    quotas.managers.produce.update_quota(ALICE, 1e9)
    used = 0
    for step in range(300):
        size = 100 + step
        quotas.produce(size, "alice")
        used += size
        bench.scheduler.advance(10 + step * 13 % 700)
    bench.reporter.poll(final=True)
    reports = bench.take()
    assert sum(report["amount"] for report in reports) == used
    assert len(reports) > 5
    ends = [report["end_time_ms"] for report in reports]
    assert [report["start_time_ms"] for report in reports][1:] == ends[:-1]


@pytest.mark.parametrize("interval_ms", [1_000, 10_000, 60_000])
def test_longer_intervals_miss_nothing(interval_ms: int) -> None:
    with quota_bench(QuotaWindows(3, 1)) as quotas:
        bench = Bench(quotas, interval_ms)
        quotas.managers.produce.update_quota(ALICE, 1e9)
        for _ in range(120):
            quotas.produce(10, "alice")
            bench.scheduler.advance(500)
        reports = bench.take()
        assert sum(report["amount"] for report in reports) == 1_200
        assert len(reports) == 60_000 // interval_ms


def test_what_was_taken_back_is_not_counted(bench: Bench) -> None:
    fetch = bench.quotas.managers.fetch
    fetch.update_quota(ALICE, 1e9)
    request = bench.quotas.request("alice")
    fetch.maybe_record_and_get_throttle_time_ms(request, 500, bench.clock.milliseconds())
    fetch.maybe_record_and_get_throttle_time_ms(request, 300, bench.clock.milliseconds())
    fetch.unrecord(request, 500, bench.clock.milliseconds())
    bench.scheduler.advance(10_000)
    assert [(report["quota"], report["amount"]) for report in bench.take()] == [("consumer_byte_rate", 300.0)]


def test_request_time_is_in_milliseconds_of_threads(bench: Bench) -> None:
    manager = bench.quotas.managers.request
    manager.update_quota(ALICE, 50.0)
    request = bench.quotas.request("alice")
    bench.clock.advance(30)
    manager.maybe_record_and_get_throttle_time_ms(request, bench.clock.milliseconds())
    bench.scheduler.advance(10_000)
    (report,) = bench.take()
    assert (report["quota"], report["unit"], report["amount"], report["limit"]) == (
        "request_percentage",
        "thread_ms",
        30.0,
        50.0,
    )


def test_mutations_are_partitions_and_not_tokens(bench: Bench) -> None:
    manager = bench.quotas.managers.controller_mutation
    manager.update_quota(ALICE, 5.0)
    manager.new_strict_quota_for(KafkaPrincipal("User", "alice"), "c").record(7)
    bench.scheduler.advance(10_000)
    (report,) = bench.take()
    assert (report["quota"], report["unit"], report["amount"], report["limit"]) == (
        "controller_mutation_rate",
        "partitions",
        7.0,
        5.0,
    )


def test_names_are_told_as_they_are(bench: Bench) -> None:
    bench.quotas.managers.produce.update_quota(QuotaEntity(user="CN=alice,O=Castle", client_id="c 1"), 1e9)
    bench.quotas.produce(10, "CN=alice,O=Castle", "c 1")
    bench.scheduler.advance(10_000)
    (report,) = bench.take()
    assert (report["user"], report["client_id"]) == ("CN=alice,O=Castle", "c 1")


def test_nothing_is_written_without_quotas_or_use(bench: Bench) -> None:
    bench.quotas.produce(10, "alice")
    bench.scheduler.advance(30_000)
    assert bench.take() == []
    bench.quotas.managers.produce.update_quota(ALICE, 1e9)
    bench.scheduler.advance(30_000)
    assert bench.take() == []
    bench.quotas.produce(10, "alice")
    bench.scheduler.advance(10_000)
    assert len(bench.take()) == 1
    bench.scheduler.advance(30_000)
    assert bench.take() == []


def test_it_can_be_turned_off_and_on(bench: Bench) -> None:
    bench.quotas.managers.produce.update_quota(ALICE, 1e9)
    bench.reporter.interval_ms = 0
    assert bench.scheduler.pending == []
    bench.quotas.produce(10, "alice")
    bench.scheduler.advance(60_000)
    assert bench.take() == []
    bench.reporter.interval_ms = 2_000
    bench.quotas.produce(20, "alice")
    bench.scheduler.advance(2_000)
    assert [report["amount"] for report in bench.take()] == [20.0]


def test_close_reports_what_is_left(bench: Bench) -> None:
    bench.quotas.managers.produce.update_quota(ALICE, 1e9)
    bench.quotas.produce(10, "alice")
    bench.reporter.close()
    assert [report["amount"] for report in bench.take()] == [10.0]
    assert "quota-usage" not in bench.scheduler.pending


def test_sensors_that_two_managers_share_count_once(bench: Bench) -> None:
    bench.reporter.add_managers(bench.quotas.managers.clients)
    bench.quotas.managers.produce.update_quota(ALICE, 1e9)
    bench.quotas.produce(10, "alice")
    bench.scheduler.advance(10_000)
    assert [report["amount"] for report in bench.take()] == [10.0]


def test_a_client_that_was_forgotten_and_came_back_counts_anew(bench: Bench) -> None:
    bench.quotas.managers.produce.update_quota(ALICE, 1e9)
    bench.quotas.produce(10, "alice")
    bench.scheduler.advance(10_000)
    bench.take()
    bench.scheduler.advance(2 * 3_600_000)
    bench.quotas.metrics.expire_inactive_sensors()
    bench.quotas.produce(5, "alice")
    bench.scheduler.advance(10_000)
    assert [report["amount"] for report in bench.take()] == [5.0]


def test_a_window_that_was_started_again_counts_from_zero() -> None:
    difference = SampleDifference()
    assert difference.take([(0, 5.0, 1), (1_000, 7.0, 2)]) == (12.0, 3)
    assert difference.take([(0, 5.0, 1), (1_000, 9.0, 3)]) == (2.0, 1)
    assert difference.take([(12_000, 4.0, 1), (1_000, 9.0, 3)]) == (4.0, 1)


class _Nobody:
    """A channel that is muted."""

    def start_throttling(self) -> None: ...

    def end_throttling(self) -> None: ...
