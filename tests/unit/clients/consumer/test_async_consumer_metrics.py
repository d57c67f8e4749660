"""What is measured of the queues between the two threads of a consumer."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.clients.consumer import TopicPartition
from barnabas.clients.consumer.internals.application_events import ApplicationEventQueue
from barnabas.clients.consumer.internals.async_consumer_metrics import AsyncConsumerMetrics
from barnabas.clients.consumer.internals.background_events import BackgroundEventQueue, CallbackEvent
from barnabas.clients.consumer.internals.durations import Durations
from barnabas.clients.consumer.testing import ConsumerCluster
from barnabas.common.clock import MockClock
from barnabas.common.errors import KafkaTimeoutError
from barnabas.metrics.config import MetricConfig
from barnabas.metrics.registry import Metrics

GROUP = "consumer-metrics"


class Bench:
    """Two windows of 30 seconds, as a consumer has them."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.metrics = Metrics(MetricConfig(samples=2, window_ms=30_000), clock=self.clock)
        self.application = ApplicationEventQueue(lambda: None, self.clock)
        self.background = BackgroundEventQueue(self.clock)
        self.delegate = SimpleNamespace(unsent_count=0, waited=Durations())
        self.shown = AsyncConsumerMetrics(self.metrics, self.application, self.background, cast("Any", self.delegate))

    @property
    def now(self) -> int:
        return self.clock.hi_res_milliseconds()

    def value(self, name: str) -> float:
        metric = self.metrics.metric(self.metrics.metric_name(name, GROUP))
        assert metric is not None
        value: float = metric.value()
        return value

    def times(self, name: str) -> tuple[float, float]:
        return self.value(f"{name}-avg"), self.value(f"{name}-max")


def test_turns_of_the_background_thread() -> None:
    bench = Bench()
    assert all(math.isnan(value) for value in bench.times("time-between-network-thread-poll"))
    for step_ms in (0, 10, 20, 60):
        bench.clock.advance(step_ms)
        bench.shown.turned(bench.now)
    assert bench.times("time-between-network-thread-poll") == (30, 60)


def test_a_maximum_is_forgotten_with_its_window() -> None:
    bench = Bench()
    bench.shown.turned(bench.now)
    bench.clock.advance(5_000)
    bench.shown.turned(bench.now)
    for _ in range(120):
        bench.clock.advance(1_000)
        bench.shown.turned(bench.now)
    assert bench.times("time-between-network-thread-poll") == (1_000, 1_000)


def test_wishes_of_the_application() -> None:
    bench = Bench()
    bench.application.submit("first", lambda _now: bench.clock.advance(7))
    bench.clock.advance(30)
    bench.application.submit("second", lambda _now: None)
    assert bench.value("application-event-queue-size") == 2
    bench.application.process(bench.now)
    assert bench.value("application-event-queue-size") == 0
    assert bench.times("application-event-queue-time") == (15, 30)
    assert bench.times("application-event-queue-processing-time") == (7, 7)
    bench.application.process(bench.now)
    assert bench.application.processed.count == 1, "there was nothing to do"


def test_events_for_the_application() -> None:
    bench = Bench()
    bench.background.put(CallbackEvent(lambda: None))
    bench.clock.advance(40)
    assert bench.value("background-event-queue-size") == 1
    assert len(bench.background.drain()) == 1
    assert bench.value("background-event-queue-size") == 0
    assert bench.times("background-event-queue-time") == (40, 40)


def test_requests_that_wait() -> None:
    bench = Bench()
    bench.delegate.unsent_count = 3
    bench.delegate.waited.add(12)
    bench.delegate.waited.add(0)
    assert bench.value("unsent-requests-queue-size") == 3
    assert bench.times("unsent-requests-queue-time") == (6, 12)


def test_a_consumer_measures_all_of_it() -> None:
    cluster = ConsumerCluster({"t": 1})
    cluster.append("t", 0, [b"x"])
    consumer = cluster.consumer(auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0)])
    assert cluster.run(consumer, lambda: consumer.poll(10_000))
    for name in ("application-event-queue-time", "unsent-requests-queue-time", "time-between-network-thread-poll"):
        assert consumer.metric(f"{name}-max", GROUP) >= 0
    assert consumer.metric("application-event-queue-processing-time-avg", GROUP) >= 0
    assert consumer.metric("application-events-expired-count", GROUP) == 0
    cluster.stop(1)
    with pytest.raises(KafkaTimeoutError):
        cluster.run(consumer, lambda: consumer.beginning_offsets([TopicPartition("t", 0)], timeout_ms=100))
    assert consumer.metric("application-events-expired-count", GROUP) == 1


def test_callbacks_of_an_application_are_measured() -> None:
    cluster = ConsumerCluster({"t": 1})
    consumer = cluster.consumer()
    consumer.assign([TopicPartition("t", 0)])
    core = consumer._core
    core._background_events.put(CallbackEvent(lambda: None))
    core.run(core.process_background_events())
    assert consumer.metric("background-event-queue-processing-time-avg", GROUP) >= 0
