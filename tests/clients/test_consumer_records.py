"""Our consumer reads what others have written, from real brokers: ours, and Apache Kafka's (see the file beside)."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

from barnabas.clients.consumer import (
    AsyncKafkaConsumer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    KafkaConsumer,
    OffsetAndMetadata,
    TopicPartition,
)
from barnabas.clients.consumer.errors import (
    ConcurrentModificationError,
    FetchOffsetOutOfRangeError,
    IllegalStateError,
    NoOffsetForPartitionError,
    WakeupError,
)
from barnabas.clients.consumer.internals.fetch_position import RecordsInHand
from barnabas.clients.producer import KafkaProducer
from barnabas.common.errors import InvalidGroupIdError, KafkaTimeoutError
from clients.drivers import create_topic

SECONDS = 60.0
MS = 1000 * SECONDS
PARTITIONS = 3


@contextmanager
def consuming(bootstrap: str, topic: str, count: int = PARTITIONS, **settings: Any) -> Iterator[KafkaConsumer]:
    """A consumer that has all partitions of a topic, without a group."""
    with KafkaConsumer(bootstrap_servers=bootstrap, **{"auto_offset_reset": "earliest", **settings}) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(count)])
        yield consumer


def read(consumer: KafkaConsumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        records = consumer.poll(MS)
        assert records, f"{len(found)} of {count}"
        found += records
    return found


@pytest.fixture
def numbers(bootstrap: str, topic: str) -> str:
    """Three partitions; each has the numbers from 0 to 999 in order, in batches of all codecs."""
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    for index, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20}
        )
        for number in range(index * 200, index * 200 + 200):
            for partition in range(PARTITIONS):
                producer.produce(
                    topic,
                    b"%d" % number,
                    key=None if number % 3 else b"%d" % number,
                    partition=partition,
                    timestamp=1_700_000_000_000 + number,
                    headers=[("n", b"%d" % number)] if number % 2 else None,
                )
        assert producer.flush(SECONDS) == 0
    return topic


def test_everything_in_order(bootstrap: str, numbers: str) -> None:
    with consuming(bootstrap, numbers) as consumer:
        records = read(consumer, 3000)
        for partition in range(PARTITIONS):
            mine = [record for record in records if record.partition == partition]
            assert [record.offset for record in mine] == list(range(1000))
            assert [int(record.value) for record in mine] == list(range(1000))
        one = next(record for record in records if record.offset == 3)
        assert (one.topic, one.key, one.headers, one.timestamp) == (numbers, b"3", (("n", b"3"),), 1_700_000_000_003)
        assert len(consumer.poll(0)) == 0
        assert all(consumer.current_lag(TopicPartition(numbers, index)) == 0 for index in range(PARTITIONS))
        assert consumer.metric("records-consumed-total") == 3000


def test_iterating(bootstrap: str, numbers: str) -> None:
    with consuming(bootstrap, numbers, 1) as consumer:
        for expected, record in enumerate(consumer):
            assert record.offset == expected
            assert consumer.position(record.topic_partition) == expected + 1
            if expected == 700:
                break
        assert consumer.poll(MS, max_records=1)[TopicPartition(numbers, 0)][0].offset == 701


def test_tables(bootstrap: str, numbers: str) -> None:
    with consuming(bootstrap, numbers) as consumer:
        rows: list[dict[str, Any]] = []
        while len(rows) < 3000:
            table = consumer.poll_table(MS, columns=["partition", "offset", "value", "headers"])
            assert table.num_rows
            rows += table.to_pylist()
        for partition in range(PARTITIONS):
            mine = [row for row in rows if row["partition"] == partition]
            assert [row["offset"] for row in mine] == list(range(1000))
            assert [int(row["value"]) for row in mine] == list(range(1000))
        assert rows[1]["headers"] == [{"key": "n", "value": b"1"}]
        assert consumer.position(TopicPartition(numbers, 2)) == 1000


def test_tables_of_views_outlive_what_is_received_after_them(bootstrap: str, topic: str) -> None:
    """Buffers that nobody looks at are received into again; those that a table, or a part of one, refers to are not."""
    create_topic(bootstrap, topic)
    count = 12_000
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(count):
        producer.produce(topic, b"%08d" % number * 128, partition=0)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    kept: list[pa.Table] = []
    with consuming(bootstrap, topic, 1) as consumer:
        seen = 0
        while seen < count:
            table = consumer.poll_table(MS, columns=["offset", "value"], binary_type="binary_view")
            seen += table.num_rows
            if len(kept) % 3 == 0:
                kept.append(table)
            elif len(kept) % 3 == 1:
                kept.append(table.slice(table.num_rows // 2, 5))
            else:
                kept.append(table.slice(0, 0))  # which lets go of nothing, but is not looked at either
            del table
            if len(kept) > 6:
                kept.pop(0)
            for held in kept:
                for offset, value in zip(
                    *(held.column(name).to_pylist()[:3] for name in held.schema.names), strict=True
                ):
                    assert value == b"%08d" % offset * 128
    assert sum(held.num_rows for held in kept)
    for held in kept:
        held.validate(full=True)
        assert held.column("value").to_pylist() == [b"%08d" % at * 128 for at in held.column("offset").to_pylist()]


def test_seeking_and_looking_up(bootstrap: str, numbers: str) -> None:
    where = TopicPartition(numbers, 1)
    with consuming(bootstrap, numbers) as consumer:
        assert consumer.beginning_offsets([where]) == {where: 0}
        assert consumer.end_offsets([where]) == {where: 1000}
        found = consumer.offsets_for_times({where: 1_700_000_000_500, TopicPartition(numbers, 0): 1_800_000_000_000})
        first = found[where]
        assert first is not None
        assert (first.offset, first.timestamp) == (500, 1_700_000_000_500)
        assert found[TopicPartition(numbers, 0)] is None
        consumer.pause(TopicPartition(numbers, 0), TopicPartition(numbers, 2))
        consumer.seek(where, OffsetAndMetadata(998, leader_epoch=first.leader_epoch))
        assert [record.offset for record in read(consumer, 2)] == [998, 999]
        consumer.seek_to_beginning(where)
        assert consumer.position(where) == 0
        consumer.seek_to_end(where)
        assert consumer.position(where) == 1000
        assert [info.partition for info in consumer.partitions_for(numbers)] == [0, 1, 2]
        assert numbers in consumer.list_topics()


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 0), ("latest", 1000), ("by_duration:PT1H", 1000)])
def test_where_to_begin(bootstrap: str, numbers: str, policy: str, expected: int) -> None:
    with consuming(bootstrap, numbers, auto_offset_reset=policy) as consumer:
        assert consumer.position(TopicPartition(numbers, 0)) == expected


def test_no_policy(bootstrap: str, numbers: str) -> None:
    with consuming(bootstrap, numbers, 1, auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetForPartitionError):
            consumer.poll(MS)
        consumer.seek(TopicPartition(numbers, 0), 5_000)
        with pytest.raises(FetchOffsetOutOfRangeError):
            consumer.poll(MS)
        consumer.seek(TopicPartition(numbers, 0), 999)
        assert [record.offset for record in read(consumer, 1)] == [999]


def test_isolation(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    with consuming(bootstrap, topic, 1, isolation_level="read_committed") as committed:
        assert [int(record.value) for record in read(committed, 3)] == [0, 2, 4]
    with consuming(bootstrap, topic, 1) as uncommitted:
        assert [int(record.value) for record in read(uncommitted, 6)] == [0, 1, 2, 3, 4, 5]
    with consuming(bootstrap, topic, 1, isolation_level="read_committed") as committed:
        seen: list[int] = []
        while len(seen) < 3:
            seen += map(int, committed.poll_table(MS).column("value").to_pylist())
        assert seen == [0, 2, 4]


def test_large_records(bootstrap: str, topic: str) -> None:
    """Larger than what is asked for at once: the first batch comes whole nevertheless (KIP-74)."""
    create_topic(bootstrap, topic)
    with KafkaProducer(bootstrap_servers=bootstrap, max_request_size=900_000) as producer:
        for size in (10, 800_000, 20):
            producer.send(topic, b"x" * size).result(SECONDS)
    with consuming(bootstrap, topic, 1, max_partition_fetch_bytes=1000, fetch_max_bytes=1000) as consumer:
        assert [len(record.value) for record in read(consumer, 3)] == [10, 800_000, 20]


def test_waits_for_what_is_written_later(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    with consuming(bootstrap, topic, 1) as consumer, KafkaProducer(bootstrap_servers=bootstrap) as producer:
        assert len(consumer.poll(200)) == 0
        for number in range(5):
            producer.send(topic, b"%d" % number).result(SECONDS)
            assert [int(record.value) for record in read(consumer, 1)] == [number]


def test_commits_without_subscribing(bootstrap: str, numbers: str) -> None:
    where = TopicPartition(numbers, 0)
    group = f"{numbers}-group"
    seen: list[tuple[Mapping[TopicPartition, OffsetAndMetadata], BaseException | None]] = []
    with consuming(bootstrap, numbers, 1, group_id=group, enable_auto_commit=False) as consumer:
        assert consumer.committed([where]) == {where: None}
        for record in consumer:
            if record.offset == 41:
                break
        consumer.commit()
        committed = consumer.committed([where])[where]
        assert committed is not None
        assert committed.offset == 42, "not what was fetched, nor what a poll would have returned"
        consumer.commit_async({where: OffsetAndMetadata(50, "half way")}, lambda *outcome: seen.append(outcome))
        consumer.commit({where: 51})
        assert seen == [({where: OffsetAndMetadata(50, "half way")}, None)], "called before the next commit"
    with consuming(bootstrap, numbers, 1, group_id=group) as again:
        assert read(again, 1)[0].offset == 51


def test_automatic_commits_on_close(bootstrap: str, numbers: str) -> None:
    group = f"{numbers}-group"
    where = TopicPartition(numbers, 0)
    with consuming(bootstrap, numbers, 1, group_id=group) as consumer:
        for record in consumer:
            if record.offset == 9:
                break
    with consuming(bootstrap, numbers, 1, group_id=group) as again:
        assert again.position(where) == 10


def test_no_group(bootstrap: str, numbers: str) -> None:
    with consuming(bootstrap, numbers) as consumer:
        with pytest.raises(InvalidGroupIdError):
            consumer.commit()
        with pytest.raises(InvalidGroupIdError):
            consumer.group_metadata()
        consumer.unsubscribe()
        with pytest.raises(IllegalStateError):
            consumer.poll()
        with pytest.raises(InvalidGroupIdError):
            consumer.subscribe(re.compile(numbers))
        with pytest.raises(InvalidGroupIdError):
            consumer.subscribe([numbers], ConsumerRebalanceListener())


def test_topics_as_positional_arguments(bootstrap: str, numbers: str) -> None:
    group = f"group-{numbers}"
    with KafkaConsumer(numbers, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        assert consumer.subscription() == {numbers}
        assert len(read(consumer, 3000)) == 3000
    settings = {"bootstrap.servers": bootstrap, "group.id": group}
    with KafkaConsumer(settings) as consumer:  # one mapping with settings is what it has always been
        assert consumer.subscription() == frozenset()
    with KafkaConsumer(numbers, settings) as consumer:
        assert consumer.config.group_id == group
    with pytest.raises(TypeError, match=r"names of topics.* not \['orders'\]"):
        KafkaConsumer(["orders"], bootstrap_servers=bootstrap)  # type: ignore[arg-type]


def test_topics_without_a_group(bootstrap: str, topic: str) -> None:
    """As with kafka-python: nobody shares the partitions, so the consumer reads all of them."""
    create_topic(bootstrap, topic, partitions=2)
    with KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        with KafkaProducer(bootstrap_servers=bootstrap) as producer:
            sent = [producer.send(topic, b"%d" % number, partition=number % 2) for number in range(10)]
            assert [future.get(timeout=SECONDS).offset for future in sent] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert sorted(record.value for record in read(consumer, 10)) == [b"%d" % number for number in range(10)]
        assert consumer.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        consumer.subscribe(topic)
        assert read(consumer, 10)


def test_topics_without_a_group_and_asyncio(bootstrap: str, numbers: str) -> None:
    async def main() -> int:
        count = 0
        async with AsyncKafkaConsumer(numbers, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            async for _ in consumer:
                count += 1
                if count == 3000:
                    break
        return count

    assert asyncio.run(main()) == 3000


def test_wakeup(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    with consuming(bootstrap, topic, 1) as consumer:
        consumer.poll(100)
        timer = threading.Timer(0.05, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(MS)
        timer.join()
        assert len(consumer.poll(50)) == 0


def test_two_threads(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    with consuming(bootstrap, topic, 1) as consumer:
        entered = threading.Event()
        subscriptions = consumer._core.subscriptions
        before = subscriptions.positions.take_in_hand

        def take_in_hand() -> list[RecordsInHand]:
            entered.set()
            return before()

        subscriptions.positions.take_in_hand = take_in_hand  # type: ignore[method-assign]
        outcome: list[BaseException] = []

        def wait() -> None:
            try:
                consumer.poll(MS)
            except BaseException as error:  # noqa: BLE001 - looked at below
                outcome.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert entered.wait(SECONDS)
        with pytest.raises(ConcurrentModificationError):
            consumer.poll()
        consumer.wakeup()
        thread.join(SECONDS)
        assert isinstance(outcome[0], WakeupError)


def test_closed(bootstrap: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    consumer.close()
    consumer.close()
    with pytest.raises(IllegalStateError):
        consumer.poll()


def test_nobody_there() -> None:
    with KafkaConsumer(bootstrap_servers="127.0.0.1:1") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1"):
            consumer.position(TopicPartition("t", 0), timeout_ms=3_000)
        with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1"):
            consumer.end_offsets([TopicPartition("t", 0)], timeout_ms=3_000)
        assert len(consumer.poll(100)) == 0


# --- asyncio


def test_asyncio(bootstrap: str, numbers: str) -> None:
    where = TopicPartition(numbers, 0)

    async def consume() -> None:
        async with AsyncKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=f"{numbers}-async", auto_offset_reset="earliest"
        ) as consumer:
            await consumer.assign([where])
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 700:
                    break
            assert seen == list(range(701))
            await consumer.commit()
            committed = (await consumer.committed([where]))[where]
            assert committed is not None
            assert committed.offset == 701
            rest = await consumer.poll_table(MS)
            assert rest.column("offset").to_pylist()[0] == 701
            assert await consumer.end_offsets([where]) == {where: 1000}
            consumer.seek(where, 10)
            records = await consumer.poll(MS, max_records=2)
            assert [record.offset for record in records] == [10, 11]
            await consumer.commit_async()
            consumer.seek(where, 1000)
            waiting = asyncio.create_task(consumer.poll(MS))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentModificationError):
                await consumer.poll()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await consumer.position(where) == 1000, "still in order after a cancelled poll"

    asyncio.run(consume())


def test_asyncio_does_not_hold_up_the_loop(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)

    async def consume() -> None:
        async with AsyncKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counter = asyncio.create_task(count())
            await consumer.poll(100)
            counter.cancel()
            assert turns > 10

    asyncio.run(consume())
