"""A broker that has had some traffic, and its page."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from barnabas import EmbeddedBroker
from barnabas.clients.admin import KafkaAdminClient
from barnabas.clients.admin.quotas import ClientQuotaEntity
from barnabas.clients.admin.topics import NewTopic
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.clients.consumer import KafkaConsumer
from barnabas.clients.producer import KafkaProducer
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from monitoring.scrape import Scrape

QUOTAS = {"producer_byte_rate": 1e9, "consumer_byte_rate": 1e9, "request_percentage": 1e6}


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with quotas, a topic, a producer's records, and a group that has read some of them."""
    settings = {"barnabas.http.listener": "127.0.0.1:0", "offsets.topic.num.partitions": 1}
    with EmbeddedBroker(overrides=settings) as running:
        bootstrap = running.bootstrap_servers
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
            admin.alter_client_quotas({ClientQuotaEntity.of({"client-id": "billing"}): QUOTAS})
            admin.create_topics([NewTopic("orders", 2, 1)])
        with BlockingClient(bootstrap) as client:
            client.send(ApiVersionsRequest(client_software_name=""))  # an error, for the metrics of errors
        with KafkaProducer(bootstrap_servers=bootstrap, client_id="billing") as producer:
            for number in range(10):
                producer.send("orders", b"value", partition=number % 2).result(60)
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id="readers", client_id="billing", auto_offset_reset="earliest"
        )
        with consumer:
            consumer.subscribe(["orders"])
            count, deadline = 0, time.monotonic() + 60
            while count < 10:
                assert time.monotonic() < deadline
                count += len(consumer.poll(100))
            consumer.commit()
            with KafkaProducer(bootstrap_servers=bootstrap, client_id="billing") as producer:
                producer.send("orders", b"later", partition=0).result(60)
            yield running


@pytest.fixture(scope="session")
def scrape(broker: EmbeddedBroker) -> Scrape:
    address = broker.server.http_address
    assert address is not None
    Scrape.of(address)  # the meters of a topic are made when its counts are read for the first time
    return Scrape.of(address)
