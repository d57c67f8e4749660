"""librdkafka pushes its metrics to a broker without a plug-in (KIP-714), and is silent where nobody subscribed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

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
    with subscribed(broker, topic, metrics="org.apache.kafka.producer.connection.") as pushes:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "client.id": topic})
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


FIRST_CONTACT: Final = """
import sys, confluent_kafka
config = {"bootstrap.servers": sys.argv[1]}
producer = confluent_kafka.Producer(config)
producer.produce("greetings", b"hello")
assert producer.flush(60) == 0
consumer = confluent_kafka.Consumer(config | {"group.id": "first", "auto.offset.reset": "earliest"})
consumer.subscribe(["greetings"])
for _ in range(600):
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        break
assert message.value() == b"hello", message
consumer.close()
"""


def first_contact(tmp_path: Path, advertise: str) -> str:
    """Returns what a first producer and a first consumer print to stderr."""
    with BrokerProcess(tmp_path, {"barnabas.telemetry.advertise": advertise}) as broker:
        command = [sys.executable, "-c", FIRST_CONTACT, broker.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.mechanism("R03")
@pytest.mark.parametrize("advertise", ["auto", "never"])
def test_a_first_client_prints_nothing(tmp_path: Path, advertise: str) -> None:
    assert first_contact(tmp_path, advertise) == ""


@pytest.mark.mechanism("R03")
def test_a_first_client_learns_of_telemetry_that_is_always_advertised(tmp_path: Path) -> None:
    """librdkafka prints a line about the id that it gets, which is why `auto` is the default."""
    assert "GETSUBSCRIPTIONS" in first_contact(tmp_path, "always")
