"""librdkafka pushes its metrics to a broker that nobody has given a plug-in (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import confluent_kafka
import pytest

from clients.broker_process import BrokerProcess
from clients.telemetry_pushes import SECONDS, Pushes, subscribed

pytestmark = pytest.mark.mechanism("Q12", "Q13", "Q14", "Q15")


@pytest.fixture
def pushes(broker: BrokerProcess, topic: str) -> Iterator[Pushes]:
    with subscribed(broker, topic) as found:
        yield found


def test_a_producer_pushes_again_and_again(bootstrap: str, topic: str, pushes: Pushes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "client.id": topic})

    def work() -> None:
        producer.produce(topic, b"value")
        producer.flush(SECONDS)

    found = pushes.until(lambda some: len(some) >= 3, work)
    for push in found:
        headers = push.headers
        assert headers["client_id"] == topic
        assert headers["client_software_name"] == "confluent-kafka-python"
        assert headers["client_source_address"] == "127.0.0.1"
        assert headers["client_source_port"].isdigit()
        assert headers["principal"] == "User:ANONYMOUS"
        assert headers["content_type"] == "OTLP"
        assert headers["push_interval_ms"] == "200"
        assert any(name.startswith("org.apache.kafka.producer.") for name in push.names)
        assert all(point.time_unix_nano for point in push.points)
    assert len({push.headers["client_instance_id"] for push in found}) == 1
    received = [int(push.headers["received_ms"]) for push in found]
    # The broker goes by another clock than the one that tells when it was.
    assert all(later - earlier >= 190 for earlier, later in pairwise(received))


def test_the_last_push_of_a_producer_comes_with_its_end(broker: BrokerProcess, bootstrap: str, topic: str) -> None:
    # The client leaves it out if it is waiting for the answer to another push. The broker writes 200 ms after a push.
    with subscribed(broker, topic, **{"interval.ms": "1000"}) as pushes:
        producers = [confluent_kafka.Producer({"bootstrap.servers": bootstrap, "client.id": topic})]
        pushes.until(lambda some: len(some) >= 1, lambda: producers[0].poll(0.01))
        producers.clear()
        first, last = pushes.until(lambda some: len(some) >= 2)[:2]
    assert (first.headers["terminating"], last.headers["terminating"]) == ("false", "true")
    assert int(last.headers["received_ms"]) - int(first.headers["received_ms"]) < 1_000


def test_a_consumer_pushes_what_it_has_fetched(bootstrap: str, topic: str, pushes: Pushes) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "client.id": topic, "allow.auto.create.topics": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        found = pushes.until(lambda some: len(some) >= 2, lambda: consumer.poll(0.05))
    finally:
        consumer.close()
    assert any(name.startswith("org.apache.kafka.consumer.") for push in found for name in push.names)


def test_only_what_was_asked_for_comes(broker: BrokerProcess, bootstrap: str, topic: str) -> None:
    wanted = "org.apache.kafka.producer.connection."
    with subscribed(broker, topic, metrics=wanted) as pushes:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "client.id": topic})
        found = pushes.until(lambda some: len(some) >= 2, lambda: producer.poll(0.05))
        assert all(name.startswith(wanted) for push in found for name in push.names)
        assert found[0].names


def test_a_changed_subscription_reaches_a_running_client(broker: BrokerProcess, bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "client.id": topic})
    with subscribed(broker, topic, metrics="org.apache.kafka.producer.connection.") as pushes:
        pushes.until(lambda some: len(some) >= 2, lambda: producer.poll(0.05))
        with subscribed(broker, topic, metrics="org.apache.kafka.producer.node.", match=f"client_id={topic}"):
            pushes.until(
                lambda some: any(
                    name.startswith("org.apache.kafka.producer.node.") for push in some for name in push.names
                ),
                lambda: producer.poll(0.05),
            )


def test_a_client_that_does_not_want_to_push_is_left_alone(bootstrap: str, topic: str, pushes: Pushes) -> None:
    quiet = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "client.id": topic, "enable.metrics.push": False})
    loud = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "client.id": topic})

    def work() -> None:
        for producer in (quiet, loud):
            producer.produce(topic, b"value")
            producer.flush(SECONDS)

    found = pushes.until(lambda some: len(some) >= 3, work)
    assert len({push.headers["client_instance_id"] for push in found}) == 1
