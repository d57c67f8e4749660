"""Counting what goes in and out."""

from __future__ import annotations

import threading

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.names import MBeanName
from barnabas.metrics.yammer.meter import Meter
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.replica.broker_topic_stats import (
    BYTES_IN,
    BYTES_OUT,
    FAILED_PRODUCE_REQUESTS,
    MESSAGES_IN,
    REASSIGNMENT_BYTES_IN,
    REASSIGNMENT_BYTES_OUT,
    REPLICATION_BYTES_IN,
    REPLICATION_BYTES_OUT,
    TOTAL_FETCH_REQUESTS,
    TOTAL_PRODUCE_REQUESTS,
    BrokerTopicStats,
)


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def registry(clock: MockClock) -> MetricsRegistry:
    return MetricsRegistry(clock)


@pytest.fixture
def stats(registry: MetricsRegistry) -> BrokerTopicStats:
    return BrokerTopicStats(registry)


def meter(registry: MetricsRegistry, name: str, topic: str | None = None) -> Meter | None:
    tags = None if topic is None else {"topic": topic}
    found = registry.get(MBeanName("kafka.server", "BrokerTopicMetrics", name, tags))
    assert found is None or isinstance(found, Meter)
    return found


def count(registry: MetricsRegistry, name: str, topic: str | None = None) -> int:
    found = meter(registry, name, topic)
    return 0 if found is None else found.count


def test_a_topic_and_all_topics(stats: BrokerTopicStats, registry: MetricsRegistry, clock: MockClock) -> None:
    stats.topic_stats("a").record_append(100, 3, clock.nanoseconds())
    stats.topic_stats("b").record_append(50, 1, clock.nanoseconds())
    stats.topic_stats("a").record_fetch_request(clock.nanoseconds())
    stats.topic_stats("a").mark(FAILED_PRODUCE_REQUESTS)
    for name, of_a, of_all in (
        (BYTES_IN, 100, 150),
        (MESSAGES_IN, 3, 4),
        (TOTAL_PRODUCE_REQUESTS, 1, 2),
        (TOTAL_FETCH_REQUESTS, 1, 1),
        (FAILED_PRODUCE_REQUESTS, 1, 1),
    ):
        assert count(registry, name) == of_all
        assert count(registry, name, "a") == of_a


def test_what_is_read_first_is_up_to_date(stats: BrokerTopicStats, registry: MetricsRegistry) -> None:
    topic = stats.topic_stats("a")
    topic.record_append(1, 1, 0)
    assert count(registry, BYTES_IN) == 1
    topic.record_append(1, 1, 1)
    assert count(registry, BYTES_IN, "a") == 2


def test_rates(stats: BrokerTopicStats, registry: MetricsRegistry, clock: MockClock) -> None:
    """Events that are handed over late count when they happened: 1,000 bytes a second are just that."""
    topic = stats.topic_stats("a")
    for _ in range(120):
        topic.record_append(1000, 1, clock.nanoseconds())
        clock.advance(1000)
    found = meter(registry, BYTES_IN, "a")
    assert found is not None
    assert found.mean_rate == pytest.approx(1000, rel=0.02)
    assert found.one_minute_rate == pytest.approx(1000, rel=0.1)
    assert stats.all_topics[BYTES_IN].one_minute_rate == pytest.approx(1000, rel=0.1)


def test_a_topic_that_went_quiet(stats: BrokerTopicStats, clock: MockClock) -> None:
    topic = stats.topic_stats("a")
    for _ in range(60):
        topic.record_append(1000, 1, clock.nanoseconds())
        clock.advance(1000)
    clock.advance(600_000)
    assert stats.all_topics[BYTES_IN].count == 60_000
    assert stats.all_topics[BYTES_IN].one_minute_rate < 1


def test_meters_come_with_the_first_event(stats: BrokerTopicStats, registry: MetricsRegistry) -> None:
    stats.topic_stats("a")
    assert meter(registry, BYTES_IN, "a") is None
    assert meter(registry, BYTES_IN) is not None


def test_a_topic_that_is_gone(stats: BrokerTopicStats, registry: MetricsRegistry) -> None:
    stats.topic_stats("a").record_append(100, 1, 0)
    stats.remove_metrics("a")
    stats.remove_metrics("never there")
    assert meter(registry, BYTES_IN, "a") is None
    assert count(registry, BYTES_IN) == 100
    stats.topic_stats("a").record_append(5, 1, 0)
    assert count(registry, BYTES_IN, "a") == 0 or count(registry, BYTES_IN) == 105


def test_bytes_out(stats: BrokerTopicStats, registry: MetricsRegistry) -> None:
    stats.topic_stats("a").record_bytes_out(10, 0)
    stats.update_replication_bytes_out(20)
    stats.update_replication_bytes_out(40, is_reassignment=True)
    stats.update_replication_bytes_in(3)
    stats.update_replication_bytes_in(4, is_reassignment=True)
    assert count(registry, BYTES_OUT) == count(registry, BYTES_OUT, "a") == 10
    assert count(registry, REPLICATION_BYTES_OUT) == 60
    assert count(registry, REASSIGNMENT_BYTES_OUT) == 40
    assert count(registry, REPLICATION_BYTES_IN) == 7
    assert count(registry, REASSIGNMENT_BYTES_IN) == 4


def test_nothing_is_lost_between_threads(stats: BrokerTopicStats, registry: MetricsRegistry) -> None:
    threads_count, rounds = 4, 500
    started = threading.Barrier(threads_count + 1)

    def work(number: int) -> None:
        started.wait()
        for turn in range(rounds):
            stats.topic_stats(f"t{(number + turn) % 3}").record_append(7, 2, turn * 400_000_000)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(threads_count)]
    for thread in threads:
        thread.start()
    started.wait()
    while any(thread.is_alive() for thread in threads):
        count(registry, BYTES_IN)
    for thread in threads:
        thread.join()
    assert count(registry, BYTES_IN) == 7 * threads_count * rounds
    assert sum(count(registry, MESSAGES_IN, f"t{number}") for number in range(3)) == 2 * threads_count * rounds


def test_closing_takes_all_away(stats: BrokerTopicStats, registry: MetricsRegistry) -> None:
    stats.topic_stats("a").record_append(100, 1, 0)
    stats.close()
    assert registry.metrics == {}
