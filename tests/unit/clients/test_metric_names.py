"""The names of our clients' metrics beside those of Kafka's Java clients, 4.4.0."""

from __future__ import annotations

import math
from typing import Final

import pytest

import barnabas
from barnabas.clients.consumer import TopicPartition
from barnabas.clients.consumer.kafka_consumer import KafkaConsumer
from barnabas.clients.consumer.testing import ConsumerCluster
from barnabas.clients.producer import KafkaProducer
from barnabas.clients.testing import ScriptedCluster


def words(text: str) -> list[str]:
    return text.split()


# What `metrics()` of a Java client has. Of the first two, producer and consumer have all.
SELECTOR: Final = words("""
connection-close-rate connection-close-total connection-count connection-creation-rate connection-creation-total
failed-authentication-rate failed-authentication-total failed-reauthentication-rate failed-reauthentication-total
incoming-byte-rate incoming-byte-total io-ratio io-time-ns-avg io-time-ns-total io-wait-ratio io-wait-time-ns-avg
io-wait-time-ns-total network-io-rate network-io-total outgoing-byte-rate outgoing-byte-total
reauthentication-latency-avg reauthentication-latency-max request-rate request-size-avg request-size-max
request-total response-rate response-total select-rate select-total successful-authentication-no-reauth-total
successful-authentication-rate successful-authentication-total successful-reauthentication-rate
successful-reauthentication-total
""")

NODE: Final = words("""
incoming-byte-rate incoming-byte-total outgoing-byte-rate outgoing-byte-total request-latency-avg
request-latency-max request-rate request-size-avg request-size-max request-total response-rate response-total
""")

# Of a member of a group, with either protocol; and with the classic one.
COORDINATOR: Final = words("""
assigned-partitions commit-latency-avg commit-latency-max commit-rate commit-total failed-rebalance-rate-per-hour
failed-rebalance-total heartbeat-rate heartbeat-response-time-max heartbeat-total last-heartbeat-seconds-ago
last-rebalance-seconds-ago partition-assigned-latency-avg partition-assigned-latency-max partition-lost-latency-avg
partition-lost-latency-max partition-revoked-latency-avg partition-revoked-latency-max rebalance-latency-avg
rebalance-latency-max rebalance-latency-total rebalance-rate-per-hour rebalance-total
""")

CLASSIC_COORDINATOR: Final = words("""
join-rate join-time-avg join-time-max join-total sync-rate sync-time-avg sync-time-max sync-total
""")

FETCH_MANAGER: Final = words("""
bytes-consumed-rate bytes-consumed-total fetch-latency-avg fetch-latency-max fetch-rate fetch-size-avg
fetch-size-max fetch-throttle-time-avg fetch-throttle-time-max fetch-total records-consumed-rate
records-consumed-total records-lag-max records-lead-min records-per-request-avg
""")

CONSUMER: Final = words("""
commit-sync-time-ns-total committed-time-ns-total last-poll-seconds-ago poll-idle-ratio-avg time-between-poll-avg
time-between-poll-max
""")

# Of the queues between its two threads (KIP-1068); of Kafka's only with the newer protocol.
CONSUMER_THREADS: Final = words("""
application-event-queue-processing-time-avg application-event-queue-processing-time-max application-event-queue-size
application-event-queue-time-avg application-event-queue-time-max application-events-expired-count
background-event-queue-processing-time-avg background-event-queue-processing-time-max background-event-queue-size
background-event-queue-time-avg background-event-queue-time-max time-between-network-thread-poll-avg
time-between-network-thread-poll-max unsent-requests-queue-size unsent-requests-queue-time-avg
unsent-requests-queue-time-max
""")

