"""What clients of ours measure and push, against a broker: groups, connections, and all that KIP-714 asks for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final

import pytest

from barnabas.clients.admin import KafkaAdminClient
from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.consumer import ConsumerRebalanceListener, KafkaConsumer
from barnabas.clients.producer import KafkaProducer
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.registry import MetricsReporter
from clients.broker_process import BrokerProcess
from clients.drivers import create_topic
from clients.telemetry_pushes import subscribed

COORDINATOR: Final = "consumer-coordinator-metrics"
PREFIX: Final = "org.apache.kafka."
PROTOCOLS: Final = {
    "consumer": {"group.protocol": "consumer"},
    "classic": {"group.protocol": "classic", "heartbeat.interval.ms": "200"},
}

# The standard metrics of KIP-714.
PRODUCER: Final = {
    f"{PREFIX}producer.{name}"
    for name in (
        "connection.creation.rate",
        "connection.creation.total",
        "node.request.latency.avg",
        "node.request.latency.max",
        "produce.throttle.time.avg",
        "produce.throttle.time.max",
        "record.queue.time.avg",
        "record.queue.time.max",
    )
}
CONSUMER: Final = {
    f"{PREFIX}consumer.{name}"
    for name in (
        "connection.creation.rate",
        "connection.creation.total",
        "node.request.latency.avg",
        "node.request.latency.max",
        "poll.idle.ratio.avg",
        "coordinator.commit.latency.avg",
        "coordinator.commit.latency.max",
        "coordinator.assigned.partitions",
        "coordinator.heartbeat.response.time.max",
        "coordinator.rebalance.latency.avg",
        "coordinator.rebalance.latency.max",
        "coordinator.rebalance.latency.total",
        "fetch.manager.fetch.latency.avg",
        "fetch.manager.fetch.latency.max",
    )
}


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    create_topic(broker.bootstrap_servers, topic, partitions=2)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 2)


def poll_until(consumer: KafkaConsumer, done: Callable[[], bool]) -> int:
    count = 0
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        count += len(consumer.poll(100))
    return count


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_member_of_a_group(broker: BrokerProcess, topic: str, protocol: str) -> None:
    produce(broker, topic, 10)
    with KafkaConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **PROTOCOLS[protocol],
        }
    ) as consumer:

        def of_group(name: str) -> float:
            found: float = consumer.metric(name, COORDINATOR)
            return found

        consumer.subscribe([topic], listener=ConsumerRebalanceListener())
        poll_until(consumer, lambda: consumer.metric("records-consumed-total", "consumer-fetch-manager-metrics") == 10)
        consumer.commit()
        consumer.commit()
        assert of_group("assigned-partitions") == 2
        assert of_group("commit-total") == 2
        assert 0 <= of_group("commit-latency-avg") <= of_group("commit-latency-max") < 30_000
        assert of_group("rebalance-total") == 1
        assert of_group("rebalance-latency-max") == of_group("rebalance-latency-total") >= 0
        assert of_group("rebalance-rate-per-hour") > 0
        assert of_group("last-rebalance-seconds-ago") >= 0
        poll_until(consumer, lambda: of_group("heartbeat-total") >= 1)
        assert 0 <= of_group("heartbeat-response-time-max") < 30_000
        assert of_group("last-heartbeat-seconds-ago") >= 0
        assert of_group("partition-assigned-latency-max") >= 0
        assert math.isnan(of_group("partition-lost-latency-avg"))
        if protocol == "classic":
            assert (of_group("join-total"), of_group("sync-total")) == (1, 1)
            assert of_group("failed-rebalance-total") == 1, "the attempt that is answered with the member id"
        else:
            assert of_group("failed-rebalance-total") == 0
        connections = consumer.metric("connection-count", "consumer-metrics")
        assert consumer.metric("connection-creation-total", "consumer-metrics") >= connections >= 2
        assert consumer.metric("response-total", "consumer-metrics") > 5
        assert consumer.metric("incoming-byte-total", "consumer-metrics") > 10
        assert 0 < consumer.metric("io-wait-ratio", "consumer-metrics") <= 1.05
        consumer.unsubscribe()
        assert of_group("partition-revoked-latency-max") >= 0
        assert of_group("assigned-partitions") == 0


@pytest.mark.mechanism("P16")
def test_a_producer_pushes_what_every_producer_should(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic)
    client_id = f"producer-{topic}"
    with (
        subscribed(broker, client_id) as pushes,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id=client_id) as producer,
    ):
        producer.send(topic, b"x").result(30)
        made = producer.metric("connection-creation-total")
        found = pushes.until(lambda found: len(found) >= 3)
    assert set().union(*(push.names for push in found)) >= PRODUCER
    total = f"{PREFIX}producer.connection.creation.total"
    points = [point for push in found for point in push.points if point.name == total]
    assert {point.kind for point in points} == {"sum"}
    assert sum(point.value or 0 for point in points) >= made >= 1


@pytest.mark.mechanism("P16")
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_consumer_pushes_what_every_consumer_should(broker: BrokerProcess, topic: str, protocol: str) -> None:
    produce(broker, topic, 4)
    client_id = f"consumer-{topic}"
    with subscribed(broker, client_id) as pushes:
        with KafkaConsumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "client.id": client_id,
                "group.id": f"g-{topic}",
                "auto.offset.reset": "earliest",
                **PROTOCOLS[protocol],
            }
        ) as consumer:
            consumer.subscribe([topic])
            consumed = partial(consumer.metric, "records-consumed-total", "consumer-fetch-manager-metrics")
            poll_until(consumer, lambda: consumed() == 4)
            consumer.commit()
            found = pushes.until(lambda found: bool(found) and found[-1].names >= CONSUMER, lambda: consumer.poll(50))
            full = found[-1]
        pushes.until(lambda found: found[-1].headers["terminating"] == "true")
    points = {point.name: point for point in full.points}
    assert points[f"{PREFIX}consumer.coordinator.assigned.partitions"].value == 2
    assert points[f"{PREFIX}consumer.coordinator.rebalance.latency.total"].kind == "sum"
    assert points[f"{PREFIX}consumer.coordinator.assigned.partitions"].resource["group_id"] == f"g-{topic}"
    assert points[f"{PREFIX}consumer.coordinator.assigned.partitions"].resource["group_member_id"]


class Told(MetricsReporter):
    """A reporter that a client makes from its settings."""

    names: ClassVar[set[str]] = set()

    def init(self, metrics: Sequence[KafkaMetric]) -> None:
        for metric in metrics:
            self.metric_change(metric)

    def metric_change(self, metric: KafkaMetric) -> None:
        self.names.add(metric.name.name)

    def metric_removal(self, metric: KafkaMetric) -> None:
        pass


@pytest.mark.mechanism("P16")
def test_an_admin_client_measures_and_pushes_like_the_others(broker: BrokerProcess, topic: str) -> None:
    client_id = f"admin-{topic}"
    with subscribed(broker, client_id) as pushes:
        with KafkaAdminClient(
            {"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id, "metric.reporters": [Told]}
        ) as admin:
            admin.list_topics()
            assert admin.metric("connection-count") >= 1
            asked = admin.metric("request-total")
            admin.describe_cluster()
            assert admin.metric("request-total") > asked >= 2
            assert {name.group for name in admin.metrics()} >= {"admin-client-metrics", "admin-client-node-metrics"}
            assert "request-total" in Told.names
            assert len(admin.client_instance_id(20)) == 16
            pushes.until(lambda found: len(found) >= 1)
            before = len(pushes.found)
        found = pushes.until(lambda found: len(found) > before)  # at the latest the one at its end
    assert f"{PREFIX}admin.client.connection.creation.total" in set().union(*(push.names for push in found))


def test_an_admin_client_that_may_not_push_says_so(broker: BrokerProcess) -> None:
    with (
        KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, enable_metrics_push=False) as admin,
        pytest.raises(IllegalStateError, match=r"enable\.metrics\.push"),
    ):
        admin.client_instance_id(1)
