"""Processors that consume, transform and produce, while members come, go and crash."""

from __future__ import annotations

import threading
import time
from typing import Any

from examples import exactly_once

from barnabas.clients.consumer import KafkaConsumer, TopicPartition
from barnabas.clients.producer import KafkaProducer
from clients.our_consumers import KINDS, PARTITIONS, unique


class Processor:
    """`examples/exactly_once.py` in a thread."""

    def __init__(self, kind: str, bootstrap: str, source: str, target: str, group: str, name: str) -> None:
        self._stop = threading.Event()
        self.error: BaseException | None = None

        def run() -> None:
            settings: dict[str, Any] = {**KINDS[kind], "max.poll.records": 20}
            try:
                exactly_once.process(bootstrap, source, target, group, self._stop, transactional_id=name, **settings)
            except BaseException as error:  # noqa: BLE001 - the test is told
                self.error = error

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()


def crash_in_a_transaction(kind: str, bootstrap: str, source: str, target: str, group: str, name: str) -> None:
    """Writes, sends its offsets, and is never heard of again; the next one with its name ends the transaction."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **KINDS[kind]}
    consumer = KafkaConsumer({**settings, "auto.offset.reset": "earliest", "max.poll.records": 30})
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    producer.init_transactions()
    consumer.subscribe([source])
    deadline = time.monotonic() + 120
    while not (records := consumer.poll(200)):
        assert time.monotonic() < deadline
    producer.begin_transaction()
    for record in records:
        producer.send(target, exactly_once.transform(record), key=record.key)
    producer.send_offsets_to_transaction(records.next_offsets(), consumer.group_metadata())
    producer.flush()
    # Neither is closed as it should be: the producer would abort. The consumer at least gives its partitions back, so
    # that nobody has to wait for its session to end.
    consumer.close()
    producer.close(0)


def transform_under_fire(kind: str, bootstrap: str, source: str, target: str, count: int = 400) -> None:
    """Each record of the source comes out once, though processors come, go, and crash."""
    group = unique("g")
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        for number in range(count):
            producer.send(source, f"record {number}".encode(), partition=number % PARTITIONS)
    crash_in_a_transaction(kind, bootstrap, source, target, group, f"{group}-a")
    processors = [Processor(kind, bootstrap, source, target, group, f"{group}-a")]
    try:
        processors.append(Processor(kind, bootstrap, source, target, group, f"{group}-b"))
        assert read_committed(bootstrap, target, 1)  # somebody is at work
        processors[0].close()
        processors.append(Processor(kind, bootstrap, source, target, group, f"{group}-c"))
        seen = read_committed(bootstrap, target, count)
    finally:
        for processor in processors:
            processor.close()
    assert not [processor.error for processor in processors if processor.error is not None]
    assert sorted(seen) == sorted(f"RECORD {number}" for number in range(count))
    # And nothing follows.
    assert len(read_committed(bootstrap, target, count, more_s=1)) == count


def read_committed(bootstrap: str, topic: str, count: int, seconds: float = 120, more_s: float = 0) -> list[str]:
    """Reads so many records, and for `more_s` seconds what follows them."""
    seen: list[str] = []
    with KafkaConsumer(
        {"bootstrap.servers": bootstrap, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    ) as consumer:
        partitions = [TopicPartition(topic, info.partition) for info in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        deadline = time.monotonic() + seconds
        while len(seen) < count and time.monotonic() < deadline:
            seen += [record.value.decode() for record in consumer.poll(100)]
        deadline = time.monotonic() + more_s
        while time.monotonic() < deadline:
            seen += [record.value.decode() for record in consumer.poll(100)]
    return seen
