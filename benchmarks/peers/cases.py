"""The cases: what is asked of both brokers, in what amounts, and which ratio is to be reached."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from barnabas.common.errors import Errors
from benchmarks.broker_process import ServerProcess
from benchmarks.peers import java_tools, rdkafka_client
from benchmarks.wire_client import WireClient, batch_of

JAVA = "Java"
RDKAFKA = "librdkafka"
LINGER_MS = 5
"""What librdkafka has by default; where latency is measured it is 0."""
WARM_UP_PART = 0.2
"""Records that a producer sends before the clock is started, in proportion to those after it."""
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Metric:
    """Something measured. The ratio is ours to Kafka's; `target` is its least or, if less is better, its greatest."""

    name: str
    unit: str
    more_is_better: bool = True
    target: float | None = None

    def reached(self, ratio: float) -> bool | None:
        if self.target is None:
            return None
        return ratio >= self.target if self.more_is_better else ratio <= self.target


class Case(Protocol):
    """One thing to do, on one server at a time."""

    @property
    def key(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def metrics(self) -> tuple[Metric, ...]: ...

    def prepare(self, server: ServerProcess) -> None:
        """Once for each server, before the rounds."""

    def measure(self, server: ServerProcess) -> dict[str, float]:
        """One round: a value for each metric."""

    def clean_up(self, server: ServerProcess) -> None:
        """Once for each server, after the rounds."""


def new_topic(server: ServerProcess, partitions: int) -> str:
    """A topic that nobody has used, ready for use."""
    topic = f"bench-{next(_numbers)}"
    with WireClient(server.bootstrap_servers) as client:
        client.create_topic(topic, partitions)
        while any(client.fetch(topic, partition)[0] is not Errors.NONE for partition in range(partitions)):
            time.sleep(0.01)
    return topic


def remove_topic(server: ServerProcess, topic: str) -> None:
    remove_topics(server, [topic])


def remove_topics(server: ServerProcess, topics: list[str]) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    for future in admin.delete_topics(topics).values():
        future.result(30)


def number_of(size: int, megabytes: float) -> int:
    return int(megabytes * 1e6 / size)


@dataclass(frozen=True, slots=True)
class Produce:
    """As fast as the client can. CPU is the broker's, counted from before the client connects until it is done, and for
    all records, those of the client's warm-up too."""

    client: str
    size: int
    acks: str
    partitions: int
    megabytes: float
    clients: int = 1
    codec: str = "none"
    target: float | None = None
    cpu_target: float | None = None

    @property
    def key(self) -> str:
        parts = ["produce", self.client.lower(), f"{self.size}B", f"acks-{self.acks}", f"{self.partitions}p"]
        parts += [f"{self.clients}c"] * (self.clients > 1) + [self.codec] * (self.codec != "none")
        return "-".join(parts)

    @property
    def title(self) -> str:
        several = f", {self.clients} clients" if self.clients > 1 else ""
        codec = f", {self.codec}" if self.codec != "none" else ""
        idempotent = " idempotent" if self.acks == "all" else ""
        plural = "s" if self.partitions > 1 else ""
        return (
            f"produce {size_text(self.size)}, acks={self.acks}{idempotent}, {self.partitions} partition{plural}"
            f"{several}{codec}, {self.client}"
        )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("throughput", "MB/s", target=self.target),
            Metric("broker CPU", "s/GB", more_is_better=False, target=self.cpu_target),
        )

    def prepare(self, server: ServerProcess) -> None:
        pass

    def measure(self, server: ServerProcess) -> dict[str, float]:
        topic = new_topic(server, self.partitions)
        records = number_of(self.size, self.megabytes)
        warm_up = int(records * WARM_UP_PART)
        idempotent = "true" if self.acks == "all" else "false"
        settings = {"acks": self.acks, "compression.type": self.codec, "enable.idempotence": idempotent}
        before = server.cpu_seconds
        if self.client == JAVA:
            rate = java_tools.produce(
                server.bootstrap_servers, topic, records, self.size, warm_up, settings
            ).records_per_s
        else:
            rate = rdkafka_client.ask(
                {
                    "job": "produce",
                    "bootstrap": server.bootstrap_servers,
                    "topic": topic,
                    "records": records,
                    "warm_up": warm_up,
                    "size": self.size,
                    "clients": self.clients,
                    "settings": settings,
                }
            )["rate"]
        cpu = server.cpu_seconds - before
        remove_topic(server, topic)
        return {"throughput": rate * self.size / 1e6, "broker CPU": cpu / ((records + warm_up) * self.size / 1e9)}

    def clean_up(self, server: ServerProcess) -> None:
        pass


