"""Topics and partitions in large numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from barnabas.common.errors import Errors
from benchmarks.broker_process import ServerProcess
from benchmarks.peers import rdkafka_client
from benchmarks.peers.case import Metric, await_readable, new_names, new_topic, remove_topic, remove_topics
from benchmarks.wire_client import WireClient, batch_of


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
        names = new_names(self.topics)
        with WireClient(server.bootstrap_servers) as client:
            started = time.perf_counter()
            assert set(client.create_topics([(name, 10) for name in names])) == {Errors.NONE}
            await_readable(client, names[-1], range(10))
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
                "reads": 1,
                "settings": {},
            }
        )
        return {"rate": answer["rate"], "broker CPU": (server.cpu_seconds - before) * 1000}

    def clean_up(self, server: ServerProcess) -> None:
        if (topic := self._topics.pop(server.port, None)) is not None:
            remove_topic(server, topic)
