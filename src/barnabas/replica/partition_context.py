"""What all partitions of a broker share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.log_manager import LogManager
from barnabas.metadata.cache import MetadataCache
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.replica.alter_partition import AlterPartitionManager


class WaitingRequests(Protocol):
    """The requests that wait for something to happen to a partition."""

    def check_and_complete_all(self, key: Hashable) -> None:
        """Lets those that wait for this partition try again. No lock may be held."""
        ...

    @property
    def any_delayed_deletes(self) -> bool:
        """Whether anybody waits for records to be deleted on all replicas."""
        ...


class PartitionListener:
    """Wants to know what becomes of a partition on this broker.

    It is called by whoever causes the change, with locks held: it must be quick, and come back to nobody.
    """

    def on_high_watermark_updated(self, partition: TopicPartition, offset: int) -> None: ...

    def on_failed(self, partition: TopicPartition) -> None:
        """Its log directory is offline. Nothing more will be heard."""

    def on_deleted(self, partition: TopicPartition) -> None:
        """This broker has no replica of it any more. Nothing more will be heard."""


class IsrMeters:
    """How often in-sync replicas change."""

    def __init__(self, registry: MetricsRegistry) -> None:
        group = KafkaMetricsGroup(registry, "kafka.server", "ReplicaManager")
        self.expands = group.new_meter("IsrExpandsPerSec", "expands")
        self.shrinks = group.new_meter("IsrShrinksPerSec", "shrinks")
        self.failed_updates = group.new_meter("FailedIsrUpdatesPerSec", "failedUpdates")


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """The surroundings of a partition."""

    broker_id: int
    replica_lag_time_max_ms: int
    clock: Clock
    metadata_cache: MetadataCache
    log_manager: LogManager
    alter_partition_manager: AlterPartitionManager
    waiting: WaitingRequests
    isr_meters: IsrMeters
    broker_epoch: Callable[[], int]
    """The epoch that the controller has given this broker, -1 before it has."""
