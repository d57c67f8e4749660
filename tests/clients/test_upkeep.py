"""What a broker does by itself, as a client sees it: retention, compaction, restarts, topics it is not to create."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

from clients.broker_process import BrokerProcess
from clients.confluent_admin import AdminClient
from clients.drivers import DRIVERS, LIBRARIES, SECONDS, Driver, confluent_consumer, create_topic, eventually
from clients.records import RECENTLY, Record

BUSY = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "20",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "20",
    "log.segment.delete.delay.ms": "0",
}
"""Everything that is done every few minutes is done all the time."""


@pytest.fixture(scope="module")
def busy_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    if "KAFKA_BOOTSTRAP_SERVERS" in os.environ:
        pytest.skip("needs a broker with settings of its own")
    with BrokerProcess(tmp_path_factory.mktemp("busy-broker"), BUSY) as broker:
        yield broker


def first_offset(bootstrap: str, topic: str) -> int:
    consumer: Any = confluent_consumer(bootstrap)
    try:
        return int(consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), SECONDS)[0])
    finally:
        consumer.close()


def test_retention_by_time(busy_broker: BrokerProcess, topic: str) -> None:
    bootstrap = busy_broker.bootstrap_servers
    create_topic(bootstrap, topic, {"retention.ms": "600000"})
    old = [Record(b"%d" % number, timestamp=RECENTLY) for number in range(5)]
    DRIVERS[2].produce(bootstrap, topic, old, codec="none")
    eventually(lambda: first_offset(bootstrap, topic) == 5)
    DRIVERS[2].produce(bootstrap, topic, [Record(b"new")], codec="none")
    (found,) = DRIVERS[0].read(bootstrap, topic, 1, auto_offset_reset="earliest")
    assert (found.offset, found.value) == (5, b"new")


def test_retention_by_size(busy_broker: BrokerProcess, topic: str) -> None:
    bootstrap = busy_broker.bootstrap_servers
    create_topic(bootstrap, topic, {"retention.bytes": "3000000", "segment.bytes": "1048576"})
    for number in range(8):
        DRIVERS[2].produce(bootstrap, topic, [Record(bytes([number]) * 900_000)], codec="none")
    # A segment goes if the others are still as many bytes as are to be kept.
    eventually(lambda: first_offset(bootstrap, topic) == 4)
    found = DRIVERS[1].read(bootstrap, topic, 4, start=4)
    assert [record.value[:1] for record in found if record.value] == [bytes([number]) for number in range(4, 8)]


def test_compaction(busy_broker: BrokerProcess, topic: str) -> None:
    """The last value of each key stays, at its offset, and a deleted key goes altogether."""
    bootstrap = busy_broker.bootstrap_servers
    create_topic(
        bootstrap,
        topic,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "100",
            "delete.retention.ms": "100",
        },
    )
    records = [Record(b"%d" % number, key=b"key %d" % (number % 5)) for number in range(100)]
    DRIVERS[2].produce(bootstrap, topic, [*records, Record(None, key=b"key 0")], codec="lz4")
    ticks = itertools.count(101)

    def compacted() -> bool:
        # Only what is behind the active segment is cleaned, and a segment is only rolled by a record that comes later.
        DRIVERS[2].produce(bootstrap, topic, [Record(b"tick", key=b"tick")], codec="none")
        last = next(ticks)
        kept = read_to(last)
        return [offset for offset in kept if offset < 101] == [96, 97, 98, 99]

    def read_to(last: int) -> dict[int, bytes | None]:
        consumer: Any = confluent_consumer(bootstrap)
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            found: dict[int, bytes | None] = {}
            while last not in found:
                message = consumer.poll(SECONDS)
                assert message.error() is None, message.error()
                found[message.offset()] = message.key()
            return found
        finally:
            consumer.close()

    eventually(compacted)
    for driver in LIBRARIES:
        found = driver.read(bootstrap, topic, 4)
        assert [(record.offset, record.key, record.value) for record in found] == [
            (number, b"key %d" % (number % 5), b"%d" % number) for number in range(96, 100)
        ]


def test_a_deleted_topic_leaves_no_files(busy_broker: BrokerProcess, topic: str) -> None:
    bootstrap = busy_broker.bootstrap_servers
    create_topic(bootstrap, topic, partitions=3)
    DRIVERS[2].produce(bootstrap, topic, [Record(b"x")], codec="none")
    assert len(list(busy_broker.data_dir.glob(f"{topic}-*"))) == 3
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(SECONDS)
    eventually(lambda: topic not in admin.list_topics(timeout=SECONDS).topics)
    eventually(lambda: not list(busy_broker.data_dir.glob(f"{topic}*")) or not admin.list_topics(timeout=SECONDS))


def test_topics_that_are_not_created(busy_broker: BrokerProcess, topic: str) -> None:
    bootstrap = busy_broker.bootstrap_servers
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        DRIVERS[2].produce(
            bootstrap,
            topic,
            [Record(b"x")],
            codec="none",
            topic_metadata_propagation_max_ms=1,
            message_timeout_ms=60_000,
        )
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        assert topic not in consumer.topics()
        assert not consumer.partitions_for_topic(topic)
    finally:
        consumer.close()


# ------------------------------------------------------------------------------------------------ restarts


@pytest.mark.parametrize("driver", LIBRARIES, ids=lambda driver: driver.name)
def test_records_are_there_after_a_restart(tmp_path: Any, topic: str, driver: Driver) -> None:
    if "KAFKA_BOOTSTRAP_SERVERS" in os.environ:
        pytest.skip("needs a broker of its own")
    records = [Record(b"%d" % number, key=b"k", timestamp=RECENTLY + number) for number in range(10)]
    broker = BrokerProcess(tmp_path)
    with broker:
        create_topic(broker.bootstrap_servers, topic, {"retention.bytes": "123456"}, partitions=2)
        driver.produce(broker.bootstrap_servers, topic, records, codec="snappy", partition=1)
    with broker:
        assert driver.read(broker.bootstrap_servers, topic, 10, partition=1) == [
            record._replace(offset=number) for number, record in enumerate(records)
        ]
        driver.produce(broker.bootstrap_servers, topic, [Record(b"more")], codec="none", partition=1)
        assert driver.read(broker.bootstrap_servers, topic, 1, partition=1, start=10)[0].value == b"more"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_clients_outlive_a_restart(tmp_path: Any, topic: str) -> None:
    """Idempotent producers and consumers of three projects go on where they were: nothing lost, nothing twice."""
    if "KAFKA_BOOTSTRAP_SERVERS" in os.environ:
        pytest.skip("needs a broker of its own")

    async def run() -> None:
        create_topic(bootstrap, topic, partitions=3)
        first = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, retry_backoff_ms=20)
        second = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, retry_backoff_ms=20)
        third = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 100}
        )
        consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with second, consumer:
            for half in range(2):
                if half:
                    await asyncio.to_thread(broker.stop)
                sent = [first.send(topic, b"%d" % number, partition=0) for number in range(half * 50, half * 50 + 50)]
                also = [
                    await second.send(topic, b"%d" % number, partition=1) for number in range(half * 50, half * 50 + 50)
                ]
                for number in range(half * 50, half * 50 + 50):
                    third.produce(topic, b"%d" % number, partition=2)
                if half:
                    await asyncio.to_thread(broker.start)
                await asyncio.gather(*also)
                for future in sent:
                    await asyncio.to_thread(future.get, SECONDS)
                assert await asyncio.to_thread(third.flush, SECONDS) == 0
            found: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}
            while sum(map(len, found.values())) < 300:
                message = await consumer.getone()
                found[message.partition].append(message.value)
        first.close()
        assert found == {partition: [b"%d" % number for number in range(100)] for partition in range(3)}

    with BrokerProcess(tmp_path) as broker:
        bootstrap = broker.bootstrap_servers
        asyncio.run(asyncio.wait_for(run(), 2 * SECONDS))
    gc.collect()  # kafka-python leaves the sockets of connections that were refused to the collector
