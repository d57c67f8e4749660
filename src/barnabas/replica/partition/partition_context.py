"""The collaborators that all partitions of a broker share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.manager.log_manager import LogManager
from barnabas.metadata.cache import MetadataCache
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.replica.partition.alter_partition import AlterPartitionManager


class WaitingRequests(Protocol):
    """The requests that wait for events of partitions."""

    def check_and_complete_all(self, key: Hashable) -> None:
        """Rechecks the requests that wait for this partition. No lock may be held."""
        ...

    @property
    def any_delayed_deletes(self) -> bool:
        """Whether any DeleteRecords request is waiting."""
        ...


class PartitionListener:
    """Is notified of changes of a partition on this broker.

    The thread that causes the change calls it with locks held: it must be quick, and not call back into the partition.
    """

    def on_high_watermark_updated(self, partition: TopicPartition, offset: int) -> None: ...

    def on_failed(self, partition: TopicPartition) -> None:
        """Called when the log directory goes offline. No further calls follow."""

    def on_deleted(self, partition: TopicPartition) -> None:
        """Called when the replica is removed from this broker. No further calls follow."""


class IsrMeters:
    """Counts expansions, shrinks and failed updates of ISRs."""

    def __init__(self, registry: MetricsRegistry) -> None:
        group = KafkaMetricsGroup(registry, "kafka.server", "ReplicaManager")
        self.expands = group.new_meter("IsrExpandsPerSec", "expands")
        self.shrinks = group.new_meter("IsrShrinksPerSec", "shrinks")
        self.failed_updates = group.new_meter("FailedIsrUpdatesPerSec", "failedUpdates")


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """The settings and collaborators of a partition."""

    broker_id: int
    replica_lag_time_max_ms: int
    clock: Clock
    metadata_cache: MetadataCache
    log_manager: LogManager
    alter_partition_manager: AlterPartitionManager
    waiting: WaitingRequests
    isr_meters: IsrMeters
    broker_epoch: Callable[[], int]
    """Returns the broker epoch that the controller has assigned, -1 before that."""