PRODUCER: Final = words("""
batch-size-avg batch-size-max batch-split-rate batch-split-total buffer-available-bytes buffer-exhausted-rate
buffer-exhausted-total buffer-total-bytes bufferpool-wait-ratio bufferpool-wait-time-ns-total compression-rate-avg
flush-time-ns-total metadata-age metadata-wait-time-ns-total produce-throttle-time-avg produce-throttle-time-max
record-error-rate record-error-total record-queue-time-avg record-queue-time-max record-retry-rate
record-retry-total record-send-rate record-send-total record-size-avg record-size-max records-per-request-avg
request-latency-avg request-latency-max requests-in-flight txn-abort-time-ns-total txn-begin-time-ns-total
txn-commit-time-ns-total txn-init-time-ns-total txn-prepare-time-ns-total txn-send-offsets-time-ns-total
waiting-threads
""")

OF_TOPIC: Final = words("""
bytes-consumed-rate bytes-consumed-total fetch-size-avg fetch-size-max records-consumed-rate records-consumed-total
records-per-request-avg
""")

OF_PARTITION: Final = words("""
preferred-read-replica records-lag records-lag-avg records-lag-max records-lead records-lead-avg records-lead-min
""")

APP_INFO: Final = words("commit-id start-time-ms version")


def names(client: KafkaProducer | KafkaConsumer, group: str, **tags: str) -> set[str]:
    """Without tags those of the client, and of nodes."""
    wanted = {"client-id": client.config.client_id, **tags}
    return {
        name.name
        for name in client.metrics()
        if name.group == group and {tag: name.tags[tag] for tag in name.tags if tag != "node-id"} == wanted
    }


def test_producer() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer("t")
    future = producer.send("t", b"x")
    cluster.run_until(producer, future.done)
    assert names(producer, "producer-metrics") == {*SELECTOR, *PRODUCER}
    assert names(producer, "producer-node-metrics") == set(NODE)


def test_consumer() -> None:
    cluster = ConsumerCluster({"t": 1})
    cluster.append("t", 0, [b"x"])
    consumer = cluster.consumer(auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0)])
    assert cluster.run(consumer, lambda: consumer.poll(10_000))
    assert names(consumer, "consumer-metrics") == {*SELECTOR, *CONSUMER, *CONSUMER_THREADS}
    assert names(consumer, "consumer-fetch-manager-metrics") == set(FETCH_MANAGER)
    assert names(consumer, "consumer-fetch-manager-metrics", topic="t") == set(OF_TOPIC)
    assert names(consumer, "consumer-fetch-manager-metrics", topic="t", partition="0") == set(OF_PARTITION)
    assert names(consumer, "consumer-node-metrics") == set(NODE)


@pytest.mark.parametrize(("protocol", "more"), [("consumer", []), ("classic", CLASSIC_COORDINATOR)])
def test_consumer_in_a_group(protocol: str, more: list[str]) -> None:
    consumer = ConsumerCluster({"t": 1}).consumer(group_id="g", group_protocol=protocol)
    assert names(consumer, "consumer-coordinator-metrics") == {*COORDINATOR, *more}


def test_what_a_client_is() -> None:
    cluster = ConsumerCluster({"t": 1})
    started_ms = cluster.clock.milliseconds()
    producer, consumer = cluster.producer("t"), cluster.consumer()
    cluster.clock.advance(1_000)
    for client in (producer, consumer):
        assert names(client, "app-info") == set(APP_INFO)
        assert client.metric("version", "app-info") == barnabas.__version__
        assert client.metric("commit-id", "app-info") == "unknown"
        assert client.metric("start-time-ms", "app-info") == started_ms


def test_nobody_authenticates_without_tls_and_sasl() -> None:
    """Kafka's clients have the same on such a connection: it is ready without having been authenticated."""
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer("t")
    future = producer.send("t", b"x")
    cluster.run_until(producer, future.done)
    assert producer.metric("connection-creation-total") > 0
    found = {name: producer.metric(name) for name in SELECTOR if "authentication" in name}
    assert len(found) == 11
    assert {name for name, value in found.items() if math.isnan(value)} == {
        "reauthentication-latency-avg",
        "reauthentication-latency-max",
    }
    assert {value for value in found.values() if not math.isnan(value)} == {0.0}
