"""Partitioners of the application's own, which take the place of the built-in way."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from typing import Any

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot


class Partitioner:
    """To be derived from. Called on the threads that send, several at a time."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Called once with the settings of the producer, for a partitioner that was given as a class."""

    def partition(
        self,
        topic: str,
        key: Any,
        key_bytes: bytes | None,
        value: Any,
        value_bytes: bytes | None,
        cluster: MetadataSnapshot,
    ) -> int:
        """The number of the partition for a record."""
        raise NotImplementedError

    def on_new_batch(self, topic: str, cluster: MetadataSnapshot, previous_partition: int) -> None:
        """A record for this partition would start a new batch; `partition` is asked once more after this."""

    def close(self) -> None: ...


class RoundRobinPartitioner(Partitioner):
    """One after the other, whatever the key: the same number of records for each partition that has a leader."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards the counters."""
        self._counters: dict[str, itertools.count[int]] = {}
        self._put_back: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: Any,  # noqa: ARG002 - it makes no difference here
        key_bytes: bytes | None,  # noqa: ARG002
        value: Any,  # noqa: ARG002
        value_bytes: bytes | None,  # noqa: ARG002
        cluster: MetadataSnapshot,
    ) -> int:
        with self._lock:
            previous = self._put_back.pop(topic, None)
            if previous is not None:
                return previous  # the record is the same one, asked about once more because of a new batch
            turn = next(self._counters.setdefault(topic, itertools.count()))
        available = cluster.available_partitions(topic)
        if available:
            return available[turn % len(available)]
        return turn % (cluster.partition_count(topic) or 1)

    def on_new_batch(self, topic: str, cluster: MetadataSnapshot, previous_partition: int) -> None:  # noqa: ARG002
        with self._lock:
            self._put_back[topic] = previous_partition
