"""How long a record takes from a producer to a consumer that waits for it."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.broker_process import ServerProcess
from benchmarks.peers import rdkafka_client
from benchmarks.peers.case import RDKAFKA, Metric, new_topic, remove_topic, size_text

LINGER_MS = 5
"""What librdkafka has by default; where latency alone is measured it is 0."""


@dataclass(frozen=True, slots=True)
class Latency:
    """From a producer's call to a consumer's hands, at a rate that is no strain: the consumer tails the topic."""

    rate: int
    seconds: float
    acks: str = "1"
    targets: tuple[float | None, float | None] = (None, None)

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