@dataclass(slots=True)
class Consume:
    """Everything that is in a topic, from its beginning."""

    client: str
    size: int
    partitions: int
    megabytes: float
    target: float | None = None
    cpu_target: float | None = None
    _topics: dict[int, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"consume-{self.client.lower()}-{self.size}B-{self.partitions}p"

    @property
    def title(self) -> str:
        return f"consume {size_text(self.size)}, catch-up, {self.partitions} partitions, {self.client}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("throughput", "MB/s", target=self.target),
            Metric("broker CPU", "s/GB", more_is_better=False, target=self.cpu_target),
        )

    def prepare(self, server: ServerProcess) -> None:
        topic = self._topics[server.port] = new_topic(server, self.partitions)
        rdkafka_client.ask(
            {
                "job": "produce",
                "bootstrap": server.bootstrap_servers,
                "topic": topic,
                "records": number_of(self.size, self.megabytes),
                "warm_up": 0,
                "size": self.size,
                "clients": 1,
                # Keyless records stick to a partition for a while; this spreads them evenly.
                "settings": {"acks": "1", "linger.ms": LINGER_MS, "sticky.partitioning.linger.ms": 0},
            }
        )

    def measure(self, server: ServerProcess) -> dict[str, float]:
        records = number_of(self.size, self.megabytes)
        topic = self._topics[server.port]
        before = server.cpu_seconds
        if self.client == JAVA:
            rate = java_tools.consume(server.bootstrap_servers, topic, records)
        else:
            rate = rdkafka_client.ask(
                {
                    "job": "consume",
                    "bootstrap": server.bootstrap_servers,
                    "topic": topic,
                    "records": records,
                    "partitions": self.partitions,
                    "settings": {},
                }
            )["steady_rate"]
        cpu = server.cpu_seconds - before
        return {"throughput": rate * self.size / 1e6, "broker CPU": cpu / (records * self.size / 1e9)}

    def clean_up(self, server: ServerProcess) -> None:
        remove_topic(server, self._topics.pop(server.port))


