"""Consuming with every client: places to start from, offsets by time, isolation, long polls, fetch sessions."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import OffsetOutOfRangeError as AiokafkaOffsetOutOfRangeError
from kafka.errors import OffsetOutOfRangeError

from clients.confluent_admin import AdminClient, OffsetSpec
from clients.drivers import DRIVERS, LIBRARIES, SECONDS, Driver, confluent_consumer, create_topic, run_kcat
from clients.records import RECENTLY, Record, at
from machine_speed import slowdown

FIRST_TIME = RECENTLY
RECORDS = [Record(b"%d" % number, key=b"k", timestamp=FIRST_TIME + 10 * number) for number in range(20)]


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic with :data:`RECORDS` in partition 0, in several batches, and nothing in partition 1."""
    create_topic(bootstrap, topic, partitions=2)
    for start in range(0, len(RECORDS), 5):
        DRIVERS[2].produce(bootstrap, topic, RECORDS[start : start + 5], codec="none")
    return topic


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_isolation_levels(bootstrap: str, filled: str, driver: Driver, isolation: str) -> None:
    """Nothing is in a transaction here, so that both see the same."""
    assert driver.read(bootstrap, filled, len(RECORDS), isolation_level=isolation) == at(RECORDS)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_seeking_into_a_batch(bootstrap: str, filled: str, driver: Driver) -> None:
    assert driver.read(bootstrap, filled, 4, start=7) == at(RECORDS)[7:11]


def test_small_fetches(bootstrap: str, filled: str) -> None:
    """A consumer that asks for less than one batch still gets on, a batch at a time."""
    sizes = {"fetch_max_bytes": 1, "max_partition_fetch_bytes": 1}
    assert DRIVERS[0].read(bootstrap, filled, len(RECORDS), **sizes) == at(RECORDS)
    assert DRIVERS[1].read(bootstrap, filled, len(RECORDS), **sizes) == at(RECORDS)
    assert DRIVERS[2].read(bootstrap, filled, len(RECORDS), fetch_message_max_bytes=1) == at(RECORDS)


# ------------------------------------------------------------------------------------------------ offsets


def test_offsets_with_kafka_python(bootstrap: str, filled: str) -> None:
    full, empty = kafka.TopicPartition(filled, 0), kafka.TopicPartition(filled, 1)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        assert consumer.beginning_offsets([full, empty]) == {full: 0, empty: 0}
        assert consumer.end_offsets([full, empty]) == {full: 20, empty: 0}
        found = consumer.offsets_for_times({full: FIRST_TIME + 65, empty: FIRST_TIME})
        assert (found[full].offset, found[full].timestamp, found[full].leader_epoch) == (7, FIRST_TIME + 70, 0)
        assert found[empty] is None
        assert consumer.offsets_for_times({full: FIRST_TIME + 1000}) == {full: None}
        assert consumer.offsets_for_times({full: 0})[full].offset == 0
        consumer.assign([full, empty])
        consumer.seek_to_end(full)
        assert consumer.position(full) == 20
        consumer.seek_to_beginning(full, empty)
        assert (consumer.position(full), consumer.position(empty)) == (0, 0)
        assert consumer.partitions_for_topic(filled) == {0, 1}
    finally:
        consumer.close()


def test_offsets_with_aiokafka(bootstrap: str, filled: str) -> None:
    full, empty = aiokafka.TopicPartition(filled, 0), aiokafka.TopicPartition(filled, 1)

    async def run() -> None:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
            assert await consumer.beginning_offsets([full, empty]) == {full: 0, empty: 0}
            assert await consumer.end_offsets([full, empty]) == {full: 20, empty: 0}
            found = await consumer.offsets_for_times({full: FIRST_TIME + 65, empty: FIRST_TIME})
            assert (found[full].offset, found[full].timestamp) == (7, FIRST_TIME + 70)
            assert found[empty] is None
            consumer.assign([full, empty])
            await consumer.seek_to_end(full)
            assert await consumer.position(full) == 20
            await consumer.seek_to_beginning(full)
            assert await consumer.position(full) == 0
            assert (await consumer.getone(full)).offset == 0
            assert (consumer.highwater(full), consumer.last_stable_offset(full)) == (20, 20)

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_offsets_with_confluent_kafka(bootstrap: str, filled: str) -> None:
    def at_time(timestamp: int, partition: int = 0) -> int:
        places = [confluent_kafka.TopicPartition(filled, partition, timestamp)]
        return int(consumer.offsets_for_times(places, SECONDS)[0].offset)

    consumer: Any = confluent_consumer(bootstrap)
    try:
        assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(filled, 0), SECONDS) == (0, 20)
        assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(filled, 1), SECONDS) == (0, 0)
        assert at_time(FIRST_TIME + 65) == 7
        assert at_time(FIRST_TIME + 1000) == confluent_kafka.OFFSET_END
        assert at_time(FIRST_TIME, partition=1) == confluent_kafka.OFFSET_END
        assert at_time(confluent_kafka.OFFSET_BEGINNING) == 0
        assert at_time(confluent_kafka.OFFSET_END) == 20
    finally:
        consumer.close()


