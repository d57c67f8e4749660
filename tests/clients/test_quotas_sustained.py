"""Each quota over 20 seconds with Kafka's windows, within ten percent, and a neighbour who does not notice.

A rate is measured over eleven windows of a second, so whoever has been idle may have ten seconds' worth at once.
Where a client cannot be held to a pace, the 20 seconds begin when that is used up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest

from barnabas.cli.quota_requests import alter_quotas
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.common.errors import Errors
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from clients.test_quotas import (
    MB,
    RATE,
    Client,
    Producing,
    QuotaBroker,
    _is_served,
    _metadata_requests,
    make_topic,
    running,
)

pytestmark = pytest.mark.nightly

SECONDS: Final = 20.0
KAFKAS_WINDOWS: Final = 11
NEIGHBOURS_PACE: Final = 1 * MB


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuotaBroker]:
    directory: Path = tmp_path_factory.mktemp("sustained")
    with running(directory, KAFKAS_WINDOWS) as broker:
        make_topic(broker.bootstrap, "neighbour")
        yield broker


@contextmanager
def neighbour(broker: QuotaBroker) -> Iterator[None]:
    """A client without a quota, at the same pace before and while the work goes on, keeps 80 % of its speed."""
    with Producing(broker.bootstrap, "neighbour", "modest", pace=NEIGHBOURS_PACE) as modest:
        modest.bytes_in(1)
        alone = modest.bytes_in(4) / 4
        before, started = modest.acknowledged, time.monotonic()
        yield
        beside = (modest.acknowledged - before) / (time.monotonic() - started)
    assert not any(modest.throttled)
    assert modest.disconnects == 0
    assert beside >= 0.8 * alone, f"{beside:,.0f} of {alone:,.0f} bytes a second"
    print(f"neighbour: {beside / alone:.2f} of its speed alone")


def within_ten_percent(measured: float, limit: float) -> None:
    print(f"measured {measured:,.2f} of {limit:,.2f}: {measured / limit:.3f}")
    assert measured == pytest.approx(limit, rel=0.1)


def test_produce(broker: QuotaBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    with broker.limited("producer_byte_rate", RATE, client_id="writer"), neighbour(broker):
        with Producing(broker.bootstrap, topic, "writer", pace=2 * RATE) as writer:
            while not writer.acknowledged:
                writer.bytes_in(0.05)
            measured = writer.bytes_in(SECONDS)
        writer.assert_held_back_but_never_cut_off()
    within_ten_percent(measured / SECONDS, RATE)


def test_fetch(broker: QuotaBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    with broker.limited("consumer_byte_rate", RATE, client_id="reader"), neighbour(broker):
        client = Client(broker.bootstrap, "reader")
        settings = {"group.id": "none", "enable.auto.commit": False, "max.partition.fetch.bytes": 65_536}
        consumer: Any = confluent_kafka.Consumer({**client.settings, **settings})
        try:
            # It cannot read faster than somebody writes: twice its quota.
            with Producing(broker.bootstrap, topic, "unlimited", pace=2 * RATE):
                consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
                while (first := consumer.poll(20)) is None or first.error() is not None:
                    assert first is not None, "nothing came"
                started, read = time.monotonic(), len(first.value())
                while (elapsed := time.monotonic() - started) < SECONDS:
                    message: Any = consumer.poll(0.1)
                    if message is not None and message.error() is None:
                        read += len(message.value())
        finally:
            consumer.close()
        client.assert_held_back_but_never_cut_off()
    within_ten_percent(read / elapsed, RATE)


def test_request_percentage(broker: QuotaBroker) -> None:
    percentage = 5.0
    with broker.limited("request_percentage", percentage, client_id="busy"), neighbour(broker):
        _metadata_requests(broker.bootstrap, "busy", KAFKAS_WINDOWS + 1)
        usages: list[float] = []
        done = threading.Event()
        found: list[Any] = []

        def ask() -> None:
            found.append(_metadata_requests(broker.bootstrap, "busy", SECONDS))
            done.set()

        asking = threading.Thread(target=ask)
        asking.start()
        while not done.wait(0.25):
            usages.append(broker.usage("request_percentage", "busy"))
        asking.join()
    assert max(found[0].throttle_ms) > 0
    within_ten_percent(sum(usages) / len(usages), percentage)


def test_controller_mutations(broker: QuotaBroker) -> None:
    rate = 5.0
    with (
        broker.limited("controller_mutation_rate", rate, client_id="maker"),
        BlockingClient(broker.bootstrap, client_id="maker") as client,
        neighbour(broker),
    ):
        throttled: list[int] = []

        def create(name: str) -> bool:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            # The client waits for as long as it was told before it sends again.
            response: CreateTopicsResponse = client.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
            throttled.append(response.throttle_time_ms)
            code = response.topics[0].error_code
            assert code in {Errors.NONE, Errors.THROTTLING_QUOTA_EXCEEDED}
            return code == Errors.NONE

        made = 0
        while create(f"burst.{made}"):
            made += 1
        assert made >= rate * (KAFKAS_WINDOWS - 1), "what was saved up"
        made = counted(lambda number: create(f"steady.{number}"))
        assert max(throttled) > 0
    within_ten_percent(made / SECONDS, rate)


def test_connection_rate(broker: QuotaBroker) -> None:
    rate, entity, key = 10.0, (("ip", "127.0.0.1"),), "connection_creation_rate"
    # Connected beforehand: from the same address, and so limited too.
    with neighbour(broker), BlockingClient(broker.bootstrap, client_id="operator") as operator:
        alter_quotas(operator, entity, {key: rate})
        try:
            port = broker.process.port
            for _ in range(int(rate * KAFKAS_WINDOWS) + 5):
                _is_served(port, SECONDS)
            served = counted(lambda _: _is_served(port, SECONDS))
        finally:
            alter_quotas(operator, entity, {key: None})
    within_ten_percent(served / SECONDS, rate)


def counted(attempt: Callable[[int], bool]) -> int:
    """How often it succeeds in 20 seconds."""
    count = tries = 0
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        count += attempt(tries)
        tries += 1
    return count