@dataclass(slots=True)
class Latency:
    """From a producer's call to a consumer's hands, at a rate that is no strain: the consumer tails the topic."""

    rate: int
    seconds: float
    acks: str = "1"
    targets: tuple[float | None, float | None] = (None, None)
    _topics: dict[int, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"latency-{self.rate}-acks-{self.acks}"

    @property
    def title(self) -> str:
        return f"end to end at {self.rate:,} records/s, acks={self.acks}, {RDKAFKA}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("p50", "ms", more_is_better=False, target=self.targets[0]),
            Metric("p99", "ms", more_is_better=False, target=self.targets[1]),
            Metric("p99.9", "ms", more_is_better=False),
        )

    def prepare(self, server: ServerProcess) -> None:
        pass

    def measure(self, server: ServerProcess) -> dict[str, float]:
        topic = new_topic(server, 1)
        answer = rdkafka_client.ask(
            {
                "job": "latency",
                "bootstrap": server.bootstrap_servers,
                "topic": topic,
                "rate": self.rate,
                "seconds": self.seconds,
                "size": 100,
                "partitions": 1,
                "settings": {"acks": self.acks},
            }
        )
        remove_topic(server, topic)
        return {name: float(value) for name, value in answer.items()}

    def clean_up(self, server: ServerProcess) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Tail:
    """A consumer that keeps up with a producer: each record is written and read while it is in memory."""

    rate: int
    size: int
    seconds: float
    partitions: int = 12

    @property
    def key(self) -> str:
        return f"tail-{self.rate}-{self.size}B-{self.partitions}p"

    @property
    def title(self) -> str:
        speed = self.rate * self.size / 1e6
        return f"tail of {size_text(self.size)} at {speed:.0f} MB/s, {self.partitions} partitions, {RDKAFKA}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("broker CPU", "s/GB", more_is_better=False),
            Metric("p50", "ms", more_is_better=False),
            Metric("p99", "ms", more_is_better=False),
        )

    def prepare(self, server: ServerProcess) -> None:
        pass

    def measure(self, server: ServerProcess) -> dict[str, float]:
        topic = new_topic(server, self.partitions)
        before = server.cpu_seconds
        answer = rdkafka_client.ask(
            {
                "job": "latency",
                "bootstrap": server.bootstrap_servers,
                "topic": topic,
                "rate": self.rate,
                "seconds": self.seconds,
                "size": self.size,
                "partitions": self.partitions,
                "settings": {"acks": "1", "linger.ms": LINGER_MS},
            }
        )
        cpu = server.cpu_seconds - before
        remove_topic(server, topic)
        records = self.rate * (self.seconds + rdkafka_client.WARM_UP_S)
        return {"broker CPU": cpu / (records * self.size / 1e9), "p50": answer["p50"], "p99": answer["p99"]}

    def clean_up(self, server: ServerProcess) -> None:
        pass


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Topics with ten partitions each, until the last of them can be read."""

    topics: int

    key = "create-topics"

    @property
    def title(self) -> str:
        return f"create {self.topics} topics of 10 partitions"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (Metric("rate", "partitions/s"),)

    def prepare(self, server: ServerProcess) -> None:
        pass

    def measure(self, server: ServerProcess) -> dict[str, float]:
        names = [f"made-{next(_numbers)}" for _ in range(self.topics)]
        with WireClient(server.bootstrap_servers) as client:
            started = time.perf_counter()
            assert set(client.create_topics([(name, 10) for name in names])) == {Errors.NONE}
            while any(client.fetch(names[-1], partition)[0] is not Errors.NONE for partition in range(10)):
                time.sleep(0.001)
            rate = self.topics * 10 / (time.perf_counter() - started)
        remove_topics(server, names)
        return {"rate": rate}

    def clean_up(self, server: ServerProcess) -> None:
        pass


@dataclass(slots=True)
class ManyPartitions:
    """A consumer of a thousand partitions with one batch in each reads all of it."""

    partitions: int = 1_000
    _topics: dict[int, str] = field(default_factory=dict)

    key = "fetch-1000-partitions"
    title = "1,000 partitions with 16 KiB each, one consumer, librdkafka"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (Metric("rate", "partitions/s"), Metric("broker CPU", "ms", more_is_better=False))

    def prepare(self, server: ServerProcess) -> None:
        topic = self._topics[server.port] = new_topic(server, self.partitions)
        batch = batch_of(bytes(16_000))
        with WireClient(server.bootstrap_servers) as client:
            for partition in range(self.partitions):
                assert client.produce_batch(topic, partition, batch)[0] is Errors.NONE

    def measure(self, server: ServerProcess) -> dict[str, float]:
        before = server.cpu_seconds
        answer = rdkafka_client.ask(
            {
                "job": "consume",
                "bootstrap": server.bootstrap_servers,
                "topic": self._topics[server.port],
                "records": self.partitions,
                "partitions": self.partitions,
                "settings": {},
            }
        )
        return {"rate": answer["rate"], "broker CPU": (server.cpu_seconds - before) * 1000}

    def clean_up(self, server: ServerProcess) -> None:
        remove_topic(server, self._topics.pop(server.port))


def size_text(size: int) -> str:
    return f"{size // 1024} KiB" if size % 1024 == 0 else f"{size} B"


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
    for client in (JAVA, RDKAFKA):
        yield Consume(client, 1024, 12, 1_500 * scale, target=1.0, cpu_target=1.0)
    yield Latency(1_000, 8 * scale, targets=(1.0, 1.5))


def further_cases() -> Iterable[Case]:
    yield Produce(JAVA, 100, "1", 12, 150, target=1.0)
    yield Produce(JAVA, 100, "all", 12, 150, target=1.0)
    yield Produce(JAVA, 10_240, "1", 12, 1_000)
    yield Produce(JAVA, 10_240, "all", 12, 1_000)
    yield Produce(JAVA, 1024, "all", 1, 400)
    yield Produce(JAVA, 1024, "all", 100, 400)
    yield Produce(JAVA, 1024, "all", 12, 400, codec="lz4")
    yield Produce(RDKAFKA, 1024, "all", 12, 1_000, clients=10)
    yield Produce(RDKAFKA, 1024, "all", 12, 1_000, codec="lz4")
    yield Consume(JAVA, 100, 12, 300, target=1.0)
    # The interpreter takes 5 us for each record: this is the speed of the client, with either broker.
    yield Consume(RDKAFKA, 100, 12, 100)
    yield Latency(100, 5)
    yield Latency(1_000, 5, acks="all")
    yield Latency(5_000, 5)
    yield Tail(10_000, 1024, 4)
    yield CreateTopics(100)
    yield ManyPartitions()
