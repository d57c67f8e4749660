"""Reads numbers from one topic and writes them to another, each of them once, come what may.

A process of its own, for a test that kills it: ``python transaction_processor.py <address> <input> <output> <id>``.

Records, and how far it has read, are written in one transaction. When it starts, it goes on from there; whatever goes
wrong, it begins anew with another producer under the same transactional id, which fences the one before.
"""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

SECONDS = 10


def run(bootstrap: str, source: str, target: str, name: str) -> None:
    # With "rebootstrap", librdkafka gives up its handle of a broker that is down, but goes on sending offsets to the
    # group coordinator by way of that handle, for ever and without a time-out.
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "metadata.recovery.strategy": "none",
    }
    consumer = Consumer(
        {**settings, "group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed"}
    )
    producer = Producer({**settings, "transactional.id": name, "linger.ms": 1})
    try:
        producer.init_transactions(SECONDS)
        (committed,) = consumer.committed([TopicPartition(source, 0)], SECONDS)
        position = max(committed.offset, 0)
        consumer.assign([TopicPartition(source, 0, position)])
        while True:
            messages = [message for message in consumer.consume(20, 0.2) if message.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value(), partition=int(message.value() or b"0") % 2)
            last = messages[-1].offset()
            assert last is not None
            producer.send_offsets_to_transaction(
                [TopicPartition(source, 0, last + 1)], consumer.consumer_group_metadata(), SECONDS
            )
            producer.commit_transaction(SECONDS)
    finally:
        consumer.close()
        producer.purge()


def main() -> None:
    while True:
        try:
            run(*sys.argv[1:5])
        except KafkaException as error:
            print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
