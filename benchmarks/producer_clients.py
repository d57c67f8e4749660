"""One producer in a process of its own: sends so many records and says how long that took.

Each client is used the way its own documentation recommends for throughput, with its own defaults apart from
``acks=all``. What is timed begins when the producer is connected and knows the topic, and ends when the last record is
acknowledged. Nothing but the client that is measured is imported here, or one could slow down another.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

TABLE_BYTES = 10_000_000
"""How large the tables are that ``send_table`` gets: 100,000 rows of 100 bytes, or about 10,000 of 1 KiB."""
WARM_UP = 1_000


class Stopwatch:
    """Wall-clock time, and the processor time of the whole process: the I/O threads count."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._cpu = _cpu_seconds()

    def report(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self._started, "cpu_seconds": _cpu_seconds() - self._cpu}


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def barnabas(
    servers: str, topic: str, value: bytes, count: int, settings: Mapping[str, object] = MappingProxyType({})
) -> dict[str, float]:
    from barnabas.clients.producer import KafkaProducer

    with KafkaProducer({"bootstrap.servers": servers, "acks": "all", **settings}) as producer:
        for _ in range(WARM_UP):
            producer.send(topic, value)
        producer.flush()
        watch = Stopwatch()
        send = producer.send
        for _ in range(count):
            send(topic, value)
        producer.flush()
        return watch.report()


def barnabas_with_small_batches(servers: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    return barnabas(servers, topic, value, count, {"batch.size": 16_384})


def barnabas_table(
    servers: str, topic: str, value: bytes, count: int, settings: dict[str, object] | None = None
) -> dict[str, float]:
    import pyarrow as pa

    from barnabas.clients.producer import KafkaProducer

    table = pa.table({"value": pa.array([value] * (TABLE_BYTES // len(value)), pa.binary())})
    with KafkaProducer({"bootstrap.servers": servers, "acks": "all", **(settings or {})}) as producer:
        producer.send_table(topic, table.slice(0, WARM_UP)).result()
        watch = Stopwatch()
        tables = [table.slice(0, count - start) for start in range(0, count, len(table))]
        futures = [producer.send_table(topic, part) for part in tables]
        producer.flush()
        for future in futures:
            future.result()
        return watch.report()


def barnabas_table_over_tcp(servers: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    """As from another machine, but for the network in between."""
    return barnabas_table(servers, topic, value, count, {"local.socket.enable": False})


def kafka_python(servers: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    for _ in range(WARM_UP):
        producer.send(topic, value)
    producer.flush()
    watch = Stopwatch()
    for _ in range(count):
        producer.send(topic, value)
    producer.flush()
    report = watch.report()
    producer.close()
    return report


def aiokafka(servers: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    async def produce() -> dict[str, float]:
        async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
            for _ in range(WARM_UP):
                await producer.send(topic, value)
            await producer.flush()
            watch = Stopwatch()
            for _ in range(count):
                await producer.send(topic, value)  # has a place in a batch now; the delivery is not awaited
            await producer.flush()
            return watch.report()

    return asyncio.run(produce())


def confluent_kafka(
    servers: str, topic: str, value: bytes, count: int, settings: Mapping[str, object] = MappingProxyType({})
) -> dict[str, float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "acks": "all", **settings})

    def produce(records: int) -> None:
        for _ in range(records):
            while True:
                try:
                    producer.produce(topic, value)
                except BufferError:
                    producer.poll(0.01)
                else:
                    break
            producer.poll(0)
        assert producer.flush() == 0

    produce(WARM_UP)
    watch = Stopwatch()
    produce(count)
    return watch.report()


def confluent_kafka_with_small_batches(servers: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    return confluent_kafka(servers, topic, value, count, {"batch.size": 16_384})


CLIENTS: dict[str, Callable[[str, str, bytes, int], dict[str, float]]] = {
    "barnabas": barnabas,
    "barnabas, batch.size=16384": barnabas_with_small_batches,
    "barnabas send_table": barnabas_table,
    "barnabas send_table over TCP": barnabas_table_over_tcp,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "confluent-kafka": confluent_kafka,
    "confluent-kafka, batch.size=16384": confluent_kafka_with_small_batches,
}


def main() -> None:
    client, servers, topic, size, count = sys.argv[1:]
    value = bytes(number % 251 for number in range(int(size)))
    print(json.dumps(CLIENTS[client](servers, topic, value, int(count))))


if __name__ == "__main__":
    main()
