"""One consumer in a process of its own: reads so many records and says how long that took.

Each client reads all partitions of a topic from the beginning, without a group, with its own defaults. What is timed
begins when the first records are there, so that connecting does not count, and ends with the last one. Every client
looks at the value of every record, or at the column of them, so that none gets away with records that it has not made.
Nothing but the client that is measured is imported here, or one could slow down another.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable

from benchmarks.producer_clients import Stopwatch

BATCH = 500
"""How many records confluent-kafka is asked for at once, which is also ``max.poll.records`` of the others."""
WAIT_S = 30.0

Report = dict[str, float]


def _report(watch: Stopwatch, counted: int, size: int) -> Report:
    return {**watch.report(), "records": counted, "bytes": size}


def barnabas_iteration(servers: str, topic: str, partitions: int, count: int) -> Report:
    from barnabas.clients.consumer import KafkaConsumer, TopicPartition

    with KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        records = iter(consumer)
        next(records)
        watch, counted, size = Stopwatch(), 1, 0
        for record in records:
            size += len(record.value)
            counted += 1
            if counted == count:
                break
        return _report(watch, counted - 1, size)


def barnabas_poll(servers: str, topic: str, partitions: int, count: int) -> Report:
    from barnabas.clients.consumer import KafkaConsumer, TopicPartition

    with KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        first = len(consumer.poll(WAIT_S * 1000))
        watch, counted, size = Stopwatch(), first, 0
        while counted < count:
            for record in consumer.poll(WAIT_S * 1000):
                size += len(record.value)
                counted += 1
        return _report(watch, counted - first, size)


def barnabas_table(
    servers: str, topic: str, partitions: int, count: int, *, binary_type: str = "binary", over_tcp: bool = False
) -> Report:
    from barnabas.clients.consumer import KafkaConsumer, TopicPartition

    with KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", local_socket_enable=not over_tcp
    ) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        first = consumer.poll_table(WAIT_S * 1000, binary_type=binary_type).num_rows
        watch, counted, size = Stopwatch(), first, 0
        while counted < count:
            table = consumer.poll_table(WAIT_S * 1000, binary_type=binary_type)
            size += table.column("value").nbytes
            counted += table.num_rows
        return _report(watch, counted - first, size)


def barnabas_views(servers: str, topic: str, partitions: int, count: int) -> Report:
    return barnabas_table(servers, topic, partitions, count, binary_type="binary_view")


def barnabas_table_over_tcp(servers: str, topic: str, partitions: int, count: int) -> Report:
    """As from another machine, but for the network in between."""
    return barnabas_table(servers, topic, partitions, count, over_tcp=True)


def kafka_python(servers: str, topic: str, partitions: int, count: int) -> Report:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", group_id=None)
    consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
    records = iter(consumer)
    next(records)
    watch, counted, size = Stopwatch(), 1, 0
    for record in records:
        size += len(record.value)
        counted += 1
        if counted == count:
            break
    report = _report(watch, counted - 1, size)
    consumer.close()
    return report


def aiokafka(servers: str, topic: str, partitions: int, count: int) -> Report:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def consume() -> Report:
        async with AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
            await consumer.getone()
            watch, counted, size = Stopwatch(), 1, 0
            async for record in consumer:
                size += len(record.value)
                counted += 1
                if counted == count:
                    break
            return _report(watch, counted - 1, size)

    return asyncio.run(consume())


def confluent_kafka(servers: str, topic: str, partitions: int, count: int) -> Report:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "benchmark", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    first = 0
    while not first:
        first = len(consumer.consume(BATCH, WAIT_S))
    watch, counted, size = Stopwatch(), first, 0
    while counted < count:
        for message in consumer.consume(BATCH, WAIT_S):
            size += len(message.value() or b"")
            counted += 1
    report = _report(watch, counted - first, size)
    consumer.close()
    return report


CLIENTS: dict[str, Callable[[str, str, int, int], Report]] = {
    "barnabas": barnabas_iteration,
    "barnabas poll": barnabas_poll,
    "barnabas poll_table": barnabas_table,
    "barnabas poll_table of views": barnabas_views,
    "barnabas poll_table over TCP": barnabas_table_over_tcp,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "confluent-kafka": confluent_kafka,
}


def main() -> None:
    client, servers, topic, partitions, count = sys.argv[1:]
    print(json.dumps(CLIENTS[client](servers, topic, int(partitions), int(count))))


if __name__ == "__main__":
    main()
