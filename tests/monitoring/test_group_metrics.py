"""Members, offsets and lag of groups, as they come and go."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from barnabas import EmbeddedBroker
from barnabas.clients.admin import KafkaAdminClient
from barnabas.clients.admin.topics import NewTopic
from barnabas.clients.consumer import KafkaConsumer
from barnabas.clients.producer import KafkaProducer
from monitoring.scrape import Scrape

LIMIT_S = 60
SETTINGS = {"barnabas.http.listener": "127.0.0.1:0", "offsets.topic.num.partitions": 3}


def scrape_of(broker: EmbeddedBroker) -> Scrape:
    assert broker.server.http_address is not None
    return Scrape.of(broker.server.http_address)


def values(broker: EmbeddedBroker, name: str) -> dict[str, float]:
    """Returns the values of a metric by group."""
    return {sample.labels["consumergroup"]: sample.value for sample in scrape_of(broker).samples.get(name, ())}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline


def read_all(broker: EmbeddedBroker, group: str, protocol: str) -> KafkaConsumer:
    """Returns a member of a group that has committed 4 records."""
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    count = 0
    deadline = time.monotonic() + LIMIT_S
    while count < 4:
        assert time.monotonic() < deadline
        count += len(consumer.poll(100))
    consumer.commit()
    return consumer


def produce(broker: EmbeddedBroker, count: int) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(count):
            producer.send("orders", b"tea").result(LIMIT_S)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_either_protocol(protocol: str) -> None:
    with EmbeddedBroker(overrides=SETTINGS) as broker:
        assert values(broker, "kafka_consumergroup_members") == {}
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 1, 1)])
            produce(broker, 4)
            with read_all(broker, "readers", protocol):
                assert values(broker, "kafka_consumergroup_members") == {"readers": 1}
                assert values(broker, "kafka_consumergroup_lag") == {"readers": 0}
                produce(broker, 3)
                assert values(broker, "kafka_consumergroup_lag") == {"readers": 3}
                assert values(broker, "kafka_consumergroup_current_offset") == {"readers": 4}
            until(lambda: values(broker, "kafka_consumergroup_members") == {"readers": 0})
            assert values(broker, "kafka_consumergroup_lag_sum") == {"readers": 3}
            admin.delete_topics(["orders"])
            until(lambda: values(broker, "kafka_consumergroup_lag") == {})
            admin.delete_groups(["readers"])
            until(lambda: values(broker, "kafka_consumergroup_members") == {})


def test_groups_can_be_left_out() -> None:
    settings = {**SETTINGS, "barnabas.metrics.groups.exclude": "tmp-.*"}
    with EmbeddedBroker(overrides=settings) as broker:
        produce(broker, 4)
        with read_all(broker, "readers", "consumer"), read_all(broker, "tmp-1", "consumer"):
            assert values(broker, "kafka_consumergroup_members") == {"readers": 1}
            assert values(broker, "kafka_consumergroup_lag_sum") == {"readers": 0}
