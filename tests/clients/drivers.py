"""One way to call four clients, for the tests that are the same for all: write these records, read these offsets.

A consumer is given its partition and its offset: it is in no group, and commits nothing.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import aiokafka
import confluent_kafka
import kafka
import pytest

from clients.confluent_admin import AdminClient, NewTopic
from clients.records import Record

SECONDS: Final = 60
"""How long anything may take that takes milliseconds."""


class Driver(Protocol):
    """A client. ``settings`` are names as Java's producer has them, with a value each: acks, enable.idempotence, ..."""

    name: str
    keeps_timestamps: bool
    """Whether a producer can be told the timestamp of a record."""
    allows_null_headers: bool
    """Whether a header may have a name and no value."""

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str,
        partition: int = 0,
        **settings: object,
    ) -> None: ...

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0, **settings: object
    ) -> list[Record]: ...


class KafkaPython:
    name = "kafka-python"
    keeps_timestamps = True
    allows_null_headers = False

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], *, codec: str, partition: int = 0, **settings: Any
    ) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            **settings,
        )
        try:
            sent = [
                producer.send(
                    topic, record.value, record.key, list(record.headers), partition, record.timestamp or None
                )
                for record in records
            ]
            producer.flush(SECONDS)
            for future in sent:
                future.get(SECONDS)
        finally:
            producer.close()

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0, **settings: Any
    ) -> list[Record]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, consumer_timeout_ms=SECONDS * 1000, **settings
        )
        try:
            place = kafka.TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.seek(place, start)
            found: list[Record] = []
            while len(found) < count:
                message = next(consumer)
                headers = tuple((name, value) for name, value in message.headers)
                found.append(Record(message.value, message.key, headers, message.timestamp, message.offset))
            return found
        finally:
            consumer.close()


class Aiokafka:
    name = "aiokafka"
    keeps_timestamps = True
    allows_null_headers = True

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], *, codec: str, partition: int = 0, **settings: Any
    ) -> None:
        async def run() -> None:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                **settings,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=partition,
                        timestamp_ms=record.timestamp or None,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                await producer.flush()
                await asyncio.gather(*sent)
            finally:
                await producer.stop()

        asyncio.run(asyncio.wait_for(run(), SECONDS))

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0, **settings: Any
    ) -> list[Record]:
        async def run() -> list[Record]:
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, **settings)
            await consumer.start()
            try:
                place = aiokafka.TopicPartition(topic, partition)
                consumer.assign([place])
                consumer.seek(place, start)
                found: list[Record] = []
                while len(found) < count:
                    message = await consumer.getone()
                    found.append(
                        Record(message.value, message.key, tuple(message.headers), message.timestamp, message.offset)
                    )
                return found
            finally:
                await consumer.stop()

        return asyncio.run(asyncio.wait_for(run(), SECONDS))


class ConfluentKafka:
    name = "confluent-kafka"
    keeps_timestamps = True
    allows_null_headers = True

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], *, codec: str, partition: int = 0, **settings: Any
    ) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, **dotted(settings)}
        )
        failed: list[confluent_kafka.KafkaError] = []

        def delivered(error: confluent_kafka.KafkaError | None, _message: confluent_kafka.Message) -> None:
            if error is not None:
                failed.append(error)

        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=partition,
                on_delivery=delivered,
                timestamp=record.timestamp,
                headers=list(record.headers),
            )
        assert producer.flush(SECONDS) == 0
        if failed:
            raise confluent_kafka.KafkaException(failed[0])

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0, **settings: Any
    ) -> list[Record]:
        consumer = confluent_consumer(bootstrap, **dotted(settings))
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, start)])
            found: list[Record] = []
            while len(found) < count:
                message: Any = consumer.poll(SECONDS)
                assert message is not None, f"only {len(found)} of {count} records came"
                if message.error():
                    raise confluent_kafka.KafkaException(message.error())
                headers = tuple(message.headers() or ())
                found.append(Record(message.value(), message.key(), headers, message.timestamp()[1], message.offset()))
            return found
        finally:
            consumer.close()


class Kcat:
    name = "kcat"
    keeps_timestamps = False
    allows_null_headers = False

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], *, codec: str, partition: int = 0, **settings: Any
    ) -> None:
        # Headers are an option, the same for all records of a run: a run for each stretch with the same ones.
        start = 0
        while start < len(records):
            end = start + 1
            while end < len(records) and records[end].headers == records[start].headers:
                end += 1
            self._produce(bootstrap, topic, records[start:end], codec, partition, settings)
            start = end

    def _produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        codec: str,
        partition: int,
        settings: dict[str, Any],
    ) -> None:
        options = [f"-X{name}={value}" for name, value in dotted(settings).items()]
        options += [f"-H{name}={(value or b'').decode()}" for name, value in records[0].headers]
        text = b"\x1e".join((record.key or b"") + b"\x1f" + (record.value or b"") for record in records)
        # -Z: nothing between the separators is null.
        run_kcat(
            bootstrap,
            "-P",
            "-t",
            topic,
            "-p",
            str(partition),
            "-z",
            codec,
            "-Z",
            "-D\\x1e",
            "-K\\x1f",
            *options,
            text=text,
        )

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0, **settings: Any
    ) -> list[Record]:
        options = [f"-X{name}={value}" for name, value in dotted(settings).items()]
        output = run_kcat(
            bootstrap, "-C", "-J", "-q", "-t", topic, "-p", str(partition), "-o", str(start), "-c", str(count), *options
        )
        return [kcat_record(line) for line in output.splitlines()]


def run_kcat(bootstrap: str, *arguments: str, text: bytes = b"") -> str:
    """What kcat prints. A machine without it skips the test."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        pytest.skip("kcat is not installed")
    result = subprocess.run(
        [program, "-b", bootstrap, *arguments], input=text, capture_output=True, check=False, timeout=SECONDS
    )
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def kcat_record(line: str) -> Record:
    """A line of ``kcat -J``."""
    fields = json.loads(line)
    flat = fields.get("headers", [])
    headers = tuple((flat[i], _bytes(flat[i + 1])) for i in range(0, len(flat), 2))
    return Record(_bytes(fields["payload"]), _bytes(fields["key"]), headers, fields["ts"], fields["offset"])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def confluent_consumer(bootstrap: str, **settings: Any) -> confluent_kafka.Consumer:
    """One that stays out of groups, although it has to name one."""
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            **settings,
        }
    )


def create_topic(bootstrap: str, topic: str, config: dict[str, str] | None = None, partitions: int = 1) -> None:
    """Returns when the broker knows of it, which is a moment after the controller has said yes."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result(SECONDS)
    eventually(lambda: topic in admin.list_topics(timeout=SECONDS).topics)


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings in the names of librdkafka, from the names of the Python clients."""
    return {
        name.replace("_", "."): str(value).lower() if isinstance(value, bool) else value
        for name, value in settings.items()
    }


def eventually(condition: Callable[[], bool]) -> None:
    """Asks until the answer is yes. Each question is a request to the broker, which takes its time."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came true"


DRIVERS: Final[tuple[Driver, ...]] = (KafkaPython(), Aiokafka(), ConfluentKafka(), Kcat())
LIBRARIES: Final = DRIVERS[:3]
