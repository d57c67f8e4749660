"""Topics of a broker, made and filled for a test by another project's client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

_SECONDS = 120.0


class Topics:
    """What a test does to the broker before and while Spark reads from it."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        # Its own telemetry would be one more client of the broker, and one more line on standard error.
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "enable.metrics.push": False,
        }
        self._admin = AdminClient(self._settings)
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        return Producer({**self._settings, "linger.ms": 0})

    def create(self, name: str, partitions: int = 1, **config: str) -> str:
        """Records stay, however old their timestamps are."""
        given = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, partitions, 1, config=given)
        self._admin.create_topics([topic])[name].result(_SECONDS)
        return name

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(_SECONDS)

    def add_partitions(self, name: str, total: int) -> None:
        self._admin.create_partitions([NewPartitions(name, total)])[name].result(_SECONDS)
        self._producer = self._new_producer()  # the one before will not believe it for a while

    def delete_records(self, name: str, partition: int, before: int) -> None:
        """As retention does it."""
        asked = TopicPartition(name, partition, before)
        self._admin.delete_records([asked])[asked].result(_SECONDS)

    def send(
        self,
        name: str,
        values: Iterable[bytes | str | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """One record for each value, all in one partition; returns when the broker has them."""
        given: dict[str, Any] = {}
        if timestamp is not None:
            given["timestamp"] = timestamp
        if headers is not None:
            given["headers"] = list(headers)
        for value in values:
            self._producer.produce(name, value=value, key=key, partition=partition, **given)
        assert self._producer.flush(_SECONDS) == 0

    def send_transaction(self, name: str, values: Iterable[str], *, commit: bool, partition: int = 0) -> None:
        producer = Producer({**self._settings, "transactional.id": f"{name}-writer", "linger.ms": 0})
        producer.init_transactions(_SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value=value, partition=partition)
        producer.flush(_SECONDS)
        if commit:
            producer.commit_transaction(_SECONDS)
        else:
            producer.abort_transaction(_SECONDS)

    def open_transaction(self, name: str, values: Iterable[str], *, partition: int = 0) -> Producer:
        """A transaction that somebody else has to end."""
        producer = Producer({**self._settings, "transactional.id": f"{name}-open", "linger.ms": 0})
        producer.init_transactions(_SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value=value, partition=partition)
        producer.flush(_SECONDS)
        return producer

    def committed(self, group: str, name: str, partitions: int) -> list[int]:
        """The offsets of a group, as lag tools see them; -1001 where there is none."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(name, one) for one in range(partitions)])
        found = self._admin.list_consumer_group_offsets([asked])[group].result(_SECONDS)
        return [one.offset for one in found.topic_partitions]
