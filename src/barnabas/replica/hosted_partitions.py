"""Which partitions this broker has, and in what condition."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from barnabas.common.errors import ApiError, Errors, KafkaStorageError
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.cache import MetadataCache

if TYPE_CHECKING:
    from barnabas.replica.partition import Partition

logger = logging.getLogger(__name__)


class OfflinePartition(NamedTuple):
    """A partition in a log directory that has failed."""

    topic_partition: TopicPartition
    topic_id: Uuid | None
    """None if it was not known on this broker before."""


class HostedPartitions:
    """The partitions of a broker. Each is in one of three conditions:

    ========  ================================================================  ==============================
    online    it has a log here                                                 `Partition`
    offline   its log is in a directory that has failed                         KAFKA_STORAGE_ERROR
    none      the metadata have it on other brokers, or do not have it at all   NOT_LEADER_OR_FOLLOWER,
                                                                                UNKNOWN_TOPIC_OR_PARTITION
    ========  ================================================================  ==============================

    Looking one up takes no lock, and any tuple of topic and number will do: a `TopicPartition` need not be made for it.
    """

    def __init__(self, metadata_cache: MetadataCache) -> None:
        self._metadata_cache = metadata_cache
        self.state_change_lock = threading.RLock()
        """Guards changes of which partitions there are, and lets one change of roles after the other be made: held by
        whoever applies metadata, takes a log directory offline or moves logs. The lock of a partition is taken inside
        it. No request that reads or writes records takes it."""
        self.online: dict[tuple[str, int], Partition] = {}
        """To be read by anybody, and changed here."""
        self._offline: dict[tuple[str, int], OfflinePartition] = {}

    # Looking up

    def get_partition_or_error(self, partition: tuple[str, int]) -> Partition | Errors:
        """The partition, or why there is none."""
        found = self.online.get(partition)
        return self.error_for(partition) if found is None else found

    def get_partition_or_exception(self, partition: tuple[str, int]) -> Partition:
        """The partition; the exception that goes with the error if there is none."""
        found = self.online.get(partition)
        if found is None:
            raise self.exception_for(partition)
        return found

    def error_for(self, partition: tuple[str, int]) -> Errors:
        """Why there is no such partition online."""
        if partition in self._offline:
            return Errors.KAFKA_STORAGE_ERROR
        topic, number = partition
        if self._metadata_cache.contains(topic, number):
            # It exists, but not here, or not any more: the client's metadata are old.
            return Errors.NOT_LEADER_OR_FOLLOWER
        return Errors.UNKNOWN_TOPIC_OR_PARTITION

    def exception_for(self, partition: tuple[str, int]) -> ApiError:
        error = self.error_for(partition)
        name = TopicPartition(*partition)
        if error is Errors.KAFKA_STORAGE_ERROR:
            return KafkaStorageError(f"{name} is in a log directory that is offline")
        exception = error.to_exception(f"There is no replica of {name} on this broker")
        assert exception is not None
        return exception

    def offline(self, partition: tuple[str, int]) -> OfflinePartition | None:
        return self._offline.get(partition)

    # All of them

    def online_partitions(self) -> list[Partition]:
        return list(self.online.copy().values())

    def leader_partitions(self) -> Iterator[Partition]:
        return (partition for partition in self.online_partitions() if partition.leader_log_if_local is not None)

    @property
    def offline_count(self) -> int:
        return len(self._offline)

    def __len__(self) -> int:
        return len(self.online) + len(self._offline)

    def has_topic(self, topic: str) -> bool:
        """Whether a partition of the topic is online."""
        return any(partition.topic_partition.topic == topic for partition in self.online_partitions())

    # Changes: the lock must be held

    def add(self, partition: Partition) -> None:
        self._offline.pop(partition.topic_partition, None)
        self.online[partition.topic_partition] = partition

    def remove(self, partition: TopicPartition) -> Partition | None:
        """Forgets a partition, whatever its condition; returns it if it was online."""
        self._offline.pop(partition, None)
        return self.online.pop(partition, None)

    def mark_offline(self, partition: TopicPartition, topic_id: Uuid | None = None) -> None:
        found = self.online.get(partition)
        # First into the one table, then out of the other: a partition that goes offline is at no time unknown.
        self._offline[partition] = OfflinePartition(partition, topic_id if found is None else found.topic_id)
        if found is not None:
            del self.online[partition]
            found.mark_offline()
