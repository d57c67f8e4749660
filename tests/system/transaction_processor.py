"""Reads records of one topic and writes them to the same partitions of another, each of them once, come what may.

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
    # With "rebootstrap", librdkafka (2.16) gives up its handle of a broker that is down, but its cache of group
    # coordinators keeps it: after AddOffsetsToTxn, TxnOffsetCommit is queued there and never sent, without a time-out.
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
        partitions = consumer.list_topics(source, SECONDS).topics[source].partitions
        committed = consumer.committed([TopicPartition(source, partition) for partition in partitions], SECONDS)
        consumer.assign([TopicPartition(source, one.partition, max(one.offset, 0)) for one in committed])
        while True:
            messages = [message for message in consumer.consume(20, 0.2) if message.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                partition = message.partition()
                assert partition is not None
                producer.produce(target, message.value(), partition=partition)
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS
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
