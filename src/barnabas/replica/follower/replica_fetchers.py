"""The interface of the fetchers that copy partitions from leaders on other brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition


class InitialFetchState(NamedTuple):
    """The leader of a partition, and the offset to start fetching at."""

    topic_id: Uuid | None
    leader_id: int
    leader_epoch: int
    offset: int
    """The local log end offset, or the high watermark if the log has no leader epochs."""


class ReplicaFetchers(Protocol):
    """The follower's side of replication."""

    def add_fetcher_for_partitions(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None: ...

    def remove_fetcher_for_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops the fetchers of these; returns when they no longer append."""
        ...

    def add_failed_partition(self, partition: TopicPartition) -> None: ...

    def shutdown_idle_fetcher_threads(self) -> None: ...

    def shutdown(self) -> None: ...


class NoReplicaFetchers:
    """Copies nothing, and only tracks the partitions to copy: for a cluster with a single broker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards both fields below. No other lock is taken inside it."""
        self._followed: dict[TopicPartition, InitialFetchState] = {}
        self._failed: set[TopicPartition] = set()

    @property
    def followed(self) -> dict[TopicPartition, InitialFetchState]:
        with self._lock:
            return dict(self._followed)

    @property
    def failed(self) -> set[TopicPartition]:
        with self._lock:
            return set(self._failed)

    def add_fetcher_for_partitions(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        with self._lock:
            self._followed.update(partitions)
            self._failed.difference_update(partitions)

    def remove_fetcher_for_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                self._followed.pop(partition, None)
                self._failed.discard(partition)

    def add_failed_partition(self, partition: TopicPartition) -> None:
        with self._lock:
            self._followed.pop(partition, None)
            self._failed.add(partition)

    def shutdown_idle_fetcher_threads(self) -> None: ...

    def shutdown(self) -> None: ...
