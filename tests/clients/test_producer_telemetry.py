"""Our own producer pushes its metrics: they land in the broker's topic, and name the client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas import __version__
from barnabas.clients.producer import AsyncKafkaProducer, KafkaProducer
from barnabas.common.errors import KafkaTimeoutError
from barnabas.common.identifiers import uuid_to_string
from clients.broker_process import BrokerProcess
from clients.drivers import create_topic
from clients.telemetry_pushes import subscribed

pytestmark = pytest.mark.mechanism("P16")

TOTAL = "org.apache.kafka.producer.record.send.total"
# What KIP-714 asks of every producer, as far as it is about records and requests.
REQUIRED = {
    "org.apache.kafka.producer.node.request.latency.avg",
    "org.apache.kafka.producer.node.request.latency.max",
    "org.apache.kafka.producer.record.queue.time.avg",
    "org.apache.kafka.producer.record.queue.time.max",
}


def test_pushes_land_in_the_topic(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic)
    client_id = f"producer-{topic}"
    with subscribed(broker, client_id) as pushes:
        with KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, client_id=client_id, client_rack="rack-1"
        ) as producer:
            producer.send(topic, b"x").result(30)
            known = uuid_to_string(producer.client_instance_id(30))
            found = pushes.until(lambda found: len(found) >= 2)
            producer.send(topic, b"y").result(30)
        pushes.until(lambda found: found[-1].headers["terminating"] == "true")
    for push in found:
        assert push.headers["client_id"] == client_id
        assert push.headers["client_instance_id"] == known
        assert (push.headers["client_software_name"], push.headers["client_software_version"]) == (
            "barnabas",
            __version__,
        )
    assert found[0].names >= REQUIRED
    assert {point.resource["client_rack"] for push in found for point in push.points} == {"rack-1"}
    sent = [point.value for push in found for point in push.points if point.name == TOTAL]
    assert sum(value or 0 for value in sent) == 2.0, "deltas add up, the last push included"
    assert [push.headers["terminating"] for push in found].count("true") == 1


def test_what_is_asked_for_can_change(broker: BrokerProcess, topic: str) -> None:
    """The broker answers UNKNOWN_SUBSCRIPTION_ID then; the producer asks again, and keeps its id."""
    from barnabas.cli.telemetry_requests import alter_subscription
    from barnabas.clients.common.blocking_client import BlockingClient

    create_topic(broker.bootstrap_servers, topic)
    client_id = f"producer-{topic}"
    with (
        subscribed(broker, client_id, metrics="org.apache.kafka.producer.record.") as pushes,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id=client_id) as producer,
    ):
        producer.send(topic, b"x").result(30)
        first = pushes.until(lambda found: len(found) >= 1)[0]
        with BlockingClient(broker.bootstrap_servers) as client:
            alter_subscription(client, client_id, {"metrics": "org.apache.kafka.producer.topic."})
        found = pushes.until(lambda found: all("producer.topic." in name for name in found[-1].names))
    assert all("producer.record." in name for name in first.names)
    assert len({push.headers["client_instance_id"] for push in found}) == 1


def test_async_producer(broker: BrokerProcess, topic: str) -> None:
    async def run() -> bytes:
        async with AsyncKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            return await producer.client_instance_id(30)

    with subscribed(broker, topic):
        assert len(asyncio.run(run())) == 16


def test_no_id_without_a_subscription(tmp_path: Path) -> None:
    """The cluster does not take metrics, and the producer says so at once instead of waiting for the whole time."""
    with (
        BrokerProcess(tmp_path) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
        pytest.raises(KafkaTimeoutError, match="no id"),
    ):
        producer.client_instance_id(3_600)
