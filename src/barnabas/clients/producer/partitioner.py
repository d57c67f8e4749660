"""Custom partitioners, which replace the built-in one."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot


class Partitioner(ABC):
    """Base class of partitioners. Several sending threads may call it at the same time."""

    def configure(self, config: Mapping[str, Any]) -> None:  # noqa: B027 - most have nothing to configure
        """Called once with the settings of the producer, for a partitioner that was given as a class."""

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        key_bytes: bytes | None,
        value: Any,
        value_bytes: bytes | None,
        cluster: MetadataSnapshot,
    ) -> int:
        """Returns the partition number for a record."""

    def on_new_batch(  # noqa: B027 - nothing to do for most
        self, topic: str, cluster: MetadataSnapshot, previous_partition: int
    ) -> None:
        """Called when a record for this partition would start a new batch; `partition` is called again afterwards."""

    def close(self) -> None:  # noqa: B027 - nothing to do for most
        """Called when the producer is closed."""


class RoundRobinPartitioner(Partitioner):
    """Cycles through the partitions that have a leader and ignores keys: each gets the same number of records."""

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
                return previous  # the same record again, because of a new batch
            turn = next(self._counters.setdefault(topic, itertools.count()))
        available = cluster.available_partitions(topic)
        if available:
            return available[turn % len(available)]
        return turn % (cluster.partition_count(topic) or 1)

    def on_new_batch(self, topic: str, cluster: MetadataSnapshot, previous_partition: int) -> None:  # noqa: ARG002
        with self._lock:
            self._put_back[topic] = previous_partition
