"""Consume, transform, produce: every record of one topic makes exactly one record of another.

    python examples/exactly_once.py localhost:9092 orders invoices

What the processor writes, and how far it has read, are committed together, in one transaction. If it crashes in
between, neither counts: the next processor of the group starts where the last transaction that was committed ended, and
readers with ``isolation.level=read_committed`` never see what was written in vain. Start as many processors as there
are partitions; they share them.
"""

from __future__ import annotations

import sys
import threading
import uuid

from barnabas.clients.consumer import ConsumerRecord, KafkaConsumer
from barnabas.clients.producer import KafkaProducer
from barnabas.clients.producer.errors import CommitFailedError
from barnabas.common.errors import BarnabasError, ProducerFencedError, RebalanceInProgressError


def transform(record: ConsumerRecord) -> bytes:
    value: bytes = record.value
    return value.upper()


def process(
    bootstrap_servers: str,
    source: str,
    target: str,
    group_id: str,
    stop: threading.Event,
    *,
    transactional_id: str | None = None,
    **consumer_settings: object,
) -> None:
    """Runs until it is told to stop."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        transactional_id=transactional_id or f"{group_id}-{uuid.uuid4()}",
        transaction_timeout_ms=10_000,
    )
    consumer = KafkaConsumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # the transaction does that
            "isolation.level": "read_committed",
            **consumer_settings,
        }
    )
    with producer, consumer:
        producer.init_transactions()
        consumer.subscribe([source])
        while not stop.is_set():
            records = consumer.poll(200)
            if not records:
                continue
            try:
                with producer.transaction():
                    for record in records:
                        producer.send(target, transform(record), key=record.key)
                    # The metadata lets the coordinator check that this member still has the partitions (KIP-447).
                    producer.send_offsets_to_transaction(records.next_offsets(), consumer.group_metadata())
            except ProducerFencedError:
                raise  # somebody else goes by this transactional id now
            except (CommitFailedError, RebalanceInProgressError, BarnabasError):
                # The transaction was aborted. What it was about is read again, by whoever has the partitions now.
                rewind(consumer)


def rewind(consumer: KafkaConsumer) -> None:
    """Goes back to what is committed."""
    for partition, committed in consumer.committed(consumer.assignment()).items():
        if committed is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, committed)


if __name__ == "__main__":
    end = threading.Event()
    try:
        process(sys.argv[1], sys.argv[2], sys.argv[3], "exactly-once", end)
    except KeyboardInterrupt:
        end.set()
