"""The metrics of a network client: what is counted, and rates that are made of counts."""

from __future__ import annotations

import math

import pytest

from barnabas.metrics.config import MetricConfig
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import (
    Avg,
    CountedAvg,
    CountedMax,
    CountedRate,
    CountedTotal,
    CumulativeSum,
    Max,
    Rate,
    WindowedCount,
)
from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.selector_metrics import SelectorMetrics
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from unit.network.client.client_doubles import OTHER, Harness, MiddleRandom, answer_to, one_address

CONFIG = MetricConfig(samples=2, window_ms=30_000)


class Measured(Harness):
    def __init__(self) -> None:
        super().__init__()
        self.metrics = Metrics(CONFIG, clock=self.clock)
        self.client = NetworkClient(
            self.selector,
            self.updater,
            NetworkClientConfig(client_id="test"),
            clock=self.clock,
            random=MiddleRandom(),
            resolver=one_address,
            metrics=SelectorMetrics(self.metrics, "producer", self.selector.stats),
        )

    def value(self, name: str, node: str | None = None) -> float:
        group = "producer-metrics" if node is None else "producer-node-metrics"
        metric = self.metrics.metric(MetricName(name, group, {} if node is None else {"node-id": f"node-{node}"}))
        assert metric is not None, name
        found: float = metric.value()
        return found

    def exchange(self, *topics: str) -> tuple[int, int]:
        """One request and its response; returns their sizes."""
        sent, received = self.value("outgoing-byte-total"), self.value("incoming-byte-total")
        self.send(MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics]))
        asked = self.selector.sent.pop()
        answer = answer_to(asked, MetadataResponse())
        self.selector.deliver(asked.node_id, answer)
        assert len(self.poll()) == 1
        sizes = int(self.value("outgoing-byte-total") - sent), int(self.value("incoming-byte-total") - received)
        assert sizes == (len(asked.payload) + 4, len(answer) + 4)
        return sizes


def test_requests_and_bytes_of_all_nodes_and_of_each() -> None:
    client = Measured()
    client.make_ready()
    assert client.value("request-total") == client.value("response-total") == 1, "the question for the versions"
    sent, received = client.exchange("t")
    assert client.value("request-total") == client.value("request-total", "1") == 2
    assert client.value("response-total", "1") == 2
    assert client.value("network-io-total") == 4
    assert client.value("outgoing-byte-total", "1") == client.value("outgoing-byte-total") > sent
    assert client.value("incoming-byte-total", "1") == client.value("incoming-byte-total") > received
    client.connect(OTHER)
    assert (client.value("request-total"), client.value("request-total", "2")) == (3, 1)
    assert client.value("response-total", "2") == 0
    assert client.value("connection-count") == 2


def test_rates_and_sizes_have_windows() -> None:
    client = Measured()
    client.make_ready()
    large, _ = client.exchange("a" * 200, "b" * 100)
    small, _ = client.exchange("t")
    total = client.value("outgoing-byte-total")
    assert client.value("request-rate") == pytest.approx(3 / 30)
    assert client.value("outgoing-byte-rate", "1") == pytest.approx(total / 30)
    assert client.value("request-size-max") == client.value("request-size-max", "1") == large
    assert client.value("request-size-avg") == pytest.approx(total / 3)
    for _ in range(59):
        client.poll(1_000)
    assert client.value("request-size-max") == large, "two windows of 30 seconds are not over"
    client.exchange("t")
    for _ in range(31):
        client.poll(1_000)
    assert client.value("request-size-max") == client.value("request-size-avg") == small
    assert client.value("request-total") == 4, "totals do not forget"
    for _ in range(60):
        client.poll(1_000)
    assert math.isnan(client.value("request-size-avg"))
    assert client.value("request-rate") == 0


def test_connections_and_the_time_of_the_thread() -> None:
    client = Measured()
    stats = client.selector.stats
    stats.connections_created, stats.connections_closed, stats.failed_authentications = 6, 3, 1
    assert client.value("connection-creation-total") == 6
    assert client.value("connection-creation-rate") == pytest.approx(6 / 30)
    assert (client.value("connection-close-total"), client.value("failed-authentication-total")) == (3, 1)
    for _ in range(10):
        stats.select_ns += 1_500_000_000
        stats.io_ns += 300_000_000
        client.poll(3_000)
    assert client.value("select-total") == 10
    assert client.value("io-wait-time-ns-total") == 15_000_000_000
    assert client.value("io-wait-time-ns-avg") == pytest.approx(1_500_000_000)
    assert client.value("io-wait-ratio") == pytest.approx(0.25, rel=0.1), "of 30 seconds, and 30 before them"
    assert client.value("io-ratio") == pytest.approx(0.05, rel=0.1)
    assert client.value("io-time-ns-avg") == pytest.approx(300_000_000)


def test_the_same_as_stats_that_are_told_at_once() -> None:
    """If they are read whenever something has happened."""
    sizes: list[int] = []
    greatest = [0]
    told, total, average, maximum = Rate(stat=WindowedCount()), CumulativeSum(), Avg(), Max()
    counted = CountedRate(lambda: len(sizes))
    counted_total = CountedTotal(lambda: sum(sizes))
    counted_average = CountedAvg(lambda: sum(sizes), lambda: len(sizes))
    counted_maximum = CountedMax(lambda: greatest[0], lambda: len(sizes))
    now = 0
    for step in range(200):
        now += (step * 7919) % 4_000
        size = (step * 104_729) % 1_000
        if step % 5:
            for stat in (told, total, average, maximum):
                stat.record(CONFIG, size, now)
            sizes.append(size)
            greatest[0] = size
        assert counted.measure(CONFIG, now) == told.measure(CONFIG, now)
        assert counted_total.measure(CONFIG, now) == total.measure(CONFIG, now)
        assert counted_average.measure(CONFIG, now) == pytest.approx(average.measure(CONFIG, now), nan_ok=True)
        assert counted_maximum.measure(CONFIG, now) == pytest.approx(maximum.measure(CONFIG, now), nan_ok=True)
