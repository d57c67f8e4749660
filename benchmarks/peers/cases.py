"""The cases: what is asked of both brokers, in what amounts, and which ratio is to be reached."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.peers.case import JAVA, RDKAFKA, Case
from benchmarks.peers.latency_cases import Latency, Tail
from benchmarks.peers.python_clients import AIOKAFKA, KAFKA_PYTHON
from benchmarks.peers.spark_case import StockConnector
from benchmarks.peers.throughput_cases import Consume, Produce
from benchmarks.peers.topic_cases import CreateTopics, ManyPartitions

READS = 3
"""Of librdkafka's consumer in a round; see `Consume`."""


def warm_up_cases() -> list[Case]:
    """Some of everything, for a broker that has just been started."""
    produce = [Produce(RDKAFKA, size, acks, 12, 150) for size, acks in ((1024, "1"), (1024, "all"), (100, "all"))]
    return [*produce, Consume(RDKAFKA, 1024, 12, 300), Latency(1_000, 1)]


def quick_cases() -> list[Case]:
    """Those with a target, one for each, in amounts that a client deals with in one to three seconds."""
    return list(target_cases(0.4))


def full_cases() -> list[Case]:
    return [*target_cases(1.0), *further_cases()]


def target_cases(scale: float) -> Iterable[Case]:
    for acks in ("1", "all"):
        yield Produce(JAVA, 1024, acks, 12, 600 * scale, target=1.0, cpu_target=1.0)
    for acks in ("1", "all"):
        yield Produce(RDKAFKA, 1024, acks, 12, 2_000 * scale, target=1.0, cpu_target=1.0)
    yield Produce(RDKAFKA, 100, "all", 12, 350 * scale, target=1.0)
    yield Consume(JAVA, 1024, 12, 1_500 * scale, target=1.0, cpu_target=1.0)
    yield Consume(RDKAFKA, 1024, 12, 1_500 * scale, reads=READS, target=1.0, cpu_target=1.0)
    yield Latency(1_000, 8 * scale, targets=(1.0, 1.5))


def further_cases() -> Iterable[Case]:
    yield Produce(JAVA, 100, "1", 12, 150, target=1.0)
    yield Produce(JAVA, 100, "all", 12, 150, target=1.0)
    yield Consume(JAVA, 100, 12, 300, target=1.0)
    yield Produce(JAVA, 10_240, "1", 12, 1_000)
    yield Produce(JAVA, 10_240, "all", 12, 1_000)
    yield Produce(JAVA, 1024, "all", 1, 400)
    yield Produce(JAVA, 1024, "all", 100, 400)
    yield Produce(JAVA, 1024, "all", 12, 400, codec="lz4")
    yield Produce(RDKAFKA, 1024, "1", 12, 1_000, clients=10)
    yield Produce(RDKAFKA, 1024, "all", 12, 1_000, clients=10)
    yield Produce(RDKAFKA, 1024, "all", 12, 1_000, codec="lz4")
    yield Consume(JAVA, 10_240, 12, 1_500)
    yield Consume(JAVA, 1024, 100, 1_000)
    # The interpreter takes 5 us for each record: this is the speed of the client, with either broker. So it is with
    # the two clients that are written in Python.
    yield Consume(RDKAFKA, 100, 12, 100)
    for client, produced, consumed in ((KAFKA_PYTHON, 60, 200), (AIOKAFKA, 120, 400)):
        yield Produce(client, 1024, "all", 12, produced)
        yield Consume(client, 1024, 12, consumed)
    yield Latency(100, 5)
    yield Latency(1_000, 5, acks="all")
    yield Latency(5_000, 5)
    yield Tail(10_000, 1024, 4)
    yield CreateTopics(100)
    yield ManyPartitions()
    if StockConnector.is_available():
        yield StockConnector(1_000_000)