@pytest.mark.parametrize("isolation", [0, 1])
def test_offset_specs_with_confluent_kafka(bootstrap: str, filled: str, isolation: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def offset(spec: Any, partition: int = 0) -> tuple[int, int]:
        place = confluent_kafka.TopicPartition(filled, partition)
        level = confluent_kafka.IsolationLevel(isolation)
        result = admin.list_offsets({place: spec}, isolation_level=level)[place].result(SECONDS)
        return result.offset, result.timestamp

    assert offset(OffsetSpec.earliest()) == (0, -1)
    assert offset(OffsetSpec.latest()) == (20, -1)
    assert offset(OffsetSpec.max_timestamp()) == (19, FIRST_TIME + 190)
    assert offset(OffsetSpec.max_timestamp(), 1) == (-1, -1)
    assert offset(OffsetSpec.for_timestamp(FIRST_TIME + 1)) == (1, FIRST_TIME + 10)
    assert offset(OffsetSpec.for_timestamp(FIRST_TIME + 1000)) == (-1, -1)


def test_offsets_with_kcat(bootstrap: str, filled: str) -> None:
    def query(time_or_end: int, partition: int = 0) -> str:
        return run_kcat(bootstrap, "-Q", "-t", f"{filled}:{partition}:{time_or_end}").strip()

    assert query(-2) == f"{filled} [0] offset 0"
    assert query(-1) == f"{filled} [0] offset 20"
    assert query(FIRST_TIME + 65) == f"{filled} [0] offset 7"
    # From a time to another.
    text = run_kcat(
        bootstrap, "-C", "-q", "-t", filled, "-p0", "-o", f"s@{FIRST_TIME + 50}", "-o", f"e@{FIRST_TIME + 80}", "-f%o "
    )
    assert text.split() == ["5", "6", "7"]
    text = run_kcat(bootstrap, "-C", "-q", "-e", "-t", filled, "-p0", "-o", "-2", "-f%o ")
    assert text.split() == ["18", "19"]


def test_an_offset_beyond_the_end(bootstrap: str, filled: str) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        DRIVERS[0].read(bootstrap, filled, 1, start=21, auto_offset_reset="none")
    with pytest.raises(AiokafkaOffsetOutOfRangeError):
        DRIVERS[1].read(bootstrap, filled, 1, start=21, auto_offset_reset="none")
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        DRIVERS[2].read(bootstrap, filled, 1, start=21, auto_offset_reset="error")
    assert caught.value.args[0].code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET
    for driver in LIBRARIES:
        assert driver.read(bootstrap, filled, 1, start=21, auto_offset_reset="earliest")[0].offset == 0


# ------------------------------------------------------------------------------------------------ long polls


def test_a_waiting_consumer_hears_of_a_record_at_once(bootstrap: str, topic: str) -> None:
    """A long poll ends with the record it waits for, not with its time: here a minute, for at least one byte."""
    create_topic(bootstrap, topic)
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks=1, enable_idempotence=False)
    consumer: Any = confluent_consumer(bootstrap, **{"fetch.min.bytes": 1, "fetch.wait.max.ms": 50_000})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        producer.send(topic, b"warm up").get(SECONDS)
        assert consumer.poll(SECONDS).value() == b"warm up"
        delays: list[float] = []
        limit_s = 0.0
        # A few milliseconds each, most of them in the two clients; a busy machine may miss that now and then.
        while not delays or statistics.median(delays[-20:]) > limit_s:
            assert len(delays) < 120, delays
            limit_s = 0.05 * slowdown()
            for number in range(20):
                sent = time.perf_counter()
                producer.send(topic, b"%d" % number)
                message = consumer.poll(SECONDS)
                delays.append(time.perf_counter() - sent)
                assert message.value() == b"%d" % number
        assert max(delays) < 25, delays
    finally:
        consumer.close()
        producer.close()


