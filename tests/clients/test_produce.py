"""Producing with every client: acknowledgements, idempotence, compression, sizes, topics that come by themselves."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import MessageSizeTooLargeError as AiokafkaMessageSizeTooLargeError
from kafka.errors import MessageSizeTooLargeError

from clients.broker_process import BrokerProcess
from clients.drivers import DRIVERS, LIBRARIES, SECONDS, Driver, create_topic, run_kcat
from clients.records import RECENTLY, SAMPLES, Record, at

SMALL_MAXIMUM = 20_000


@pytest.mark.parametrize("acks", [0, 1, -1], ids=lambda acks: f"acks={acks}")
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_acks(bootstrap: str, topic: str, driver: Driver, acks: int) -> None:
    records = [Record(b"%d" % number, key=b"k") for number in range(50)]
    settings: dict[str, Any] = {"acks": "all" if acks == -1 else acks}
    if driver.name == "kafka-python":
        settings["enable_idempotence"] = False
    create_topic(bootstrap, topic)
    driver.produce(bootstrap, topic, records, codec="none", **settings)
    found = driver.read(bootstrap, topic, len(records))
    assert [(record.offset, record.key, record.value) for record in found] == [
        (number, record.key, record.value) for number, record in enumerate(records)
    ]


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_idempotent_producers(broker: BrokerProcess, topic: str, driver: Driver, codec: str) -> None:
    """Each batch carries the producer's id and a sequence number without gaps; a second producer has another id."""
    create_topic(broker.bootstrap_servers, topic)
    records = [Record(b"%d" % number, key=b"k") for number in range(200)]
    for _ in range(2):
        driver.produce(
            broker.bootstrap_servers, topic, records, codec=codec, enable_idempotence=True, acks=full_acks(driver)
        )
    found = driver.read(broker.bootstrap_servers, topic, 2 * len(records))
    assert [record.value for record in found] == [record.value for record in records] * 2
    if batches := broker.batches(topic):
        by_producer = [list(group) for _, group in itertools.groupby(batches, lambda batch: batch.producer_id)]
        assert [sum(batch.record_count for batch in group) for group in by_producer] == [len(records)] * 2
        for group in by_producer:
            assert group[0].producer_id >= 0
            assert [batch.base_sequence for batch in group] == [
                batch.base_offset - group[0].base_offset for batch in group
            ]


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_a_topic_with_its_own_codec(bootstrap: str, topic: str, driver: Driver, codec: str) -> None:
    """The broker packs the batches anew, and nobody sees a difference."""
    create_topic(bootstrap, topic, {"compression.type": "gzip"})
    writer = DRIVERS[2]
    writer.produce(bootstrap, topic, SAMPLES, codec=codec)
    assert driver.read(bootstrap, topic, len(SAMPLES)) == at(SAMPLES)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_log_append_time(bootstrap: str, topic: str, driver: Driver) -> None:
    create_topic(bootstrap, topic, {"message.timestamp.type": "LogAppendTime"})
    records = [Record(b"a", timestamp=1), Record(b"b", timestamp=2)]
    DRIVERS[2].produce(bootstrap, topic, records, codec="none")
    found = driver.read(bootstrap, topic, 2)
    # In one batch they have the same time; in two the second is not older.
    assert RECENTLY < found[0].timestamp <= found[1].timestamp


@pytest.mark.parametrize("driver", LIBRARIES, ids=lambda driver: driver.name)
def test_a_large_message(bootstrap: str, topic: str, driver: Driver) -> None:
    """As large as this topic allows, and larger than a consumer's usual limit for one fetch of a partition."""
    create_topic(bootstrap, topic, {"max.message.bytes": "12000000"})
    large = Record(bytes(range(256)) * 40_000, key=b"large", timestamp=RECENTLY)
    name = "message_max_bytes" if driver.name == "confluent-kafka" else "max_request_size"
    limit: dict[str, Any] = {name: 11_000_000}
    driver.produce(bootstrap, topic, [large, Record(b"small")], codec="none", **limit)
    found = driver.read(bootstrap, topic, 2)
    assert found[0] == large._replace(offset=0)
    assert found[1].value == b"small"


def test_message_too_large_for_kafka_python(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, {"max.message.bytes": str(SMALL_MAXIMUM)})
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)
    try:
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, b"x" * 2 * SMALL_MAXIMUM).get(SECONDS)
        assert producer.send(topic, b"fits").get(SECONDS).offset == 0
    finally:
        producer.close()


def test_message_too_large_for_aiokafka(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            with pytest.raises(AiokafkaMessageSizeTooLargeError):
                await producer.send_and_wait(topic, b"x" * 2 * SMALL_MAXIMUM)
            assert (await producer.send_and_wait(topic, b"fits")).offset == 0

    create_topic(bootstrap, topic, {"max.message.bytes": str(SMALL_MAXIMUM)})
    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_message_too_large_for_confluent_kafka(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, {"max.message.bytes": str(SMALL_MAXIMUM)})
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        DRIVERS[2].produce(bootstrap, topic, [Record(b"x" * 2 * SMALL_MAXIMUM)], codec="none")
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
    # What counts is the size on the wire.
    DRIVERS[2].produce(bootstrap, topic, [Record(b"x" * 2 * SMALL_MAXIMUM)], codec="gzip")


def test_timestamps_out_of_bounds(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, {"message.timestamp.before.max.ms": "1000"})
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        DRIVERS[2].produce(bootstrap, topic, [Record(b"old", timestamp=1_000)], codec="none")
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.INVALID_TIMESTAMP


def test_a_compacted_topic_wants_keys(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, {"cleanup.policy": "compact"})
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        DRIVERS[2].produce(bootstrap, topic, [Record(b"no key")], codec="none")
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.INVALID_RECORD
    DRIVERS[2].produce(bootstrap, topic, [Record(b"a key", key=b"k")], codec="none")


def test_more_insync_replicas_than_a_topic_has(bootstrap: str, topic: str) -> None:
    """Nobody can wait for more replicas than there are: all of them is enough."""
    create_topic(bootstrap, topic, {"min.insync.replicas": "2"})
    DRIVERS[2].produce(bootstrap, topic, [Record(b"a")], codec="none", acks="all")
    assert DRIVERS[2].read(bootstrap, topic, 1)[0].value == b"a"


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_a_topic_that_is_made_when_it_is_first_used(bootstrap: str, topic: str, driver: Driver) -> None:
    driver.produce(bootstrap, topic, [Record(b"first")], codec="none")
    assert driver.read(bootstrap, topic, 1)[0].value == b"first"


def test_a_name_that_no_topic_can_have(bootstrap: str) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        DRIVERS[2].produce(bootstrap, "no/topic", [Record(b"x")], codec="none", message_timeout_ms=60_000)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_EXCEPTION


def test_a_file_of_lines_with_kcat(bootstrap: str, topic: str, tmp_path: Path) -> None:
    """Ten thousand lines, as somebody would try a new broker."""
    create_topic(bootstrap, topic)
    text = b"".join(b"%d:line %d\n" % (number % 7, number) for number in range(10_000))
    run_kcat(bootstrap, "-P", "-t", topic, "-K:", "-z", "snappy", text=text)
    output = run_kcat(bootstrap, "-C", "-e", "-q", "-t", topic, "-f", "%k:%s\n")
    assert output.encode() == text


def full_acks(driver: Driver) -> object:
    return "all" if driver.name != "kafka-python" else -1
