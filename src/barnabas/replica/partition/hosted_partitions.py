"""The partitions of this broker, online and offline."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from barnabas.common.errors import ApiError, Errors, KafkaStorageError
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.cache import MetadataCache

if TYPE_CHECKING:
    from barnabas.replica.partition.partition import Partition

logger = logging.getLogger(__name__)


class OfflinePartition(NamedTuple):
    """A partition in a log directory that has failed."""

    topic_partition: TopicPartition
    topic_id: Uuid | None
    """None if this broker did not know the partition before."""


class HostedPartitions:
    """The partitions of a broker. Each is in one of three states:

    ========  ================================================================  ==============================
    online    its log is on this broker                                         `Partition`
    offline   its log is in a directory that has failed                         KAFKA_STORAGE_ERROR
    none      the metadata has it on other brokers, or does not have it         NOT_LEADER_OR_FOLLOWER,
                                                                                UNKNOWN_TOPIC_OR_PARTITION
    ========  ================================================================  ==============================

    Lookups take no lock, and accept any tuple of topic and number: they need no `TopicPartition`.
    """

    def __init__(self, metadata_cache: MetadataCache) -> None:
        self._metadata_cache = metadata_cache
        self.state_change_lock = threading.RLock()
        """Guards changes of the tables, and serializes changes of roles. Held while metadata is applied, a log
        directory is taken offline, or logs are moved. The lock of a partition is taken inside it. Requests that read
        or write records do not take it."""
        self.online: dict[tuple[str, int], Partition] = {}
        """Other modules may read it; only this class changes it."""
        self._offline: dict[tuple[str, int], OfflinePartition] = {}
        self._online_per_topic: Counter[str] = Counter()
        """The number of online partitions of each topic."""

    # Lookups

    def get_partition_or_error(self, partition: tuple[str, int]) -> Partition | Errors:
        """Returns the partition if it is online, otherwise the error."""
        found = self.online.get(partition)
        return self.error_for(partition) if found is None else found

    def get_partition_or_exception(self, partition: tuple[str, int]) -> Partition:
        """Returns the partition if it is online, otherwise raises the exception of the error."""
        found = self.online.get(partition)
        if found is None:
            raise self.exception_for(partition)
        return found

    def error_for(self, partition: tuple[str, int]) -> Errors:
        """Returns the error for a partition that is not online."""
        if partition in self._offline:
            return Errors.KAFKA_STORAGE_ERROR
        topic, number = partition
        if self._metadata_cache.contains(topic, number):
            # It exists, but not, or no longer, on this broker: the client's metadata is outdated.
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

    # All partitions

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
        return self._online_per_topic[topic] > 0

    # Changes: the lock must be held

    def add(self, partition: Partition) -> None:
        self._offline.pop(partition.topic_partition, None)
        if partition.topic_partition not in self.online:
            self._online_per_topic[partition.topic_partition.topic] += 1
        self.online[partition.topic_partition] = partition

    def remove(self, partition: TopicPartition) -> Partition | None:
        """Removes a partition, online or offline; returns it if it was online."""
        self._offline.pop(partition, None)
        return self._remove_online(partition)

    def _remove_online(self, partition: TopicPartition) -> Partition | None:
        found = self.online.pop(partition, None)
        if found is not None:
            self._online_per_topic[partition.topic] -= 1
            if not self._online_per_topic[partition.topic]:
                del self._online_per_topic[partition.topic]
        return found

    def mark_offline(self, partition: TopicPartition, topic_id: Uuid | None = None) -> None:
        found = self.online.get(partition)
        # Add to one table before removing from the other: otherwise the partition would be unknown in between.
        self._offline[partition] = OfflinePartition(partition, topic_id if found is None else found.topic_id)
        if found is not None:
            self._remove_online(partition)
            found.mark_offline()
