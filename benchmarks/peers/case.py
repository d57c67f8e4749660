"""What a case is, what it measures, and the topics that cases make and remove."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from barnabas.common.errors import Errors
from benchmarks.broker_process import ServerProcess
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient

JAVA = "Java"
RDKAFKA = "librdkafka"
READY_S = 60.0
"""How long a new topic may take until it can be read."""
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
        await_readable(client, topic, range(partitions))
    return topic


def new_names(count: int) -> list[str]:
    return [f"made-{next(_numbers)}" for _ in range(count)]


def await_readable(client: WireClient, topic: str, partitions: Iterable[int]) -> None:
    for partition in partitions:
        what = f"{topic}-{partition} can be read"
        until(partial(_is_readable, client, topic, partition), what, READY_S, pause_s=0.001)


def _is_readable(client: WireClient, topic: str, partition: int) -> bool:
    return client.fetch(topic, partition)[0] is Errors.NONE


def remove_topic(server: ServerProcess, topic: str) -> None:
    remove_topics(server, [topic])


def remove_topics(server: ServerProcess, topics: list[str]) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 3})
    for future in admin.delete_topics(topics).values():
        future.result(30)


def number_of(size: int, megabytes: float) -> int:
    return int(megabytes * 1e6 / size)


def size_text(size: int) -> str:
    return f"{size // 1024} KiB" if size % 1024 == 0 else f"{size} B"
