"""Transactions of the Python clients: committed records are read, aborted ones are not, and who was replaced is out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import pytest

from clients.drivers import SECONDS, create_topic

T = TypeVar("T")


class FencedError(Exception):
    """What all clients say in their own way: another producer has the transactional id."""


class Producer(Protocol):
    """A transactional producer of some client."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        """Returns when the broker has them."""
        ...

    def send_offset(self, topic: str, offset: int, group: str) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
        )

    def init(self) -> None:
        self._producer.init_transactions(SECONDS)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(SECONDS) == 0

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group, "log_level": 0})
        try:
            self._producer.send_offsets_to_transaction(
                [confluent_kafka.TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), SECONDS
            )
        finally:
            consumer.close()

    def commit(self) -> None:
        self._fenced(lambda: self._producer.commit_transaction(SECONDS))

    def abort(self) -> None:
        self._fenced(lambda: self._producer.abort_transaction(SECONDS))

    def _fenced(self, call: Callable[[], object]) -> None:
        try:
            call()
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError._FENCED:
                raise FencedError from error
            raise

    def close(self) -> None:
        with suppress(confluent_kafka.KafkaException):  # once fenced, it says so to the end
            self._producer.flush(0)


class Aiokafka:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer: Any = self._run(self._make(bootstrap, transactional_id))

    @staticmethod
    async def _make(bootstrap: str, transactional_id: str) -> Any:
        return aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def init(self) -> None:
        self._run(self._producer.start())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        async def send() -> None:
            await asyncio.gather(*[await self._producer.send(topic, value, partition=partition) for value in values])

        self._run(send())

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {aiokafka.TopicPartition(topic, 0): offset}
        self._run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._fenced(self._producer.commit_transaction)

    def abort(self) -> None:
        self._fenced(self._producer.abort_transaction)

    def _fenced(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            self._run(call())
        except aiokafka.errors.ProducerFenced as error:
            raise FencedError from error

    def close(self) -> None:
        self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


class KafkaPython:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, max_block_ms=SECONDS * 1000
        )

    def init(self) -> None:
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        sent = [self._producer.send(topic, value, partition=partition) for value in values]
        self._producer.flush(SECONDS)
        for future in sent:
            future.get(SECONDS)

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        place = kafka.TopicPartition(topic, 0)
        self._producer.send_offsets_to_transaction({place: kafka.OffsetAndMetadata(offset, "", -1)}, group)

    def commit(self) -> None:
        self._fenced(self._producer.commit_transaction)

    def abort(self) -> None:
        self._fenced(self._producer.abort_transaction)

    def _fenced(self, call: Callable[[], object]) -> None:
        try:
            call()
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
            raise FencedError from error

    def close(self) -> None:
        self._producer.close(timeout=5)


CLIENTS: Final[tuple[type[Producer], ...]] = (Confluent, Aiokafka, KafkaPython)


class Producers:
    """Makes producers, and closes them at the end of the test."""

    def __init__(self, kind: type[Producer], bootstrap: str) -> None:
        self._kind = kind
        self._bootstrap = bootstrap
        self._made: list[Producer] = []

    def __call__(self, transactional_id: str) -> Producer:
        producer = self._kind(self._bootstrap, transactional_id)  # type: ignore[call-arg]
        self._made.append(producer)
        producer.init()
        return producer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for producer in self._made:
            producer.close()


@pytest.fixture(params=CLIENTS, ids=lambda kind: kind.__name__)
def make(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Producers]:
    with Producers(request.param, bootstrap) as producers:
        yield producers


def read(bootstrap: str, topic: str, *, partition: int = 0, isolation: str = "read_committed") -> list[bytes]:
    """All that a consumer sees up to the end, which is the last stable offset for one that reads committed records."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    values: list[bytes] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        while True:
            message: Any = consumer.poll(SECONDS)
            assert message is not None
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                return values
            values.append(message.value())
    finally:
        consumer.close()


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    """One that reads committed records would wait until the transaction is over, as its offset may change by then."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_uncommitted"}
    )
    try:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], SECONDS)
        offset: int = found.offset
        return offset
    finally:
        consumer.close()


@pytest.mark.mechanism("P14")
def test_committed_records_are_read_and_aborted_ones_are_not(bootstrap: str, topic: str, make: Producers) -> None:
    create_topic(bootstrap, topic, partitions=2)
    producer = make(topic)
    expected: list[bytes] = []
    for number in range(6):
        producer.begin()
        values = [b"%d-%d" % (number, one) for one in range(3)]
        producer.send(topic, values)
        producer.send(topic, values, 1)
        if number % 3 == 1:
            producer.abort()
        else:
            producer.commit()
            expected += values
    for partition in (0, 1):
        assert read(bootstrap, topic, partition=partition) == expected
    assert len(read(bootstrap, topic, isolation="read_uncommitted")) == 18


@pytest.mark.mechanism("P14")
def test_an_open_transaction_is_where_readers_stop(bootstrap: str, topic: str, make: Producers) -> None:
    create_topic(bootstrap, topic)
    slow, quick = make(f"{topic}-slow"), make(f"{topic}-quick")
    slow.begin()
    slow.send(topic, [b"slow"])
    quick.begin()
    quick.send(topic, [b"quick"])
    quick.commit()
    assert read(bootstrap, topic) == []
    assert read(bootstrap, topic, isolation="read_uncommitted") == [b"slow", b"quick"]
    slow.commit()
    assert read(bootstrap, topic) == [b"slow", b"quick"]


@pytest.mark.mechanism("P14")
def test_a_new_producer_takes_the_place_of_the_old(bootstrap: str, topic: str, make: Producers) -> None:
    create_topic(bootstrap, topic)
    old = make(topic)
    old.begin()
    old.send(topic, [b"lost"])
    new = make(topic)
    new.begin()
    new.send(topic, [b"kept"])
    with pytest.raises(FencedError):
        old.commit()
    new.commit()
    assert read(bootstrap, topic) == [b"kept"]


@pytest.mark.mechanism("P14")
def test_offsets_are_committed_with_the_transaction(bootstrap: str, topic: str, make: Producers) -> None:
    create_topic(bootstrap, topic)
    group = f"{topic}-group"
    producer = make(topic)
    producer.begin()
    producer.send(topic, [b"one"])
    producer.send_offset(topic, 41, group)
    assert committed_offset(bootstrap, group, topic) == confluent_kafka.OFFSET_INVALID
    producer.commit()
    assert committed_offset(bootstrap, group, topic) == 41
    producer.begin()
    producer.send(topic, [b"two"])
    producer.send_offset(topic, 42, group)
    producer.abort()
    assert committed_offset(bootstrap, group, topic) == 41
    assert read(bootstrap, topic) == [b"one"]