@pytest.mark.parametrize(("max_wait_ms", "enough"), [(700, False), (600_000, True)])
def test_a_long_poll_waits_for_its_bytes(bootstrap: str, topic: str, max_wait_ms: int, enough: bool) -> None:
    """Less than ``fetch.min.bytes`` is held back until there is more, or until the time is over."""
    create_topic(bootstrap, topic)

    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            fetch_min_bytes=5_000,
            fetch_max_wait_ms=max_wait_ms,
            request_timeout_ms=2 * max_wait_ms + 60_000,
        )
        async with consumer, aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            place = aiokafka.TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 0)
            started = time.monotonic()
            reading = asyncio.create_task(consumer.getone())
            await producer.send_and_wait(topic, b"x" * 3_000, partition=0)
            if enough:
                assert not reading.done()
                await producer.send_and_wait(topic, b"y" * 3_000, partition=0)
            assert (await reading).value == b"x" * 3_000
            if enough:
                assert (await consumer.getone()).value == b"y" * 3_000
            else:
                assert time.monotonic() - started > 0.6

    asyncio.run(asyncio.wait_for(run(), SECONDS))


# ------------------------------------------------------------------------------------------------ fetch sessions

PARTITIONS = 100


@pytest.fixture
def wide(bootstrap: str, topic: str) -> str:
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    return topic


@pytest.fixture
def ticking(bootstrap: str, wide: str) -> Iterator[str]:
    """Records that go to all partitions in turn, from another thread, while a consumer is at work."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})

    def run() -> None:
        for round_number in range(5):
            for partition in range(PARTITIONS):
                producer.produce(wide, b"%d-%d" % (partition, round_number), partition=partition)
            assert producer.flush(SECONDS) == 0

    thread = threading.Thread(target=run)
    thread.start()
    yield wide
    thread.join()


def test_many_partitions_with_kafka_python(bootstrap: str, ticking: str) -> None:
    """It keeps a fetch session: after the first request it names only the partitions that have moved."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, enable_incremental_fetch_sessions=True
    )
    try:
        places = [kafka.TopicPartition(ticking, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        found: list[bytes] = []
        deadline = time.monotonic() + SECONDS
        while len(found) < 5 * PARTITIONS and time.monotonic() < deadline:
            for messages in consumer.poll(timeout_ms=1000).values():
                found += [message.value for message in messages]
        assert in_order(found)
        # Partitions leave the session and come back to it.
        consumer.assign(places[::2])
        consumer.seek(places[0], 4)
        assert [message.offset for messages in poll_some(consumer).values() for message in messages] == [4]
    finally:
        consumer.close()


def test_many_partitions_with_aiokafka(bootstrap: str, ticking: str) -> None:
    async def run() -> list[bytes]:
        found: list[bytes] = []
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
            places = [aiokafka.TopicPartition(ticking, number) for number in range(PARTITIONS)]
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            while len(found) < 5 * PARTITIONS:
                for messages in (await consumer.getmany(timeout_ms=1000)).values():
                    found += [message.value for message in messages if message.value is not None]
        return found

    assert in_order(asyncio.run(asyncio.wait_for(run(), SECONDS)))


def test_many_partitions_with_confluent_kafka(bootstrap: str, ticking: str) -> None:
    consumer: Any = confluent_consumer(bootstrap)
    try:
        consumer.assign([confluent_kafka.TopicPartition(ticking, number, 0) for number in range(PARTITIONS)])
        found: list[bytes] = []
        deadline = time.monotonic() + SECONDS
        while len(found) < 5 * PARTITIONS and time.monotonic() < deadline:
            found += [message.value() for message in consumer.consume(100, 0.2)]
        assert in_order(found)
    finally:
        consumer.close()


def poll_some(consumer: Any) -> Any:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := consumer.poll(timeout_ms=1000):
            return found
    raise AssertionError("nothing came")


def in_order(values: list[bytes]) -> bool:
    """All records of all partitions, each once, and in order within each partition."""
    by_partition: dict[int, list[int]] = {}
    for value in values:
        partition, number = map(int, value.split(b"-"))
        by_partition.setdefault(partition, []).append(number)
    return len(by_partition) == PARTITIONS and all(numbers == list(range(5)) for numbers in by_partition.values())
